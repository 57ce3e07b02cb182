"""A public division of a large area: a user helps with the part it is in, and says only which.

The map stays one map. Every tile has a window, the tile with a margin around it; a user's upload
is as large as its tile's window, and is added to those of the tile's users only. The server puts
the windows' sums together to one gradient of the whole map, so there are no seams to mend: where
windows overlap, both move the same cells.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from veilmap._util.arrays import Floats, Ints
from veilmap._util.options import check_options, option
from veilmap._util.plain import plain
from veilmap.errors import ConfigurationError
from veilmap.geometry.grid import Grid


@plain
@dataclass(frozen=True)
class Tiling:
    """Square tiles over a grid.

    A tile is ``side`` metres wide: what a user says of its place is known this well. Its window
    reaches ``margin`` metres further; what users see of cells farther away does not leave them.
    """

    side: float = option(
        500.0, "--tile", "Side of square tiles in metres; each user reveals its tile.", above=0
    )
    margin: float = option(
        100.0, "--tile-margin", "Metres by which uploads reach beyond a tile.", least=0
    )

    def __post_init__(self) -> None:
        check_options(self)

    def over(self, grid: Grid) -> "Tiles":
        """The tiles of one grid."""
        side, margin = (round(metres / grid.cell_size) for metres in (self.side, self.margin))
        if side < 1:
            raise ConfigurationError(
                f"tiles of {self.side:g} m are smaller than the cells of {grid.cell_size:g} m"
            )
        return Tiles(grid, side, margin)


@dataclass(frozen=True)
class Tiles:
    """The tiles of one grid, numbered row by row from the south-west; side, margin in cells."""

    grid: Grid
    side: int
    margin: int

    @classmethod
    def single(cls, grid: Grid) -> "Tiles":
        """One tile for all: no division."""
        return cls(grid, max(grid.shape), 0)

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns) of tiles."""
        rows, columns = self.grid.shape
        return -(-rows // self.side), -(-columns // self.side)

    def __len__(self) -> int:
        return self.shape[0] * self.shape[1]

    @cached_property
    def windows(self) -> Ints:
        """First row, row after the last, first column, column after the last, (T, 4)."""
        row, column = np.divmod(np.arange(len(self)), self.shape[1])
        first = np.column_stack([row, column]) * self.side
        low = np.maximum(first - self.margin, 0)
        high = np.minimum(first + self.side + self.margin, self.grid.shape)
        return np.column_stack([low[:, 0], high[:, 0], low[:, 1], high[:, 1]])

    @cached_property
    def cells(self) -> Ints:
        """How many cells each window has, (T,)."""
        rows, columns = np.diff(self.windows.reshape(-1, 2, 2))[..., 0].T
        return np.asarray(np.multiply(rows, columns))

    def of(self, xy: Floats) -> Ints:
        """The tile that each place is in, (N,); off the grid the nearest one."""
        cell = np.floor((xy - self.grid.origin) / self.grid.cell_size)
        last = np.array(self.grid.shape[::-1]) - 1
        column, row = (np.clip(cell, 0, last) // self.side).astype(np.int64).T
        return np.asarray(row * self.shape[1] + column)

    def add_window(self, tile: int, values: Floats, total: Floats) -> None:
        """Add a window's numbers to those of the whole map, (rows, columns)."""
        r0, r1, c0, c1 = self.windows[tile]
        total[r0:r1, c0:c1] += values.reshape(r1 - r0, c1 - c0)
