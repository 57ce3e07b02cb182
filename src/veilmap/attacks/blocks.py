"""Blocks of the map's cells, small enough that noise hardly changes within one."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

_SIDE = 5  # cells


@dataclass(frozen=True)
class Blocks:
    """A map of (rows, columns) cells cut into blocks of five by five."""

    shape: tuple[int, int]

    @cached_property
    def of_cell(self) -> NDArray[np.int64]:
        """The block of every cell, (M,)."""
        rows, columns = (np.arange(n) // _SIDE for n in self.shape)
        return (rows[:, None] * (columns[-1] + 1) + columns).ravel()

    @property
    def count(self) -> int:
        """How many blocks there are."""
        return int(self.of_cell[-1]) + 1

    def means(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Mean over each block: (n, M) → (n, blocks)."""
        sizes = np.bincount(self.of_cell)
        return np.array([np.bincount(self.of_cell, row) / sizes for row in values])

    def spread(self, values: NDArray) -> NDArray:
        """(n, blocks) → (n, M), the same value in every cell of a block."""
        return values[:, self.of_cell]
