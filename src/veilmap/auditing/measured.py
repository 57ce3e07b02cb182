"""Figures of an audit with their 95 % confidence intervals over users."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from veilmap._util.arrays import Bools, Floats

DISTANCES = (10, 50, 100)  # metres
Z = 1.96  # 95 % of a normal distribution lies within


@dataclass(frozen=True)
class Measured:
    """A value with its 95 % confidence interval over users."""

    value: float
    low: float
    high: float


def distances(errors: Floats) -> dict[str, Any]:
    """How far an attack is off, in metres: the fields that every score of places has."""
    return {
        "users": len(errors),
        "rmse": root_mean_square(errors),
        "median": quantile(errors, 0.5),
        "within_95": quantile(errors, 0.95),
        "found": {metres: share(errors <= metres) for metres in DISTANCES},
    }


def root_mean_square(errors: Floats) -> Measured:
    """The interval is that of the mean square, by the central limit theorem."""
    squares, n = errors**2, len(errors)
    mean = float(squares.mean())
    apart = Z * float(squares.std(ddof=1)) / math.sqrt(n) if n > 1 else math.inf
    return Measured(math.sqrt(mean), math.sqrt(max(mean - apart, 0)), math.sqrt(mean + apart))


def quantile(errors: Floats, share: float) -> Measured:
    """The interval lies between the order statistics that the share could fall on."""
    ordered, n = np.sort(errors), len(errors)
    apart = Z * math.sqrt(n * share * (1 - share))
    low, high = math.floor(n * share - apart), math.ceil(n * share + apart)
    return Measured(
        float(np.quantile(ordered, share)),
        float(ordered[max(low, 0)]),
        float(ordered[min(high, n - 1)]),
    )


def share(hits: Bools) -> Measured:
    """A share with Wilson's interval, which holds for 0 and 1 too."""
    n, share = len(hits), float(hits.mean())
    centre = (share + Z**2 / (2 * n)) / (1 + Z**2 / n)
    apart = Z / (1 + Z**2 / n) * math.sqrt(share * (1 - share) / n + Z**2 / (4 * n**2))
    return Measured(share, max(centre - apart, 0.0), min(centre + apart, 1.0))
