"""Figures of an audit with their 95 % confidence intervals over users."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from veilmap._util.arrays import Bools, Floats

DISTANCES = (10, 50, 100)  # metres
Z = 1.96  # 95 % of a normal distribution lies within
_SURELY = 5.0  # deviations that no sum of the data that were summed is off by


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


def metres(value: float) -> str:
    """A distance as people read it: about two digits."""
    digits = 3 if value < 0.095 else 2 if value < 0.95 else 1 if value < 9.5 else 0
    return f"{value:.{digits}f}"


def percent(share: float) -> str:
    """A share in whole percent; less than all is never shown as 100."""
    whole = f"{100 * share:.0f}"
    return whole if whole != "100" or share > 1 - 1e-9 else f"{min(100 * share, 99.99):.2f}"


def interval(found: Measured, shown: Callable[[float], str]) -> str:
    """The 95 % interval in words."""
    return f"{shown(found.low)} to {shown(found.high)}"


@dataclass
class Fit:
    """How surely opened sums are not of the data that are said to be in them.

    With y an opened sum and s that of the data, both in deviations of the noise, ⟨y − s, s⟩ is
    normal of deviation ‖s‖ if they are, and ‖y − s‖² of n numbers has mean n and deviation
    √(2n); what other people added makes the latter larger.
    """

    along: float = 0.0  # Σ ⟨y − s, s⟩
    squares: float = 0.0  # Σ ‖s‖²
    rest: float = 0.0  # Σ ‖y − s‖²
    numbers: int = 0

    def add(self, rest: Floats, exact: Floats) -> None:
        """Add what ``exact``, s, leaves of a sum."""
        self.along += float(rest @ exact)
        self.squares += float(exact @ exact)
        self.rest += float(rest @ rest)
        self.numbers += len(rest)

    @property
    def is_refuted(self) -> bool:
        """Whether noise alone would hardly leave so much, or nothing was added at all."""
        if not self.squares > 0:
            return True
        excess = (self.rest - self.numbers) / math.sqrt(2 * self.numbers)
        return not max(abs(self.along) / math.sqrt(self.squares), excess) <= _SURELY


def finite(content: Any) -> Any:
    """The same for JSON: what is not finite is null, and keys are text."""
    if isinstance(content, Mapping):
        return {str(key): finite(value) for key, value in content.items()}
    if isinstance(content, tuple | list):
        return [finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content
