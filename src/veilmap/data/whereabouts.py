"""Where users were: the distinct positions that they measured at."""

from dataclasses import dataclass, field

import numpy as np

from veilmap._util.arrays import Floats, Ints
from veilmap.data.measurements import Measurements


@dataclass(frozen=True)
class Whereabouts:
    """The places of all users, P in all, and how many links were measured at each.

    A place is a position; tracks of receivers, whose positions all differ, have to be put on
    a raster first. Users are numbered as in ``Measurements.users``.
    """

    place: Ints = field(repr=False)  # of every row, (J,)
    user: Ints = field(repr=False)  # of every place, (P,), ascending
    xy: Floats = field(repr=False)  # (P, 2), in metres
    links: Ints = field(repr=False)  # (P,)

    @classmethod
    def of(cls, data: Measurements) -> "Whereabouts":
        """Those of some measurements."""
        _, number = np.unique(data.user, return_inverse=True)
        rows = np.column_stack([number.reshape(-1), data.user_xyz])
        found, place = np.unique(rows, axis=0, return_inverse=True)
        place = place.reshape(-1)
        return cls(place, found[:, 0].astype(np.int64), found[:, 1:3], np.bincount(place))

    def most_visited(self, rank: int) -> Floats:
        """Each user's place with the most links (rank 0) or fewer, (N, 2); NaN if there is none."""
        order = np.lexsort((-self.links, self.user))
        counts = np.bincount(self.user)
        first = np.cumsum(counts) - counts
        there = counts > rank
        xy = np.full((len(counts), 2), np.nan)
        xy[there] = self.xy[order[first[there] + rank]]
        return xy
