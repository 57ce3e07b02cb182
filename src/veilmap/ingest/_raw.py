"""A table as its file has it, before anything is made of it."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from veilmap.data.antennas import Antennas

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class RawTable:
    """Columns of a file.

    Attributes
    ----------
    columns : Arrow table
        Those asked for, under their names in the file.
    numbers : (n,) int
        What the reader calls each row: its line of a text, its row (from 0) elsewhere.
    broken : (k,) int
        Numbers of rows that could not be split into columns; they are not in ``columns``.
    decimal : "." or ","
        How numbers in columns of text are written.
    points : (n, 3) float, optional
        Of a layer of points; NaN where there is no point or no height.
    crs : str, optional
        What the file says its positions are in.
    antennas : Antennas, optional
        What the file says of its base stations' antennas.
    notes : tuple of str
        What had to be found out about the file.
    """

    path: Path
    columns: "pa.Table"
    numbers: NDArray[np.int64]
    row_word: Literal["line", "row"] = "row"
    broken: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    decimal: str = "."
    points: NDArray[np.float64] | None = None
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
