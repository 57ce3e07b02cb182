"""Noise whose spatial shape follows the geometry of the gradient: the paper's mechanism."""

from dataclasses import dataclass
from functools import partial

import numpy as np

from veilmap._kernels import allocation
from veilmap._kernels.arguments import Axes, NoiseShape
from veilmap._util.arrays import Floats
from veilmap._util.options import option
from veilmap._util.plain import plain
from veilmap._util.threads import even_parts, run_parts
from veilmap.geometry.grid import Grid
from veilmap.privacy.mechanisms.base import NoGuarantee
from veilmap.privacy.mechanisms.sums import Summand
from veilmap.privacy.mechanisms.upload import BudgetedNoise

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

    ``noise_budget`` is μ, Σσ² = μ‖ḡ‖². ``tradeoff`` is ρ: 0 leans the noise as far from the user
    as it goes, large values flatten it.
    """

    tradeoff: float = option(
        1.0, "--tradeoff", "Trade-off ρ: larger values spread the noise more evenly.", least=0,
        symbol="ρ",
    )  # fmt: skip

    name = "aligned"
    title = "Geometry-aligned noise"
    needs_positions = True
    sums_in_place = True
    unevenness = 32.0  # a plane that leans into a corner comes to 8
    guarantee = NoGuarantee(
        "it is obfuscation: the noise's variance follows the private gradient and position, and"
        " cells with σ = 0 leave exactly; θ's gradient leaves without noise"
    )

    @property
    def in_words(self) -> str:
        """What clients do to their gradients."""
        slope = f"on a slope that leans away from the user (ρ = {self.tradeoff:g})"
        return f"geometry-aligned noise: {self._noisy}, {slope}"

    def variance_weight(self, cells: int) -> float:
        """κ = κ₁(3 − 2/M): the price of mean z² in the unit-free objective."""
        return _LEAST_WEIGHT * (1 + self.tradeoff / _TRADEOFF_UNIT) * (3 - 2 / cells)

    def summand(self, cells: int, parameters: int) -> Summand:
        """Clipped gradients with noise, each weighted by its links."""
        return Summand(self.clip, budget=self.noise_budget, kappa=self.variance_weight(cells))

    def _variances(
        self, gradients: Floats, energies: Floats, grid: Grid | None, places: Floats | None
    ) -> Floats:
        if self.noise_budget == 0:
            return np.zeros_like(gradients)
        assert grid is not None  # as it needs positions
        assert places is not None
        variances = np.empty_like(gradients)
        x, y, positions = unit_free(grid, places)
        kappa = self.variance_weight(grid.cells)
        shape = NoiseShape(budget=self.noise_budget, kappa=kappa, axes=Axes(x=x, y=y))
        given = {"gradients": gradients, "energies": energies, "positions": positions}
        run = partial(allocation.aligned_variances, **given, shape=shape, variances=variances)
        run_parts(lambda start, stop: run(start=start, stop=stop), even_parts(len(gradients)))
        return variances


def unit_free(grid: Grid, xy: Floats) -> tuple[Floats, Floats, Floats]:
    """Columns' x, rows' y and positions, from the middle of the grid in units of its longer side.

    The longer side, so that the cells' variance along any axis is at most 1/12 and the best
    plane is unique on every rectangle.
    """
    west, east, south, north = grid.extent
    middle = np.array([0.5 * (west + east), 0.5 * (south + north)])
    side = max(east - west, north - south)
    return (grid.x - middle[0]) / side, (grid.y - middle[1]) / side, (xy - middle) / side
