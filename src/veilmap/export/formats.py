"""One function a format; each writes a layer, and says what it wrote. The only rasterio here."""

import csv
import math
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

import numpy as np

from veilmap._util import files, seals
from veilmap._util.arrays import Floats
from veilmap._util.extras import require
from veilmap.errors import DataError, VeilmapError
from veilmap.geometry.coordinates import cf_attributes, checked, from_latitude_longitude
from veilmap.layers import Layer

_TILE = 256  # of a GeoTIFF, in pixels
_MAPPING = "crs"  # the netCDF variable that carries the coordinate system
_METRES, _DEGREES = ("x", "y"), ("latitude", "longitude")


class Written(NamedTuple):
    """What an export gave: the file that was asked for, then those that belong to it.

    ``notes`` are what a reader should know, such as points that have no value.
    """

    files: tuple[Path, ...]
    notes: tuple[str, ...] = ()


def geotiff(layer: Layer, path: Path) -> Written:
    """Write a tiled, compressed GeoTIFF, with overviews if it is larger than one tile.

    GDAL makes it in memory: on a full disk it would not say that it could not write.
    """
    require("rasterio", "GeoTIFF")
    import rasterio
    from rasterio.crs import CRS
    from rasterio.enums import Resampling

    (rows, columns), crs = layer.grid.shape, layer.grid.crs
    profile = {
        "driver": "GTiff", "height": rows, "width": columns, "count": 1, "dtype": "float32",
        "nodata": np.nan, "crs": crs and CRS.from_user_input(checked(crs)),
        "transform": rasterio.Affine(*layer.grid.north_up),
        "tiled": True, "blockxsize": _TILE, "blockysize": _TILE,
        "compress": "deflate", "predictor": 3,
    }  # fmt: skip
    resampling = Resampling.nearest if layer.categories else Resampling.average
    tags = {name: _text(value) for name, value in layer.details.items()}
    with rasterio.MemoryFile() as memory:
        with memory.open(**profile) as raster:
            raster.write(np.flipud(layer.values).astype(np.float32), 1)  # rasters start north
            raster.set_band_description(1, layer.long_name)
            raster.units = (layer.unit,)
            raster.update_tags(**tags, **{seals.NAME: seals.BLANK})
        # Halvings until the whole fits into one tile.
        halvings = max(0, math.ceil(math.log2(max(rows, columns) / _TILE)))
        if halvings:
            with rasterio.open(memory.name, "r+") as raster:
                raster.build_overviews([2**n for n in range(1, halvings + 1)], resampling)
        files.write_bytes(seals.sealed(memory.getbuffer()), path)
    return Written((path,))


def _text(value: object) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return " ".join(f"{part:.12g}" for part in value)
    return str(value)


def netcdf(layer: Layer, path: Path) -> Written:
    """Write one variable after the CF conventions: coordinates, unit and coordinate system."""
    import xarray

    grid = layer.grid
    attributes = {"units": layer.unit, "long_name": layer.long_name, **layer.details}
    variables = {}
    if grid.crs is not None:
        attributes["grid_mapping"] = _MAPPING
        variables[_MAPPING] = ((), np.int32(0), cf_attributes(grid.crs))
    coordinates = {}
    for axis, centres in (("y", grid.y), ("x", grid.x)):
        about = {"units": "m", "axis": axis.upper()}
        about["standard_name"] = f"projection_{axis}_coordinate"
        coordinates[axis] = (axis, centres, about)
    dataset = xarray.Dataset(
        data_vars={layer.name: (("y", "x"), np.array(layer.values), attributes), **variables},
        coords=coordinates,
        attrs={
            "Conventions": "CF-1.8",
            "title": layer.long_name,
            "cell_size": grid.cell_size,
            seals.NAME: seals.BLANK,
        },
    )
    # CF wants coordinates whole: no fill value there.
    fill = {"x": None, "y": None, layer.name: np.nan}
    encoding = {name: {"_FillValue": value} for name, value in fill.items()}
    files.write_bytes(seals.sealed(dataset.to_netcdf(engine="scipy", encoding=encoding)), path)
    return Written((path,))


def picture(layer: Layer, path: Path) -> Written:
    """Write NAME.png, NAME.pgw and NAME-legend.png, and what tells GDAL the coordinate system."""
    from veilmap.figures.rasters import save_layer_image, save_layer_legend

    grid = layer.grid
    # A world file: a pixel's size and turn, and where the centre of the north-western one is.
    place = (grid.cell_size, 0.0, 0.0, -grid.cell_size, grid.x[0], grid.y[-1])
    texts = {path.with_suffix(".pgw"): "".join(f"{float(number)!r}\n" for number in place)}
    if grid.crs is not None:
        system = f"<PAMDataset>\n  <SRS>{escape(grid.crs)}</SRS>\n</PAMDataset>\n"
        texts[path.with_name(f"{path.name}.aux.xml")] = system
    legend = path.with_name(f"{path.stem}-legend.png")
    with ExitStack() as all_or_none:
        # All are written before the first takes its place.
        image, key, *others = (
            all_or_none.enter_context(files.replacing(file)) for file in (path, legend, *texts)
        )
        save_layer_image(layer, image)
        save_layer_legend(layer, key)
        for temporary, text in zip(others, texts.values(), strict=True):
            temporary.write_text(text, encoding="utf-8")
    return Written((path, legend, *texts))


def points_in(path: Path, crs: str | None) -> tuple[dict[str, Floats], Floats]:
    """The points of a CSV file with x and y, or latitude and longitude, and perhaps z.

    The columns that named them, and the points in the map's metres, (n, 2), or (n, 3) with z.
    """
    from veilmap.data import table_files

    columns = table_files.read(
        files.existing(path), "csv", required=(), optional=(*_METRES, *_DEGREES, "z")
    )
    for name, values in columns.items():
        bad = np.flatnonzero(~np.isfinite(values))
        if len(bad):
            raise DataError(f"{path}, line {bad[0] + 2}: {name} is missing or not finite")
    names = next((pair for pair in (_METRES, _DEGREES) if columns.keys() >= set(pair)), None)
    if names is None:
        raise DataError(f"{path} needs the columns x and y, or latitude and longitude")
    xy = np.column_stack([columns[name] for name in names])
    if names == _DEGREES:
        try:
            xy = from_latitude_longitude(crs, xy)
        except VeilmapError as error:
            raise DataError(f"{path}: {error}") from None
    given = {name: columns[name] for name in (*names, "z") if name in columns}
    return given, np.column_stack([xy, columns["z"]]) if "z" in columns else xy


def values_at_points(layer: Layer, path: Path, points: Path) -> Written:
    """Write every point with its value; one off the map has none, and is counted."""
    columns, xyz = points_in(points, layer.grid.crs)
    values = layer.at(xyz)
    if layer.altitude is not None and "z" not in columns:
        columns["z"] = np.full(len(values), layer.altitude)
    unit = "" if layer.unit == "1" else f"_{layer.unit.lower()}"
    columns[f"{layer.name}{unit}"] = values
    with (
        files.replacing(path) as temporary,
        temporary.open("w", newline="", encoding="utf-8") as file,
    ):
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(
            ["" if np.isnan(value) else repr(float(value)) for value in row]
            for row in np.column_stack(list(columns.values()))
        )
    missing = int(np.isnan(values).sum())
    note = f"{missing} of {len(values)} points are off the map and have no value"
    return Written((path,), (note,) if missing else ())
