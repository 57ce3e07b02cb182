"""Coordinates of θ in which its parts hardly depend on each other."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray


@lru_cache(maxsize=32)
def at_100_m(laws: int, others: int = 0) -> NDArray[np.float64]:
    """A with ∂F/∂(gain at 100 m, slope) = A ∂F/∂(intercept, slope) for each of the laws.

    β = (gain at 100 m) − 2α: intercepts at 1 m are far from any data, and a change of slope
    alone would move every gain. ``others`` are parameters after the laws that stay as they are.
    """
    result = np.eye(2 * laws + others)
    result[: 2 * laws, : 2 * laws] = np.kron(np.eye(laws), [[1.0, 0.0], [-2.0, 1.0]])
    result.flags.writeable = False
    return result
