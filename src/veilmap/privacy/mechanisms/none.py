"""No noise: clipping only, as in plain federated learning."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veilmap._util.plain import plain
from veilmap.geometry.grid import Grid
from veilmap.privacy.mechanisms.base import UploadNoise
from veilmap.privacy.mechanisms.guarantees import NoGuarantee
from veilmap.privacy.mechanisms.sums import Summand
from veilmap.privacy.noise import Draw


@plain
@dataclass(frozen=True, kw_only=True)
class NoNoise(UploadNoise):
    """Clipped gradients leave as they are.

    Parameters
    ----------
    clip : float
        C.
    """

    name = "none"
    fused = True
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
    ) -> None:
        """None."""

    def _noise_energies(self, energies: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.zeros_like(energies)

    def summand(self, cells: int, parameters: int) -> Summand:
        """Clipped gradients, each weighted by its links."""
        return Summand(self.clip)
