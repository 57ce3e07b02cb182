"""Links: measurements laid out for the kernels, user after user."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from veilmap._kernels.arguments import UserLinks
from veilmap._util.arrays import Array, Bools, Floats, Ints
from veilmap.geometry.grid import offsets_of


@dataclass(frozen=True)
class Links:
    """Links grouped by user: user i owns the slice ``offsets[i]:offsets[i + 1]``.

    Both ends of each link are (J, 3), in metres. The ids of base stations and kinds of devices are
    there where offsets between them matter.
    """

    offsets: Ints
    user_xyz: Floats
    bs_xyz: Floats
    gain_db: Floats
    bs: Array | None = None
    device: Array | None = None

    @property
    def counts(self) -> Ints:
        """J_i: links per user, (N,)."""
        return np.diff(self.offsets)

    @property
    def users(self) -> int:
        """N: number of users."""
        return len(self.offsets) - 1

    def kernel_links(self, gain_db: Floats | None = None) -> UserLinks:
        """The links as the kernels take them, with these gains or their own."""
        gain = self.gain_db if gain_db is None else gain_db
        return UserLinks(offsets=self.offsets, user=self.user_xyz, bs=self.bs_xyz, gain=gain)

    def mean_positions(self) -> Floats:
        """Each user's mean position over its links, (N, 2), in metres."""
        sums = np.add.reduceat(self.user_xyz[:, :2], self.offsets[:-1], axis=0)
        return sums / self.counts[:, None]

    def of_users(self, chosen: Bools) -> "Links":
        """The links of the chosen users only."""
        if chosen.all():
            return self
        rows = np.repeat(chosen, self.counts)
        return self._taken(offsets_of(self.counts[chosen]), rows)

    def blocks(self, users: int) -> Iterator["Links"]:
        """The same links in blocks of at most ``users`` users, as views."""
        for first in range(0, self.users, users):
            yield self.users_between(first, first + users)

    def users_between(self, first: int, after: int) -> "Links":
        """The links of users ``first`` … ``after`` − 1, as views."""
        offsets = self.offsets[first : after + 1]
        return self._taken(offsets - offsets[0], slice(offsets[0], offsets[-1]))

    def _taken(self, offsets: Ints, rows: slice | Bools) -> "Links":
        """Some of the rows, which these offsets divide among users."""
        ids = [None if own is None else own[rows] for own in (self.bs, self.device)]
        return Links(offsets, self.user_xyz[rows], self.bs_xyz[rows], self.gain_db[rows], *ids)
