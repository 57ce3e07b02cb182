"""The paper's attacker: gradients are largest near their user."""

from dataclasses import dataclass

import numpy as np

from veilmap._util.arrays import Array, Floats
from veilmap.attacks.base import PointAttack
from veilmap.errors import ConfigurationError
from veilmap.federation.transcript import Transcript
from veilmap.geometry.grid import Grid

_USERS_PER_BLOCK = 16  # what is made of so many uploads stays in the processor's cache


@dataclass(frozen=True)
class WeightedCentroid(PointAttack):
    """Centre of mass of |G̃|^ν over the cells; ν = ∞ takes the largest entry's cell."""

    power: float = 2.0  # ν > 0, also infinite

    def __post_init__(self) -> None:
        if not self.power > 0:
            raise ConfigurationError(f"power must be above 0, not {self.power:g}", "power")

    @property
    def name(self) -> str:
        """For tables."""
        return "centroid ν = ∞" if self.power == float("inf") else f"centroid ν = {self.power:g}"

    def positions(self, uploads: Array, transcript: Transcript) -> Floats:
        """Estimates (n, 2) in metres for uploads (n, M); the middle of the map for zeros."""
        starts = range(0, max(1, len(uploads)), _USERS_PER_BLOCK)
        blocks = (uploads[start : start + _USERS_PER_BLOCK] for start in starts)
        return np.vstack([centroids(self._weights(block), transcript.grid) for block in blocks])

    def _weights(self, uploads: Array) -> Floats:
        """What each cell counts, (n, M)."""
        size = np.abs(uploads.astype(np.float64))
        largest = size.max(axis=1, keepdims=True)
        if self.power == float("inf"):
            return (size == largest).astype(np.float64)
        return _raised(size / np.where(largest > 0, largest, 1), self.power)


def _raised(values: Floats, power: float) -> Floats:
    """Floats to a power; a whole one by squaring, which is several times faster."""
    if power != int(power) or power > 64:
        return values**power
    left = int(power)
    result = values if left % 2 else np.ones_like(values)
    while left := left // 2:
        values = values * values
        if left % 2:
            result = result * values
    return result


def centroids(weights: Floats, grid: Grid) -> Floats:
    """Centres of mass (n, 2) in metres of weights (n, M); the middle of the map for zeros."""
    total = weights.sum(axis=1, keepdims=True)
    weights = np.where(total > 0, weights / np.where(total > 0, total, 1), 1 / grid.cells)
    return weights @ grid.centres
