"""The rows of a file as arrays, and what is wrong with them one by one."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from veilmap.errors import DataError, VeilmapError
from veilmap.ingest import _names, _parsing, _positions
from veilmap.ingest._parsing import Ids, Mask, Parsed
from veilmap.ingest._positions import Place
from veilmap.ingest._raw import RawTable


@dataclass(frozen=True)
class Rows:
    """A file's rows, column by column; what the file does not have is None."""

    raw: RawTable
    names: Mapping[str, str]
    ids: Mapping[str, Ids]
    numbers: Mapping[str, Parsed]
    user: Place
    bs: Place | None

    @property
    def time(self) -> Parsed | None:
        """Seconds since 1970."""
        return self.numbers.get("time")

    def problems(self) -> Iterator[tuple[str, Mask]]:
        """Reasons not to use rows."""
        nothing = [ids.missing for ids in self.ids.values()]
        nothing += [parsed.empty for parsed in self.numbers.values()]
        if len(nothing) > 1:
            yield f"the {self.raw.row_word} is empty", np.logical_and.reduce(nothing)
        for ours, ids in self.ids.items():
            yield f"{self.names[ours]} is missing, or longer than any id", ids.missing
        for ours, parsed in self.numbers.items():
            kind = "a time" if ours == "time" else "a number"
            yield f"{self.names[ours]} is not {kind}", parsed.unreadable
            yield f"{self.names[ours]} is empty", parsed.empty
        for place in (self.user, self.bs):
            if place is not None:
                yield from _problems_of(place)


def parsed(
    raw: RawTable, names: Mapping[str, str], given: Mapping[str, str], *, with_bs: bool
) -> Rows:
    """The columns of ``names``; ``with_bs`` if rows say where the base stations are."""
    numbers, ids = {}, {}
    for ours, theirs in names.items():
        column = raw.columns.column(theirs)
        if ours in _names.IDS:
            ids[ours] = _parsing.ids(column)
        elif ours == "time":
            numbers[ours] = _parsing.times(column)
        else:
            numbers[ours] = _parsing.numbers(column, raw.decimal)
    user = _place(raw, "user", names, given, numbers)
    bs = _place(raw, "bs", names, given, numbers) if with_bs else None
    return Rows(raw, names, ids, numbers, user, bs)


def _place(
    raw: RawTable,
    end: str,
    names: Mapping[str, str],
    given: Mapping[str, str],
    numbers: Mapping[str, Parsed],
) -> Place:
    has_points = end == "user" and raw.points is not None
    try:
        chosen = _positions.axes(end, names, given, has_points)
    except VeilmapError as error:
        raise DataError(f"{raw.path}: {error}") from None
    if not chosen and not has_points:
        users = end == "user"
        whose, prefix = ("users", "") if users else ("base stations", "bs_")
        more = "" if users else ", or list the base stations in a file (--stations)"
        raise DataError(
            f"{raw.path} does not say where the {whose} are: name columns for {end}_x and {end}_y,"
            f" or for {prefix}latitude and {prefix}longitude (--column NAME=COLUMN){more};"
            f" read were {_names.listed(raw.columns.column_names)}"
        )
    return _positions.place(raw, end, chosen, numbers)


def _problems_of(place: Place) -> Iterator[tuple[str, Mask]]:
    yield "there is no position", ~(np.isfinite(place.x) & np.isfinite(place.y))
    yield (
        "a latitude is beyond 90° or a longitude beyond 180° (are they swapped?)",
        place.off_earth(),
    )
    yield "the position is 0° north, 0° east (no fix?)", place.at_zero()
