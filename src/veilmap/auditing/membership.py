"""How well somebody who knows all contributions tells who took part in sums."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from veilmap._util.arrays import Floats
from veilmap.auditing.measured import Measured, Z

FALSE_ALARMS = 0.05
_THRESHOLD = 1.6448536269514722  # Φ⁻¹(1 − 0.05)
_LARGEST = 700.0  # ε whose exponential is a float
_PAIRED = 1000  # participants whose contributions are compared with each other


@dataclass(frozen=True)
class Membership:
    """How well the adversary of the promise tells who took part.

    Attributes
    ----------
    users : int
        Half of them took part, and of the others the sums without them were attacked.
    auc, found_at_5_percent : Measured
        The area under the curve of all tests, and the share of participants that are found where
        5 % of the others would be taken for one.
    auc_allowed, found_at_5_percent_allowed : float
        The most that (ε, δ) allows.
    auc_of_noise, found_at_5_percent_of_noise : float
        What the noise leaves of that, for contributions as long as they may be.
    """

    knows: str
    users: int
    auc: Measured
    auc_allowed: float
    auc_of_noise: float
    found_at_5_percent: Measured
    found_at_5_percent_allowed: float
    found_at_5_percent_of_noise: float

    @classmethod
    def of(cls, knows: str, scores: "Scores", allowed: "Allowed") -> "Membership":
        """What scores say, beside what is allowed."""
        from scipy.special import ndtr

        return cls(
            knows,
            len(scores.present.scores) + len(scores.absent.scores),
            scores.area_under_curve(),
            auc_allowed(allowed.epsilon, allowed.delta),
            float(ndtr(allowed.distance * math.sqrt(0.5))),
            scores.found(),
            found_allowed(FALSE_ALARMS, allowed.epsilon, allowed.delta),
            float(ndtr(allowed.distance - _THRESHOLD)),
        )


@dataclass(frozen=True)
class Allowed:
    """What is claimed of the attacked sums.

    ``distance`` is μ: by how many deviations of the noise they may differ with and without a user.
    """

    epsilon: float
    delta: float
    distance: float


@dataclass(frozen=True, eq=False)
class Scored:
    """Users of one kind: their scores, and their contributions.

    ``directions`` are the contributions in deviations of the noise and of length 1, (n, numbers),
    sparse; or other vectors with the same products.
    """

    scores: Floats
    directions: Any

    @property
    def squares(self) -> float:
        """Σ (score − mean)²."""
        return float(((self.scores - self.scores.mean()) ** 2).sum())


@dataclass(frozen=True, eq=False)
class Scores:
    """Of users who took part, and of others: normal, all with the same deviation.

    All see the same noise n: the error of a score is ⟨n, v⟩, with v its own contribution of
    length 1. So errors of scores have the covariances ⟨v, v'⟩.
    """

    present: Scored
    absent: Scored

    @cached_property
    def distance(self) -> Measured:
        """μ, how many deviations apart the two kinds are; NaN if all contributions are alike."""
        kinds = self.present, self.absent
        directions = [kind.directions for kind in kinds]
        means = [own.mean(axis=0) for own in directions]
        # Scores of n contributions spread by n (1 − ‖mean v‖²) of their variance.
        pairs = [*zip(directions, means, strict=True)]
        freedom = sum(own.shape[0] * (1 - float(mean @ mean)) for own, mean in pairs)
        spread = sum(kind.squares for kind in kinds)
        if spread <= 0 or freedom < 1:
            return Measured(math.nan, math.nan, math.nan)
        apart = self.present.scores.mean() - self.absent.scores.mean()
        value = float(apart) / math.sqrt(spread / freedom)
        # The deviation of the difference of means, and the relative one of the deviation.
        covariances = sum(_squared_covariances(own, mean) for own, mean in pairs)
        relative = math.sqrt(covariances / 2) / freedom
        error = Z * math.hypot(float(np.linalg.norm(means[0] - means[1])), value * relative)
        return Measured(value, value - error, value + error)

    def area_under_curve(self) -> Measured:
        """P(present > absent) = Φ(μ / √2)."""
        return self._measured(math.sqrt(0.5), 0.0)

    def found(self) -> Measured:
        """P(present > t) = Φ(μ − t), with t above all but 5 % of the absent."""
        return self._measured(1.0, -_THRESHOLD)

    def _measured(self, slope: float, offset: float) -> Measured:
        from scipy.special import ndtr

        mu = self.distance
        return Measured(*(float(ndtr(slope * x + offset)) for x in (mu.value, mu.low, mu.high)))


def _squared_covariances(directions: Any, mean: Floats) -> float:
    """Σ ⟨v − mean, v' − mean⟩² over all pairs, or what some of them say of it."""
    some = directions[:_PAIRED]
    along = some @ mean
    products = (some @ some.T).toarray() - along[:, None] - along + float(mean @ mean)
    own = float((np.diag(products) ** 2).sum())
    count, known = directions.shape[0], len(products)
    others = (float((products**2).sum()) - own) / max(known * (known - 1), 1)
    return own * count / known + others * count * (count - 1)


def found_allowed(false_alarms: float, epsilon: float, delta: float) -> float:
    """The most that an (ε, δ) mechanism lets anybody find at so many false alarms."""
    factor = math.exp(min(epsilon, _LARGEST))
    return min(factor * false_alarms + delta, 1 - (1 - false_alarms - delta) / factor, 1.0)


def auc_allowed(epsilon: float, delta: float) -> float:
    """The area under the curve of `found_allowed`, over all false alarms."""
    return 1 - (1 - delta) ** 2 / (1 + math.exp(min(epsilon, _LARGEST)))
