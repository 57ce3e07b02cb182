"""Files of base stations: what they list, and how their ids meet those of measurements."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from veilmap.errors import ConfigurationError
from veilmap.ingest import cells, columns, exporters, usual
from veilmap.ingest.exporters import Exporter, first_of
from veilmap.ingest.options import Options
from veilmap.ingest.tables import TableFile, parts_of

_JOINED = re.compile(r"\d+(-\d+)+")


@dataclass(frozen=True)
class Cell:
    """The columns that ids of cells are put together of, by what they say; empty for none.

    ``wanted`` are the parts to use, ``radio`` the column with the technology.
    """

    parts: Mapping[str, str] = field(default_factory=dict)
    wanted: frozenset[str] = frozenset()
    radio: str = ""

    @property
    def columns(self) -> list[str]:
        """All columns that are read for it."""
        return [*self.parts.values(), *([self.radio] if self.radio else [])]

    @property
    def shown(self) -> str:
        """The columns in the order of the id, as `Options.columns` takes them."""
        kept = [self.parts[part] for part in ("plmn", *cells.PARTS) if part in self._used]
        return "+".join(kept)

    @property
    def _used(self) -> set[str]:
        plmn = {"plmn"} if {"mcc", "mnc"} & self.wanted else set()
        return {*self.parts} & {*self.wanted, *plmn}


NO_CELL = Cell()


@dataclass(frozen=True)
class Listing:
    """A file of base stations: our names of its columns, and what ids are put together of."""

    file: TableFile
    names: Mapping[str, str]
    exporter: Exporter | None = None
    cell: Cell = NO_CELL
    whole_ids: bool = False  # its ids are put together already

    @property
    def of_cells(self) -> bool:
        """Whether it is a database's table of cells, of which few are heard."""
        return self.exporter is not None

    def joins(self, cell: Cell) -> set[str]:
        """The parts of ids that both files have; empty for ids as they are."""
        if not cell.parts:
            return set()
        if not self.cell.parts:
            return cells.kinds(cell.parts) if self.whole_ids else {"cell"}
        return cells.kinds(cell.parts) & cells.kinds(self.cell.parts)

    def joined_with(self, own: Cell) -> "Listing":
        """The same with ids of the parts that the measurements' cells have."""
        wanted = own.wanted if own.parts else frozenset({"cell"})
        return replace(self, cell=replace(self.cell, wanted=wanted)) if self.cell.parts else self


def listing_of(file: TableFile, options: Options) -> Listing:
    """What a file of base stations is."""
    exporter = exporters.of_header(file.names)
    if exporter is not None and exporter.lists == "cells" and not options.station_columns:
        names = {ours: first_of(one, file.names) for ours, one in exporter.columns.items()}
        parts = cells.parts_in(file.names, exporter.cell)
        return Listing(file, names, exporter, Cell(parts, frozenset(cells.kinds(parts))))
    names = columns.of_stations(file, options.columns, options.station_columns)
    guessed = usual.of_stations([name for name in file.names if name not in names.values()])
    if any(ours in names for ours in columns.BS_GROUND):
        guessed = {ours: one for ours, one in guessed.items() if ours not in columns.BS_GROUND}
    parts = {} if "bs" in names else cells.parts_in(file.names, usual.cell(file.names))
    if parts:
        guessed.pop("bs", None)
    names = guessed | names
    if "bs" not in names and not parts:
        raise ConfigurationError(
            f"{file.path} has no column for the base stations' ids; name it in station_columns as"
            f" bs; it has {columns.listed(file.names)}",
            "columns",
        )
    cell = Cell(parts, frozenset(cells.kinds(parts)))
    return Listing(file, names, None, cell, not parts and _whole(file, names))


def _whole(file: TableFile, names: Mapping[str, str]) -> bool:
    """Whether a file's ids look like those of cells put together."""
    spec = names["bs"]
    raw = file.load(parts_of(spec, file.names), text=parts_of(spec, file.names))
    ids = raw.column(spec).drop_null().to_pylist()
    return bool(ids) and all(_JOINED.fullmatch(str(one)) for one in ids)
