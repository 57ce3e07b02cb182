"""Heights above ground out of surface models."""

import math
from pathlib import Path

import numpy as np

from veilmap._util import checks, files
from veilmap._util.arrays import Floats
from veilmap.data import geo_files
from veilmap.data.table_files import unreadable_as
from veilmap.errors import DataError
from veilmap.geometry.grid import Grid

# Open ground is in every city; where nearly all is higher, heights are above the sea.
_LOWEST_SHARE = 5
_HIGH_GROUND = 30.0


def read_surface(
    path: str | Path,
    grid: Grid,
    *,
    ground: str | Path | float | None = None,
    outside: float | None = None,
) -> Floats:
    """The highest surface in every cell, (rows, columns), in metres above ground.

    Parameters
    ----------
    path : path
        GeoTIFF of a surface model: metres in its first band.
    grid : Grid
    ground : path or float, optional
        A terrain model, or the ground's height, to take off; without it the surface must be
        given above ground.
    outside : float, optional
        Height of cells that the file does not cover; without it they are refused.
    """
    path = files.existing(path)
    heights = _on_grid(path, grid, "max")
    if ground is not None:
        heights = heights - _ground(ground, grid)
    missing = np.isnan(heights)
    if missing.any() and outside is None:
        raise DataError(
            f"{path} covers {1 - missing.mean():.0%} of the map's cells; take a smaller map, or say"
            " how high the others are (outside=0)"
        )
    if missing.all():
        raise DataError(f"{path} does not lie on the map at all")
    lowest = float(np.nanpercentile(heights, _LOWEST_SHARE))
    if ground is None and lowest > _HIGH_GROUND:
        raise DataError(
            f"{path}: even the lowest cells are {lowest:.0f} m high, so these are heights above the"
            " sea; give the ground's height or a terrain model (ground=…)"
        )
    filled = np.where(missing, math.nan if outside is None else outside, heights)
    return np.maximum(filled, 0.0)  # a little below ground is ground


def _ground(ground: str | Path | float, grid: Grid) -> Floats | float:
    """Heights of a terrain model, or the one height that a number or its text names."""
    try:
        height = float(str(ground))
    except ValueError:
        return _on_grid(files.existing(str(ground)), grid, "average")
    return checks.number("ground", height)


def _on_grid(path: Path, grid: Grid, how: str) -> Floats:
    """A raster's first band on the cells of a grid, southern row first; NaN where it has none."""
    values, transform, crs = geo_files.read_raster(path)
    if (crs is None) != (grid.crs is None):
        raise DataError(
            f"{path} is in {crs or 'no coordinate system'}, the map in {grid.crs or 'none'}"
        )
    import rasterio
    from rasterio.warp import Resampling, reproject

    result = np.full(grid.shape, np.nan)
    # Without a system both are planes in metres: any one will do to compare them.
    systems = (crs, grid.crs) if grid.crs else ("EPSG:32633", "EPSG:32633")
    with unreadable_as(path, "a GeoTIFF"):
        reproject(
            values, result, src_transform=transform, src_crs=systems[0], src_nodata=np.nan,
            dst_transform=rasterio.Affine(*grid.north_up), dst_crs=systems[1],
            dst_nodata=np.nan, resampling=Resampling[how],
        )  # fmt: skip
    return result[::-1]
