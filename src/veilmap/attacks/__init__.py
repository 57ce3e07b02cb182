"""What a curious server could do with what it sees: one file an attack."""

from veilmap.attacks.base import Attack, Estimates, Placed, PointAttack, Posterior
from veilmap.attacks.cap_likelihood import CapLikelihood
from veilmap.attacks.centroid import WeightedCentroid
from veilmap.attacks.differencing import Differencing
from veilmap.attacks.found_places import FoundPlaces, PlacesAttack
from veilmap.attacks.gradient_inversion import GradientInversion
from veilmap.attacks.joint_inversion import JointInversion
from veilmap.attacks.known import ATTACKS, attacks_named
from veilmap.attacks.matched_filter import MatchedFilter
from veilmap.attacks.mixture_pursuit import MixturePursuit
from veilmap.attacks.places_over_time import PlacesOverTime
from veilmap.attacks.plane_inversion import PlaneInversion
from veilmap.attacks.plane_subtraction import PlaneSubtraction
from veilmap.attacks.prior import PriorOnly
from veilmap.attacks.theta_inversion import ThetaInversion

__all__ = [
    "ATTACKS",
    "Attack",
    "CapLikelihood",
    "Differencing",
    "Estimates",
    "FoundPlaces",
    "GradientInversion",
    "JointInversion",
    "MatchedFilter",
    "MixturePursuit",
    "Placed",
    "PlacesAttack",
    "PlacesOverTime",
    "PlaneInversion",
    "PlaneSubtraction",
    "PointAttack",
    "Posterior",
    "PriorOnly",
    "ThetaInversion",
    "WeightedCentroid",
    "attacks_named",
]
