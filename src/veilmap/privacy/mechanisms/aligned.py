"""Noise whose spatial shape follows the geometry of the gradient: the paper's mechanism."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veilmap._kernels import allocation
from veilmap._kernels.arguments import Axes, NoiseShape
from veilmap._util.options import option
from veilmap._util.plain import plain
from veilmap._util.threads import even_parts, run_parts
from veilmap.geometry.grid import Grid
from veilmap.privacy.mechanisms.base import BudgetedNoise
from veilmap.privacy.mechanisms.guarantees import NoGuarantee
from veilmap.privacy.mechanisms.sums import Summand

# κ₁ = (1/36)(1 + ρ/22). From 1/36 on the best plane is unique; 22 makes ρ = 100 give the
# paper's 150 m (docs/allocation.md).
_LEAST_WEIGHT = 1 / 36
_TRADEOFF_UNIT = 22.0


@plain
@dataclass(frozen=True, kw_only=True)
class GeometryAligned(BudgetedNoise):
    """σ² = max{0, a·c + b − ḡ²}, the plane chosen to mislead a centroid attacker.

    The plane maximises P − ρV: the attacker's squared error P against the spatial variance V
    of the upload's energy, both made unit-free. It is *obfuscation*, not differential
    privacy: the variance follows the private gradient, and cells with σ = 0 leave exactly.

    Parameters
    ----------
    noise_budget : float
        μ: Σσ² = μ‖ḡ‖².
    tradeoff : float
        ρ: 0 leans the noise as far from the user as it goes, large values flatten it.
    clip : float
        C.
    """

    tradeoff: float = option(
        1.0, "--tradeoff", "Trade-off ρ: larger values spread the noise more evenly.", least=0
    )

    name = "aligned"
    fused = True
    perturbs_uploads = True
    guarantee = NoGuarantee(
        "it is obfuscation: the noise's variance follows the private gradient and position, and"
        " cells with σ = 0 leave exactly; θ's gradient leaves without noise"
    )

    def variance_weight(self, cells: int) -> float:
        """κ = κ₁(3 − 2/M): the price of mean z² in the unit-free objective."""
        return _LEAST_WEIGHT * (1 + self.tradeoff / _TRADEOFF_UNIT) * (3 - 2 / cells)

    def summand(self, cells: int, parameters: int) -> Summand:
        """Clipped gradients with noise, each weighted by its links."""
        return Summand(self.clip, budget=self.noise_budget, kappa=self.variance_weight(cells))

    def _variances(
        self,
        gradients: NDArray[np.float64],
        energies: NDArray[np.float64],
        grid: Grid,
        user_xy: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        if self.noise_budget == 0:
            return np.zeros_like(gradients)
        variances = np.empty_like(gradients)
        x, y, places = unit_free(grid, user_xy)
        kappa = self.variance_weight(grid.cells)
        shape = NoiseShape(budget=self.noise_budget, kappa=kappa, axes=Axes(x=x, y=y))

        def part(start: int, stop: int) -> None:
            allocation.aligned_variances(
                start=start, stop=stop, gradients=gradients, energies=energies, positions=places,
                shape=shape, variances=variances,
            )  # fmt: skip

        run_parts(part, even_parts(len(gradients)))
        return variances


def unit_free(
    grid: Grid, xy: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Columns' x, rows' y and positions, from the middle of the grid in units of its longer side.

    The longer side, so that the cells' variance along any axis is at most 1/12 and the best
    plane is unique on every rectangle.
    """
    west, east, south, north = grid.extent
    middle = np.array([0.5 * (west + east), 0.5 * (south + north)])
    side = max(east - west, north - south)
    return (grid.x - middle[0]) / side, (grid.y - middle[1]) / side, (xy - middle) / side
