"""What a curious server could do with what it sees: one file an attack."""

from veilmap.attacks.base import Attack, Estimates, Placed, Posterior
from veilmap.attacks.centroid import WeightedCentroid
from veilmap.attacks.differencing import Differencing
from veilmap.attacks.gradient_inversion import GradientInversion
from veilmap.attacks.joint_inversion import JointInversion
from veilmap.attacks.matched_filter import MatchedFilter
from veilmap.attacks.plane_inversion import PlaneInversion
from veilmap.attacks.plane_subtraction import PlaneSubtraction
from veilmap.attacks.prior import PriorOnly
from veilmap.attacks.theta_inversion import ThetaInversion

__all__ = [
    "Attack",
    "Differencing",
    "Estimates",
    "GradientInversion",
    "JointInversion",
    "MatchedFilter",
    "Placed",
    "PlaneInversion",
    "PlaneSubtraction",
    "Posterior",
    "PriorOnly",
    "ThetaInversion",
    "WeightedCentroid",
]
