"""What a curious server could do with what it sees: one file an attack."""

from veilmap.attacks.base import Estimates
from veilmap.attacks.centroid import WeightedCentroid

ATTACKS = {"centroid": WeightedCentroid}

__all__ = ["ATTACKS", "Estimates", "WeightedCentroid"]
