"""Values at given points, as CSV."""

import csv
from pathlib import Path

import numpy as np

from veilmap._util import files
from veilmap._util.arrays import Floats
from veilmap.errors import DataError, VeilmapError
from veilmap.export.written import Written
from veilmap.geometry.coordinates import from_latitude_longitude
from veilmap.layers import Layer

_METRES, _DEGREES = ("x", "y"), ("latitude", "longitude")


def read(path: Path, crs: str | None) -> tuple[dict[str, Floats], Floats]:
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


def write(layer: Layer, path: Path, points: Path) -> Written:
    """Write every point with its value; one off the map has none, and is counted."""
    columns, xyz = read(points, layer.grid.crs)
    values = layer.at(xyz)
    if layer.altitude is not None and "z" not in columns:
        columns["z"] = np.full(len(values), layer.altitude)
    unit = "" if layer.unit == "1" else f"_{layer.unit.lower()}"
    columns[f"{layer.name}{unit}"] = values
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
