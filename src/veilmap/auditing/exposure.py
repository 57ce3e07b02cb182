"""What one round tells about one user: gradients, noise, and where attacks look.

Everything is computed anew from the user's measurements, so that budgets can be tried that
nobody trained with. Like an audit, this knows the truth.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from veilmap._util.ids import Id
from veilmap.attacks import (
    Differencing,
    GradientInversion,
    MatchedFilter,
    PlaneInversion,
    PlaneSubtraction,
    PriorOnly,
    WeightedCentroid,
)
from veilmap.attacks.candidates import Candidates
from veilmap.attacks.remembered import RememberedCandidates
from veilmap.data.links import Links
from veilmap.data.measurements import Measurements
from veilmap.errors import ConfigurationError
from veilmap.federation.messages import ClientId
from veilmap.federation.transcript import SeenRound, SeenSum, Transcript
from veilmap.model.gradients import LocalGradients, gradients_of
from veilmap.privacy import noise
from veilmap.privacy.mechanisms import (
    GeometryAligned,
    Mechanism,
    NoNoise,
    UniformNoise,
    UploadNoise,
)

Place = NDArray[np.float64]

SENT = "sent"
NEED_TEMPLATES = (MatchedFilter.name, GradientInversion.name)

# Fewer starts than an audit takes: it answers while a slider moves. On the paper's setting 95 to
# 100 of 100 users are placed within a metre of where 30 starts place them.
_INVERSION = GradientInversion(starts=10)
_ALTITUDE = 1.5  # of users, as attackers take it
_REMEMBERED_ROUNDS = 4
_REMEMBERED_UPLOADS = 16
_SUMMED_VALUES = 20_000_000  # of gradients that are added up while somebody waits


@dataclass(frozen=True)
class Knobs:
    """What can be tried.

    Attributes
    ----------
    noise_budget, tradeoff, clip : float
        μ, ρ and C of the mechanisms.
    power : float
        ν of the paper's centroid attack.
    """

    noise_budget: float = 50.0
    tradeoff: float = 1.0
    clip: float = 1.0
    power: float = 2.0

    @property
    def schemes(self) -> dict[str, UploadNoise]:
        """What a client may do to its gradient."""
        budget, clip = self.noise_budget, self.clip
        return {
            "no noise": NoNoise(clip=clip),
            "uniform": UniformNoise(noise_budget=budget, clip=clip),
            "aligned": GeometryAligned(
                noise_budget=budget, tradeoff=self.tradeoff, clip=clip
            ),
        }  # fmt: skip


@dataclass(frozen=True)
class Received:
    """What the server receives under one scheme, (M,), and where attacks place the user."""

    received: NDArray = field(repr=False)
    estimates: Mapping[str, Place]


@dataclass(frozen=True)
class Exposure:
    """One user in one round.

    Attributes
    ----------
    user : id
    round : int
        From 0.
    position : (2,) float or None
        Where the user is; None where measurements are not at hand.
    norm : float or None
        ‖g‖ before clipping.
    schemes : mapping from name to Received
        "no noise", "uniform", "aligned", and "sent": what the run's server received.
    deviations : (M,) float or None
        σ of the aligned noise.
    summed : int or None
        Over how many users the server sees a sum; None where it sees this user's upload.
    pending : tuple of str
        Attacks that wait for `Witness.prepare`.
    """

    user: ClientId
    round: int
    position: Place | None
    norm: float | None
    schemes: Mapping[str, Received]
    deviations: NDArray[np.float64] | None = field(default=None, repr=False)
    summed: int | None = None
    pending: tuple[str, ...] = ()

    def error(self, scheme: str, attack: str) -> float | None:
        """Metres between an attack's estimate and the truth, where it is known."""
        if self.position is None:
            return None
        return float(np.linalg.norm(self.schemes[scheme].estimates[attack] - self.position))


class Witness:
    """A view of the rounds that a run kept, with the users' measurements beside them.

    Parameters
    ----------
    transcript : Transcript
    data : Measurements, optional
        Without them only what was sent can be looked at.
    """

    def __init__(self, transcript: Transcript, data: Measurements | None = None) -> None:
        self.data = data
        self.transcript = transcript if data is None else transcript.knowing(*data.stations)
        self._prepared: dict[int, RememberedCandidates] = {}
        # A slider asks for the same things again: gradients before clipping depend on no knob,
        # and uploads without noise not on the budget.
        self._gradients = lru_cache(_REMEMBERED_ROUNDS)(self._compute_gradients)
        self._draws = lru_cache(1)(self._draw)
        self._attacked = lru_cache(_REMEMBERED_UPLOADS)(self._attack)
        self._unmixed = lru_cache(_REMEMBERED_UPLOADS)(self._unmix)

    @property
    def rounds(self) -> list[int]:
        """Kept rounds that attacks can read: those of a residual field are not among them."""
        kept = sorted(self.transcript.rounds.items())
        return [number for number, seen in kept if seen.broadcast.radio_map.field is None]

    def users(self, number: int) -> tuple[ClientId, ...]:
        """Who took part in a round and can be looked at."""
        clients = self._seen(number).clients
        if self.data is None:
            return clients
        known = set(self.data.users.tolist())
        return tuple(client for client in clients if client in known)

    def named(self, text: str, number: int) -> ClientId:
        """The user of a round whose id reads like this."""
        for client in self.users(number):
            if str(client) == text:
                return client
        raise ConfigurationError(f"no user {text} took part in round {number + 1}")

    @property
    def compares(self) -> bool:
        """Whether attacks that compare all places can be tried: base stations are known."""
        return len(self.transcript.base_stations) > 0

    def prepared(self, number: int) -> bool:
        """Whether attacks that compare all places can answer at once."""
        made = self._prepared.get(number)
        return made is not None and made.broadcast is self._seen(number).broadcast.radio_map

    def prepare(self, number: int) -> None:
        """Make what those attacks need for a round: some seconds, once."""
        if self.prepared(number) or not self.compares:
            return
        broadcast = self._seen(number).broadcast.radio_map
        made = RememberedCandidates.answering(self._candidates, broadcast)
        for old in list(self._prepared)[: 1 - _REMEMBERED_ROUNDS]:
            del self._prepared[old]
        self._prepared[number] = made

    @cached_property
    def _candidates(self) -> Candidates:
        """Places to compare, with the gains expected there: the same in all rounds."""
        return Candidates.of(self.transcript, _ALTITUDE)

    def upload(self, user: ClientId, number: int, knobs: Knobs) -> Exposure:
        """What a server that sees every upload learns of one user in one round."""
        seen = self._seen(number)
        raw = None if self.data is None else self._gradients(number, (user,))
        received = self._sent_upload(seen, user)
        deviations = None
        if raw is not None:
            position = raw.positions
            for name, mechanism in knobs.schemes.items():
                draws = [noise.draw(0, user, number)]
                sent = mechanism.protect(raw.heights, self.transcript.grid, position, draws)
                received[name] = sent.uploads[0]
            deviations = self._deviations(knobs, raw)
        if not received:
            raise ConfigurationError(
                f"user {user}: this run kept no upload of theirs in round {number + 1}, and the"
                " measurements are not at hand to compute it"
            )
        links = raw.counts[0] if raw is not None else _links_of(seen, user)
        prepared = self.prepared(number)  # asked once: it may become so at any moment
        return Exposure(
            user, number,
            None if raw is None else raw.positions[0],
            None if raw is None else float(np.linalg.norm(raw.heights[0])),
            {
                name: Received(
                    upload, self._located(number, name, upload, int(links), knobs, prepared)
                )
                for name, upload in received.items()
            },
            deviations,
            pending=() if prepared or not self.compares else NEED_TEMPLATES,
        )  # fmt: skip

    def sum(self, user: ClientId, number: int, knobs: Knobs) -> Exposure:
        """What a server that sees only the sum over a round's users learns of one of them."""
        seen = self._seen(number)
        received: dict[str, NDArray] = {}
        if isinstance(seen, SeenSum):
            received[SENT] = seen.heights
        clients, own = self.users(number), None
        if self.data is not None:
            clients, own = self._summed(number, user, knobs, received)
        if not received:
            raise ConfigurationError("this run kept no sum, and the measurements are not at hand")
        prepared = self.prepared(number)
        schemes = {
            name: Received(heights, self._of_sum(number, name, heights, clients, user, knobs))
            if prepared
            else Received(heights, {})
            for name, heights in received.items()
        }
        return Exposure(
            user, number,
            None if own is None else own.positions[0],
            None if own is None else float(np.linalg.norm(own.heights[0])),
            schemes,
            None if own is None else self._deviations(knobs, own),
            summed=len(clients),
            pending=() if prepared or not self.compares else (Differencing.name,),
        )  # fmt: skip

    # ---- gradients and noise

    def _compute_gradients(self, number: int, users: tuple[ClientId, ...]) -> "_Raw":
        """Gradients of some users before clipping, in answer to a round's broadcast."""
        assert self.data is not None
        links = self.data.links.of_users(np.isin(self.data.users, users))
        return _Raw.of(gradients_of(self._seen(number).broadcast.radio_map, links), links)

    def _draw(self, number: int, clients: tuple[ClientId, ...]) -> list[noise.Draw]:
        """Where each user's noise comes from, drawn once for all budgets."""
        cells = self.transcript.grid.cells
        return [_Drawn(values=noise.draw(0, client, number).normals(cells)) for client in clients]

    def _deviations(self, knobs: Knobs, raw: "_Raw") -> NDArray[np.float64]:
        """σ of the aligned noise."""
        mechanism = knobs.schemes["aligned"]
        size = float(np.linalg.norm(raw.heights[0]))
        clipped = raw.heights[0] * (knobs.clip / max(size, knobs.clip))
        grid = self.transcript.grid
        return np.sqrt(mechanism.variances(clipped, grid, raw.positions[0]))

    def _summed(
        self, number: int, user: ClientId, knobs: Knobs, received: dict[str, NDArray]
    ) -> "tuple[tuple[ClientId, ...], _Raw]":
        """Add each scheme's mean upload to ``received``; who is in it, and the user's own."""
        clients = self.users(number)
        if len(clients) * self.transcript.grid.cells > _SUMMED_VALUES:
            raise ConfigurationError(
                f"a sum over {len(clients):,} users takes too long to try out here; this view"
                f" adds up {_SUMMED_VALUES // self.transcript.grid.cells:,} at most on this map"
            )
        raw = self._gradients(number, clients)
        draws = self._draws(number, clients)
        for name, mechanism in knobs.schemes.items():
            sent = mechanism.protect(raw.heights, self.transcript.grid, raw.positions, draws)
            received[name] = raw.counts @ sent.uploads / raw.counts.sum()
        return clients, self._gradients(number, (user,))

    # ---- attacks

    def _located(
        self,
        number: int,
        scheme: str,
        upload: NDArray,
        links: int,
        knobs: Knobs,
        prepared: bool,
    ) -> dict[str, Place]:
        """Where every attack places the user who sent ``upload``."""
        mechanism = self._mechanism(scheme, knobs)
        seen = self._one_upload(number, upload, links, mechanism)
        simple = (PriorOnly(), WeightedCentroid(knobs.power))
        found = {attack.name: attack.locate(seen).placed[number].xy[0] for attack in simple}
        values = upload.astype(np.float32).tobytes()
        return found | self._attacked(number, values, links, mechanism, prepared)

    def _attack(
        self, number: int, upload: bytes, links: int, mechanism: Mechanism, prepared: bool
    ) -> dict[str, Place]:
        """Estimates of the attacks that know the defence."""
        values = np.frombuffer(upload, dtype=np.float32)
        seen = self._one_upload(number, values, links, mechanism)
        estimates = [PlaneInversion().locate(seen), PlaneSubtraction().locate(seen)]
        if prepared:
            matched = MatchedFilter().locate(seen, self._prepared[number])
            estimates += [matched, _INVERSION.locate(seen, matched)]
        return {each.attack: each.placed[number].xy[0] for each in estimates}

    def _one_upload(
        self, number: int, upload: NDArray, links: int, mechanism: Mechanism
    ) -> Transcript:
        """A transcript of nothing but one upload."""
        seen = SeenRound(
            self._seen(number).broadcast, ("user",), upload[None].astype(np.float32),
            np.zeros((1, 0)), np.array([links]),
        )  # fmt: skip
        return replace(
            self.transcript, rounds={number: seen}, server_sees="uploads",
            mechanism=mechanism,
        )  # fmt: skip

    def _of_sum(
        self,
        number: int,
        scheme: str,
        heights: NDArray,
        clients: tuple[ClientId, ...],
        user: ClientId,
        knobs: Knobs,
    ) -> dict[str, Place]:
        """Where guessing and unmixing place one user of a sum."""
        mechanism = self._mechanism(scheme, knobs)
        found = self._unmixed(number, heights.astype(np.float64).tobytes(), clients, mechanism)
        guess = PriorOnly().guess(self.transcript.grid)
        return {PriorOnly.name: guess, Differencing.name: found[user]}

    def _unmix(
        self, number: int, heights: bytes, clients: tuple[ClientId, ...], mechanism: Mechanism
    ) -> dict[ClientId, Place]:
        """Where the attack on sums places each of a round's users."""
        broadcast, values = self._seen(number).broadcast, np.frombuffer(heights)
        seen = SeenSum(broadcast, clients, values, np.zeros(0), 0)
        transcript = replace(
            self.transcript, rounds={number: seen}, server_sees="sums",
            mechanism=mechanism,
        )  # fmt: skip
        placed = Differencing().locate(transcript, self._prepared[number]).placed[number]
        return dict(zip(placed.clients, placed.xy, strict=True))

    def _mechanism(self, scheme: str, knobs: Knobs) -> Mechanism:
        if scheme == SENT:
            return self.transcript.mechanism
        return knobs.schemes[scheme]

    # ---- what was kept

    def _seen(self, number: int) -> SeenRound | SeenSum:
        if number not in self.transcript.rounds:
            raise ConfigurationError(f"round {number + 1} was not kept")
        return self.transcript.rounds[number]

    def _sent_upload(self, seen: SeenRound | SeenSum, user: ClientId) -> dict[str, NDArray]:
        if isinstance(seen, SeenSum) or user not in seen.clients:
            return {}
        return {SENT: seen.uploads[seen.clients.index(user)]}


@dataclass(frozen=True)
class _Raw:
    """Some users' gradients before clipping, and where they are."""

    heights: NDArray[np.float64]
    counts: NDArray[np.int64]
    positions: NDArray[np.float64]

    @classmethod
    def of(cls, gradients: LocalGradients, links: Links) -> "_Raw":
        return cls(gradients.heights, gradients.counts, links.mean_positions())


def _links_of(seen: SeenRound | SeenSum, user: Id) -> int:
    if isinstance(seen, SeenSum):
        return 1
    return int(seen.links[seen.clients.index(user)])


@dataclass(frozen=True)
class _Drawn(noise.Draw):
    """A source of noise that has been asked before."""

    values: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0), repr=False)

    def add_noise(self, values: NDArray[np.float64], variances: NDArray[np.float64]) -> None:
        """Every cell has its own number, whatever the others' variances."""
        values += np.sqrt(variances) * self.values
