"""A mean that few hostile users do not decide, where the server sees every upload.

Rules that look at one cell after the other (a median, a trimmed mean) lose the map itself: few
honest users speak for most cells, and noise hides what one upload says of a cell. Users who lie
together, or round after round, are told by their uploads as a whole: they stand out along a
direction in which all others hardly differ (Shejwalkar and Houmansadr, "Manipulating the
Byzantine", NDSS 2021), the more so in a mean over the rounds (Karimireddy and others, "Learning
from History", ICML 2021).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from veilmap._util.arrays import Array, Bools, Floats
from veilmap.federation.messages import ClientId, Update
from veilmap.model.propagation import at_100_m

LEFT_OUT = "is left out: it pulls away from all others"

_IDS, _TRACES = "robust_ids", "robust_traces"  # in a step rule's memory


@dataclass(frozen=True)
class RobustMean:
    """Which updates are added up, and what of them.

    Numbers of links count up to a multiple of their median, θ's gradients and uploads are shortened
    to a multiple of their median norm. Of each user a *trace* is kept: the mean of its uploads over
    the rounds, in blocks of cells. Users whose traces are outliers are left out, at most ``most``.
    """

    most: float = 0.15  # share of users
    outlier: float = 8.0  # median deviations from the median along a direction
    directions: int = 5  # of the largest spread, that are looked at
    block: int = 5  # cells along each side of those whose mean is taken
    memory: float = 0.95  # what a trace keeps each round
    damping: float = (
        0.1  # share of the mean energy added to each block's before traces are compared
    )
    links: float = 2.0  # medians of the numbers of links
    slopes: float = 2.0  # medians of the norms of θ's gradients

    def weighed(
        self,
        updates: Sequence[Update],
        shape: tuple[int, int],
        laws: int,
        before: Mapping[str, Array],
    ) -> tuple[list[Update], list[ClientId], dict[str, Array]]:
        """The updates to add up, who is left out, and what to remember."""
        blocks = np.array([self._blocks(update.height_gradient, shape) for update in updates])
        norms = np.linalg.norm(blocks, axis=1)
        lengths = _up_to(norms, float(np.median(norms)))
        memory = self._traced([u.client for u in updates], blocks * lengths[:, None], before)
        traces = dict(zip(json.loads(str(memory[_IDS])), memory[_TRACES], strict=True))
        kept = self.inliers(np.array([traces[update.client] for update in updates]))
        weights = np.array([float(update.weight) for update in updates])
        links = np.minimum(weights, max(1.0, np.floor(self.links * np.median(weights))))
        theta = self._shortened(np.array([u.theta_gradient for u in updates]), laws)
        rows = zip(updates, kept, lengths, links, theta, strict=True)
        added = [
            Update(u.client, u.round, int(weight), u.height_gradient * length, slope)
            for u, taken, length, weight, slope in rows
            if taken
        ]
        left = [u.client for u, taken in zip(updates, kept, strict=True) if not taken]
        return added, left, memory

    def inliers(self, traces: Floats) -> Bools:
        """Whose traces lie among the others', (N,)."""
        kept = np.ones(len(traces), dtype=np.bool_)
        left = int(self.most * len(traces))
        while left > 0:
            among = np.flatnonzero(kept)
            far = self._distances(traces[among])
            found = np.flatnonzero(far > self.outlier)
            if not len(found):
                break
            # The farthest half: the others may look far only because of these.
            worst = found[np.argsort(-far[found], kind="stable")]
            worst = worst[: min(max(1, len(found) // 2), left)]
            kept[among[worst]] = False
            left -= len(worst)
        return kept

    def _distances(self, traces: Floats) -> Floats:
        """How far off each user is along the directions of the largest spread, at most, (n,)."""
        energy = np.mean(traces**2, axis=0)
        even = traces / np.sqrt(energy + self.damping * energy.mean() + 1e-300)
        even = even - even.mean(axis=0)
        # Left singular vectors, by way of the n × n matrix of products.
        vectors = np.linalg.eigh(even @ even.T)[1][:, ::-1][:, : self.directions]
        off = np.abs(vectors - np.median(vectors, axis=0))
        # 1.4826 median deviations are one standard deviation of normal numbers.
        return np.asarray((off / (1.4826 * np.median(off, axis=0) + 1e-12)).max(axis=1))

    def _blocks(self, heights: Floats, shape: tuple[int, int]) -> Floats:
        """Means of blocks of cells, scaled so that even noise keeps its deviation."""
        side = self.block if min(shape) >= self.block else 1
        rows, columns = (size // side for size in shape)
        inner = heights.reshape(shape)[: rows * side, : columns * side]
        means = inner.reshape(rows, side, columns, side).mean(axis=(1, 3))
        return np.asarray(side * means.ravel())

    def _traced(
        self, users: Sequence[ClientId], blocks: Floats, before: Mapping[str, Array]
    ) -> dict[str, Array]:
        """The traces of all users so far after this round."""
        known: dict[ClientId, Floats] = {}
        if _IDS in before:
            known = dict(zip(json.loads(str(before[_IDS])), before[_TRACES], strict=True))
        for user, now in zip(users, blocks, strict=True):
            old = known.get(user, np.zeros_like(now))
            known[user] = self.memory * old + (1 - self.memory) * now
        ids = sorted(known, key=lambda user: (isinstance(user, str), user))
        traces = np.array([known[user] for user in ids])
        return {_IDS: np.array(json.dumps(ids)), _TRACES: traces}

    def _shortened(self, theta: Floats, laws: int) -> Floats:
        """θ's gradients no longer than a multiple of their median, as seen at 100 m."""
        axes = at_100_m(laws, theta.shape[1] - 2 * laws)
        norms = np.linalg.norm(theta @ axes.T, axis=1)
        return np.asarray(theta * _up_to(norms, self.slopes * float(np.median(norms)))[:, None])


def _up_to(norms: Floats, longest: float) -> Floats:
    """Factors that make vectors no longer than that."""
    return np.asarray(np.minimum(1.0, longest / np.maximum(norms, 1e-300)))
