"""What one round tells about one user: gradients, noise, and where attacks look.

Everything is computed anew from the user's measurements, so that budgets can be tried that
nobody trained with. Like an audit, this knows the truth.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilmap._util.arrays import Array, Floats
from veilmap.attacks import (
    ATTACKS,
    Differencing,
    GradientInversion,
    MatchedFilter,
    PlaneInversion,
    PlaneSubtraction,
    PointAttack,
    PriorOnly,
    WeightedCentroid,
)
from veilmap.attacks.candidates import Candidates
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

Place = Floats

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
    """What can be tried: μ, ρ and C of the mechanisms, and ν of the paper's centroid attack."""

    noise_budget: float = 50.0
    tradeoff: float = 1.0
    clip: float = 1.0
    power: float = 2.0

    @property
    def schemes(self) -> dict[str, UploadNoise]:
        """What a client may do to its gradient."""
        noisy: dict[str, Any] = {"noise_budget": self.noise_budget, "clip": self.clip}
        return {
            "no noise": NoNoise(clip=self.clip),
            "uniform": UniformNoise(**noisy),
            "aligned": GeometryAligned(tradeoff=self.tradeoff, **noisy),
        }


@dataclass(frozen=True)
class Received:
    """What the server receives under one scheme, (M,), and where attacks place the user."""

    received: Array = field(repr=False)
    estimates: Mapping[str, Place]


@dataclass(frozen=True)
class Exposure:
    """One user in one round, counted from 0.

    ``schemes`` are "no noise", "uniform", "aligned", and "sent": what the run's server received.
    ``position``, ``norm`` and ``deviations`` are None where measurements are not at hand.
    """

    user: ClientId
    round: int
    schemes: Mapping[str, Received]
    pending: tuple[str, ...] = ()  # attacks that wait for `Witness.prepare`
    summed: int | None = None  # users in the sum; None where the server sees this user's upload
    position: Place | None = None
    norm: float | None = None  # ‖g‖ before clipping
    deviations: Floats | None = field(default=None, repr=False)  # σ of the aligned noise, (M,)

    def error(self, scheme: str, attack: str) -> float | None:
        """Metres between an attack's estimate and the truth, where it is known."""
        if self.position is None:
            return None
        return float(np.linalg.norm(self.schemes[scheme].estimates[attack] - self.position))


class Witness:
    """A view of the rounds that a run kept, with the users' measurements beside them.

    Without measurements only what was sent can be looked at.
    """

    def __init__(self, transcript: Transcript, data: Measurements | None = None) -> None:
        self.data = data
        self.transcript = transcript if data is None else transcript.knowing(*data.stations)
        self._prepared: dict[int, Candidates] = {}
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
        known = set(clients if self.data is None else self.data.users.tolist())
        return tuple(client for client in clients if client in known)

    def named(self, text: str, number: int) -> ClientId:
        """The user of a round whose id reads like this."""
        for client in self.users(number):
            if str(client) == text:
                return client
        raise ConfigurationError(f"no user {text} took part in round {number + 1}", "user")

    @property
    def compares(self) -> bool:
        """Whether attacks that compare all places can be tried: base stations are known."""
        return len(self.transcript.base_stations) > 0

    def prepared(self, number: int) -> bool:
        """Whether attacks that compare all places can answer at once."""
        made = self._prepared.get(number)
        return made is not None and made.remembers(self._seen(number).broadcast.radio_map)

    def prepare(self, number: int) -> None:
        """Make what those attacks need for a round: some seconds, once."""
        if self.prepared(number) or not self.compares:
            return
        broadcast = self._seen(number).broadcast.radio_map
        # Places, and the gains expected there, are the same in all rounds.
        known = [*self._prepared.values(), None][0] or Candidates.of(self.transcript, _ALTITUDE)
        made = known.answering(broadcast)
        for old in list(self._prepared)[: 1 - _REMEMBERED_ROUNDS]:
            del self._prepared[old]
        self._prepared[number] = made

    def upload(self, user: ClientId, number: int, knobs: Knobs) -> Exposure:
        """What a server that sees every upload learns of one user in one round."""
        seen, links = self._seen(number), 1
        received: dict[str, Array] = {}
        if isinstance(seen, SeenRound) and user in seen.clients:
            row = seen.clients.index(user)
            received[SENT], links = seen.uploads[row], int(seen.weight[row])
        if self.data is not None:
            links = int(self._gradients(number, (user,))[0].counts[0])
            sent = self._protected(number, (user,), [noise.draw(0, user, number)], knobs)
            received |= {name: uploads[0] for name, uploads in sent.items()}
        if not received:
            raise ConfigurationError(
                f"user {user}: this run kept no upload of theirs in round {number + 1}, and the"
                " measurements are not at hand to compute it",
                "user",
            )
        prepared = self.prepared(number)  # asked once: it may become so at any moment
        schemes, simple = {}, (PriorOnly(), WeightedCentroid(knobs.power), *_further())
        for name, upload in received.items():
            mechanism, values = self._mechanism(name, knobs), upload.astype(np.float32)
            alone = self._one_upload(number, values, links, mechanism)
            found = {attack.name: attack.locate(alone).placed[number].xy[0] for attack in simple}
            found |= self._attacked(number, values.tobytes(), links, mechanism, prepared)
            schemes[name] = Received(upload, found)
        pending = () if prepared or not self.compares else NEED_TEMPLATES
        return Exposure(user, number, schemes, pending, **self._truth(user, number, knobs))

    def sum(self, user: ClientId, number: int, knobs: Knobs) -> Exposure:
        """What a server that sees only the sum over a round's users learns of one of them."""
        seen, clients = self._seen(number), self.users(number)
        received: dict[str, Array] = {}
        if isinstance(seen, SeenSum):
            received[SENT] = seen.height_gradient
        if self.data is not None:
            most = _SUMMED_VALUES // self.transcript.grid.cells
            if len(clients) > most:
                raise ConfigurationError(
                    f"a sum over {len(clients):,} users takes too long to try out here; this view"
                    f" adds up {most:,} at most on this map",
                    "users",
                )
            counts = self._gradients(number, clients)[0].counts
            sent = self._protected(number, clients, self._draws(number, clients), knobs)
            received |= {name: counts @ uploads / counts.sum() for name, uploads in sent.items()}
        if not received:
            raise ConfigurationError("this run kept no sum, and the measurements are not at hand")
        prepared, guess = self.prepared(number), PriorOnly().guess(self.transcript.grid)
        schemes = {}
        for name, heights in received.items():
            estimates = {}
            if prepared:
                values, mechanism = heights.astype(np.float64), self._mechanism(name, knobs)
                found = self._unmixed(number, values.tobytes(), clients, mechanism)
                estimates = {PriorOnly.name: guess, Differencing.name: found[user]}
            schemes[name] = Received(heights, estimates)
        pending = () if prepared or not self.compares else (Differencing.name,)
        known = self._truth(user, number, knobs)
        return Exposure(user, number, schemes, pending, summed=len(clients), **known)

    def _compute_gradients(
        self, number: int, users: tuple[ClientId, ...]
    ) -> tuple[LocalGradients, Floats]:
        """Gradients before clipping in answer to a round's broadcast, and where users are."""
        assert self.data is not None
        links = self.data.links.of_users(np.isin(self.data.users, users))
        broadcast = self._seen(number).broadcast.radio_map
        return gradients_of(broadcast, links), links.mean_positions()

    def _draw(self, number: int, clients: tuple[ClientId, ...]) -> list[noise.Draw]:
        """Where each user's noise comes from, drawn once for all budgets."""
        cells = self.transcript.grid.cells
        return [_Drawn(values=noise.draw(0, client, number).normals(cells)) for client in clients]

    def _protected(
        self, number: int, users: tuple[ClientId, ...], draws: list[noise.Draw], knobs: Knobs
    ) -> dict[str, Floats]:
        """What users would send under every scheme, (n, M)."""
        raw, positions = self._gradients(number, users)
        return {
            name: scheme.protect(
                raw.height_gradient, self.transcript.grid, positions, draws
            ).uploads
            for name, scheme in knobs.schemes.items()
        }

    def _truth(self, user: ClientId, number: int, knobs: Knobs) -> dict[str, Any]:
        """What only the measurements tell of a user: ``position``, ``norm`` and ``deviations``."""
        if self.data is None:
            return {}
        raw, positions = self._gradients(number, (user,))
        norm = float(np.linalg.norm(raw.height_gradient[0]))
        clipped = raw.height_gradient[0] * (knobs.clip / max(norm, knobs.clip))
        aligned, grid = knobs.schemes["aligned"], self.transcript.grid
        deviations = np.sqrt(aligned.variances(clipped, grid, positions[0]))
        return {"position": positions[0], "norm": norm, "deviations": deviations}

    def _attack(
        self, number: int, upload: bytes, links: int, mechanism: Mechanism, prepared: bool
    ) -> dict[str, Place]:
        """Estimates of the attacks that know the defence."""
        seen = self._one_upload(number, np.frombuffer(upload, np.float32), links, mechanism)
        estimates = [PlaneInversion().locate(seen), PlaneSubtraction().locate(seen)]
        if prepared:
            matched = MatchedFilter().locate(seen, self._prepared[number])
            estimates += [matched, _INVERSION.locate(seen, matched)]
        return {each.attack: each.placed[number].xy[0] for each in estimates}

    def _one_upload(
        self, number: int, upload: NDArray[np.float32], links: int, mechanism: Mechanism
    ) -> Transcript:
        """A transcript of nothing but one upload."""
        broadcast, theta = self._seen(number).broadcast, np.zeros((1, 0))
        seen = SeenRound(broadcast, ("user",), upload[None], theta, np.array([links]))
        alone = replace(self.transcript, rounds={number: seen}, mechanism=mechanism)
        return replace(alone, server_sees="uploads")

    def _unmix(
        self, number: int, heights: bytes, clients: tuple[ClientId, ...], mechanism: Mechanism
    ) -> dict[ClientId, Place]:
        """Where the attack on sums places each of a round's users."""
        broadcast, values = self._seen(number).broadcast, np.frombuffer(heights)
        seen = SeenSum(broadcast, clients, values, np.zeros(0), 0)
        alone = replace(self.transcript, rounds={number: seen}, mechanism=mechanism)
        summed = replace(alone, server_sees="sums")
        placed = Differencing().locate(summed, self._prepared[number]).placed[number]
        return dict(zip(placed.clients, placed.xy, strict=True))

    def _mechanism(self, scheme: str, knobs: Knobs) -> Mechanism:
        if scheme == SENT:
            return self.transcript.mechanism
        return knobs.schemes[scheme]

    def _seen(self, number: int) -> SeenRound | SeenSum:
        if number not in self.transcript.rounds:
            raise ConfigurationError(f"round {number + 1} was not kept", "number")
        return self.transcript.rounds[number]


def _further() -> list[PointAttack]:
    """Attacks of plug-ins that turn one upload into a place, and so are quick."""
    return [attack for attack in ATTACKS.others if isinstance(attack, PointAttack)]


@dataclass(frozen=True)
class _Drawn(noise.Draw):
    """A source of noise that has been asked before."""

    values: Floats = field(default_factory=lambda: np.zeros(0), repr=False)

    def add_noise(self, values: Floats, variances: Floats) -> None:
        """Every cell has its own number, whatever the others' variances."""
        values += np.sqrt(variances) * self.values
