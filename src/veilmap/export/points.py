"""Values at given points, as CSV."""

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from veilmap._util import files
from veilmap._util.arrays import Floats
from veilmap.errors import DataError, VeilmapError
from veilmap.export.written import Written
from veilmap.geometry.coordinates import from_latitude_longitude
from veilmap.layers import Layer

_METRES, _DEGREES = ("x", "y"), ("latitude", "longitude")


@dataclass(frozen=True)
class Points:
    """Places from a file.

    Attributes
    ----------
    given : dict
        The columns that named them.
    xyz : (n, 2) or (n, 3) float
        In the map's metres, with z if it was given.
    """

    given: dict[str, Floats]
    xyz: Floats


def read(path: Path, crs: str | None) -> Points:
    """The points of a CSV file with x and y, or latitude and longitude, and perhaps z."""
    from veilmap.data import table_files

    columns = table_files.read(
        files.existing(path), "csv", required=(), optional=(*_METRES, *_DEGREES, "z")
    )
    for name, values in columns.items():
        bad = np.flatnonzero(~np.isfinite(values))
        if len(bad):
            raise DataError(f"{path}, line {bad[0] + 2}: {name} is missing or not finite")
    if columns.keys() >= set(_METRES):
        names, xy = _METRES, np.column_stack([columns[name] for name in _METRES])
    elif columns.keys() >= set(_DEGREES):
        names, degrees = _DEGREES, np.column_stack([columns[name] for name in _DEGREES])
        try:
            xy = from_latitude_longitude(crs, degrees)
        except VeilmapError as error:
            raise DataError(f"{path}: {error}") from None
    else:
        raise DataError(f"{path} needs the columns x and y, or latitude and longitude")
    given = {name: columns[name] for name in names}
    if "z" not in columns:
        return Points(given, xy)
    return Points(given | {"z": columns["z"]}, np.column_stack([xy, columns["z"]]))


def write(layer: Layer, path: Path, points: Path) -> Written:
    """Write every point with its value; one off the map has none, and is counted."""
    places = read(points, layer.grid.crs)
    values = layer.at(places.xyz)
    columns = dict(places.given)
    if layer.altitude is not None and "z" not in columns:
        columns["z"] = np.full(len(values), layer.altitude)
    columns[column_name(layer)] = values
    with files.replacing(path) as temporary, temporary.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(
            ["" if np.isnan(value) else repr(float(value)) for value in row]
            for row in np.column_stack(list(columns.values()))
        )
    missing = int(np.isnan(values).sum())
    note = f"{missing} of {len(values)} points are off the map and have no value"
    return Written((path,), (note,) if missing else ())


def column_name(layer: Layer) -> str:
    """The layer's name with its unit, such as gain_db."""
    return layer.name if layer.unit == "1" else f"{layer.name}_{layer.unit.lower()}"
