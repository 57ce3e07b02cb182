"""Where users are, from what everybody else's contributions leave of a training's opened sums."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilmap._util.arrays import Floats
from veilmap.attacks.base import Posterior
from veilmap.attacks.candidates import Candidates, coarser
from veilmap.federation.messages import Broadcast, ClientId
from veilmap.federation.transcript import Transcript
from veilmap.model.filtering import filtered
from veilmap.privacy.mechanisms import Mechanism

_PLACES = 2500
"""Candidates, evenly over the map: contributions of users who stand closer are nearly the same."""

_MATCH = 0.9
"""Of a contribution that the template of its user's place explains, while the map is coarse."""


@dataclass(frozen=True)
class LeftOver:
    """Of one round: the sum less what others added, for each of some targets who took part."""

    broadcast: Broadcast
    heights: NDArray[np.float32]  # of h, as the gradients are, (n, M)
    deviation: float  # of the noise in each


@dataclass(frozen=True, eq=False)
class SumMatchedFilter:
    """Compares what is left of every sum with what a user at each place would have added.

    Templates are filtered and clipped as clients do. With u that of a place and a the share of it
    that is met, the logarithm of the likelihood grows by a⟨left, u⟩/σ² − a²‖u‖²/2σ² in a round.
    All places are alike before. θ's few numbers are not looked at.
    """

    mechanism: Mechanism
    candidates: Candidates

    @classmethod
    def of(cls, transcript: Transcript, altitude: float = 1.5) -> "SumMatchedFilter":
        """With candidates of a transcript's public facts, users at ``altitude`` metres."""
        found = Candidates.of(transcript, altitude)
        return cls(transcript.mechanism, replace(found, grid=coarser(found.grid, _PLACES)))

    def evidence(self, left: LeftOver) -> Floats:
        """What one round adds to the log-probability of each place, (n, K)."""
        broadcast, variance = left.broadcast, left.deviation**2
        shape, width = broadcast.radio_map.grid.shape, broadcast.filter_width
        clip = self.mechanism.summand(broadcast.radio_map.grid.cells, 0).clip
        result = np.empty((len(left.heights), self.candidates.grid.cells))
        for templates in self.candidates.templates(broadcast.radio_map):
            expected: Any = templates.expected
            added = filtered(expected, shape, width).astype(np.float32)
            lengths = np.linalg.norm(added, axis=1)
            shorter = _MATCH * np.minimum(1.0, clip / np.maximum(lengths, 1e-30))
            match = (left.heights @ added.T) * shorter
            result[:, templates.own] = (match - 0.5 * (shorter * lengths) ** 2) / variance
        return result

    def posterior(self, clients: tuple[ClientId, ...], evidence: Floats) -> Posterior:
        """What all rounds say, where ``evidence`` is added up."""
        return Posterior(self.candidates.grid, clients, evidence.astype(np.float32))
