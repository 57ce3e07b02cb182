"""The paper's quantities and bounds as functions.

`localization` is about what the centroid attacker finds, `convergence` about what noise and
clipping do to training, `attenuation` about how gradients fade with distance.
"""

from veilmap.paper.theory.attenuation import expected_energy, rays, rises
from veilmap.paper.theory.convergence import (
    DescentBound,
    clipping_loss,
    dissimilarity,
    heterogeneity,
    largest_curvature,
    largest_heights_rate,
    largest_noise_budget,
)
from veilmap.paper.theory.localization import (
    Decomposition,
    attacker_error,
    localization_limit,
    spatial_variance,
)

__all__ = [
    "Decomposition",
    "DescentBound",
    "attacker_error",
    "clipping_loss",
    "dissimilarity",
    "expected_energy",
    "heterogeneity",
    "largest_curvature",
    "largest_heights_rate",
    "largest_noise_budget",
    "localization_limit",
    "rays",
    "rises",
    "spatial_variance",
]
