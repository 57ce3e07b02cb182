"""What is shown of a large map: fewer cells than it has, each for a square of the map's own.

A screen has some hundreds of pixels a side for a map. More cells than that would only make
answers slow: files that are downloaded have them all.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veilmap.geometry.grid import Grid

_MOST_SIDE = 400

MIDDLE, HIGHEST, STRONGEST = "middle", "highest", "strongest"

_SENTENCES = {
    MIDDLE: "each has the value at its middle",
    HIGHEST: "each has the highest value in it",
    STRONGEST: "each has the value in it that is furthest from 0",
}


@dataclass(frozen=True)
class Downsampled:
    """The cells that the page gets of a map, whose own cells are the ``whole``."""

    whole: Grid

    @property
    def times(self) -> int:
        """How many of the map's cells are side by side in one that is shown."""
        return -(-max(self.whole.shape) // _MOST_SIDE)

    @property
    def grid(self) -> Grid:
        """The cells that are shown; the last ones may reach beyond the map."""
        if self.times == 1:
            return self.whole
        rows, columns = (-(-count // self.times) for count in self.whole.shape)
        size = self.whole.cell_size * self.times
        return Grid(size, (rows, columns), self.whole.origin, self.whole.crs)

    def how(self, which: str) -> str:
        """What a value stands for, in a few words; none where it is of one cell of the map."""
        size = f"{self.grid.cell_size:g} m"
        return "" if self.times == 1 else f"{which} of {size} × {size}"

    def notes(self, which: str) -> list[str]:
        """The same for people who wonder where the map's cells are."""
        if self.times == 1:
            return []
        rows, columns = self.whole.shape
        return [
            f"This map has {rows:,} × {columns:,} cells of {self.whole.cell_size:g} m, shown by"
            f" squares of {self.grid.cell_size:g} m: {_SENTENCES[which]}."
        ]

    def highest(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """The largest value of each square, (rows, columns) that are shown."""
        return values if self.times == 1 else self._squares(values, -np.inf).max(axis=(1, 3))

    def strongest(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """The value of each square that is furthest from 0, with its sign."""
        if self.times == 1:
            return values
        squares = self._squares(values, 0.0)
        high, low = squares.max(axis=(1, 3)), squares.min(axis=(1, 3))
        strongest: NDArray[np.float64] = np.where(high >= -low, high, low)
        return strongest

    def _squares(self, values: NDArray[np.float64], beyond: float) -> NDArray[np.float64]:
        """Values as (rows, times, columns, times), with ``beyond`` where the map has ended."""
        rows, columns = self.grid.shape
        room = np.full((rows * self.times, columns * self.times), beyond)
        room[: values.shape[0], : values.shape[1]] = values
        return room.reshape(rows, self.times, columns, self.times)
