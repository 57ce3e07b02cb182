"""The model: a link over virtual obstacles."""

from dataclasses import dataclass

import numpy as np

from veilmap._util.arrays import Floats
from veilmap.figures.content import SideView
from veilmap.geometry.tracing import Crossings, trace
from veilmap.paper.experiment import Experiment, Outcomes, Result
from veilmap.paper.tasks import Task
from veilmap.paper.trials import city

_TALL = 65.0  # metres: taller obstacles would leave the picture


@dataclass(frozen=True, kw_only=True)
class FigModel(Experiment, order=8):
    """A link over virtual obstacles.

    The cells under one link of the synthetic city: obstacle heights h as bars, the link's
    height z over the middle of each cell, and ψ(z − h), whose product S says how clear the
    link is.
    """

    def tasks(self) -> list[Task]:
        """Nothing but geometry."""
        return []

    def result(self, outcomes: Outcomes) -> Result:
        """A link with clear and blocking obstacles under it."""
        own = city(self.seeds[0], self.users)
        data, heights = own.data, own.scene.heights.ravel()
        crossings = trace(own.scene.grid, data.user_xyz, data.bs_xyz)
        apart = np.linalg.norm(data.user_xyz[:, :2] - data.bs_xyz[:, :2], axis=1)
        link = _telling(crossings, heights)
        own_cells = slice(crossings.offsets[link], crossings.offsets[link + 1])
        chords, z = crossings.chords[own_cells], crossings.heights[own_cells]
        h = heights[crossings.cells[own_cells]]
        # The lower end comes first, and that is the user's.
        middles = np.cumsum(chords) - chords / 2
        clear = 1 / (1 + np.exp(-np.clip(z - h, -500, 500)))
        user, station = float(data.user_xyz[link, 2]), float(data.bs_xyz[link, 2])
        ends = (0.0, user), (float(apart[link]), station)
        view = SideView(
            "fig-model",
            "A link over virtual obstacles: h (bars), z (points) and ψ(z − h) of every cell",
            f"{len(h)} cells, {int((h >= z).sum())} of them block the link: S = {clear.prod():.1e}",
            middles,
            chords,
            h,
            z,
            clear,
            ends,
        )
        return self.made(pictures=(view,))


def _telling(crossings: Crossings, heights: Floats) -> int:
    """The link over most obstacles that it clears, among those that few cells block."""
    under, starts = heights[crossings.cells], crossings.offsets[:-1]
    blocks = under >= crossings.heights
    cleared = np.add.reduceat(((under > 0) & ~blocks).astype(int), starts)
    blocking = np.add.reduceat(blocks.astype(int), starts)
    tallest = np.maximum.reduceat(under, starts)
    fits = (blocking >= 2) & (blocking <= 12) & (tallest < _TALL)
    return int(np.argmax(np.where(fits, cleared, -1)))
