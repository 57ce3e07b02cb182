"""GeoTIFF; the only module with rasterio."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from veilmap._util import files
from veilmap._util.extras import require
from veilmap.export.written import Written
from veilmap.geometry import coordinates
from veilmap.geometry.grid import Grid
from veilmap.layers import Layer

if TYPE_CHECKING:
    import rasterio

_TILE = 256


def write(layer: Layer, path: Path) -> Written:
    """Write a tiled, compressed GeoTIFF, with overviews if it is larger than one tile."""
    require("rasterio", "GeoTIFF")
    import rasterio
    from rasterio.enums import Resampling

    rows, columns = layer.grid.shape
    profile = {
        "driver": "GTiff", "height": rows, "width": columns, "count": 1, "dtype": "float32",
        "nodata": np.nan, "crs": _system(layer.grid.crs), "transform": _transform(layer.grid),
        "tiled": True, "blockxsize": _TILE, "blockysize": _TILE,
        "compress": "deflate", "predictor": 3,
    }  # fmt: skip
    resampling = Resampling.nearest if layer.categories else Resampling.average
    with files.replacing(path) as temporary:
        with rasterio.open(temporary, "w", **profile) as raster:
            raster.write(np.flipud(layer.values).astype(np.float32), 1)  # rasters start north
            raster.set_band_description(1, layer.long_name)
            raster.units = (layer.unit,)
            raster.update_tags(**{name: _text(value) for name, value in layer.details.items()})
        factors = _overviews(max(rows, columns))
        if factors:
            with rasterio.open(temporary, "r+") as raster:
                raster.build_overviews(factors, resampling)
    return Written((path,))


def _overviews(size: int) -> list[int]:
    """Halvings until the whole fits into one tile."""
    factors: list[int] = []
    while size > _TILE:
        size = -(-size // 2)
        factors.append(2 * factors[-1] if factors else 2)
    return factors


def _transform(grid: Grid) -> "rasterio.Affine":
    """From (column, row), counted from the north-western corner, to (x, y)."""
    from rasterio import Affine

    return Affine(*grid.north_up)


def _system(crs: str | None) -> "rasterio.crs.CRS | None":
    from rasterio.crs import CRS

    return None if crs is None else CRS.from_user_input(coordinates.checked(crs))


def _text(value: object) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return " ".join(f"{part:.12g}" for part in value)
    return str(value)
