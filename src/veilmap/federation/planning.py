"""Which settings keep a promise to so many users, and what to expect of the map then.

What noise costs the map depends on two numbers. After T rounds with n answers each, the mean of
all opened sums has noise of deviation x in every cell, about z/(n√T) in units of the clip. And T
itself: few rounds leave the map unfinished. `benchmarks/curve.py` measures the cost on synthetic
cities, and fits the curve below to it.
"""

import math
import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np

from veilmap._util import checks
from veilmap.data.measurements import Measurements
from veilmap.errors import ConfigurationError, PrivacyError
from veilmap.federation import NoiseAwareStep, Participation
from veilmap.federation.client import Clients
from veilmap.federation.messages import Broadcast
from veilmap.federation.privacy import settled
from veilmap.federation.transcript import ServerSees
from veilmap.geometry.grid import Grid
from veilmap.privacy.accounting import calibrated
from veilmap.privacy.accounting import epsilon as epsilon_of
from veilmap.privacy.mechanisms import AggregateGaussian, PrivateMechanism, PrivUnit
from veilmap.privacy.mechanisms.fitting import fitted

ROUNDS = (60, 120, 200)
GROUPS = (1, 2, 4, 10, 20, 50)

# What the curve was fitted on: cells of a map, and links of a user.
CELLS, LINKS = 10_000, 200

_PARAMETERS = 4  # of θ
_FLOAT = 8  # bytes
_ALIKE = 0.03  # dB: nobody could tell two maps apart by less
_TIMED = 5


@dataclass(frozen=True)
class Curve:
    """What the map loses: unfinished/T² + linear · x + square · x², in dB."""

    unfinished: float
    linear: float
    square: float
    most_noise: float  # the largest x it was fitted to
    error_db: float  # root-mean-square distance of the trainings it was fitted to

    def loss_db(self, rounds: int, noise: float) -> float:
        """Above what many rounds without noise reach; infinite beyond what was measured."""
        if noise > self.most_noise:
            return math.inf
        return float(_terms(rounds, noise) @ (self.unfinished, self.linear, self.square))

    @classmethod
    def fit(cls, trials: Sequence[tuple[int, float, float]]) -> "Curve":
        """By least squares to (rounds, noise, loss in dB); large losses count by their share."""
        terms = np.array([_terms(rounds, noise) for rounds, noise, _ in trials])
        losses = np.array([loss for _, _, loss in trials])
        weights = 1 / (0.2 + np.abs(losses))
        found, *_ = np.linalg.lstsq(terms * weights[:, None], losses * weights, rcond=None)
        error = float(np.sqrt(np.mean((terms @ found - losses) ** 2)))
        unfinished, linear, square = found.tolist()
        return cls(unfinished, linear, square, max(noise for _, noise, _ in trials), error)


def _terms(rounds: int, noise: float) -> np.ndarray:
    return np.array([1 / rounds**2, noise, noise**2])


# Fitted by `python benchmarks/curve.py --cities 10,11`.
CURVE = Curve(622.0, 286.0, 1.12e5, 2.53e-3, 0.10)

# Mean absolute error in dB of 200 rounds without noise at unseen users' readings, whose own noise
# of 3 dB is 2.4 of it: 1,000 users in each of five cities (`benchmarks/curve.py`), all within
# 0.03 dB. With 20 links of a user instead of 200 it is 0.2 more.
NOISE_FREE_DB = 2.92


@dataclass(frozen=True)
class PrivacyPlan:
    """Settings for `train`, with what to expect of them."""

    users: int
    rounds: int
    participation: Participation
    mechanism: PrivateMechanism  # with noise, lattice and bits fixed
    cells: int  # of the map
    links: int  # of each user

    @cached_property
    def noise(self) -> float:
        """x: what is left of the noise in the mean over all rounds, in units of the clip.

        On a larger map as many users are spread over more cells: what counts is users a cell, and
        x is for a map with as many as the curve's.
        """
        of_round = self.mechanism.deviation_of_mean(self.cells, _PARAMETERS, self.cohort)
        return of_round / math.sqrt(self.rounds) * (self.cells / CELLS)

    @property
    def loss_db(self) -> float:
        """What the map is expected to lose to noise and few rounds."""
        return CURVE.loss_db(self.rounds, self.noise)

    @property
    def error_db(self) -> float:
        """Mean absolute error to expect in a city like the synthetic ones."""
        return NOISE_FREE_DB + self.loss_db

    @property
    def cohort(self) -> int:
        """How many are asked in a round."""
        return self.users // self.participation.groups

    @property
    def rounds_each(self) -> int:
        """In how many rounds a user is asked."""
        return self.participation.rounds_each(self.rounds)

    @property
    def epsilon(self) -> float:
        """What a user has spent at the end."""
        return epsilon_of(self.mechanism, self.rounds_each, self.mechanism.delta)

    @property
    def upload_bytes(self) -> int:
        """What a user sends in a round that it is asked in."""
        return self.mechanism.upload_bytes(self.cells, _PARAMETERS)

    @property
    def sent_bytes(self) -> int:
        """… and in all of them."""
        return self.rounds_each * self.upload_bytes

    @property
    def received_bytes(self) -> int:
        """What a user receives in all rounds: the map and θ."""
        return self.rounds_each * _FLOAT * (self.cells + _PARAMETERS)

    def seconds(self) -> float:
        """What a user computes in a round, measured here and now on one core."""
        return seconds_per_answer(self.mechanism, self.cells, self.links, self.cohort)

    def as_dict(self, seconds: float) -> dict[str, Any]:
        """For JSON, and for tables; ``seconds`` is what `seconds` measured."""
        return {
            "users": self.users,
            "epsilon": self.epsilon,
            "delta": self.mechanism.delta,
            "rounds": self.rounds,
            "cohort": self.cohort,
            "rounds_each": self.rounds_each,
            "clip": self.mechanism.clip,
            **self._noise_as_dict(),
            "expected_loss_db": self.loss_db,
            "expected_error_db": self.error_db,
            "upload_bytes": self.upload_bytes,
            "sent_bytes": self.sent_bytes,
            "received_bytes": self.received_bytes,
            "seconds_a_round": seconds,
            "seconds": seconds * self.rounds_each,
        }

    def _noise_as_dict(self) -> dict[str, Any]:
        """The noise on a sum, or on each upload, over the largest contribution."""
        fixed = self.mechanism
        if isinstance(fixed, AggregateGaussian):
            noise = {"noise_multiplier": fixed.noise_on_sum, "contribute": fixed.contribute}
            return noise | {"bits_a_cell": fixed.bits}
        on_upload = fixed.deviation_of_mean(self.cells, _PARAMETERS, 1)
        return {"noise_multiplier": on_upload, "bits_a_cell": 8}

    @property
    def assumptions(self) -> str:
        """What the expectation rests on."""
        return (
            f"Assumed: {self.links} links a user, to stations over an area like the synthetic"
            f" cities' (300 m, 16 buildings, cells of 3 m); {self.users / self.cells:.3g} users a"
            f" cell, evenly spread; up to {self.mechanism.dropout:.0%} of the answers missing;"
            " sums opened by secure aggregation, whose own traffic is not counted. The loss is"
            " against many rounds without noise; the trainings that the curve was fitted to lie"
            f" {CURVE.error_db:.2f} dB from it (root mean square)."
        )


def plan(
    users: int,
    epsilon: float,
    delta: float | None = None,
    *,
    cells: int = CELLS,
    links: int = LINKS,
    within: float | None = None,
    contribute: float = 1.0,
    dropout: float = 0.1,
    clip: float = 0.3,
) -> PrivacyPlan:
    """The settings that keep (ε, δ) with the best map, or with the least traffic.

    Parameters
    ----------
    users : int
    epsilon : float
    delta : float, optional
        By default a power of ten at most a hundredth of 1/N.
    cells, links : int
        Of the map, and of each user.
    within : float, optional
        The loss in dB that is good enough: the plan is then the one with the fewest bytes. By
        default it is the best map, or a cheaper one that nobody could tell from it.
    contribute, dropout, clip : float
        Of the mechanism. The clip is to lie below most gradients' norms, which are about 1 in the
        cities: then all users count alike, and the noise falls with it as the gradients do.
    """
    found = plans(
        users,
        epsilon,
        delta,
        cells=cells,
        links=links,
        contribute=contribute,
        dropout=dropout,
        clip=clip,
    )
    best = min(found, key=lambda one: one.loss_db)
    enough = best.loss_db + _ALIKE if within is None else checks.number("within", within, above=0)
    good = [one for one in found if one.loss_db <= enough]
    if math.isinf(best.loss_db) or not good:
        raise PrivacyError(_why_none(best, within))
    return min(good, key=lambda one: (one.sent_bytes, one.loss_db))


def plans(
    users: int,
    epsilon: float,
    delta: float | None = None,
    *,
    cells: int = CELLS,
    links: int = LINKS,
    contribute: float = 1.0,
    dropout: float = 0.1,
    clip: float = 0.3,
    rounds: Iterable[int] = ROUNDS,
    groups: Iterable[int] = GROUPS,
) -> list[PrivacyPlan]:
    """All settings that are compared."""
    users = checks.whole("users", users, least=2)
    cells = checks.whole("cells", cells, least=1)
    links = checks.whole("links", links, least=1)
    wanted = AggregateGaussian(
        epsilon=epsilon,
        delta=usual_delta(users) if delta is None else delta,
        clip=clip,
        contribute=contribute,
        dropout=dropout,
    )
    if wanted.delta >= 1 / users:
        raise ConfigurationError(
            f"δ = {wanted.delta:g} is not below 1/N = {1 / users:g}: take less", "delta"
        )
    found = []
    for count, own in product(rounds, groups):
        if users // own >= 2:
            turns = Participation(1 / own, in_turns=own > 1)
            fixed = fitted(calibrated(wanted, turns.rounds_each(count)), users // own)
            found.append(PrivacyPlan(users, count, turns, fixed, cells, links))
    return found


def plan_of_uploads(
    users: int,
    epsilon: float,
    delta: float,
    server_sees: ServerSees,
    *,
    cells: int = CELLS,
    links: int = LINKS,
    dropout: float = 0.1,
    rounds: Iterable[int] = ROUNDS,
) -> PrivacyPlan:
    """The settings for uploads that are private by themselves, with names or "shuffled".

    Every user sends one: several would have to share ε, which costs more than it tells.
    """
    wanted = PrivUnit(epsilon=epsilon, delta=delta, dropout=dropout)
    found = []
    for count in rounds:
        turns = Participation(1 / count, in_turns=True)
        if users // count >= 2:
            fixed, _ = settled(wanted, server_sees, turns, users, count)
            assert isinstance(fixed, PrivUnit)
            found.append(PrivacyPlan(users, count, turns, fixed, cells, links))
    if not found:
        raise PrivacyError(f"{users} users are fewer than two in each round")
    best = min(found, key=lambda one: one.loss_db)
    if math.isinf(best.loss_db):
        raise PrivacyError(_why_none(best, None))
    return best


def _why_none(best: PrivacyPlan, within: float | None) -> str:
    """What to change where no plan will do."""
    asked = f"{best.users:,} users with ε = {best.mechanism.epsilon:g}"
    if math.isinf(best.loss_db):
        factor = best.noise / CURVE.most_noise
        end = CURVE.loss_db(max(ROUNDS), CURVE.most_noise)
        return (
            f"{asked} on {best.cells:,} cells drown in the noise: the curve ends at {end:.1f} dB;"
            f" ask {math.ceil(factor * best.users):,} users or more, or take fewer, larger cells"
        )
    return f"{asked} lose {best.loss_db:.2f} dB at best, more than {within:g} dB: allow more"


def usual_delta(users: int) -> float:
    """δ: a power of ten at most a hundredth of 1/N."""
    return float(f"1e{math.floor(-2 - math.log10(users) + 1e-9)}")


def seconds_per_answer(mechanism: PrivateMechanism, cells: int, links: int, cohort: int) -> float:
    """What one user computes in a round, on one core: the median of a few answers."""
    side = max(1, math.isqrt(cells))
    grid = Grid(shape=(side, side))
    reach = min(side * grid.cell_size, math.sqrt(CELLS) * grid.cell_size)
    rng = np.random.default_rng(0)
    stations = np.column_stack([rng.uniform(0, reach, (links, 2)), np.full(links, 50.0)])
    user = np.tile([reach / 2, reach / 2, 1.5], (links, 1))
    data = Measurements(np.zeros(links, dtype=int), user, stations, rng.normal(-85, 10, links))
    one = Clients([0], data.links, mechanism)
    broadcast = Broadcast(0, NoiseAwareStep().start(grid).radio_map, cohort)
    one.answer(broadcast)  # compiles, and makes the table of the noise
    seconds = []
    for _ in range(_TIMED):
        started = time.perf_counter()
        one.answer(broadcast)
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)
