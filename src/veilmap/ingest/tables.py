"""Tables as their files have them, before anything is made of them."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from veilmap._util.arrays import Floats, Ints
from veilmap.data import table_files
from veilmap.data.antennas import Antennas
from veilmap.data.measurements import ANTENNAS_NOTE, CRS_NOTE
from veilmap.errors import ConfigurationError, DataError

BROKEN = "the line does not have as many fields as line 1"


@dataclass(frozen=True)
class RawTable:
    """Columns of a file.

    Attributes
    ----------
    numbers : (n,) int
        What the reader calls each row: its line of a text, its row (from 0) elsewhere.
    broken : (k,) int
        Numbers of rows that could not be split into columns; they are not in ``columns``.
    decimal : "." or ","
        How numbers in columns of text are written.
    points : (n, 3) float, optional
        Of a layer of points; NaN where there is no point or no height.
    crs, antennas : optional
        What the file says of its positions and of its base stations' antennas.
    notes : tuple of str
        What had to be found out about the file.
    """

    path: Path
    columns: pa.Table
    numbers: Ints
    row_word: Literal["line", "row"] = "row"
    broken: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    decimal: str = "."
    points: Floats | None = None
    crs: str | None = None
    antennas: Antennas | None = None
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.numbers)


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
        try:
            return list(pa.parquet.read_schema(self.path).names)
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise self._unreadable(error) from None

    def load(self, wanted: Sequence[str], text: Collection[str] = ()) -> RawTable:
        """The ``wanted`` columns; Parquet knows their types, so ``text`` says nothing new."""
        try:
            table = pa.parquet.ParquetFile(self.path).read(columns=list(wanted))
            table.validate(full=True)  # text may be damaged
            crs, note = (
                table_files.note(self.path, "parquet", n) for n in (CRS_NOTE, ANTENNAS_NOTE)
            )
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise self._unreadable(error) from None
        with about(self.path):
            antennas = None if note is None else Antennas.from_text(note)
        rows = np.arange(table.num_rows)
        return RawTable(self.path, table, rows, crs=crs, antennas=antennas)

    def _unreadable(self, error: Exception) -> DataError:
        return DataError(f"{self.path} cannot be read as parquet: {first_line(error)}")


@contextmanager
def about(path: Path) -> Iterator[None]:
    """Errors in here begin with the file they are about."""
    try:
        yield
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}: {error}", error.parameter) from None
    except DataError as error:
        raise DataError(f"{path}: {error}") from None


def first_line(error: Exception) -> str:
    """What a library says, in one line."""
    return (str(error).splitlines() or [type(error).__name__])[0]
