"""Checks of what callers pass in: one clear line when something is wrong."""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilmap.errors import VeilmapError


def number(name: str, value: Any, *, above: float = -math.inf, least: float = -math.inf) -> float:
    """``value`` as a finite float that is > ``above`` and >= ``least``."""
    try:
        result = float(value)
    except (TypeError, ValueError):
        raise VeilmapError(f"{name} must be a number, not {value!r}") from None
    if not math.isfinite(result):
        raise VeilmapError(f"{name} must be finite, not {result}")
    if result <= above:
        raise VeilmapError(f"{name} must be greater than {above:g}, not {result:g}")
    if result < least:
        raise VeilmapError(f"{name} must be at least {least:g}, not {result:g}")
    return result


def whole(name: str, value: Any, *, least: int) -> int:
    """``value`` as an int that is >= ``least``; 3.0 passes, 3.5 does not."""
    exact = number(name, value)
    if exact != int(exact):
        raise VeilmapError(f"{name} must be a whole number, not {exact:g}")
    if exact < least:
        raise VeilmapError(f"{name} must be at least {least}, not {int(exact)}")
    return int(exact)


def floats(name: str, value: ArrayLike) -> NDArray[np.float64]:
    """``value`` as a float64 array; entries are not looked at."""
    try:
        return np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise VeilmapError(f"{name} must hold numbers only") from None


def points(name: str, value: ArrayLike, columns: int = 3) -> NDArray[np.float64]:
    """``value`` as a float64 array of finite coordinates, shape (..., columns)."""
    result = floats(name, value)
    if result.ndim == 0 or result.shape[-1] != columns:
        raise VeilmapError(f"{name} must have shape (..., {columns}), not {result.shape}")
    if not np.isfinite(result).all():
        raise VeilmapError(f"{name} has a coordinate that is not finite")
    return result
