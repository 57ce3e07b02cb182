"""What uploads that are private by themselves give away, with names and shuffled without.

An upload's law R is γω + (1 − γ)·(ω in a cap), ω being noise alone and s the cap's share of it: its
density over ω's is γ + (1 − γ)/s inside the cap and γ outside. Others' uploads are noise alone with
probability γ each, whatever their data are: the privacy blanket of Balle, Bell, Gascón and Nissim
("The privacy blanket of the shuffle model", CRYPTO 2019). Tell the adversary which of the n − 1
others are not, and what these sent. Then the victim's upload lies among K ~ Bin(n − 1, γ) of pure
noise, and of these K + 1 all that matters is how many, N, lie in the victim's cap:
N ~ Bin(K + 1, s) if the victim's is noise alone too, and N has γ + (1 − γ) N/((K + 1) s) times that
probability if it is not. Both are known exactly, and so is the (ε, δ) between them. docs/uploads.md
has the proof.
"""

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from veilmap._util.arrays import Floats, Ints
from veilmap.errors import PrivacyError
from veilmap.privacy.mechanisms import PrivateUploads
from veilmap.privacy.mechanisms.privunit import signal

# The cap that is accounted for is smaller by this share than the one that is sampled: what floats
# may change of an upload's probability (docs/uploads.md, section 5).
_FLOATS = 3e-5
_GROUPS = 40  # of numbers K that are told apart
_LOSS_STEP = 1e-3  # of privacy losses that are composed over rounds; rounded up
_MOST_EPSILON = 100.0
_TOLERANCE = 1e-6  # of ε, on the safe side
_LEAST_CAP = 1e-12


@dataclass(frozen=True, eq=False)
class _Pair:
    """What an adversary sees with noise alone, and how much likelier it is with the user's data."""

    probability: Floats  # of each outcome with noise alone
    ratio: Floats  # with the data over without
    rounds: int = 1  # that the user has uploads in
    left_out: float = 0.0  # probability of outcomes that are not listed

    def delta(self, epsilon: float) -> float:
        """The least δ for this ε, for both directions."""
        if self.rounds > 1:
            return min(1.0, self._composed.get_delta_for_epsilon(epsilon) + self._tails)
        if epsilon > _MOST_EPSILON:
            return self._tails
        factor, ratio = math.exp(epsilon), self.ratio
        with_data = self.probability @ np.maximum(ratio - factor, 0.0)
        without = self.probability @ np.maximum(1.0 - factor * ratio, 0.0)
        return max(float(with_data), float(without)) + self._tails

    @property
    def _tails(self) -> float:
        return self.rounds * self.left_out

    @cached_property
    def _composed(self) -> Any:
        from dp_accounting.pld import privacy_loss_distribution as pld  # takes a second to import

        with np.errstate(divide="ignore"):
            logs = np.log(self.probability), np.log(self.probability * self.ratio)
        without, with_data = (dict(enumerate(log.tolist())) for log in logs)
        one = pld.from_two_probability_mass_functions(
            without, with_data, value_discretization_interval=_LOSS_STEP, symmetric=False
        )
        return one.self_compose(self.rounds)


def epsilon_of(guarantee: PrivateUploads, rounds: int, delta: float) -> float:
    """ε at ``delta`` of a user with uploads in so many rounds; it errs on the side of more."""
    pair = _pair(guarantee, rounds)
    low, high = 0.0, _MOST_EPSILON
    if pair.delta(high) > delta:
        return math.inf
    while high - low > _TOLERANCE:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if pair.delta(middle) > delta else (low, middle)
    return high


@lru_cache(maxsize=64)
def best(epsilon: float, delta: float, rounds: int, among: int | None) -> PrivateUploads:
    """The blanket and the cap that keep (ε, δ) over so many rounds and tell the map most.

    What an upload tells is `signal`. For each γ the smallest cap that keeps the promise is best,
    and over γ the signal has one maximum.
    """
    from scipy.optimize import minimize_scalar

    def made(log_blanket: float) -> PrivateUploads | None:
        # `epsilon_of` may say more by its tolerance.
        within = epsilon - 2 * _TOLERANCE
        return _smallest_cap(math.exp(log_blanket), within, delta, rounds, among)

    def lacking(log_blanket: float) -> float:
        found = made(log_blanket)
        return 0.0 if found is None else -signal(found)

    # With its name, one upload must be noise alone with probability e^−ε at least.
    grid = np.linspace(-epsilon - 2, -0.05, 11)
    start = int(np.argmin([lacking(value) for value in grid]))
    low, high = grid[max(start - 1, 0)], grid[min(start + 1, len(grid) - 1)]
    found = minimize_scalar(lacking, bounds=(low, high), method="bounded", options={"xatol": 1e-2})
    tried = float(found.x), float(grid[start]), -epsilon + 3 * _TOLERANCE
    candidates = [made(value) for value in tried]
    known = [one for one in candidates if one is not None]
    if not known:
        raise PrivacyError(
            f"no upload keeps ε = {epsilon:g} and δ = {delta:g} over {rounds} rounds: allow more"
        )
    return max(known, key=signal)


def _smallest_cap(
    blanket: float, epsilon: float, delta: float, rounds: int, among: int | None
) -> PrivateUploads | None:
    """The guarantee with this γ that keeps (ε, δ); None if no cap below a half does."""

    def holds(log_cap: float) -> bool:
        tried = PrivateUploads(blanket, math.exp(log_cap), among)
        return _pair(tried, rounds).delta(epsilon) <= delta

    low, high = math.log(_LEAST_CAP), math.log(0.5)
    if not holds(high):
        return None
    while high - low > 1e-3:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if holds(middle) else (middle, high)
    return PrivateUploads(blanket, math.exp(high), among)


def _pair(guarantee: PrivateUploads, rounds: int) -> _Pair:
    gamma, cap = guarantee.blanket, guarantee.cap * (1 - _FLOATS)
    if guarantee.among is None:
        inside = np.array([1.0, 0.0])
        return _Pair(np.array([cap, 1 - cap]), gamma + (1 - gamma) * inside / cap, rounds)
    return _shuffled(gamma, cap, guarantee.among, rounds)


def _shuffled(gamma: float, cap: float, among: int, rounds: int) -> _Pair:
    """Likely K and N, and their probabilities with noise alone.

    Fewer uploads of noise hide less, as more could be added by anybody: each K counts as the
    fewest of its group.
    """
    from scipy.stats import binom

    others = binom(among - 1, gamma)
    first, last = _likely(np.array(among - 1), gamma)
    fewest = np.unique(np.linspace(first, last, _GROUPS).astype(np.int64))
    chances = np.diff(others.cdf(np.append(fewest, last + 1) - 1))
    noise = fewest + 1  # K + 1
    low, high = _likely(noise, cap)
    inside = low[:, None] + np.arange(int((high - low).max()) + 1)
    joint = chances[:, None] * binom.pmf(inside, noise[:, None], cap)
    ratio = gamma + (1 - gamma) * inside / (noise[:, None] * cap)
    # What is not listed, with noise alone or with the data; ratios have a mean of 1.
    left_out = max(0.0, 1 - float(joint.sum()), 1 - float((joint * ratio).sum()))
    return _Pair(joint.ravel(), ratio.ravel(), rounds, left_out)


def _likely(count: Ints, share: float) -> tuple[Ints, Ints]:
    """Between which numbers Bin(count, share) lies but for a probability of about 1e-16.

    t away from the mean lie 2 exp(−t²/2(variance + t/3)) at most (Bernstein); what does is found by
    adding up what does not.
    """
    mean = count * share
    reach = 9 * np.sqrt(mean * (1 - share)) + 40
    low, high = np.maximum(mean - reach, 0), np.minimum(mean + reach + 1, count)
    return low.astype(np.int64), high.astype(np.int64)
