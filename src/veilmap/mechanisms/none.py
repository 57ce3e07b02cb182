"""No noise: clipping only, as in plain federated learning."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veilmap.geometry import Grid
from veilmap.mechanisms.base import Contribution, UploadNoise
from veilmap.mechanisms.guarantees import NoGuarantee
from veilmap.mechanisms.sums import Coins, Group, RunningSum, Summand
from veilmap.noise import Draw


@dataclass(frozen=True, kw_only=True)
class NoNoise(UploadNoise):
    """Clipped gradients leave as they are.

    Parameters
    ----------
    clip : float
        C.
    """

    name = "none"
    guarantee = NoGuarantee("it adds no noise: gradients leave as they are")

    def _variances(
        self,
        gradients: NDArray[np.float64],
        energies: NDArray[np.float64],
        grid: Grid,
        user_xy: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        return np.zeros_like(gradients)

    def _add_noise(
        self,
        uploads: NDArray[np.float64],
        energies: NDArray[np.float64],
        grid: Grid,
        places: NDArray[np.float64],
        draws: Sequence[Draw],
    ) -> NDArray[np.float64]:
        return np.zeros(len(uploads))

    def summand(self, cells: int, parameters: int) -> Summand:
        """Clipped gradients, each weighted by its links."""
        return Summand(self.clip)

    def add_rest(
        self,
        raw: Contribution,
        draws: Sequence[Draw],
        coins: Coins,
        group: Group,
        total: RunningSum,
    ) -> NDArray[np.float64]:
        """Add ∂F_i/∂θ and J_i as they are."""
        total.add_theta(raw.counts[:, None] * raw.propagation, group.tiles)
        np.add.at(total.weights, group.tiles, raw.counts)
        return np.zeros(len(raw.counts))
