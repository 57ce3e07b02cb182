"""The links of a file as arrays: one in each row, or one for each value of a wide table."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from veilmap._util.arrays import Array, Bools, Ints
from veilmap.data.measurements import DUPLICATE, BadRows
from veilmap.errors import DataError
from veilmap.ingest import cells, columns, parsing, positions
from veilmap.ingest.parsing import Ids, Parsed
from veilmap.ingest.positions import OFF_EARTH, Place
from veilmap.ingest.recognition import Recognised
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

    def take_out_kept(self, bad: Sequence[BadRows], *, repeats: bool) -> None:
        """Leave out rows that are counted among the kept ones; ``repeats`` if some may repeat."""
        kept = np.flatnonzero(self.kept)
        for problem in bad:
            rows = np.zeros(len(self.numbers), dtype=bool)
            rows[kept[problem.rows]] = True
            self.take_out(problem.reason, rows, expected=repeats and problem.reason == DUPLICATE)


@dataclass(frozen=True)
class Rows:
    """A file's links, column by column; what the file does not have is missing or None.

    ``wide`` if the file had several links in a row: an empty value is then no link at all.
    ``logged`` if an app wrote the file: rows in which it found nothing are then expected.
    ``refused`` are rows that nobody asked for, by reason.
    """

    raw: RawTable
    names: Mapping[str, str]
    ids: Mapping[str, Ids]
    numbers: Mapping[str, Parsed]
    user: Place
    bs: Place | None
    wide: bool
    logged: bool = False
    refused: Mapping[str, Bools] = field(default_factory=dict)
    lte: Bools | None = None  # the rows of LTE cells, if a column says
    notes: tuple[str, ...] = ()

    def sieve(self, missing: Sequence[float]) -> Sieve:
        """The links that can be used; ``missing`` are the missing-value sentinels."""
        broken = [BadRows(BROKEN, self.raw.broken)] if len(self.raw.broken) else []
        sieve = Sieve(self.raw.numbers, broken)
        for reason, rows in self.refused.items():
            sieve.take_out(reason, rows, expected=True)
        name, gain = self.names["gain"], self.numbers["gain"]
        for value in missing:
            reason = f"{name} is {value:g}, the missing-value sentinel"
            sieve.take_out(reason, gain.values == value, expected=True)
        if self.wide:
            sieve.take_out(f"{name} is empty", gain.empty, expected=True)
            sieve.take_out(f"{name} is not a number", gain.unreadable)
        for reason, mask, gap in self._problems():
            sieve.take_out(reason, mask, expected=gap and self.logged)
        return sieve

    def _problems(self) -> Iterator[tuple[str, Bools, bool]]:
        """Reasons not to use rows, and whether they are gaps that an app leaves."""
        nothing = [ids.missing for ids in self.ids.values()]
        nothing += [parsed.empty for parsed in self.numbers.values()]
        if len(nothing) > 1:
            yield f"the {self.raw.row_word} is empty", np.logical_and.reduce(nothing), False
        for ours, ids in self.ids.items():
            yield f"{self.names[ours]} is missing, or longer than any id", ids.missing, True
        for ours, parsed in self.numbers.items():
            if ours == columns.ERROR:  # empty where a position is known
                continue
            kind = "a time" if ours == "time" else "a number"
            yield f"{self.names[ours]} is not {kind}", parsed.unreadable, False
            yield f"{self.names[ours]} is empty", parsed.empty, True
        for place in (self.user, self.bs):
            if place is not None:
                nowhere = ~(np.isfinite(place.x) & np.isfinite(place.y))
                yield "there is no position", nowhere, True
                yield OFF_EARTH, place.off_earth(), False
                yield "the position is 0° north, 0° east (no fix?)", place.at_zero(), True


def parsed_rows(raw: RawTable, known: Recognised, wide: Sequence[str], *, with_bs: bool) -> Rows:
    """The ``known`` columns and the ``wide`` ones; ``with_bs`` if rows say where stations are."""
    names, given = dict(known.names), known.options.columns
    numbers, ids, notes = {}, {}, []
    for ours, theirs in known.names.items():
        if ours == "bs" and known.cell.parts:
            cell = known.cell
            ids[ours] = parsing.ids(cells.ids(raw.columns, cell.parts, cell.wanted, cell.radio))
        elif ours in columns.IDS:
            ids[ours] = parsing.ids(raw.column(theirs))
        elif ours == "time":
            time, note = parsing.times(raw.column(theirs), known.options.dates)
            if known.lenient_time and time.unreadable.any() and not np.isfinite(time.values).any():
                notes.append(f"the times in {names.pop(ours)} cannot be read, and are not used")
                continue
            numbers[ours] = time
            notes += [f"{note}, in UTC"] * bool(note)
        else:
            numbers[ours] = parsing.numbers(raw.column(theirs), raw.decimal)
    refused = dict(_refused(raw, known))
    if wide:
        refused = {why: np.repeat(rows, len(wide)) for why, rows in refused.items()}
        raw, names, ids, numbers = _unpivoted(raw, names, ids, numbers, wide)
    user = positions.place(raw, "user", names, given, numbers, raw.points)
    bs = positions.place(raw, "bs", names, given, numbers, None) if with_bs else None
    radio = known.cell.radio
    lte = cells.lte(raw.columns.column(radio)) if radio and known.cell.parts else None
    log = known.logged, refused, lte, tuple(notes)
    return Rows(raw, names, ids, numbers, user, bs, bool(wide), *log)


def _refused(raw: RawTable, known: Recognised) -> Iterator[tuple[str, Bools]]:
    """Rows that are not asked for, or that the exporter marks as none."""
    for name, value in known.only.items():
        yield f"{name} is not {value}", ~_is_one_of(raw, name, value)
    for name, value in known.options.where.items():
        rows = ~_is_one_of(raw, name, value)
        if rows.all():
            held = pc.unique(raw.columns.column(name)).slice(0, 8).to_pylist()
            shown = ", ".join(str(one) for one in held)
            raise DataError(f"{raw.path} has no row where {name} is {value}; it has {shown}")
        yield f"{name} is not {value}", rows


def _is_one_of(raw: RawTable, name: str, value: str) -> Bools:
    wanted = pa.array([one.strip() for one in value.split("|")])
    text = pc.utf8_trim_whitespace(raw.columns.column(name).cast(pa.string()))
    return np.asarray(pc.is_in(text, wanted).to_numpy(zero_copy_only=False), dtype=bool)


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
