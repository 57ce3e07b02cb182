"""Tables in Parquet files."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from veilmap.data import table_files
from veilmap.data.antennas import Antennas
from veilmap.data.measurements import ANTENNAS_NOTE, CRS_NOTE
from veilmap.errors import DataError, VeilmapError
from veilmap.ingest._raw import RawTable


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
        try:
            antennas = None if note is None else Antennas.from_text(note)
        except VeilmapError as error:
            raise DataError(f"{self.path}: {error}") from None
        rows = np.arange(table.num_rows)
        return RawTable(self.path, table, rows, crs=crs, antennas=antennas)

    def _unreadable(self, error: Exception) -> VeilmapError:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        return DataError(f"{self.path} cannot be read as parquet: {reason}")
