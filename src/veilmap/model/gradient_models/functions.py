"""A model whose gradient is a function of NumPy arrays."""

from collections.abc import Callable
from dataclasses import dataclass

from veilmap._util.arrays import Floats
from veilmap.model.gradient_models.base import Parameters, Records


@dataclass(frozen=True, eq=False)
class FunctionModel:
    """A model given by its parameters and the gradient of a user's loss.

    Parameters
    ----------
    parameters : array, or mapping of named arrays
    loss_gradient : callable
        From (parameters, records) to the gradient, in the shape of ``parameters``.
    first_layer : (name of W, name of b), optional
        Where the first layer is dense.
    inputs_of : callable, optional
        What the first layer takes of records, (J, F); by default x, y and the features.
    """

    parameters: Parameters
    loss_gradient: Callable[[Parameters, Records], Parameters]
    first_layer: tuple[str, str] | None = None
    inputs_of: Callable[[Records], Floats] = lambda records: records.columns

    def gradient(self, parameters: Parameters, records: Records) -> Parameters:
        """Of one user's loss."""
        return self.loss_gradient(parameters, records)

    def inputs(self, records: Records) -> Floats:
        """What the first layer takes, (J, F)."""
        return self.inputs_of(records)
