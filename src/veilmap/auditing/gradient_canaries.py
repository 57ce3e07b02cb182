"""A lower bound of ε for sums of any model's gradients, from canaries.

Canaries are users whose gradient is as long as the clip and lies in one parameter of its own, the
longest contribution that a mechanism admits. Each is in a sum with probability ½, and sends noise
alone otherwise. The sums are made by the mechanism's own code.
"""

from dataclasses import replace

import numpy as np

from veilmap._util.arrays import Bools, Floats
from veilmap.auditing.canaries import CanaryBound, bound_of
from veilmap.privacy import noise
from veilmap.privacy.mechanisms import AggregateGaussian, Contribution

CANARIES = 4_000
_MOST_IN_A_SUM = 250
_MOST_NUMBERS = 10_000  # of a sum; noise does not depend on how many there are beyond that


def gradient_canary_bound(
    mechanism: AggregateGaussian, numbers: int, seed: int | None = None
) -> CanaryBound:
    """The bound for sums of vectors of so many numbers, by guesses who was in them."""
    numbers = min(max(numbers, 2), _MOST_NUMBERS)
    in_a_sum = min(numbers, _MOST_IN_A_SUM)
    coins = np.random.default_rng(seed)
    played = [
        _sum(mechanism, coins.random(in_a_sum) < 0.5, numbers, seed, number)
        for number in range(-(-CANARIES // in_a_sum))
    ]
    present, scores = (np.concatenate(each) for each in zip(*played, strict=True))
    return bound_of(present, scores, mechanism.delta)


def _sum(
    mechanism: AggregateGaussian, heads: Bools, numbers: int, seed: int | None, number: int
) -> tuple[Bools, Floats]:
    """Who was in one sum, and what it has at each canary's number less half of the clip."""
    count = len(heads)
    gradients = np.zeros((count, numbers))
    gradients[heads, np.flatnonzero(heads)] = mechanism.clip
    total = summed(mechanism, gradients, seed, f"canaries {number}")
    return heads, total[:count] - 0.5 * mechanism.clip


def summed(
    mechanism: AggregateGaussian, gradients: Floats, seed: int | None, purpose: str
) -> Floats:
    """The opened sum (M,) of clipped gradients (n, M) of any model, with everybody's noise."""
    alone = of_vectors(mechanism)
    draws = [noise.draw(seed, f"{purpose}/{i}", 0) for i in range(len(gradients))]
    sent = alone.answer(Contribution.of_vectors(gradients), None, draws, len(gradients))
    total = sent.uploads.sum(axis=0).astype(np.float64)
    return alone.read(total, np.empty(0), len(gradients), laws=0)[0] * len(gradients)


def of_vectors(mechanism: AggregateGaussian) -> AggregateGaussian:
    """The same with all of its clip for one vector: there is no θ beside it."""
    return replace(mechanism, theta_share=0.0)
