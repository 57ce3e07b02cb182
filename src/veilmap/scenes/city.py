"""Random building footprints that do not overlap."""

import numpy as np
from shapely import Polygon, STRtree, affinity

from veilmap._util.arrays import Floats
from veilmap.errors import ConfigurationError

# Streets: no two buildings nearer than this share of the area's side.
_GAP = 0.01
_TRIES = 2000
# Relative footprint areas are spread by this factor either way.
_SPREAD = 2.0


def draw_buildings(
    rng: np.random.Generator, side: float, *, count: int, density: float
) -> list[Polygon]:
    """``count`` footprints inside a square of ``side`` metres that cover ``density`` of it."""
    if density >= 1:
        raise ConfigurationError(f"density is a share of the ground below 1, not {density:g}")
    if count == 0 or density == 0:
        return []
    areas = rng.uniform(1 / _SPREAD, _SPREAD, count)
    areas *= density * side**2 / areas.sum()
    kinds = [_round, _square, _irregular]
    placed: list[Polygon] = []
    for number, area in enumerate(np.sort(areas)[::-1]):  # large ones first: they fit worst
        shape = kinds[number % len(kinds)](rng)
        shape = affinity.scale(shape, *[np.sqrt(area / shape.area)] * 2, origin=(0, 0))
        placed.append(_place(rng, shape, side, placed))
    return placed


def _place(rng: np.random.Generator, shape: Polygon, side: float, placed: list[Polygon]) -> Polygon:
    """``shape`` moved and turned to somewhere free."""
    others = STRtree(placed)
    for _ in range(_TRIES):
        turned = affinity.rotate(shape, rng.uniform(0, 360), origin=(0, 0))
        west, south, east, north = turned.bounds
        if max(east - west, north - south) >= side:
            continue
        moved = affinity.translate(
            turned, rng.uniform(-west, side - east), rng.uniform(-south, side - north)
        )
        if len(others.query(moved, predicate="dwithin", distance=_GAP * side)) == 0:
            return moved
    raise ConfigurationError(
        f"no room for building {len(placed) + 1}: ask for a lower density or fewer buildings"
    )


def _round(rng: np.random.Generator) -> Polygon:
    return _around(np.linspace(0, 2 * np.pi, 64, endpoint=False), np.ones(64))


def _square(rng: np.random.Generator) -> Polygon:
    longer = rng.uniform(1.0, 1.6)
    return Polygon([(-longer, -1), (longer, -1), (longer, 1), (-longer, 1)])


def _irregular(rng: np.random.Generator) -> Polygon:
    """Five to nine corners at random distances: often not convex."""
    corners = rng.integers(5, 10)
    angles = (np.arange(corners) + rng.uniform(-0.3, 0.3, corners)) * 2 * np.pi / corners
    return _around(angles, rng.uniform(0.55, 1.3, corners))


def _around(angles: Floats, radii: Floats) -> Polygon:
    return Polygon(np.column_stack([radii * np.cos(angles), radii * np.sin(angles)]))
