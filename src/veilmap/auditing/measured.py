"""Figures of an audit with their 95 % confidence intervals over users."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from veilmap._util.arrays import Bools, Floats

DISTANCES = (10, 50, 100)  # metres
Z = 1.96  # 95 % of a normal distribution lies within
SURELY = 5.0  # deviations that no sum of the data that were summed is off by


@dataclass(frozen=True)
class Measured:
    """A value with its 95 % confidence interval over users."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Located:
    """How far one attack is from where users were, in metres."""

    attack: str
    knows: str
    users: int
    median: Measured
    rmse: Measured
    within_95: Measured
    found: Mapping[int, Measured]  # shares of users within some distances

    @classmethod
    def of(cls, attack: str, knows: str, places: Floats, truth: Floats) -> "Located":
        """By where an attack places users, (n, 2) or all at (2,), and where they were."""
        return cls(attack, knows, **distances(np.linalg.norm(places - truth, axis=1)))


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


def deviations_off(rest: Floats, exact: Floats, deviation: float) -> float:
    """How surely an opened sum y is not of the data that sum to ``exact`` s: ``rest`` is y − s.

    If it is, ⟨y − s, s⟩ is normal of deviation σ ‖s‖, and ‖y − s‖² of n numbers of mean n σ² and
    deviation σ² √(2n); what other people added makes the latter larger.
    """
    variance = deviation**2
    along = abs(float(rest @ exact)) / math.sqrt(variance * max(float(exact @ exact), 1.0))
    excess = (float(rest @ rest) / variance - len(rest)) / math.sqrt(2 * len(rest))
    return max(along, excess)


def finite(content: Any) -> Any:
    """The same for JSON: what is not finite is null, and keys are text."""
    if isinstance(content, Mapping):
        return {str(key): finite(value) for key, value in content.items()}
    if isinstance(content, tuple | list):
        return [finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content
