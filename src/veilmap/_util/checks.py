"""Checks of what callers pass in: one clear line when something is wrong."""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilmap.errors import ConfigurationError


def number(name: str, value: Any, *, above: float = -math.inf, least: float = -math.inf) -> float:
    """``value`` as a finite float that is > ``above`` and >= ``least``."""
    try:
        result = float(value)
    except (TypeError, ValueError):
        raise ConfigurationError(f"{name} must be a number, not {value!r}", name) from None
    if not math.isfinite(result):
        raise ConfigurationError(f"{name} must be finite, not {result}", name)
    if result <= above:
        raise ConfigurationError(f"{name} must be greater than {above:g}, not {result:g}", name)
    if result < least:
        raise ConfigurationError(f"{name} must be at least {least:g}, not {result:g}", name)
    return result


def whole(name: str, value: Any, *, least: int) -> int:
    """``value`` as an int that is >= ``least``; 3.0 passes, 3.5 does not."""
    exact = number(name, value)
    if exact != int(exact):
        raise ConfigurationError(f"{name} must be a whole number, not {exact:g}", name)
    if exact < least:
        raise ConfigurationError(f"{name} must be at least {least}, not {int(exact)}", name)
    return int(exact)


def floats(name: str, value: ArrayLike) -> NDArray[np.float64]:
    """``value`` as a float64 array; entries are not looked at."""
    try:
        return np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise ConfigurationError(f"{name} must hold numbers only", name) from None


def points(name: str, value: ArrayLike, columns: int = 3) -> NDArray[np.float64]:
    """``value`` as a float64 array of finite coordinates, shape (..., columns)."""
    result = floats(name, value)
    if result.ndim == 0 or result.shape[-1] != columns:
        raise ConfigurationError(
            f"{name} must have shape (..., {columns}), not {result.shape}", name
        )
    if not np.isfinite(result).all():
        raise ConfigurationError(f"{name} has a coordinate that is not finite", name)
    return result
