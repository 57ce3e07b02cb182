"""Buildings as public knowledge: footprints with heights, or a model of the surface.

What is public costs no privacy: a server may start from it and be drawn to it
(`train(..., buildings=heights(...))`).
"""

from pathlib import Path
from typing import Any

from veilmap._util import files
from veilmap._util.arrays import Floats
from veilmap.errors import DataError
from veilmap.geometry.grid import Grid
from veilmap.scenes.buildings.footprints import Footprints, read_footprints
from veilmap.scenes.buildings.prism import Building, heights_of
from veilmap.scenes.buildings.surface import read_surface

__all__ = ["Building", "Footprints", "heights", "heights_of", "read_footprints", "read_surface"]

_RASTERS = (".tif", ".tiff")
_SHAPES = (".geojson", ".json", ".gpkg")


def heights(path: str | Path, grid: Grid, **options: Any) -> Floats:
    """Height of what stands in every cell, (rows, columns), in metres above ground.

    By the file's ending: a surface model (.tif; options of `read_surface`) or footprints
    (.geojson, .gpkg; options of `read_footprints`).
    """
    path = files.existing(path)
    if path.suffix.lower() in _RASTERS:
        return read_surface(path, grid, **options)
    if path.suffix.lower() in _SHAPES:
        return heights_of(read_footprints(path, grid.crs, **options).buildings, grid)
    raise DataError(
        f"{path}: buildings come as {', '.join(_SHAPES)} (footprints) or .tif (a surface model)"
    )
