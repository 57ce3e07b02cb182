"""The links of a file as arrays: one in each row, or one for each value of a wide table."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from veilmap._util.arrays import Array, Bools, Ints
from veilmap.data.measurements import BadRows
from veilmap.ingest import columns, parsing, positions
from veilmap.ingest.parsing import Ids, Parsed
from veilmap.ingest.positions import OFF_EARTH, Place
from veilmap.ingest.tables import BROKEN, RawTable


@dataclass
class Sieve:
    """What is left of ``numbers``, the reader's numbers of all rows."""

    numbers: Ints
    left_out: list[BadRows] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.kept = np.ones(len(self.numbers), dtype=bool)

    def take_out(self, reason: str, rows: Bools, *, expected: bool = False) -> None:
        """Leave out those of ``rows`` that are still there."""
        if not rows.any():
            return
        found = rows & self.kept
        if found.any():
            self.left_out.append(BadRows(reason, self.numbers[found], expected))
            self.kept &= ~found

    def sifted(self, columns: Mapping[str, Array]) -> Mapping[str, Any]:
        """The kept rows of columns, without a copy if that is all of them."""
        if self.kept.all():
            return columns
        return {name: column[self.kept] for name, column in columns.items()}

    def take_out_kept(self, bad: Sequence[BadRows]) -> None:
        """Leave out rows that are counted among the kept ones."""
        kept = np.flatnonzero(self.kept)
        for problem in bad:
            rows = np.zeros(len(self.numbers), dtype=bool)
            rows[kept[problem.rows]] = True
            self.take_out(problem.reason, rows)


@dataclass(frozen=True)
class Rows:
    """A file's links, column by column; what the file does not have is missing or None.

    ``wide`` if the file had several links in a row: an empty value is then no link at all.
    """

    raw: RawTable
    names: Mapping[str, str]
    ids: Mapping[str, Ids]
    numbers: Mapping[str, Parsed]
    user: Place
    bs: Place | None
    wide: bool

    def sieve(self, missing: Sequence[float]) -> Sieve:
        """The links that can be used; ``missing`` are the missing-value sentinels."""
        broken = [BadRows(BROKEN, self.raw.broken)] if len(self.raw.broken) else []
        sieve = Sieve(self.raw.numbers, broken)
        name, gain = self.names["gain"], self.numbers["gain"]
        for value in missing:
            reason = f"{name} is {value:g}, the missing-value sentinel"
            sieve.take_out(reason, gain.values == value, expected=True)
        if self.wide:
            sieve.take_out(f"{name} is empty", gain.empty, expected=True)
            sieve.take_out(f"{name} is not a number", gain.unreadable)
        for reason, mask in self._problems():
            sieve.take_out(reason, mask)
        return sieve

    def _problems(self) -> Iterator[tuple[str, Bools]]:
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
                yield "there is no position", ~(np.isfinite(place.x) & np.isfinite(place.y))
                yield OFF_EARTH, place.off_earth()
                yield "the position is 0° north, 0° east (no fix?)", place.at_zero()


def parsed_rows(
    raw: RawTable,
    names: Mapping[str, str],
    given: Mapping[str, str],
    wide: Sequence[str],
    *,
    with_bs: bool,
) -> Rows:
    """The columns of ``names`` and ``wide``; ``with_bs`` if rows say where base stations are."""
    numbers, ids = {}, {}
    for ours, theirs in names.items():
        column = raw.columns.column(theirs)
        if ours in columns.IDS:
            ids[ours] = parsing.ids(column)
        elif ours == "time":
            numbers[ours] = parsing.times(column)
        else:
            numbers[ours] = parsing.numbers(column, raw.decimal)
    if wide:
        raw, names, ids, numbers = _unpivoted(raw, names, ids, numbers, wide)
    user = positions.place(raw, "user", names, given, numbers, raw.points)
    bs = positions.place(raw, "bs", names, given, numbers, None) if with_bs else None
    return Rows(raw, names, ids, numbers, user, bs, bool(wide))


def _unpivoted(
    raw: RawTable,
    names: Mapping[str, str],
    ids: Mapping[str, Ids],
    numbers: Mapping[str, Parsed],
    wide: Sequence[str],
) -> tuple[RawTable, dict[str, str], dict[str, Ids], dict[str, Parsed]]:
    """A row for each value of the ``wide`` columns, whose names are ids of base stations."""
    values = [parsing.numbers(raw.columns.column(name), raw.decimal) for name in wide]
    gain = Parsed(*(np.column_stack(parts).ravel() for parts in zip(*values, strict=True)))
    codes = np.tile(np.arange(len(wide)), len(raw))
    bs = Ids(np.array(wide), codes, np.zeros(len(codes), dtype=bool))
    numbers_of, broken = (np.repeat(one, len(wide)) for one in (raw.numbers, raw.broken))
    points = None if raw.points is None else np.repeat(raw.points, len(wide), axis=0)
    long = replace(raw, numbers=numbers_of, broken=broken, points=points)
    own = {ours: one.repeated(len(wide)) for ours, one in ids.items()}
    parsed = {ours: one.repeated(len(wide)) for ours, one in numbers.items()}
    known = {**names, "gain": "a base station's value", "bs": "a base station's id"}
    return long, known, own | {"bs": bs}, parsed | {"gain": gain}
