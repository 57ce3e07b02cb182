"""The geometry-aligned noise points away from its user: follow it back."""

from dataclasses import dataclass

import numpy as np

from veilmap._kernels import allocation
from veilmap._kernels.arguments import Axes
from veilmap._util.arrays import Array, Floats
from veilmap.attacks.base import PointAttack
from veilmap.attacks.centroid import centroids
from veilmap.federation.transcript import Transcript
from veilmap.privacy.mechanisms import GeometryAligned
from veilmap.privacy.mechanisms.aligned import unit_free

# Cells above this many times the mean are the gradient's own peaks, not the plane's.
_PEAK = 30.0


@dataclass(frozen=True)
class PlaneInversion(PointAttack):
    """Solve the allocation for the position it was made for.

    At its optimum the plane's slope is a = e/κ, with e = (centroid of the energy) − p and κ
    known from the public ρ. The upload's centroid ĉ gives the plane, hence a; the position
    is p = ĉ − κa. Without such a plane (other mechanisms) what is left is the centroid.
    """

    name = "plane inversion"

    def positions(self, uploads: Array, transcript: Transcript) -> Floats:
        """Estimates (n, 2) in metres for uploads (n, M)."""
        grid = transcript.grid
        energy = uploads.astype(np.float64) ** 2
        mechanism = transcript.mechanism
        if not isinstance(mechanism, GeometryAligned):
            return centroids(energy, grid)
        energy[energy > _PEAK * energy.mean(axis=1, keepdims=True)] = 0
        x, y, middle = unit_free(grid, centroids(energy, grid))
        slopes = np.empty_like(middle)
        kappa = mechanism.variance_weight(grid.cells)
        allocation.planes_with_centroids(
            centroids=middle, kappa=kappa, axes=Axes(x=x, y=y), slopes=slopes
        )
        west, east, south, north = grid.extent
        side = max(east - west, north - south)
        centre = np.array([0.5 * (west + east), 0.5 * (south + north)])
        found = centre + side * (middle - slopes)  # p = ĉ − v
        return np.clip(found, [west, south], [east, north])
