"""Linear estimators in the style of scikit-learn."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from veilmap._util.arrays import Floats
from veilmap.errors import ConfigurationError
from veilmap.model.gradient_models.base import Parameters, Records, flat


@dataclass(frozen=True, eq=False)
class LinearModel:
    """A fitted estimator with ``coef_`` and ``intercept_`` under squared loss.

    It is one dense layer: ∂F/∂w = (2/J) Σ r x and ∂F/∂b = (2/J) Σ r with r = w·x + b − target.

    Parameters
    ----------
    estimator : LinearRegression, Ridge, SGDRegressor or the like
    inputs_of : callable, optional
        What the estimator takes of records, (J, F); by default x, y and the features.
    """

    estimator: Any
    inputs_of: Callable[[Records], Floats] = lambda records: records.columns

    def __post_init__(self) -> None:
        if not (hasattr(self.estimator, "coef_") and hasattr(self.estimator, "intercept_")):
            raise ConfigurationError(
                "estimator has no coef_ and intercept_: fit it first", "estimator"
            )
        if np.size(self.estimator.intercept_) != 1:
            raise ConfigurationError("estimator must have one target", "estimator")

    @property
    def _has_bias(self) -> bool:
        """Whether an intercept is learned: without one, no ratio says where a record was."""
        return bool(getattr(self.estimator, "fit_intercept", True))

    @property
    def parameters(self) -> Parameters:
        """The coefficients, and the intercept if one is learned."""
        coef = np.reshape(self.estimator.coef_, (1, -1)).astype(np.float64)
        bias = np.reshape(self.estimator.intercept_, 1).astype(np.float64)
        return {"coef": coef, "intercept": bias} if self._has_bias else {"coef": coef}

    @property
    def first_layer(self) -> tuple[str, str] | None:
        """The only layer there is."""
        return ("coef", "intercept") if self._has_bias else None

    def inputs(self, records: Records) -> Floats:
        """x, (J, F)."""
        return self.inputs_of(records)

    def gradient(self, parameters: Parameters, records: Records) -> Parameters:
        """Of the mean squared error."""
        inputs, vector = self.inputs(records), flat(parameters)
        coef, bias = vector[: inputs.shape[1]], vector[inputs.shape[1] :]
        slopes = 2 * (inputs @ coef + bias.sum() - records.target) / len(records)
        by_coef = {"coef": (slopes @ inputs)[None]}
        return by_coef | ({"intercept": slopes.sum()[None]} if len(bias) else {})
