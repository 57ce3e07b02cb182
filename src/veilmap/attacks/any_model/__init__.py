"""What a curious server could do with gradients of any model: one file an attack."""

from veilmap.attacks.any_model.base import GradientAttack, SeenGradients
from veilmap.attacks.any_model.deep_leakage import DeepLeakage
from veilmap.attacks.any_model.first_layer import FirstLayer
from veilmap.attacks.any_model.inversion import Inversion
from veilmap.attacks.any_model.places import Places
from veilmap.attacks.any_model.prior import Guess
from veilmap.attacks.any_model.templates import TemplateFilter

__all__ = [
    "DeepLeakage",
    "FirstLayer",
    "GradientAttack",
    "Guess",
    "Inversion",
    "Places",
    "SeenGradients",
    "TemplateFilter",
]
