"""The same noise in every cell."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veilmap._util.plain import plain
from veilmap.geometry.grid import Grid
from veilmap.privacy.mechanisms.base import BudgetedNoise
from veilmap.privacy.mechanisms.guarantees import NoGuarantee
from veilmap.privacy.mechanisms.sums import Summand


@plain
@dataclass(frozen=True, kw_only=True)
class UniformNoise(BudgetedNoise):
    """Gaussian noise of equal variance everywhere, Σσ² = μ‖ḡ‖².

    It hides nothing for certain: like every mechanism whose variance follows the private
    gradient, it is obfuscation and has no (ε, δ) guarantee.

    Parameters
    ----------
    noise_budget : float
        μ, at least 0.
    clip : float
        C.
    """

    name = "uniform"
    fused = True
    perturbs_uploads = True
    guarantee = NoGuarantee(
        "it is obfuscation: the noise's variance follows the private gradient, so the noise"
        " itself tells of it, and θ's gradient leaves without any"
    )

    def summand(self, cells: int, parameters: int) -> Summand:
        """Clipped gradients with noise, each weighted by its links."""
        return Summand(self.clip, budget=self.noise_budget)

    def _variances(
        self,
        gradients: NDArray[np.float64],
        energies: NDArray[np.float64],
        grid: Grid,
        user_xy: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        each = self.noise_budget * energies / grid.cells
        return np.broadcast_to(each[:, None], gradients.shape)
