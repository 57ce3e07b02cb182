"""Layers as files that other tools open.

.tif      GeoTIFF, for QGIS and everything built on GDAL
.nc       netCDF after the CF conventions, for xarray
.png      a picture with one pixel a cell, a world file that places it, and its legend
.geojson  contour lines
.csv      values at given points

Plug-ins add others.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from veilmap._util import files
from veilmap._util.extras import require
from veilmap._util.plugins import Registry
from veilmap.errors import ConfigurationError
from veilmap.export import contours, formats
from veilmap.export.formats import Written
from veilmap.layers import Layer


def _checked(name: str, writer: Any) -> Callable[..., Written]:
    """A plug-in's function of a layer and a path, which takes its place once it is whole."""
    if not callable(writer):
        raise ConfigurationError("it is no function of a layer and a path")

    def write_whole(layer: Layer, path: Path) -> Written:
        with files.replacing(path) as temporary:
            writer(layer, temporary)
        return Written((path,))

    return write_whole


_WRITERS: Registry[Callable[..., Written]] = Registry(
    "veilmap.exporters",
    {
        "tif": formats.geotiff,
        "nc": formats.netcdf,
        "png": formats.picture,
        "geojson": contours.write,
        "csv": formats.values_at_points,
    },
    _checked,
)

__all__ = ["Written", "check", "endings", "write"]


def endings() -> tuple[str, ...]:
    """The endings of files that layers are written as; those of plug-ins come last."""
    return tuple(f".{name}" for name in _WRITERS.names)


def write(
    layer: Layer,
    path: str | Path,
    *,
    levels: Sequence[float] | None = None,
    points: str | Path | None = None,
) -> Written:
    """Write a layer; the file's ending, one of `endings`, says as what.

    Parameters
    ----------
    levels : numbers, optional
        Where contour lines lie (.geojson), in the layer's unit; by default round ones.
    points : path, optional
        A CSV file of the places whose values are wanted (.csv), with the columns x and y, or
        latitude and longitude, and perhaps z in metres.
    """
    ending = check(path, layer.grid.crs, levels=levels, points=points)
    given: dict[str, Any] = {} if levels is None else {"levels": levels}
    given |= {} if points is None else {"points": Path(points)}
    return _WRITERS[ending.removeprefix(".")](layer, Path(path), **given)


def check(
    path: str | Path,
    crs: str | None = None,
    *,
    levels: Sequence[float] | None = None,
    points: str | Path | None = None,
) -> str:
    """Refuse what `write` could not do, before any work is done; the file's ending."""
    path = Path(path)
    ending = path.suffix.lower()
    if ending not in endings():
        raise ConfigurationError(f"{path}: layers are written as {', '.join(endings())}")
    _ = _WRITERS[ending.removeprefix(".")]  # a plug-in that cannot be used is refused
    if path.is_dir():
        raise ConfigurationError(f"{path} is a folder; name a file to write")
    if levels is not None and ending != ".geojson":
        raise ConfigurationError(
            f"{path}: levels are for contour lines, which are written as .geojson"
        )
    if points is not None and ending != ".csv":
        raise ConfigurationError(f"{path}: values at points are written as .csv")
    if ending == ".tif":
        require("rasterio", "GeoTIFF")
    if crs is not None and ending in (".nc", ".geojson"):
        require("pyproj", f"a map in {crs}")
    if ending == ".csv":
        if points is None:
            raise ConfigurationError(
                f"{path}: a .csv holds values at points; name a file of them (points)"
            )
        if Path(points).absolute() == path.absolute():
            raise ConfigurationError(f"{path} is the file of points; name another one to write")
        formats.points_in(Path(points), crs)
    return ending
