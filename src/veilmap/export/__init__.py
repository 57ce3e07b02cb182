"""Layers as files that other tools open: one module a format.

.tif      GeoTIFF, for QGIS and everything built on GDAL
.nc       netCDF after the CF conventions, for xarray
.png      a picture with a world file, and its legend
.geojson  contour lines
.csv      values at given points
"""

from collections.abc import Sequence
from pathlib import Path

from veilmap._util.extras import require
from veilmap.errors import ConfigurationError
from veilmap.export.written import Written
from veilmap.layers import Layer

ENDINGS = (".tif", ".nc", ".png", ".geojson", ".csv")

__all__ = ["ENDINGS", "Written", "check", "write"]


def write(
    layer: Layer,
    path: str | Path,
    *,
    levels: Sequence[float] | None = None,
    points: str | Path | None = None,
) -> Written:
    """Write a layer; the file's ending says as what.

    Parameters
    ----------
    layer : Layer
    path : path
        Ends in one of `ENDINGS`.
    levels : numbers, optional
        Where contour lines lie (.geojson), in the layer's unit; by default round ones.
    points : path, optional
        A CSV file of the places whose values are wanted (.csv), with the columns x and y, or
        latitude and longitude, and perhaps z in metres.

    Returns
    -------
    Written
        The files, and what their reader should know.
    """
    path = Path(path)
    ending = check(path, layer.grid.crs, levels=levels, points=points)
    if ending == ".tif":
        from veilmap.export import geotiff

        return geotiff.write(layer, path)
    if ending == ".nc":
        from veilmap.export import netcdf

        return netcdf.write(layer, path)
    if ending == ".png":
        from veilmap.export import picture

        return picture.write(layer, path)
    if ending == ".geojson":
        from veilmap.export import contours

        return contours.write(layer, path, levels)
    from veilmap.export import points as at_points

    assert points is not None  # checked above
    return at_points.write(layer, path, Path(points))


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
    if ending not in ENDINGS:
        raise ConfigurationError(f"{path}: layers are written as {', '.join(ENDINGS)}")
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
        _check_points(path, crs, points)
    return ending


def _check_points(path: Path, crs: str | None, points: str | Path | None) -> None:
    from veilmap.export.points import read

    if points is None:
        raise ConfigurationError(
            f"{path}: a .csv holds values at points; name a file of them (points)"
        )
    if Path(points).absolute() == path.absolute():
        raise ConfigurationError(f"{path} is the file of points; name another one to write")
    read(Path(points), crs)
