"""How well somebody who knows all contributions tells who took part in a survey."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from veilmap._util.arrays import Floats
from veilmap.auditing.measured import Measured, Z
from veilmap.privacy.accounting import gaussian_distance
from veilmap.surveys.contribution import Entries
from veilmap.surveys.design import Survey

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
        Half of them took part, and of the others the sum without them was attacked.
    auc, found_at_5_percent : Measured
        The area under the curve of all tests, and the share of participants that are found where
        5 % of the others would be taken for one.
    auc_allowed, found_at_5_percent_allowed : float
        The most that the design's (ε, δ) allows.
    auc_of_noise, found_at_5_percent_of_noise : float
        What the design's noise leaves of that, for contributions as long as the clip.
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
    def of(cls, knows: str, scores: "Scores", survey: Survey) -> "Membership":
        """What scores of a survey's participants say, beside what its design allows."""
        from scipy.special import ndtr

        distance = gaussian_distance(survey.deviation, survey.clip)
        return cls(
            knows,
            len(scores.present.own) + len(scores.absent.own),
            scores.area_under_curve(),
            auc_allowed(survey.epsilon, survey.delta),
            float(ndtr(distance * math.sqrt(0.5))),
            scores.found(),
            found_allowed(FALSE_ALARMS, survey.epsilon, survey.delta),
            float(ndtr(distance - _THRESHOLD)),
        )


@dataclass(frozen=True, eq=False)
class Scored:
    """Participants of one kind: their scores, and their contributions."""

    scores: Floats
    own: Sequence[Entries]

    @property
    def squares(self) -> float:
        """Σ (score − mean)²."""
        return float(((self.scores - self.scores.mean()) ** 2).sum())

    def directions(self, numbers: int) -> Any:
        """Contributions of length 1 as a sparse matrix, (n, numbers)."""
        from scipy.sparse import csr_array

        values = np.concatenate([one.values / np.linalg.norm(one.values) for one in self.own])
        columns = np.concatenate([one.numbers for one in self.own])
        ends = np.cumsum([0, *(len(one.values) for one in self.own)])
        return csr_array((values, columns, ends), shape=(len(self.own), numbers))


@dataclass(frozen=True, eq=False)
class Scores:
    """Of participants who took part, and of others: normal, all with the same deviation.

    All see the same noise n: the error of a score is ⟨n, v⟩, with v its own contribution of
    length 1 out of ``numbers`` numbers. So errors of scores have the covariances ⟨v, v'⟩.
    """

    present: Scored
    absent: Scored
    numbers: int

    @cached_property
    def distance(self) -> Measured:
        """μ, how many deviations apart the two kinds are; NaN if all contributions are alike."""
        kinds = self.present, self.absent
        directions = [kind.directions(self.numbers) for kind in kinds]
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
