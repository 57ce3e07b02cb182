"""Base stations from a file of their own."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from veilmap.data.antennas import impossible_widths
from veilmap.errors import ConfigurationError, DataError
from veilmap.ingest import columns, parsing, positions
from veilmap.ingest.positions import OFF_EARTH, Place
from veilmap.ingest.results import Stations, Values
from veilmap.ingest.tables import BROKEN, RawTable, TableFile, about


@dataclass(frozen=True)
class StationList:
    """Base stations as their file has them."""

    bs: NDArray
    place: Place
    azimuth_deg: Values | None
    beam_width_deg: Values | None

    def stations(self, xyz: Values) -> Stations:
        """The same with positions in metres."""
        return Stations(self.bs, xyz, self.azimuth_deg, self.beam_width_deg)

    def matched(self, wanted: NDArray) -> NDArray[np.int64]:
        """The number of each wanted base station in the list; −1 where it has none."""
        listed, wanted = self.bs, np.asarray(wanted)
        if (listed.dtype.kind in "US") != (wanted.dtype.kind in "US"):
            listed, wanted = listed.astype(str), wanted.astype(str)
        order = np.argsort(listed)
        spot = np.minimum(np.searchsorted(listed[order], wanted), len(order) - 1)
        number = order[spot]
        return np.where(listed[number] == wanted, number, -1)


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
        _stop(raw, raw.broken, BROKEN)
    if len(raw) == 0:
        raise DataError(f"{raw.path} lists no base station")
    ids = parsing.ids(raw.columns.column(names["bs"]))
    if ids.missing.any():
        _stop(raw, raw.numbers[ids.missing], f"{names['bs']} is missing")
    again = np.setdiff1d(np.arange(len(raw)), np.unique(ids.codes, return_index=True)[1])
    if len(again):
        _stop(raw, raw.numbers[again], f"base station {ids.rows()[again[0]]} is listed twice")
    numbers = {
        ours: parsing.numbers(raw.columns.column(theirs), raw.decimal)
        for ours, theirs in names.items()
        if ours != "bs"
    }
    for ours, parsed in numbers.items():
        if parsed.unreadable.any():
            _stop(raw, raw.numbers[parsed.unreadable], f"{names[ours]} is not a number")
    place = _place(raw, names, given, numbers)
    _check_antennas(raw, names, numbers)
    antenna = [numbers[name].values if name in numbers else None for name in columns.ANTENNA]
    return StationList(ids.rows(), place, *antenna)


def _place(
    raw: RawTable,
    names: Mapping[str, str],
    given: Mapping[str, str],
    numbers: Mapping[str, parsing.Parsed],
) -> Place:
    with about(raw.path):
        chosen = positions.axes("bs", names, given, raw.points is not None)
    place = positions.place(raw, "bs", chosen, numbers)
    ends = [place.x, place.y, *([] if place.z is None else [place.z])]
    unknown = ~np.isfinite(np.column_stack(ends)).all(axis=1)
    if unknown.any():
        _stop(raw, raw.numbers[unknown], "a position or height is missing")
    if place.off_earth().any():
        _stop(raw, raw.numbers[place.off_earth()], OFF_EARTH)
    return place


def _check_antennas(
    raw: RawTable, names: Mapping[str, str], numbers: Mapping[str, parsing.Parsed]
) -> None:
    if "azimuth" in numbers:
        endless = np.isinf(numbers["azimuth"].values)
        if endless.any():
            _stop(raw, raw.numbers[endless], f"{names['azimuth']} is not finite")
    if "beam_width" in numbers:
        wrong = impossible_widths(numbers["beam_width"].values)
        if wrong.any():
            _stop(raw, raw.numbers[wrong], f"{names['beam_width']} is not over 0° and at most 360°")


def _stop(raw: RawTable, rows: NDArray[np.int64], reason: str) -> NoReturn:
    raise DataError(f"{raw.path}, {raw.row_word} {rows[0]}: {reason}")
