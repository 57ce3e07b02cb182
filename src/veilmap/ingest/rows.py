"""The rows of a file as arrays, what was measured on their links, and what is wrong with them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veilmap.errors import ConfigurationError
from veilmap.ingest import columns, parsing, positions
from veilmap.ingest.options import Options
from veilmap.ingest.parsing import Ids, Mask, Parsed
from veilmap.ingest.positions import OFF_EARTH, Place, Values
from veilmap.ingest.results import Sieve
from veilmap.ingest.tables import RawTable, about


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
        if ours in columns.IDS:
            ids[ours] = parsing.ids(column)
        elif ours == "time":
            numbers[ours] = parsing.times(column)
        else:
            numbers[ours] = parsing.numbers(column, raw.decimal)
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
    with about(raw.path):
        chosen = positions.axes(end, names, given, has_points)
    if not chosen and not has_points:
        users = end == "user"
        whose, prefix = ("users", "") if users else ("base stations", "bs_")
        more = "" if users else ", or list the base stations in a file (stations)"
        raise ConfigurationError(
            f"{raw.path} does not say where the {whose} are: name, in columns, {end}_x and {end}_y,"
            f" or {prefix}latitude and {prefix}longitude{more};"
            f" read were {columns.listed(raw.columns.column_names)}",
            "columns",
        )
    return positions.place(raw, end, chosen, numbers)


def _problems_of(place: Place) -> Iterator[tuple[str, Mask]]:
    yield "there is no position", ~(np.isfinite(place.x) & np.isfinite(place.y))
    yield OFF_EARTH, place.off_earth()
    yield "the position is 0° north, 0° east (no fix?)", place.at_zero()


@dataclass(frozen=True)
class LinkValues:
    """Values of links, row after row.

    Attributes
    ----------
    name : str
        Of the column, for messages.
    values : (J,) float
        As the file has them; NaN where there is none.
    empty, unreadable : (J,) bool
        Of a wide table; a column's own are among the problems of its rows.
    bs : Ids or None
        Which base station; None if rows do not say.
    per_row : int
        Values in a row.
    """

    name: str
    values: Values
    empty: Mask | None
    unreadable: Mask | None
    bs: Ids | None
    per_row: int = 1

    def spread(self, rows: NDArray) -> NDArray:
        """What rows say, for each of their links."""
        return rows if self.per_row == 1 else np.repeat(rows, self.per_row, axis=0)

    def sift(self, sieve: Sieve, missing: Sequence[float]) -> None:
        """Leave out links without a value."""
        for value in missing:
            reason = f"{self.name} is {value:g}, the missing-value sentinel"
            sieve.take_out(reason, self.values == value, expected=True)
        if self.empty is not None:
            sieve.take_out(f"{self.name} is empty", self.empty, expected=True)
        if self.unreadable is not None:
            sieve.take_out(f"{self.name} is not a number", self.unreadable)

    def gain_db(self, options: Options) -> Values:
        """The values as gains."""
        if options.quantity == "path-loss":
            return -self.values
        if options.quantity in ("rss", "rsrp"):
            return self.values - options.tx_power_dbm
        return self.values


def link_values(rows: Rows, wide: Sequence[str]) -> LinkValues:
    """The column of gains, or the columns of base stations of a wide table."""
    if not wide:
        return LinkValues(
            rows.names["gain"], rows.numbers["gain"].values, None, None, rows.ids.get("bs")
        )
    parsed = [parsing.numbers(rows.raw.columns.column(name), rows.raw.decimal) for name in wide]
    values, empty, unreadable = (
        np.column_stack([getattr(column, part) for column in parsed]).ravel()
        for part in ("values", "empty", "unreadable")
    )
    codes = np.tile(np.arange(len(wide)), len(rows.raw))
    bs = Ids(np.array(wide), codes, np.zeros(len(codes), dtype=bool))
    return LinkValues("a base station's value", values, empty, unreadable, bs, len(wide))
