"""Lower bounds of ε from canaries in one run, for surveys and for training in rounds.

Canaries are participants whose contributions are nearly as long as contributions can be and hardly
touch each other: in a survey one reading each, exactly at a point, and in rounds a gradient that is
0 but for one cell. Each takes part with probability ½, all of them at once, in sums that are made
and opened by the product's own code, with noise drawn for this study alone. Whoever guesses too
many of the coins right refutes the claimed ε.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from veilmap._util import checks
from veilmap._util.arrays import Array, Bools, Floats, Ints
from veilmap.errors import ConfigurationError
from veilmap.geometry.grid import Grid
from veilmap.privacy import noise
from veilmap.privacy.accounting import epsilon_of_distance
from veilmap.privacy.mechanisms import AggregateGaussian
from veilmap.privacy.mechanisms.base import Contribution
from veilmap.surveys.aggregate import opened, summed
from veilmap.surveys.design import Survey

CANARIES = 100_000
MOST_SUMS = 50
"""Where one sum has too few points for all canaries, others are in further sums."""

CANARIES_OF_ROUNDS = 20_000
"""Fewer do not show that half of the noise is missing at ε = 8, however they are guessed."""

GUESSED = (0.01, 0.1)
"""Shares of the canaries that are guessed: fixed in advance, and each is a test of its own."""

CONFIDENCE = 0.95
_TOLERANCE = 1e-4

_PARAMETERS = 4  # of θ: two laws
_BLOCK_BYTES = 64e6  # of the answers that are in memory at a time
_WORD = 32  # bits of sums where the mechanism does not say


@dataclass(frozen=True)
class CanaryBound:
    """What guesses about canaries say of ε.

    Attributes
    ----------
    canaries, guesses, right : int
        How many there were, of how many it was guessed whether they took part, and how often that
        was right.
    epsilon_at_least : float
        If the trade-off curve is a Gaussian's, as that of the noise on sums is (`least_distance`).
    epsilon_at_least_of_any : float
        Whatever the mechanism is (`least_epsilon`).
    confidence : float
        With which each of the two holds.
    """

    canaries: int
    guesses: int
    right: int
    epsilon_at_least: float
    epsilon_at_least_of_any: float
    confidence: float = CONFIDENCE


def canary_bound(survey: Survey, seed: int | None = None) -> CanaryBound:
    """The bound for surveys of a design; without a ``seed`` from the operating system's noise."""
    return bound_of(*played(survey, seed), survey.delta)


def canary_bound_of_rounds(
    mechanism: AggregateGaussian,
    grid: Grid,
    cohort: int,
    rounds: int,
    seed: int | None = None,
    *,
    canaries: int = CANARIES_OF_ROUNDS,
) -> CanaryBound:
    """The bound for a training of so many rounds.

    A canary's gradient of h has one cell, its own, and is as long as the clip; it is in all rounds
    or in none. Its θ and all other cells get noise alone. So its contribution is √(1 − s²), or 0.98
    of C, and with the room that is left for rounding 0.95 of what the noise is made for. As many
    answer as have to, each with its own share of the noise (`AggregateGaussian.answer`); sums count
    modulo 2^bits, and are read as the server reads them. Nothing else is simulated: no
    map is learned.

    Parameters
    ----------
    mechanism : AggregateGaussian
        With its noise, levels and bits settled (`accounting.calibrated`, `fitting.fitted`), and
        ``contribute`` of 1.
    grid : Grid
    cohort : int
        How many are asked in a round.
    rounds : int
    seed : int, optional
        By default coins and noise are the operating system's.
    canaries : int
        All in all. One training has as many as answers or cells; others are in further trainings
        with noise of their own. Even if every guess is right, a hundred guesses say little of a
        large ε: a thousand canaries never show more than 5.6 at δ = 1e-6.
    """
    if mechanism.contribute < 1:
        raise ConfigurationError("canaries that are in all rounds need contribute = 1", "mechanism")
    training = _Rounds(mechanism, grid, cohort, checks.whole("rounds", rounds, least=1))
    left = checks.whole("canaries", canaries, least=1)
    coins = np.random.default_rng(seed)
    present: list[Bools] = []
    scores: list[Floats] = []
    while left > 0:
        heads = coins.random(min(left, training.room)) < 0.5
        present.append(heads)
        scores.append(training.scores(heads, coins, seeded=seed is not None))
        left -= len(heads)
    return bound_of(np.concatenate(present), np.concatenate(scores), mechanism.delta)


def bound_of(present: Bools, score: Floats, delta: float) -> CanaryBound:
    """What scores of canaries say: the larger one is, the more surely its canary took part."""
    surest = np.argsort(-np.abs(score), kind="stable")
    hits = ((score > 0) == present)[surest]
    count, level = len(hits), (1 - CONFIDENCE) / len(GUESSED)  # Bonferroni
    tests = []
    for share in GUESSED:
        guesses = max(1, round(share * count))
        right = int(hits[:guesses].sum())
        tests.append((least_distance(count, guesses, right, level), guesses, right))
    distance, guesses, right = max(tests)
    return CanaryBound(
        count,
        guesses,
        right,
        epsilon_of_distance(distance, delta),
        max(least_epsilon(count, g, r, level, delta) for _, g, r in tests),
    )


def played(survey: Survey, seed: int | None = None) -> tuple[Bools, Floats]:
    """Which canaries took part, and a score for each: positive where the sum says that it did."""
    coins = np.random.default_rng(seed)
    stations, points = survey.shape
    each, left = 2 * stations * points, CANARIES
    present: list[Bools] = []
    scores: list[Floats] = []
    while left > 0 and len(present) < MOST_SUMS:
        chosen = coins.permutation(each)[:left]
        heads = coins.random(len(chosen)) < 0.5
        noise = None if seed is None else int(coins.integers(2**62))
        present.append(heads)
        scores.append(_scores(survey, chosen, heads, noise))
        left -= len(chosen)
    return np.concatenate(present), np.concatenate(scores)


def _scores(survey: Survey, chosen: Ints, heads: Bools, seed: int | None) -> Floats:
    """Of one sum: what it has at each canary's number, less half of what the canary adds."""
    readings = _readings(survey, chosen)
    mine = np.flatnonzero(heads)
    taking_part = (column[mine] for column in readings)
    total = summed(survey, np.arange(len(mine)), *taking_part)
    found = opened(survey, total, len(mine), seed)
    # Nobody else's contribution is at a canary's number, so the sum of all has each one's own.
    adds = summed(survey, np.arange(len(chosen)), *readings)[chosen]
    return np.sign(adds) * (found.total[chosen] - 0.5 * adds)


def _readings(survey: Survey, chosen: Ints) -> tuple[Floats, Array, Floats]:
    """Place, base station and gain of each canary, by the number of the sum that it adds to.

    Its residual is 0 or a quarter of the range, so that its angle lies on one of two axes.
    """
    place, axis = chosen // 2, chosen % 2
    station, point = place // survey.grid.cells, place % survey.grid.cells
    xy = survey.grid.centres[point]
    ids = np.array([own.id for own in survey.stations])[station]
    return xy, ids, survey.nominal(station, xy) + axis * survey.range_db / 4


@dataclass(frozen=True)
class _Rounds:
    """Trainings with canaries."""

    mechanism: AggregateGaussian
    grid: Grid
    cohort: int
    rounds: int

    @property
    def room(self) -> int:
        """Canaries in one training."""
        return min(self._answers, self.grid.cells)

    @property
    def _answers(self) -> int:
        """With how many a sum may be opened: more would bring more noise than is promised."""
        return self.mechanism.least_answers(self.cohort)

    @property
    def _own(self) -> float:
        """A canary's gradient in its cell: what is clipped to, in whole steps of the lattice."""
        how = self.mechanism.summand(self.grid.cells, _PARAMETERS)
        return math.floor(how.scale * how.clip) / how.scale

    def scores(self, heads: Bools, coins: np.random.Generator, *, seeded: bool) -> Floats:
        """Of one training: the means at each canary's cell, less half of what the canary adds."""
        cells = coins.permutation(self.grid.cells)[: len(heads)]
        key = int(coins.integers(2**62)) if seeded else None
        own = np.zeros(self._answers)  # the first who answer are the canaries
        own[: len(heads)] = self._own * heads
        total = np.zeros(len(heads))
        for number in range(self.rounds):
            total += self._means(own, cells, key, number)[cells]
        return np.asarray(total - 0.5 * self.rounds * self._own / self._answers)

    def _means(self, own: Floats, cells: Ints, key: int | None, number: int) -> Floats:
        """What the server reads off one round, (M,)."""
        size = max(1, int(_BLOCK_BYTES / (8 * self.grid.cells)))
        total = np.zeros(self.grid.cells, dtype=np.int64)
        for first in range(0, len(own), size):
            users = np.arange(first, min(first + size, len(own)))
            heights = np.zeros((len(users), self.grid.cells))
            canaries = users[: max(len(cells) - first, 0)]
            heights[canaries - first, cells[canaries]] = own[canaries]
            theta, places = np.zeros((len(users), _PARAMETERS)), np.zeros((len(users), 2))
            raw = Contribution(heights, theta, np.ones(len(users), dtype=np.int64), places)
            draws = [noise.draw(key, user, number) for user in users.tolist()]
            total += self.mechanism.answer(raw, self.grid, draws, self.cohort).uploads.sum(axis=0)
        total %= 2 ** (self.mechanism.bits or _WORD)
        return self.mechanism.read(total.astype(np.float64), np.zeros(_PARAMETERS), len(own))[0]


def least_epsilon(canaries: int, guesses: int, right: int, level: float, delta: float) -> float:
    """The largest ε that so many right guesses refute, at this level, for any (ε, δ) mechanism.

    Steinke, Nasr and Jagielski, "Privacy auditing with one (1) training run" (NeurIPS 2023),
    Theorem 5.2: with q = e^ε / (1 + e^ε), W binomial of so many guesses that are each right with
    probability q, and m canaries, P(right ≥ v) ≤ P(W ≥ v) + 2mδ max_i P(v − i ≤ W < v) / i.
    """
    from scipy.stats import binom

    steps = np.arange(1, right + 1)

    def refuted(epsilon: float) -> bool:
        q = 1 / (1 + math.exp(-epsilon))
        reached = float(binom.sf(right - 1, guesses, q))
        nearly = (binom.sf(right - steps - 1, guesses, q) - reached) / steps
        return reached + 2 * canaries * delta * float(nearly.max(initial=0.0)) < level

    return _largest(refuted)


def least_distance(canaries: int, guesses: int, right: int, level: float) -> float:
    """The largest μ that so many right guesses refute, at this level, for any μ-GDP mechanism.

    Mahloujifar, Melis and Chaudhuri, "Auditing f-differential privacy in one run" (ICML 2025),
    for the trade-off curve of N(0, 1) against N(μ, 1), in which nothing is said about how the
    noise of one canary goes with that of another.
    """
    return _largest(lambda distance: _refuted(distance, canaries, guesses, right, level))


def _refuted(distance: float, canaries: int, guesses: int, right: int, level: float) -> bool:
    """Whether no mechanism of this μ has so many right with probability ``level``.

    Take a canary at random, and let r be the probability that it is guessed right and i or more
    are, h that it is guessed wrong and i or more are right. Its other coin would turn the former
    into the latter with one right guess less, so that h(i − 1) ≥ Φ(Φ⁻¹(r(i)) − μ). What is added to
    h on the way down adds i / (guesses − i) times as much to r, and both together cannot be more
    than the share that is guessed.
    """
    from scipy.special import ndtr, ndtri

    r, h = level * right / canaries, level * (guesses - right) / canaries
    for i in range(right - 1, -1, -1):
        needed = float(ndtr(ndtri(r) - distance))
        if needed <= h:
            return False
        r += i / (guesses - i) * (needed - h)
        h = needed
        if r + h > guesses / canaries:
            return True
    return False


def _largest(refuted: Callable[[float], bool]) -> float:
    """The largest value that is refuted, to a tolerance on the safe side; 0 if none is."""
    low, high = 0.0, 1.0
    while refuted(high):
        low, high = high, 2 * high
    while high - low > _TOLERANCE:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low
