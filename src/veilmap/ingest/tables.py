"""Tables as their files have them, before anything is made of them."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
import pyarrow as pa
import shapely

from veilmap._util.arrays import Floats, Ints
from veilmap.data import geo_files, table_files
from veilmap.data.antennas import Antennas
from veilmap.data.measurements import ANTENNAS_NOTE, CRS_NOTE
from veilmap.errors import ConfigurationError, DataError
from veilmap.ingest import cells
from veilmap.ingest.problems import FixableError

BROKEN = "the line does not have as many fields as line 1"
_POINT, _NOTHING = 0, -1  # shapely's numbers of types


@dataclass(frozen=True)
class RawTable:
    """Columns of a file, and what it says beside them."""

    path: Path
    columns: pa.Table
    numbers: Ints  # what the reader calls each row: its line of a text, its row (from 0) elsewhere
    row_word: Literal["line", "row", "item"] = "row"
    # Numbers of rows that could not be split into columns; they are not in ``columns``.
    broken: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    decimal: str = "."  # how numbers in columns of text are written: "." or ","
    points: Floats | None = None  # of a layer of points, (n, 3); NaN for no point or no height
    crs: str | None = None  # of its positions
    antennas: Antennas | None = None  # of its base stations
    notes: tuple[str, ...] = ()  # what had to be found out about the file

    def __len__(self) -> int:
        return len(self.numbers)

    def column(self, wanted: str) -> pa.ChunkedArray:
        """A column, or several as one id where ``wanted`` has + between their names."""
        if wanted in self.columns.column_names:
            return self.columns.column(wanted)
        parts = [self.columns.column(name) for name in parts_of(wanted, self.columns.column_names)]
        return cells.joined([cells.known(part) for part in parts])


def parts_of(wanted: str, names: Collection[str]) -> list[str]:
    """The columns that ``wanted`` means: one, or several with + between."""
    return [wanted] if wanted in names else [part.strip() for part in wanted.split("+")]


class TableFile(Protocol):
    """A file that holds a table."""

    @property
    def path(self) -> Path:
        """Where it is."""

    @property
    def names(self) -> list[str]:
        """Its columns' names."""

    def load(self, wanted: Sequence[str], text: Collection[str] = ()) -> RawTable:
        """The ``wanted`` columns; those in ``text`` as they are written."""


@dataclass(frozen=True)
class ParquetFile:
    """A Parquet file; one of ours also knows its coordinate system and antennas."""

    path: Path

    @cached_property
    def names(self) -> list[str]:
        """The columns' names."""
        return table_files.names(self.path)

    def load(self, wanted: Sequence[str], text: Collection[str] = ()) -> RawTable:
        """The ``wanted`` columns; Parquet knows their types, so ``text`` says nothing new."""
        table = table_files.read_parquet(self.path, wanted)
        crs, note = (table_files.note(self.path, "parquet", n) for n in (CRS_NOTE, ANTENNAS_NOTE))
        with about(self.path):
            antennas = None if note is None else Antennas.from_text(note)
        rows = np.arange(table.num_rows)
        return RawTable(self.path, table, rows, crs=crs, antennas=antennas)


@dataclass(frozen=True)
class GeoPackageFile:
    """A layer of points; the points are positions, the other columns as in any table."""

    path: Path
    layer: str | None = None

    @cached_property
    def _layer(self) -> str:
        return geo_files.chosen_layer(self.path, self.layer)

    @cached_property
    def names(self) -> list[str]:
        """The columns' names."""
        return geo_files.fields_of(self.path, self._layer)

    def load(self, wanted: Sequence[str], text: Collection[str] = ()) -> RawTable:
        """The ``wanted`` columns and the points."""
        found = geo_files.read_shapes(self.path, self._layer, list(wanted))
        table, points = found.columns, None
        if found.geometry in table.column_names:
            points = self._points(table.column(found.geometry))
            table = table.drop_columns([found.geometry])
        notes, rows = (f"layer {self._layer}", *found.warned), np.arange(table.num_rows)
        return RawTable(self.path, table, rows, points=points, crs=found.crs, notes=notes)

    def _points(self, column: pa.ChunkedArray) -> Floats:
        # Damaged points are no points: their rows are left out as rows without a position.
        geometries = shapely.from_wkb(column.to_numpy(), on_invalid="ignore")
        other = np.flatnonzero(~np.isin(shapely.get_type_id(geometries), (_POINT, _NOTHING)))
        if len(other):
            kind = geometries[other[0]].geom_type
            raise DataError(
                f"{self.path}, layer {self._layer}, row {other[0]}: a {kind}, not a point"
            )
        axes = shapely.get_x, shapely.get_y, shapely.get_z
        return np.column_stack([axis(geometries) for axis in axes])


@contextmanager
def about(path: Path) -> Iterator[None]:
    """Errors in here begin with the file they are about."""
    try:
        yield
    except FixableError as error:
        raise FixableError(f"{path}: {error}", error.parameter, **error.change) from None
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}: {error}", error.parameter) from None
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
