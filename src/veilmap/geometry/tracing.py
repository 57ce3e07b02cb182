"""Which cells of a grid lie under a link."""

import numpy as np
from numpy.typing import ArrayLike

from veilmap._kernels import links
from veilmap._kernels.arguments import Crossings
from veilmap.geometry.grid import Grid, offsets_of, paired

__all__ = ["Crossings", "trace"]


def trace(grid: Grid, user_xyz: ArrayLike, bs_xyz: ArrayLike) -> Crossings:
    """The cells under each link, by exact traversal of the grid.

    - Only the part of a link over the grid counts; a link that misses it has no cells.
    - A cell that the link merely touches (a corner, a chord below 1e-9 of a cell) is
      not under it.
    - A link along a line between cells lies over the northern or eastern ones.
    - A vertical or zero-length link lies over the one cell at its foot, with chord 0 and
      the height of its middle (the limit of ever shorter links).
    """
    ends = paired(user_xyz, bs_xyz)
    counts = np.empty(len(ends.user), dtype=np.int64)
    links.count_cells(ends=ends, frame=grid.frame, counts=counts)
    offsets = offsets_of(counts)
    cells = np.empty(offsets[-1], dtype=np.int64)
    chords, heights = np.empty(offsets[-1]), np.empty(offsets[-1])
    found = Crossings(offsets=offsets, cells=cells, chords=chords, heights=heights)
    links.list_cells(ends=ends, frame=grid.frame, out=found)
    return found
