"""(ε, δ) from what was released, computed by Google's dp-accounting.

It refuses mechanisms that promise nothing, and says why.
"""

import math
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, overload

import numpy as np

from veilmap._util import checks
from veilmap.errors import PrivacyError
from veilmap.privacy import amplification
from veilmap.privacy.mechanisms import (
    AggregateGaussian,
    Mechanism,
    NoGuarantee,
    PrivateMechanism,
    PrivateSums,
    PrivateUploads,
    PrivUnit,
    author_of,
)
from veilmap.privacy.mechanisms.lattice import LEAST_ON_SUM, ROUNDING

_ORDERS = range(2, 257)  # of the Rényi divergences tried with secret sampling

_NOISE_RANGE = (1e-2, 1e6)  # noise multipliers that calibration tries

_SEEDED = "no promise: the noise is computable from the seed (study)"


def guarantee_of(mechanism: Mechanism) -> PrivateSums | PrivateUploads:
    """The mechanism's guarantee; one without is refused."""
    guarantee = mechanism.guarantee
    if isinstance(guarantee, NoGuarantee):
        raise PrivacyError(f"{type(mechanism).__name__} has no ε: {guarantee.reason}")
    return guarantee


def has_guarantee(mechanism: Mechanism) -> bool:
    """Whether what this mechanism lets out can be under an (ε, δ), whatever its noise."""
    return isinstance(mechanism, PrivateMechanism)


@dataclass(frozen=True)
class Promise:
    """What a run promises its users, or why it promises nothing."""

    epsilon: float  # of the user who spent most; NaN where nothing is promised, or only claimed
    words: str


def promise(mechanism: Mechanism, spent: float, seed: int | None) -> Promise:
    """What a run promises: the one place that decides it, for every surface that shows it.

    ``spent`` is the accounted ε of the user who spent most. With a ``seed`` of the run's noise
    nothing is promised: whoever has it can take the noise off. Nor is what others claim of
    mechanisms of theirs: we account for it, and have seen no proof.
    """
    guarantee, author = mechanism.guarantee, author_of(type(mechanism))
    if isinstance(guarantee, NoGuarantee):
        return Promise(math.nan, f"no (ε, δ) guarantee: {guarantee.reason}")
    if seed is not None:
        return Promise(math.nan, _SEEDED)
    if not isinstance(mechanism, PrivateMechanism):
        return Promise(math.nan, f"no (ε, δ) guarantee: {author} claims one without an account")
    words = f"(ε, δ) = ({spent:.2f}, {mechanism.delta:g}) for {guarantee.adjacency}"
    if author is not None:
        unchecked = f"{words}, as {author} claims; veilmap has not checked it"
        return Promise(math.nan, f"no guarantee of veilmap's: {unchecked}")
    return Promise(spent, f"{words}, under the conditions of docs/privacy.md")


def promise_of_sum(
    spent: float, delta: float, participants: int, *, seeded: bool, earlier: int = 0
) -> Promise:
    """What a survey promises: the same for its one sum.

    ``spent`` is ε of who was in it and in so many ``earlier`` surveys.
    """
    if seeded:
        return Promise(math.nan, _SEEDED)
    words = (
        f"(ε, δ) = ({spent:.3g}, {delta:g}) for everything that one of {participants:,}"
        " participants measured"
    )
    if earlier:
        words += f", here and in {earlier} earlier survey{'s' if earlier > 1 else ''} together"
    return Promise(spent, f"{words}, under the conditions of docs/survey.md")


def event_of(mechanism: Mechanism, rounds: int) -> Any:
    """``rounds`` opened sums as a `dp_accounting.DpEvent`, for users asked in each."""
    guarantee = guarantee_of(mechanism)
    if isinstance(guarantee, PrivateUploads):
        raise PrivacyError("dp-accounting has no event for uploads that are private by themselves")
    return _composed(guarantee.distance, guarantee.sampling, rounds)


def epsilon(mechanism: Mechanism, rounds: int, delta: float) -> float:
    """ε of a user who was in ``rounds`` opened sums, or sent so many uploads."""
    guarantee = guarantee_of(mechanism)
    rounds = checks.whole("rounds", rounds, least=0)
    delta = checks.number("delta", delta, above=0)
    return _epsilon(guarantee, rounds, delta)


@overload
def calibrated(mechanism: AggregateGaussian, rounds: int) -> AggregateGaussian: ...


@overload
def calibrated(mechanism: PrivUnit, rounds: int) -> PrivUnit: ...


def calibrated(
    mechanism: AggregateGaussian | PrivUnit, rounds: int
) -> AggregateGaussian | PrivUnit:
    """The mechanism with the least noise that keeps ε over ``rounds`` rounds."""
    rounds = checks.whole("rounds", rounds, least=1)
    if isinstance(mechanism, PrivUnit):
        chosen = amplification.best(mechanism.epsilon, mechanism.delta, rounds, mechanism.among)
        return mechanism.with_cap(chosen)
    return mechanism.with_noise(_least_noise(mechanism, rounds))


def _least_noise(mechanism: AggregateGaussian, rounds: int) -> float:
    """Z of the noise with which so many rounds spend all of ε and no more."""
    from scipy.optimize import brentq

    def too_much(log_z: float) -> float:
        noisy = mechanism.with_noise(math.exp(log_z))
        return epsilon(noisy, rounds, mechanism.delta) - mechanism.epsilon

    low, high = (math.log(value) for value in _NOISE_RANGE)
    if too_much(high) > 0:
        raise PrivacyError(
            f"ε = {mechanism.epsilon:g} over {rounds} rounds needs absurd noise; ask for a larger"
            " ε or fewer rounds"
        )
    if too_much(low) <= 0:
        return _NOISE_RANGE[0]
    root = brentq(too_much, low, high, xtol=1e-10)
    while too_much(root) > 0:  # the root lies within its tolerance on the wrong side
        root += 1e-10
    return math.exp(root)


def gaussian_deviation(epsilon: float, delta: float, sensitivity: float) -> float:
    """The least σ of discrete Gaussian noise that gives one sum (ε, δ).

    ``sensitivity`` bounds in norm what one participant adds, in steps of the lattice. The exact
    curve of the Gaussian mechanism (Balle and Wang, "Improving the Gaussian mechanism", ICML
    2018) holds on the lattice too, as `lattice.ROUNDING` explains.
    """
    import dp_accounting

    multiplier = dp_accounting.get_sigma_gaussian(epsilon, delta) * (1 + 1e-9)  # its tolerance
    return math.hypot(sensitivity * multiplier, ROUNDING)


def gaussian_distance(deviation: float, sensitivity: float) -> float:
    """μ: how many deviations apart such a sum is with and without one participant, at most.

    The continuous part of the noise, as `gaussian_deviation` has it, is what the proof counts on;
    so nobody tells the two apart better than N(0, 1) from N(μ, 1).
    """
    if deviation <= LEAST_ON_SUM:
        raise PrivacyError(f"noise of deviation {deviation:g} is too coarse for the lattice")
    return sensitivity / math.sqrt(deviation**2 - ROUNDING**2)


def gaussian_epsilon(deviation: float, delta: float, sensitivity: float) -> float:
    """ε of a participant in one sum with such noise."""
    return composed_epsilon([(deviation, sensitivity)], delta)


def composed_epsilon(sums: Iterable[tuple[float, float]], delta: float) -> float:
    """ε of a participant in all of several sums, each with a (deviation, sensitivity).

    Gaussian mechanisms compose exactly: as one of distance μ with μ² = Σ μ_i².
    """
    return epsilon_of_distance(math.hypot(*(gaussian_distance(*one) for one in sums)), delta)


def epsilon_of_distance(distance: float, delta: float) -> float:
    """ε of normal distributions so many deviations apart (Balle and Wang, ICML 2018)."""
    import dp_accounting

    if distance == 0:
        return 0.0
    with np.errstate(divide="ignore"):  # its logarithm of 0 where the search for ε begins
        return float(dp_accounting.get_epsilon_gaussian(1 / distance, delta))


@dataclass
class Ledger:
    """What each user has spent: in how many rounds it was that count."""

    mechanism: PrivateMechanism  # with its noise fixed
    opened: set[int] = field(default_factory=set)  # rounds whose sum, or uploads, were seen
    spent: dict[int | str, int] = field(default_factory=dict)  # such rounds of each client
    # A random one for its beginning and for every spending: later ledgers have those of earlier.
    marks: list[str] = field(default_factory=lambda: [_new_mark()])

    @property
    def epsilon(self) -> float:
        """ε of the user who spent most."""
        return self._after(max(self.spent.values(), default=0))

    def epsilon_of(self, client: int | str) -> float:
        """ε of one user."""
        return self._after(self.spent.get(client, 0))

    def affords(self, clients: Iterable[int | str]) -> bool:
        """Whether one more round of these users keeps all of them within ε."""
        most = max((self.spent.get(client, 0) for client in clients), default=0)
        return self._after(most + 1) <= self.mechanism.epsilon

    def spend(self, round_number: int, clients: Iterable[int | str]) -> None:
        """Note that a round of these users is seen."""
        self.opened.add(round_number)
        self.marks.append(_new_mark())
        for client in clients:
            self.spent[client] = self.spent.get(client, 0) + 1

    def _after(self, rounds: int) -> float:
        return epsilon(self.mechanism, rounds, self.mechanism.delta)

    def as_dict(self) -> dict[str, Any]:
        """For a file."""
        return {
            "opened": sorted(self.opened),
            "spent": list(self.spent.items()),
            "marks": self.marks,
        }

    @classmethod
    def from_dict(cls, mechanism: PrivateMechanism, content: Mapping[str, Any]) -> "Ledger":
        """What `as_dict` gave."""
        spent = {
            client: checks.whole("rounds of a client", count, least=0)
            for client, count in content["spent"]
        }
        opened = {checks.whole("a round", number, least=0) for number in content["opened"]}
        return cls(mechanism, opened, spent, [str(mark) for mark in content["marks"]])


def _new_mark() -> str:
    return secrets.token_hex(16)


@lru_cache(maxsize=4096)
def _epsilon(guarantee: PrivateSums | PrivateUploads, rounds: int, delta: float) -> float:
    if rounds == 0:
        return 0.0
    if isinstance(guarantee, PrivateUploads):
        return amplification.epsilon_of(guarantee, rounds, delta)
    uneven = rounds * guarantee.uneven
    delta *= math.exp(-uneven)
    if guarantee.sampling == 1:
        # Gaussian mechanisms compose exactly, also those chosen after seeing others' sums (Dong,
        # Roth and Su, "Gaussian differential privacy", JRSS B 2022).
        return epsilon_of_distance(guarantee.distance * math.sqrt(rounds), delta) + uneven
    from dp_accounting import rdp  # takes over a second to import

    event = _composed(guarantee.distance, guarantee.sampling, rounds)
    accountant = rdp.RdpAccountant(_ORDERS).compose(event)
    return float(accountant.get_epsilon(delta)) + uneven


def _composed(distance: float, sampling: float, rounds: int) -> Any:
    """``rounds`` Gaussian sums, each of which a user is in with a probability, secretly."""
    import dp_accounting as dp

    one: Any = dp.GaussianDpEvent(1 / distance)
    if sampling < 1:
        one = dp.PoissonSampledDpEvent(sampling, one)
    return dp.SelfComposedDpEvent(one, rounds)
