"""What a file is: its exporter, its columns, and what follows from them for reading it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from veilmap.errors import ConfigurationError
from veilmap.ingest import cells, columns, exporters, usual
from veilmap.ingest.exporters import Exporter, first_of
from veilmap.ingest.listings import NO_CELL, Cell, Listing
from veilmap.ingest.options import Options
from veilmap.ingest.problems import FixableError
from veilmap.ingest.tables import TableFile, parts_of

BS_HEIGHT_M = 30.0


@dataclass(frozen=True)
class Recognised:
    """How a file is to be read: our names of columns and the file's, and what nobody had to say."""

    names: Mapping[str, str]
    options: Options  # with what follows from the file filled in
    exporter: Exporter | None = None
    cell: Cell = NO_CELL
    estimate: bool = False
    apart: tuple[str, ...] = ()  # columns that may tell cells of one id apart
    lenient_time: bool = False  # the time is not needed
    notes: tuple[str, ...] = ()

    @property
    def logged(self) -> bool:
        """Whether an app wrote the file, which then has rows without a measurement."""
        return self.exporter is not None

    def columns(self, names: list[str]) -> tuple[list[str], list[str]]:
        """The columns to read, and those of them that are text."""
        ids = [self.names[name] for name in columns.IDS if name in self.names]
        plain = [name for name in self.names.values() if name != self.cell.shown]
        text = [part for name in ids if name in plain for part in parts_of(name, names)]
        text += [*self.cell.columns, *self.options.where, *self.only, *self.apart]
        every = [part for name in plain for part in parts_of(name, names)]
        return list(dict.fromkeys([*every, *text])), text

    @property
    def only(self) -> dict[str, str]:
        """Columns of the exporter, and the value without which a row is no measurement."""
        return dict(self.exporter.only) if self.exporter else {}


def recognised(
    file: TableFile, listing: Listing | None, options: Options, wide: list[str]
) -> Recognised:
    """What a file of measurements is, and how to read it."""
    exporter = None if wide else exporters.of_header(file.names)
    if exporter is not None and exporter.lists == "cells":
        raise ConfigurationError(
            f"{file.path} is a table of cells ({exporter.name}) and has no measurements: give it as"
            " stations beside a file that has",
            "stations",
        )
    for name in options.where:
        columns.require(file, name, "where")
    own = columns.of_table(file, options.columns, listing.file if listing else None)
    names, cell = _with_usual(file, own, options, exporter)
    known = {} if listing is None else listing.joins(cell)
    cell = replace(cell, wanted=frozenset(known or cells.kinds(cell.parts)))
    grouped = options.split_gap is not None or options.user_per is not None
    unused = {*columns.BS_PLACE, columns.ERROR} if listing is not None else set()
    unused |= {"gain", "bs"} if wide else set()
    unused |= {"user"} if grouped else set()
    names = {ours: theirs for ours, theirs in names.items() if ours not in unused}
    if "bs" in names or wide:
        cell = NO_CELL
    elif cell.parts:
        names["bs"] = cell.shown
    only = {name: value for name, value in (exporter.only if exporter else {}).items()
            if name in file.names}  # fmt: skip
    exporter = None if exporter is None else replace(exporter, only=only)
    placed = any(name in names for name in columns.BS_PLACE)
    estimate = options.estimate_stations
    if estimate is None:
        estimate = exporter is not None and listing is None and not placed
    filled = replace(
        options,
        quantity=options.quantity or _quantity(names, exporter, options),
        user_per=options.user_per
        or ("file" if exporter and exporter.person == "file" and "user" not in names
            and not grouped else None),
        bs_height=options.bs_height
        if options.bs_height is not None or not (estimate or (listing and listing.of_cells))
        else BS_HEIGHT_M,
        missing=(*options.missing, *(exporter.none if exporter else ())),
    )  # fmt: skip
    found = Recognised(
        names,
        filled,
        exporter,
        cell,
        estimate,
        apart=_apart(file, names, cell),
        lenient_time="time" not in own and options.split_gap is None,
        notes=tuple(_said(own, names, exporter, filled, cell)),
    )
    _require_enough(file, found, listing is not None, bool(wide))
    return found


def _with_usual(
    file: TableFile, own: dict[str, str], options: Options, exporter: Exporter | None
) -> tuple[dict[str, str], Cell]:
    """All columns that are known by name, and those that a cell is known by."""
    if exporter is not None:
        theirs = {ours: first_of(one, file.names) for ours, one in exporter.columns.items()}
        names = {ours: column for ours, column in theirs.items() if column}
        given = {ours: own[ours] for ours in options.columns if ours in own}
        parts = {} if "bs" in given else cells.parts_in(file.names, exporter.cell)
        return names | given, Cell(parts, radio=first_of(exporter.radio, file.names))
    names = usual.of_readings([name for name in file.names if name not in own.values()], own)
    parts = {} if "bs" in own else cells.parts_in(file.names, usual.cell(file.names))
    if parts:
        names.pop("bs", None)
    return names | own, Cell(parts)


def _quantity(
    names: Mapping[str, str], exporter: Exporter | None, options: Options
) -> exporters.Quantity:
    if exporter is not None and "gain" not in options.columns:
        return exporter.quantity
    return usual.quantity(names.get("gain", ""))


def _apart(file: TableFile, names: Mapping[str, str], cell: Cell) -> tuple[str, ...]:
    """Columns that an id of several cells may have different values in."""
    if "bs" not in names or cell.parts:
        return ()
    used = {*parts_of(names["bs"], file.names), *names.values()}
    return tuple(name for name in usual.apart(file.names) if name not in used)


def _said(
    own: Mapping[str, str],
    names: Mapping[str, str],
    exporter: Exporter | None,
    options: Options,
    cell: Cell,
) -> Iterator[str]:
    """What was found out, for people."""
    if exporter is not None:
        yield f"the file is recognised as {exporter.name}"
    elif found := {ours: one for ours, one in names.items() if ours not in own}:
        shown = ", ".join(f"{ours} = {theirs}" for ours, theirs in found.items())
        yield f"found by their names: {shown}"
    if cell.parts:
        yield f"base stations are cells, by {cell.shown}"
    if options.user_per == "file":
        yield "all rows are taken to be one person's: no column says who measured"


def _require_enough(file: TableFile, found: Recognised, listed: bool, wide: bool) -> None:
    """Complain about what is lacking."""
    names, options = found.names, found.options
    has = columns.listed(file.names)
    if not wide and "gain" not in names:
        raise ConfigurationError(
            f"{file.path} has no column 'gain'; name it in columns, or the base stations' columns"
            f" of a wide table in wide; it has {has}",
            "columns",
        )
    if (listed or found.estimate) and not wide and "bs" not in names:
        raise ConfigurationError(
            f"{file.path} has no column 'bs' that says which of the stations was heard; name it in"
            f" columns; it has {has}",
            "columns",
        )
    if wide and not listed:
        raise ConfigurationError(
            f"{file.path} is a wide table and needs its base stations' positions from a file,"
            f" stations; it has {has}",
            "stations",
        )
    if options.split_gap is not None and "time" not in names:
        raise ConfigurationError(
            f"{file.path} has no column 'time' to find gaps in; name it in columns; it has {has}",
            "columns",
        )
    if "user" not in names and options.split_gap is None and options.user_per is None:
        raise FixableError(
            f"{file.path} does not say who measured: name user in columns, start a new user after a"
            " gap of split_gap seconds, or take every row, every position or all of the file as a"
            f" user with user_per; it has {has}",
            "columns",
            user_per="file",
        )
    placed = any(name in names for name in columns.BS_PLACE)
    if not (listed or found.estimate or placed) and "bs" in names:
        raise FixableError(
            f"{file.path} does not say where the base stations are: name, in columns, bs_x and"
            " bs_y, or bs_latitude and bs_longitude, list them in a file (stations), or estimate"
            f" where they are from the measurements (estimate_stations); read were {has}",
            "columns",
            estimate_stations=True,
        )
