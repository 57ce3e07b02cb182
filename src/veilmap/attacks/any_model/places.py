"""Places where a user of any model might be, and what gradient a user there would have."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from veilmap._util.arrays import Floats, Ints
from veilmap.attacks.candidates import Templates, block_of_cell
from veilmap.geometry.grid import Grid
from veilmap.model.gradient_models import GradientModel, Records
from veilmap.model.gradient_models.base import gradients_of


@dataclass(frozen=True, eq=False)
class Places:
    """Candidate places, and what a user at each of them is taken to have measured.

    Attributes
    ----------
    model : GradientModel
        Known to the server: it sends it out.
    parameters : (M,) array
        Those that the users' gradients answer.
    grid : Grid
        Its cells' centres are the candidates.
    around : callable
        From (x, y) to the records that a user there is taken to have, from public knowledge.
    shift : float
        How far targets may be from that: gradients are looked for between −shift and +shift.
    """

    model: GradientModel
    parameters: Floats
    grid: Grid
    around: Callable[[Floats], Records]
    shift: float

    def gradients(self, xy: Floats, shifts: Floats | float = 0.0) -> Floats:
        """Gradients (n, M) of users at (n, 2) whose targets are so many shifts off."""
        off = np.broadcast_to(shifts, len(xy)) * self.shift
        users = [self.around(one).shifted(by) for one, by in zip(xy, off, strict=True)]
        return gradients_of(self.model, self.parameters, users)

    def pairs(self, xy: Floats) -> tuple[Floats, Floats]:
        """Those, and what one shift adds to each: under squared loss both are all there is."""
        expected = self.gradients(xy)
        return expected, self.gradients(xy, 1.0) - expected

    @cached_property
    def block_of(self) -> Ints:
        """The block of every parameter, (M,), over which noise is taken constant."""
        own = layout(self.model, len(self.parameters))
        return np.zeros(len(self.parameters), np.int64) if own is None else block_of_cell(own)

    @cached_property
    def templates(self) -> Templates:
        """The pairs of all candidates, made once."""
        pairs = [part.astype(np.float32) for part in self.pairs(self.grid.centres)]
        products = [
            [self._by_block(own[i], own[j]) for i, j in _PRODUCTS]
            for own in zip(*pairs, strict=True)
        ]
        found = np.array(products, dtype=np.float32)
        return Templates(slice(0, self.grid.cells), pairs[0], pairs[1], found)

    def _by_block(self, first: NDArray[np.float32], second: NDArray[np.float32]) -> Floats:
        """Sums of products over the blocks, (blocks,)."""
        products = first.astype(np.float64) * second
        return np.bincount(self.block_of, products).astype(np.float64)


_PRODUCTS = ((0, 0), (1, 1), (0, 1))  # expected², shifted², and both


def layout(model: GradientModel, parameters: int) -> Grid | None:
    """The grid whose cells a model's parameters are, if it says so."""
    own = getattr(model, "grid", None)
    return own if isinstance(own, Grid) and own.cells == parameters else None
