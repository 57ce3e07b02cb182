"""A building, and what stands in the cells of a grid."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from veilmap._util import checks
from veilmap._util.arrays import Floats
from veilmap.errors import DataError
from veilmap.geometry.grid import Grid

if TYPE_CHECKING:
    from shapely import Polygon


@dataclass(frozen=True)
class Building:
    """A prism: its footprint (a shapely polygon, metres) and its height in metres."""

    footprint: "Polygon"
    height: float

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "height", checks.number("a building's height", self.height, above=0)
        )
        if self.footprint.is_empty or not self.footprint.is_valid:
            raise DataError("a building's footprint must be a valid, non-empty polygon")


def heights_of(buildings: Sequence[Building], grid: Grid) -> Floats:
    """Height of the building over each cell's centre, (rows, columns); 0 for open ground."""
    import shapely

    heights = np.zeros(grid.shape)
    for building in buildings:
        west, south, east, north = building.footprint.bounds
        # Only cells in the footprint's box: there may be many times more.
        rows = slice(*np.searchsorted(grid.y, (south, np.nextafter(north, np.inf))))
        columns = slice(*np.searchsorted(grid.x, (west, np.nextafter(east, np.inf))))
        x, y = np.meshgrid(grid.x[columns], grid.y[rows])
        over = shapely.intersects_xy(building.footprint, x, y)
        own = heights[rows, columns]
        own[over] = np.maximum(own[over], building.height)
    return heights


def without_overlaps(buildings: Sequence[Building]) -> list[Building]:
    """The same ground with the same heights, but no place under two buildings."""
    import shapely

    ordered = sorted(buildings, key=lambda building: -building.height)
    shapes = np.array([building.footprint for building in ordered], dtype=object)
    lower, higher = shapely.STRtree(shapes).query(shapes, predicate="intersects")
    result = []
    for number, building in enumerate(ordered):
        above = higher[(lower == number) & (higher < number)]
        left = building.footprint
        if len(above):
            left = shapely.difference(left, shapely.union_all(shapes[above]))
        result += [Building(part, building.height) for part in polygons_of(left)]
    return result


def polygons_of(shape: "Polygon") -> list["Polygon"]:
    """The polygons that a shape consists of, slivers left out."""
    import shapely

    parts = shapely.get_parts(np.asarray([shape]))
    parts = shapely.get_parts(parts)  # a collection may hold several polygons
    return [part for part in parts if part.geom_type == "Polygon" and part.area > _SLIVER]


_SLIVER = 1e-6  # m²
