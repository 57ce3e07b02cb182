"""GeoTIFF; the only module with rasterio."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from veilmap._util import files
from veilmap._util.extras import require
from veilmap.export.written import Written
from veilmap.geometry import coordinates
from veilmap.layers import Layer

_TILE = 256


def write(layer: Layer, path: Path) -> Written:
    """Write a tiled, compressed GeoTIFF, with overviews if it is larger than one tile."""
    require("rasterio", "GeoTIFF")
    import rasterio
    from rasterio.crs import CRS
    from rasterio.enums import Resampling

    (rows, columns), crs = layer.grid.shape, layer.grid.crs
    profile = {
        "driver": "GTiff", "height": rows, "width": columns, "count": 1, "dtype": "float32",
        "nodata": np.nan, "crs": crs and CRS.from_user_input(coordinates.checked(crs)),
        "transform": rasterio.Affine(*layer.grid.north_up),
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
        # Halvings until the whole fits into one tile.
        halvings = max(0, math.ceil(math.log2(max(rows, columns) / _TILE)))
        if halvings:
            with rasterio.open(temporary, "r+") as raster:
                raster.build_overviews([2**n for n in range(1, halvings + 1)], resampling)
    return Written((path,))


def _text(value: object) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return " ".join(f"{part:.12g}" for part in value)
    return str(value)
