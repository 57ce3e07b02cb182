"""Contour lines as GeoJSON (RFC 7946)."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from veilmap._util import checks, files
from veilmap._util.arrays import Floats
from veilmap.errors import ConfigurationError
from veilmap.export.formats import Written
from veilmap.geometry.coordinates import to_longitude_latitude
from veilmap.layers import Layer

_LOCAL = "coordinates are local metres (x east, y north), not longitude and latitude"

# About a millimetre, in degrees and in metres.
_DEGREE_DIGITS, _METRE_DIGITS = 8, 3

_MOST_LEVELS = 12


def write(layer: Layer, path: Path, levels: Sequence[float] | None = None) -> Written:
    """Write the lines where the layer crosses each level.

    RFC 7946 knows only longitude and latitude; a map without a coordinate system keeps its
    metres, and the file says so.
    """
    lines = contour_lines(layer, round_levels(layer.values) if levels is None else levels)
    local = {} if layer.grid.crs else {"note": _LOCAL}
    about = {"unit": layer.unit, "quantity": layer.long_name, **local}
    features = []
    for level, found in lines.items():
        if found:
            placed = [_placed(layer.grid.crs, line) for line in found]
            geometry = {"type": "MultiLineString", "coordinates": placed}
            properties = {"level": level, **about}
            features.append({"type": "Feature", "properties": properties, "geometry": geometry})
    content = {"type": "FeatureCollection", **local, "features": features}
    files.write_json(content, path, indent=None, sealed=True)
    return Written((path,), (*local.values(), *_levels_without_lines(layer, lines)))


def contour_lines(layer: Layer, levels: Sequence[float]) -> dict[float, list[Floats]]:
    """For each level its lines, (n, 2) each, in the grid's metres.

    Lines run between the centres of cells, with values in between taken as linear.
    """
    from contourpy import LineType, contour_generator

    grid = layer.grid
    if layer.categories:
        raise ConfigurationError(f"{layer.name} has numbers of things, which have no contour lines")
    if min(grid.shape) < 2:
        raise ConfigurationError(f"contour lines need 2 × 2 cells or more, not {grid.shape}")
    # Metres from the corner: coordinates of a country would cost digits.
    x, y = grid.x - grid.origin[0], grid.y - grid.origin[1]
    values = np.ma.masked_invalid(layer.values)
    generator = contour_generator(x, y, values, line_type=LineType.Separate)
    return {
        level: [np.asarray(line) + grid.origin for line in generator.lines(level)]
        for level in (checks.number("each level", level) for level in levels)
    }


def round_levels(values: Floats) -> list[float]:
    """At most a dozen round numbers strictly between the least and the greatest value."""
    known = values[np.isfinite(values)]
    if known.size == 0 or known.min() == known.max():
        return []
    low, high = float(known.min()), float(known.max())
    rough = (high - low) / _MOST_LEVELS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(size * power for size in (1, 2, 5, 10) if size * power >= rough)
    first, last = math.floor(low / step) + 1, math.ceil(high / step) - 1
    digits = max(0, 1 - math.floor(math.log10(step)))
    return [round(number * step, digits) for number in range(first, last + 1)]


def _placed(crs: str | None, line: Floats) -> list[Any]:
    placed = to_longitude_latitude(crs, line) if crs else line
    return placed.round(_DEGREE_DIGITS if crs else _METRE_DIGITS).tolist()


def _levels_without_lines(layer: Layer, lines: dict[float, Any]) -> list[str]:
    empty = [f"{level:g}" for level, found in lines.items() if not found]
    if lines and not empty:
        return []
    known = layer.values[np.isfinite(layer.values)]
    if known.size == 0:
        return ["no line at any level: no cell has a value"]
    span = f"{known.min():g} to {known.max():g} {layer.unit}"
    return [f"no line at {', '.join(empty) or 'any level'}: values run from {span}"]
