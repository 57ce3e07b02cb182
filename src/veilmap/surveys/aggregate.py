"""The sum of all contributions, and the noise with which it is opened."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from veilmap._util.arrays import Array, Floats, Ints
from veilmap.privacy.accounting import Promise, gaussian_epsilon, promise_of_sum
from veilmap.privacy.mechanisms.lattice import discrete_gaussian
from veilmap.privacy.noise import draw
from veilmap.surveys.contribution import entries
from veilmap.surveys.design import Survey


@dataclass(frozen=True, eq=False)
class OpenedSum:
    """A survey's sum with its noise, the only thing that anyone gets to see."""

    survey: Survey
    total: Ints
    participants: int
    deviation: float  # of the noise of all aggregators together, in steps of the lattice
    seeded: bool = False  # whoever has the seed can compute the noise

    @cached_property
    def promise(self) -> Promise:
        """What the noise promises every participant, or why it promises nothing."""
        delta, clip = self.survey.delta, self.survey.clip
        own = self.deviation / math.sqrt(self.survey.aggregators)  # each knows what it drew
        spent = gaussian_epsilon(own, delta, clip)
        return promise_of_sum(spent, delta, self.participants, seeded=self.seeded)

    @property
    def angles(self) -> NDArray[np.complex128]:
        """Σ w e^{iωf} at every station and point, (S, P), in units of one participant."""
        stations, points = self.survey.shape
        return self._complex[: stations * points].reshape(stations, points)

    @property
    def levels(self) -> NDArray[np.complex128]:
        """The same of each station as a whole, in the wide range, (S,)."""
        return self._complex[-len(self.survey.stations) :]

    @cached_property
    def _complex(self) -> NDArray[np.complex128]:
        return (self.total / self.survey.clip).view(np.complex128)

    @property
    def noise(self) -> float:
        """Standard deviation of each part of `angles`."""
        return self.deviation / self.survey.clip


def summed(survey: Survey, owner: Ints, xy: Floats, bs: Array, gain_db: Floats) -> Ints:
    """The sum of all participants' contributions, without noise."""
    own = entries(survey, owner, xy, bs, gain_db)
    total = np.zeros(survey.numbers, dtype=np.int64)
    np.add.at(total, own.numbers, own.values)
    return total


def opened(survey: Survey, total: Ints, participants: int, seed: int | None) -> OpenedSum:
    """The sum with noise; without a ``seed`` from the operating system's generator."""
    noisy = total.copy()
    for number in range(survey.aggregators):
        add_noise(survey, noisy, seed, number)
    return noised(survey, noisy, participants, seeded=seed is not None)


def add_noise(survey: Survey, total: Ints, seed: int | None = None, number: int = 0) -> None:
    """Add the noise of one aggregator, the ``number``-th, which is enough for the promise."""
    discrete_gaussian(survey.deviation).add_to(total, draw(seed, survey.id, number))


def noised(survey: Survey, total: Ints, participants: int, *, seeded: bool = False) -> OpenedSum:
    """A sum that all aggregators have added their noise to."""
    deviation = survey.deviation * math.sqrt(survey.aggregators)
    return OpenedSum(survey, total, participants, deviation, seeded)
