"""Which cells of a grid lie under a link."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from veilmap._kernels import links
from veilmap._kernels.arguments import CrossingLists
from veilmap._util.arrays import Floats, Ints
from veilmap.geometry.grid import Grid, offsets_of, paired


@dataclass(frozen=True)
class Crossings:
    """The cells under some links, link after link.

    Link j owns the slice ``offsets[j]:offsets[j + 1]``, ordered from the link's lower end
    to its higher one, so that a link and its reverse give the same arrays.

    Attributes
    ----------
    offsets : (J + 1,) int
    cells : (K,) int
        Cell numbers m.
    chords : (K,) float
        Horizontal length of the link over the cell, in metres.
    heights : (K,) float
        z_m: height of the link over the middle of that chord, in metres.
    """

    offsets: Ints
    cells: Ints
    chords: Floats
    heights: Floats


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
    found = CrossingLists(offsets=offsets, cells=cells, chords=chords, heights=heights)
    links.list_cells(ends=ends, frame=grid.frame, out=found)
    return Crossings(offsets=offsets, cells=cells, chords=chords, heights=heights)
