"""What stands out of the noise plane is the user."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veilmap._util import checks
from veilmap.attacks.base import PointAttack
from veilmap.attacks.planes import noise_variances
from veilmap.federation.transcript import Transcript


@dataclass(frozen=True)
class PlaneSubtraction(PointAttack):
    """Fit the noise plane to the upload's square, subtract it, smooth, take the peak.

    What is left over is counted in units of the noise's own scatter, so that the loud end
    of the plane does not win by chance.

    Parameters
    ----------
    smoothing : float
        Standard deviation of the Gaussian filter, in cells.
    """

    smoothing: float = 1.0

    name = "plane subtraction"

    def __post_init__(self) -> None:
        checks.number("smoothing", self.smoothing, least=0)

    def positions(self, uploads: NDArray, transcript: Transcript) -> NDArray[np.float64]:
        """Estimates (n, 2) in metres for uploads (n, M)."""
        from scipy.ndimage import gaussian_filter

        grid = transcript.grid
        squares = uploads.astype(np.float64) ** 2
        plane = noise_variances(uploads, grid)
        # Where the noise is low the gradient itself scatters: a tenth of the mean energy.
        scatter = plane + 0.1 * squares.mean(axis=1, keepdims=True) + 1e-300
        left = ((squares - plane) / scatter).reshape(-1, *grid.shape)
        smooth = gaussian_filter(left, (0, self.smoothing, self.smoothing))
        return grid.centres[smooth.reshape(len(uploads), -1).argmax(axis=1)]
