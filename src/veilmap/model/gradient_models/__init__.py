"""Other people's models as audits see them: parameters, and the gradient of a user's loss.

One file an adapter. A model of one's own needs none: `GradientModel` is a protocol.
"""

from veilmap.model.gradient_models.base import GradientModel, HasFirstLayer, Parameters, Records
from veilmap.model.gradient_models.functions import FunctionModel
from veilmap.model.gradient_models.linear import LinearModel
from veilmap.model.gradient_models.radio_maps import RadioMapModel
from veilmap.model.gradient_models.torch_modules import TorchModel

__all__ = [
    "FunctionModel",
    "GradientModel",
    "HasFirstLayer",
    "LinearModel",
    "Parameters",
    "RadioMapModel",
    "Records",
    "TorchModel",
]
