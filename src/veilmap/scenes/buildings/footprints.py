"""Footprints with heights out of GeoJSON and GeoPackage files."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from veilmap._util import checks, files
from veilmap._util.arrays import Array, Floats
from veilmap.data import geo_files
from veilmap.errors import DataError
from veilmap.geometry import coordinates
from veilmap.scenes.buildings.prism import Building, polygons_of

_NUMBER = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(?:m|metres?|meters?)?\s*")


@dataclass(frozen=True)
class Footprints:
    """Buildings of a file.

    They are in metres of ``crs``; ``left_out`` says how many are not among them, and why.
    """

    buildings: tuple[Building, ...] = field(repr=False)
    crs: str | None
    left_out: Mapping[str, int] = field(default_factory=dict)


def read_footprints(
    path: str | Path,
    crs: str | None = None,
    *,
    height: str = "height",
    levels: str = "levels",
    storey: float = 3.0,
    default_height: float | None = None,
    layer: str | None = None,
) -> Footprints:
    """Buildings with a height, or with a number of levels.

    Parameters
    ----------
    path : path
        .geojson or .gpkg.
    crs : str, optional
        The projected system wanted; for files in degrees by default their UTM zone.
    height, levels : str
        Names of the attributes; OpenStreetMap's "building:levels" is found too.
    storey : float
        Metres for a level.
    default_height : float, optional
        For buildings with neither; without it they are left out and counted.
    layer : str, optional
        Of a file with several.
    """
    path = files.existing(path)
    shapes, columns, found = _read(path, layer)
    tall = _heights(columns, len(shapes), height, levels, checks.number("storey", storey, above=0))
    unknown = ~(tall > 0)
    if default_height is not None:
        tall[unknown] = checks.number("default_height", default_height, above=0)
    if shapes.size and unknown.all() and default_height is None:
        raise DataError(
            f"{path}: no building has a {height} or {levels}; name the attribute, or give a default"
            f" height (attributes: {', '.join(columns) or 'none'})"
        )
    shapes, crs = _placed(path, shapes, found, crs)
    left_out: Counter[str] = Counter()
    buildings: list[Building] = []
    for shape, metres in zip(shapes, tall.tolist(), strict=True):
        reason = _problem(shape, metres)
        if reason:
            left_out[reason] += 1
        else:
            buildings += [Building(part, metres) for part in polygons_of(shape)]
    if not buildings:
        said = "; ".join(f"{count} {reason}" for reason, count in left_out.items())
        raise DataError(f"{path} holds no building that can be used: {said or 'it is empty'}")
    return Footprints(tuple(buildings), crs, dict(left_out))


def _read(path: Path, layer: str | None) -> tuple[Array, dict[str, Array], str | None]:
    """Shapes, attributes and the coordinate system of a file."""
    import shapely

    # Of several layers the first, as GDAL has it.
    found = geo_files.read_shapes(path, layer or geo_files.layers_of(path)[0])
    table, name = found.columns, found.geometry
    if name not in table.column_names:
        raise DataError(f"{path} has no shapes")
    shapes = shapely.from_wkb(table.column(name).to_numpy(), on_invalid="ignore")
    others = [column for column in table.column_names if column != name]
    return shapes, {column: table.column(column).to_numpy() for column in others}, found.crs


def _heights(
    columns: Mapping[str, Array], count: int, height: str, levels: str, storey: float
) -> Floats:
    """Metres of every building; NaN where nothing says."""
    metres = np.full(count, np.nan)
    for name, factor in ((height, 1.0), (levels, storey), ("building:levels", storey)):
        if name in columns:
            given = factor * np.array([_number(value) for value in columns[name].tolist()])
            metres = np.where(np.isnan(metres), given, metres)
    return metres


def _number(value: Any) -> float:
    """A number, also out of texts such as "12.5 m"; NaN if it is none."""
    if isinstance(value, int | float):
        return float(value)
    found = _NUMBER.fullmatch(value) if isinstance(value, str) else None
    return float(found[1]) if found else np.nan


def _placed(
    path: Path, shapes: Array, source: str | None, wanted: str | None
) -> tuple[Array, str | None]:
    """Shapes in metres, and the system they are in."""
    import shapely

    if source is None:
        if wanted is not None:
            raise DataError(f"{path} names no coordinate system, the map is in {wanted}")
        return shapes, None
    if wanted is None and coordinates.in_degrees(source):
        bounds = shapely.total_bounds(shapes)
        wanted = coordinates.utm_zone(bounds[[0, 2]], bounds[[1, 3]])
    target = coordinates.checked(wanted or source)

    def moved(points: Floats) -> Floats:
        x, y = points.T
        return np.stack(coordinates.converted(x, y, source, target), axis=-1)

    return shapely.transform(shapes, moved), target


def _problem(shape: Any, metres: float) -> str:
    """Why a building cannot be used, or nothing."""
    if shape is None or shape.is_empty:
        return "has no shape"
    if shape.geom_type not in ("Polygon", "MultiPolygon"):
        return f"is a {shape.geom_type}, not a footprint"
    if not shape.is_valid:
        return "has a footprint that crosses itself"
    return "" if metres > 0 else "has no height"
