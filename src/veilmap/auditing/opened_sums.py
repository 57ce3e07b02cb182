"""What the adversary of the definition finds in the opened sums of a training."""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from veilmap._util.arrays import Bools, Floats, Ints
from veilmap.attacks import PriorOnly
from veilmap.attacks.membership import membership_score
from veilmap.attacks.sum_location import LeftOver, SumMatchedFilter
from veilmap.auditing.measured import Fit, Located, finite
from veilmap.auditing.membership import Allowed, Membership, Scored, Scores
from veilmap.data.folders import Crowd
from veilmap.errors import ConfigurationError
from veilmap.federation.client import Clients
from veilmap.federation.messages import Broadcast, ClientId
from veilmap.federation.transcript import SeenSum, Transcript
from veilmap.privacy import accounting
from veilmap.privacy.mechanisms import AggregateGaussian

_FEWEST = 4  # users: two who took part, and two who did not
_MOST = 1000
_BLOCK_BYTES = 64e6  # of the contributions that are in memory at a time
_TARGET_BYTES = 256e6  # of those of the attacked users

OWN = "the sums, and exactly what everybody added; not whether the target took part"
AREA = "the area"
OTHERS = "the sums, and exactly what everybody else added"
EXPECTED = "the sums, and what everybody else added but for how it was rounded"
"""Of a run without a seed nobody can tell how users rounded, which noise outweighs by far."""


@dataclass(frozen=True)
class SumsAudit:
    """What somebody who knows everybody else's contributions finds in opened sums.

    Attributes
    ----------
    rounds : tuple of int
        Whose sums were attacked, from 0; what other rounds tell is not in it.
    epsilon, delta : float
        What a user who was in all of these is charged, whether or not it is a promise.
    distance_allowed : float
        μ: by how many deviations of the noise these sums may differ with and without a user.
    distance_largest : float
        By how many they do for the attacked user with the longest contributions; computed.
    membership : Membership
        Of all attacked users every other is one of a training that had noise alone of them.
    location : tuple of Located
    """

    rounds: tuple[int, ...]
    epsilon: float
    delta: float
    distance_allowed: float
    distance_largest: float
    membership: Membership
    location: tuple[Located, ...]

    @property
    def prior(self) -> Located:
        """What guessing gives."""
        return self.location[0]

    @property
    def strongest(self) -> Located:
        """The attack with the least RMSE."""
        return min(self.location[1:], key=lambda one: one.rmse.value)

    @property
    def closest_rmse(self) -> float:
        """The least RMSE over that of guessing: 1 if nothing was learned."""
        return self.strongest.rmse.value / self.prior.rmse.value

    def as_dict(self) -> dict[str, Any]:
        """For JSON; rounds count from 1 there, and what is not finite is null."""
        content = asdict(self) | {"rounds": [number + 1 for number in self.rounds]}
        return finite(content | {"least_rmse_over_prior": self.closest_rmse})


def can_audit(transcript: Transcript) -> bool:
    """Whether the sums of a transcript have noise, and gradients of all who took part."""
    mechanism = transcript.mechanism
    return isinstance(mechanism, AggregateGaussian) and mechanism.contribute == 1


def audit_sums(transcript: Transcript, data: Crowd, seed: int | None) -> SumsAudit | None:
    """Attack all rounds of a transcript of `AggregateGaussian`, and score against the truth.

    None where fewer than four users add anything that could be found.

    Parameters
    ----------
    transcript : Transcript
        Of its ``targets`` at most a thousand are attacked, if memory has room for so many; all
        others count.
    data : Measurements or MeasurementFolder
        Of all its users, as they were trained on.
    seed : int or None
        Of the run: with it the roundings of users are known exactly.
    """
    sums = _Sums.of(transcript, data, seed)
    found = _Found.of(sums)
    for number in sorted(transcript.rounds):
        found.add(sums.left_of(number))
    return found.scored() if found.speaks.sum() >= _FEWEST else None


@dataclass(frozen=True, eq=False)
class _Round:
    """One round in deviations of the noise on its sum."""

    broadcast: Broadcast
    rest: NDArray[np.float32]  # what the contributions of all leave of the sum, (M + P,)
    own: NDArray[np.float32]  # the contribution of each target, (n, M + P); 0 for the absent
    present: Bools  # which targets took part, (n,)
    deviation: float  # of the noise, in units of the gradient of h

    def left(self) -> LeftOver:
        """What the contributions of all others leave, for each target who took part."""
        cells = self.broadcast.radio_map.trained_cells
        heights = (self.rest[:cells] + self.own[self.present, :cells]) * np.float32(self.deviation)
        return LeftOver(self.broadcast, heights, self.deviation)


@dataclass(frozen=True, eq=False)
class _Sums:
    """The opened sums of a transcript, and who is attacked."""

    transcript: Transcript
    mechanism: AggregateGaussian
    data: Crowd
    seed: int | None
    targets: tuple[ClientId, ...]
    fit: Fit = field(default_factory=Fit)  # of the data to the rounds looked at

    @classmethod
    def of(cls, transcript: Transcript, data: Crowd, seed: int | None) -> "_Sums":
        """Of the transcript's own data; those without its users are refused."""
        rounds = cast("list[SeenSum]", list(transcript.rounds.values()))
        known = set(data.users.tolist())
        if missing := [one for seen in rounds for one in seen.clients if one not in known]:
            raise ConfigurationError(f"the truth has no user {missing[0]} of this run", "truth")
        wanted = transcript.wanted(rounds)
        room = max(_FEWEST, min(_MOST, int(_TARGET_BYTES / (4 * transcript.grid.cells))))
        order = np.random.default_rng(0).permutation(len(wanted))[:room]
        targets = tuple(wanted[i] for i in order)
        mechanism = cast("AggregateGaussian", transcript.mechanism)
        return cls(transcript, mechanism, data, seed, targets)

    @cached_property
    def _row(self) -> dict[ClientId, int]:
        return {client: row for row, client in enumerate(self.targets)}

    def left_of(self, number: int) -> _Round:
        """What all contributions leave of a round's sum; other people's are refused."""
        seen = cast("SeenSum", self.transcript.rounds[number])
        radio_map = seen.broadcast.radio_map
        cells, parameters = radio_map.trained_cells, len(radio_map.theta)
        share = self.mechanism.share_deviation(cells, parameters, seen.broadcast.cohort)
        deviation = share * math.sqrt(len(seen.clients))
        total = np.zeros(cells + parameters)
        own = np.zeros((len(self.targets), len(total)), dtype=np.float32)
        for clients in self._who_took_part(seen):
            added = clients.contributions(seen.broadcast)
            total += added.sum(axis=0)
            some = [i for i, client in enumerate(clients.ids) if client in self._row]
            own[[self._row[clients.ids[i]] for i in some]] = added[some] / deviation
        rest = self._opened(seen) - total
        rest[:cells] = self.mechanism.centred(rest[:cells])
        self.fit.add(rest / deviation, total / deviation)
        if self.fit.is_refuted:
            raise ConfigurationError(
                "the truth is not what the run was trained on: name its own measurements, or give"
                " only places",
                "truth",
            )
        there = set(seen.clients)
        present = np.array([client in there for client in self.targets], dtype=np.bool_)
        unit = deviation * self.mechanism.clip / self.mechanism.steps
        left = (rest / deviation).astype(np.float32)
        return _Round(seen.broadcast, left, own, present, unit)

    def _opened(self, seen: SeenSum) -> Floats:
        laws = seen.broadcast.radio_map.propagation.laws
        return self.mechanism.opened(seen.height_gradient, seen.theta_gradient, seen.weight, laws)

    def _who_took_part(self, seen: SeenSum) -> Iterator[Clients]:
        """The users of a round, some at a time."""
        size = max(1, int(_BLOCK_BYTES / (3 * 8 * seen.broadcast.radio_map.trained_cells)))
        there, users = set(seen.clients), self.data.users.tolist()
        blocks = zip(range(0, len(users), size), self.data.blocks(size), strict=True)
        for first, links in blocks:
            here = np.array([user in there for user in users[first : first + size]])
            ids = [user for user in users[first : first + size] if user in there]
            if ids:
                yield Clients(ids, links.of_users(here), self.mechanism, self.seed)


@dataclass(frozen=True, eq=False)
class _Found:
    """What is added up over rounds about n targets."""

    sums: _Sums
    attack: SumMatchedFilter
    match: Floats  # of each contribution with what all leave of the sums, (n,)
    products: Floats  # of contributions with each other, (n, n)
    rounds: Ints  # that each took part in, (n,)
    evidence: Floats  # log-probability of each place, (n, K)

    @classmethod
    def of(cls, sums: _Sums) -> "_Found":
        """Nothing yet."""
        count, attack = len(sums.targets), SumMatchedFilter.of(sums.transcript)
        evidence = np.zeros((count, attack.candidates.grid.cells))
        numbers = np.zeros(count, dtype=np.int64)
        return cls(sums, attack, np.zeros(count), np.zeros((count, count)), numbers, evidence)

    def add(self, one: _Round) -> None:
        """Add a round."""
        self.match[:] += one.own @ one.rest
        self.products[:] += one.own @ one.own.T
        self.rounds[:] += one.present
        self.evidence[one.present] += self.attack.evidence(one.left())

    @property
    def speaks(self) -> Bools:
        """Whose contributions are not 0, (n,)."""
        return np.diag(self.products) > 0

    def scored(self) -> SumsAudit:
        """What was found."""
        mechanism, squares = self.sums.mechanism, np.diag(self.products)[self.speaks]
        most = int(self.rounds.max())
        allowed = Allowed(
            accounting.epsilon(mechanism, most, mechanism.delta),
            mechanism.delta,
            mechanism.guarantee.distance * math.sqrt(most),
        )
        return SumsAudit(
            tuple(sorted(self.sums.transcript.rounds)),
            allowed.epsilon,
            allowed.delta,
            allowed.distance,
            float(np.sqrt(squares.max())),
            Membership.of(OWN, self._scores(squares), allowed),
            self._location(),
        )

    def _scores(self, squares: Floats) -> Scores:
        """Every other target is one of a training that had noise alone of them."""
        match, lengths = self.match[self.speaks], np.sqrt(squares)
        cosines = self.products[np.ix_(self.speaks, self.speaks)] / np.outer(lengths, lengths)
        directions = _vectors(cosines)
        there, away = slice(0, None, 2), slice(1, None, 2)
        return Scores(
            Scored(membership_score((match + squares)[there], squares[there]), directions[there]),
            Scored(membership_score(match[away], squares[away]), directions[away]),
        )

    def _location(self) -> tuple[Located, ...]:
        sums, truth = self.sums, self._truth()
        belief = self.attack.posterior(sums.targets, self.evidence)
        knows = EXPECTED if sums.seed is None else OTHERS
        guess = PriorOnly().guess(sums.transcript.grid)
        return (
            Located.of(PriorOnly.name, AREA, guess, truth),
            Located.of("matched filter, mean place", knows, belief.means(), truth),
            Located.of("matched filter, likeliest place", knows, belief.modes(), truth),
        )

    def _truth(self) -> Floats:
        """Where targets were, on average, (n, 2)."""
        data = self.sums.data
        places = dict(zip(data.users.tolist(), data.mean_positions(), strict=True))
        return np.array([places[client] for client in self.sums.targets])


def _vectors(products: Floats) -> Any:
    """Vectors with these products, one a row."""
    from scipy.sparse import csr_array

    values, axes = np.linalg.eigh(products)
    return csr_array(axes * np.sqrt(np.maximum(values, 0.0)))
