"""What a server knows before any user speaks; it costs no privacy."""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from veilmap._util import checks, files, limits, reading
from veilmap._util.arrays import Array, Floats
from veilmap._util.ids import Id
from veilmap.data.antennas import Antennas
from veilmap.errors import DataError
from veilmap.model import offsets as no_offsets
from veilmap.model.offsets import Offsets

Stations = tuple[Floats, tuple[Id, ...]]
"""Base stations: where they are, (B, 3) in metres, and which, as `Measurements.stations`."""

NO_STATIONS: Stations = (np.zeros((0, 3)), ())

_COLUMNS = ["bs", "x", "y", "z"]
_ERROR = "error_m"  # a further column, where positions are estimates


@dataclass(frozen=True, eq=False)
class Public:
    """Public knowledge that a map can start from."""

    # Where base stations are, (B, 3), and which they are.
    stations: Floats = field(default_factory=lambda: np.zeros((0, 3)), repr=False)
    ids: tuple[Id, ...] = ()
    offsets: Offsets = no_offsets.NONE  # to be learned
    heights: Floats | None = field(default=None, repr=False)  # of buildings, 0 for open ground
    antennas: Antennas | None = field(default=None, repr=False)
    # Root mean square errors in metres of positions that are estimates, by id.
    station_errors: Mapping[str, float] = field(default_factory=dict, repr=False)


def checked_stations(stations: tuple[ArrayLike, Sequence[Id]]) -> Stations:
    """Base stations as somebody gave them, unless they are none."""
    try:
        places, ids = stations
    except (TypeError, ValueError):
        raise DataError("stations are given as (positions, ids)") from None
    xyz, names = checks.floats("stations", places), tuple(ids)
    if xyz.shape != (len(names), 3) or not np.isfinite(xyz).all():
        raise DataError(
            f"stations need finite x, y and z in metres for each of {len(names)} ids, not shape"
            f" {xyz.shape}"
        )
    return xyz, names


def write_stations(
    stations: Stations, path: Path, errors: Mapping[str, float] | None = None
) -> None:
    """Write base stations as CSV, with the errors of positions that are estimates."""
    places, ids = stations
    rows: list[list[Any]] = [[bs, *xyz] for bs, xyz in zip(ids, places.tolist(), strict=True)]
    header = [*_COLUMNS, *([_ERROR] if errors else [])]
    if errors:
        rows = [[*row, errors.get(str(row[0]), "")] for row in rows]
    with (
        files.replacing(path) as temporary,
        temporary.open("w", encoding="utf-8", newline="") as file,
    ):
        csv.writer(file, lineterminator="\n").writerows([header, *rows])


def read_stations(path: Path) -> tuple[Floats, tuple[str, ...]]:
    """Base stations out of a CSV file; several may share a mast."""
    return _read_stations(path)[:2]


def read_station_errors(path: Path) -> dict[str, float]:
    """The errors of positions that are estimates, in metres, by the base stations' ids."""
    _, ids, errors = _read_stations(path)
    return {bs: error for bs, error in zip(ids, errors, strict=True) if math.isfinite(error)}


def _read_stations(path: Path) -> tuple[Floats, tuple[str, ...], list[float]]:
    content = reading.read_bytes(path, limits.DESCRIPTION_BYTES)
    try:
        text = io.StringIO(content.decode(), newline="")
        header, *rows = csv.reader(text, strict=True)
        places = np.array([row[1:4] for row in rows], dtype=np.float64).reshape(len(rows), 3)
        errors = [float(row[4]) if row[4:] and row[4] else math.nan for row in rows]
        whole = all(len(row) == len(header) for row in rows)
    except (ValueError, csv.Error):
        header, places, errors, whole = [], np.zeros((0, 3)), [], False
    if header not in (_COLUMNS, [*_COLUMNS, _ERROR]) or not (whole and np.isfinite(places).all()):
        raise DataError(
            f"{path} is damaged or no list of base stations: it needs the columns"
            f" {','.join(_COLUMNS)}, places in metres, and perhaps {_ERROR}"
        )
    return places, tuple(row[0] for row in rows), errors


def seen_from(stations: Floats, ids: Sequence[Id], offsets: Offsets) -> tuple[Floats, Array | None]:
    """Where attackers look from, and the ids of the base stations there.

    Offsets are known by ids: where they were learned it is every base station, else every place
    with one, once and without ids.
    """
    if offsets.stations:
        return stations, np.array(ids)
    return np.unique(stations, axis=0), None


NOTHING = Public()
