"""Checks of what callers pass in: one clear line when something is wrong."""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from veilmap._util.arrays import Floats
from veilmap.errors import ConfigurationError


def number(
    name: str,
    value: Any,
    *,
    above: float = -math.inf,
    least: float = -math.inf,
    below: float = math.inf,
    most: float = math.inf,
) -> float:
    """``value`` as a finite float > ``above``, >= ``least``, < ``below`` and <= ``most``."""
    try:
        result = float(value)
    except OverflowError:
        raise ConfigurationError(f"{name} is too large", name) from None
    except (TypeError, ValueError):
        raise ConfigurationError(f"{name} must be a number, not {value!r}", name) from None
    if not math.isfinite(result):
        raise ConfigurationError(f"{name} must be finite, not {result}", name)
    for wrong, words, bound in (
        (result <= above, "greater than", above),
        (result < least, "at least", least),
        (result >= below, "below", below),
        (result > most, "at most", most),
    ):
        if wrong:
            raise ConfigurationError(f"{name} must be {words} {bound:g}, not {result:g}", name)
    return result


def whole(name: str, value: Any, *, least: int, most: float = math.inf) -> int:
    """``value`` as an int from ``least`` to ``most``; 3.0 passes, 3.5 does not."""
    exact = number(name, value)
    if exact != int(exact):
        raise ConfigurationError(f"{name} must be a whole number, not {exact:g}", name)
    if exact < least:
        raise ConfigurationError(f"{name} must be at least {least}, not {int(exact)}", name)
    if exact > most:
        raise ConfigurationError(f"{name} must be at most {most}, not {int(exact)}", name)
    return int(exact)


def floats(name: str, value: ArrayLike) -> Floats:
    """``value`` as a float64 array; entries are not looked at."""
    try:
        return np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise ConfigurationError(f"{name} must hold numbers only", name) from None


def points(name: str, value: ArrayLike, columns: int = 3) -> Floats:
    """``value`` as a float64 array of finite coordinates, shape (..., columns)."""
    result = floats(name, value)
    if result.ndim == 0 or result.shape[-1] != columns:
        shape = f"(..., {columns}), not {result.shape}"
        raise ConfigurationError(f"{name} must have shape {shape}", name)
    if not np.isfinite(result).all():
        raise ConfigurationError(f"{name} has a coordinate that is not finite", name)
    return result
