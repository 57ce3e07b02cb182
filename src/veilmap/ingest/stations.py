"""Base stations from a file of their own."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from veilmap._util.arrays import Array, Bools, Floats, Ints
from veilmap._util.ids import in_order, places
from veilmap.data.antennas import impossible_widths
from veilmap.errors import ConfigurationError, DataError
from veilmap.ingest import columns, parsing, positions
from veilmap.ingest.parsing import Ids
from veilmap.ingest.positions import OFF_EARTH, Place
from veilmap.ingest.tables import BROKEN, RawTable, TableFile


@dataclass(frozen=True)
class StationList:
    """Base stations as their file has them."""

    bs: Array
    place: Place
    azimuth_deg: Floats | None
    beam_width_deg: Floats | None

    def numbers_of(self, wanted: Ids) -> Ints:
        """The number of each wanted base station in the list; −1 where it has none."""
        return places(wanted.distinct, in_order(self.bs.tolist()))[wanted.codes]


def listed_stations(file: TableFile, given: Mapping[str, str]) -> StationList:
    """The base stations of a file; nothing in it may be missing or wrong."""
    names = columns.of_stations(file, given)
    if "bs" not in names:
        raise ConfigurationError(
            f"{file.path} has no column for the base stations' ids; name it in columns as bs;"
            f" it has {columns.listed(file.names)}",
            "columns",
        )
    raw = file.load([*dict.fromkeys(names.values())], text=[names["bs"]])
    if len(raw.broken):
        raise DataError(f"{raw.path}, {raw.row_word} {raw.broken[0]}: {BROKEN}")
    if len(raw) == 0:
        raise DataError(f"{raw.path} lists no base station")
    ids = parsing.ids(raw.columns.column(names["bs"]))
    _refuse(raw, ids.missing, f"{names['bs']} is missing")
    bs, again = ids.rows(), np.ones(len(raw), dtype=bool)
    again[np.unique(ids.codes, return_index=True)[1]] = False
    _refuse(raw, again, f"base station {bs[again.argmax()]} is listed twice")
    numbers = {
        ours: parsing.numbers(raw.columns.column(theirs), raw.decimal)
        for ours, theirs in names.items()
        if ours != "bs"
    }
    for ours, parsed in numbers.items():
        _refuse(raw, parsed.unreadable, f"{names[ours]} is not a number")
    place = positions.place(raw, "bs", names, given, numbers, raw.points)
    known = np.isfinite(place.x) & np.isfinite(place.y)
    known &= True if place.z is None else np.isfinite(place.z)
    _refuse(raw, ~known, "a position or height is missing")
    _refuse(raw, place.off_earth(), OFF_EARTH)
    azimuth, width = (numbers[n].values if n in numbers else None for n in columns.ANTENNA)
    if azimuth is not None:
        _refuse(raw, np.isinf(azimuth), f"{names['azimuth']} is not finite")
    if width is not None:
        reason = f"{names['beam_width']} is not over 0° and at most 360°"
        _refuse(raw, impossible_widths(width), reason)
    return StationList(bs, place, azimuth, width)


def _refuse(raw: RawTable, wrong: Bools, reason: str) -> None:
    """Complain about the first wrong row, if there is one."""
    if wrong.any():
        raise DataError(f"{raw.path}, {raw.row_word} {raw.numbers[wrong][0]}: {reason}")
