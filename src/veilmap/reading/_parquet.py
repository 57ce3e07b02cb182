"""Tables in Parquet files."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from veilmap import _tables
from veilmap.errors import VeilmapError
from veilmap.measurements import CRS_NOTE
from veilmap.reading._raw import RawTable


@dataclass(frozen=True)
class ParquetFile:
    """A Parquet file; one of ours also knows its coordinate system."""

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
            crs = _tables.note(self.path, "parquet", CRS_NOTE)
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise self._unreadable(error) from None
        return RawTable(self.path, table, np.arange(table.num_rows), crs=crs)

    def _unreadable(self, error: Exception) -> VeilmapError:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        return VeilmapError(f"{self.path} cannot be read as parquet: {reason}")
