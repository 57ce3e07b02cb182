"""Sorting out rows that cannot be used, each under one reason."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from veilmap.data.measurements import BadRows, BadRowsError, describe
from veilmap.errors import DataError, VeilmapError
from veilmap.ingest._parsing import Mask
from veilmap.ingest.results import LeftOut


@dataclass
class Sieve:
    """What is left of ``numbers``, the reader's numbers of all rows."""

    numbers: NDArray[np.int64]
    left_out: list[LeftOut] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.kept = np.ones(len(self.numbers), dtype=bool)

    def take_out(self, reason: str, rows: Mask, *, expected: bool = False) -> None:
        """Leave out those of ``rows`` that are still there."""
        if not rows.any():
            return
        found = rows & self.kept
        if found.any():
            self.left_out.append(LeftOut(reason, self.numbers[found], expected))
            self.kept &= ~found

    def sifted(self, columns: Mapping[str, NDArray]) -> Mapping[str, NDArray]:
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


def refuse(where: str, left_out: Sequence[LeftOut], total: int, row_word: str) -> None:
    """Complain in one line about rows that nobody has said may be left out."""
    bad = [BadRows(one.reason, one.rows) for one in left_out if not one.expected]
    if bad:
        message = f"{where}: {describe(bad, total, row_word)} (--drop-bad)"
        raise BadRowsError(bad, total, message)


def nothing_left(where: str, left_out: Sequence[LeftOut], hint: str) -> VeilmapError:
    """The complaint that no row is left."""
    reasons = [f"{len(one.rows)} rows: {one.reason}" for one in left_out]
    said = "; ".join(reasons) or "it has no rows"
    return DataError(f"{where} has no usable row ({said})" + (f"; {hint}" if hint else ""))
