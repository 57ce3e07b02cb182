"""What the server saw, and the public facts beside it: all that an attack may use."""

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Literal, cast, get_args

import numpy as np
from numpy.typing import NDArray

from veilmap._util.arrays import Array, Floats, Ints
from veilmap._util.ids import Id
from veilmap.errors import ConfigurationError, DataError
from veilmap.federation.messages import Broadcast, ClientId, Update
from veilmap.federation.public import seen_from
from veilmap.geometry.grid import Grid
from veilmap.model.radio_map import RadioMap
from veilmap.privacy.mechanisms import Mechanism, PrivateMechanism

ServerSees = Literal["uploads", "shuffled", "sums"]
"""The trust model: single uploads (the paper's), uploads of a round that somebody else has taken
the names off and mixed, or only their sum (secure aggregation)."""

SEEN: Mapping[ServerSees, str] = {
    "uploads": "every user's upload",
    "shuffled": "uploads without names, mixed within a round, and who took part",
    "sums": "only sums over a round's users, and who took part",
}
"""The same in words: what is seen."""


def checked_sees(value: str) -> ServerSees:
    """The trust model that somebody named, if there is such a one."""
    if value not in get_args(ServerSees):
        raise ConfigurationError(
            f"server_sees is 'uploads', 'shuffled' or 'sums', not {value!r}", "server_sees"
        )
    return cast("ServerSees", value)


@dataclass(frozen=True)
class SeenRound:
    """One round of a server that sees every upload of n users.

    Where gradients of θ are covered, P is 0, each weight is the mean number of links, which is
    what their sum tells, and uploads are J_i over it times g̃: what users send is J_i g̃.
    """

    broadcast: Broadcast
    clients: tuple[ClientId, ...]
    # (n, M): gradients as they arrived, in single precision: no attack loses by it.
    uploads: NDArray[np.float32] = field(repr=False)
    theta_gradient: Floats = field(repr=False)  # (n, P)
    weight: Ints = field(repr=False)  # (n,)

    def only(self, users: Set[ClientId]) -> "SeenRound":
        """What it shows of some users."""
        rows = [row for row, client in enumerate(self.clients) if client in users]
        clients, uploads = tuple(self.clients[row] for row in rows), self.uploads[rows]
        theta, weight = self.theta_gradient[rows], self.weight[rows]
        return SeenRound(self.broadcast, clients, uploads, theta, weight)


@dataclass(frozen=True)
class SeenSum:
    """One round of a server that sees only the sum; it can add up uploads without names too."""

    broadcast: Broadcast
    clients: tuple[ClientId, ...]  # what they sent is hidden, not that they did
    height_gradient: Floats = field(repr=False)  # (M,): the weighted mean of their uploads
    theta_gradient: Floats = field(repr=False)  # (P,)
    weight: int  # the sum of their weights


@dataclass(frozen=True)
class Transcript:
    """Rounds that were kept, and what everybody knows."""

    grid: Grid
    mechanism: Mechanism  # with its parameters, which are public
    # (B, 3): public too; with ``bs`` a row for each id, so that those on one mast repeat its place
    base_stations: Floats = field(repr=False)
    rounds: Mapping[int, SeenRound | SeenSum] = field(default_factory=dict, repr=False)
    server_sees: ServerSees = "uploads"  # which of the two ``rounds`` holds
    radio_map: RadioMap | None = field(default=None, repr=False)  # that came out: it is public
    bs: Array | None = field(default=None, repr=False)  # (B,): ids, where offsets were learned
    # Whom an attacker is after, by default everybody; all others count where sums are compared.
    targets: Set[ClientId] | None = field(default=None, repr=False)

    def knowing(self, stations: Floats, ids: Sequence[Id]) -> "Transcript":
        """The same with these base stations, where it has none."""
        if len(self.base_stations):
            return self
        places, bs = seen_from(stations, ids, self.best_map.offsets)
        return replace(self, base_stations=places, bs=bs)

    def wanted(self, rounds: Iterable[SeenRound | SeenSum]) -> tuple[ClientId, ...]:
        """Those whom an attacker is after, among the users of some rounds, each once."""
        everybody = dict.fromkeys(client for seen in rounds for client in seen.clients)
        if self.targets is None:
            return tuple(everybody)
        return tuple(client for client in everybody if client in self.targets)

    def uploads(self, number: int) -> SeenRound:
        """One round of a server that sees every upload."""
        seen = self.rounds[number]
        if not isinstance(seen, SeenRound):
            raise DataError("this server sees only sums, no single upload")
        return seen if self.targets is None else seen.only(self.targets)

    @property
    def shows_theta(self) -> bool:
        """Whether it has gradients of θ, and numbers of links, of single users without noise."""
        return not isinstance(self.mechanism, PrivateMechanism) and all(
            isinstance(seen, SeenRound) and seen.theta_gradient.shape[1] > 0
            for seen in self.rounds.values()
        )

    @property
    def best_map(self) -> RadioMap:
        """The server's best knowledge of the city: the learned map, or its last broadcast."""
        return self.radio_map or self.rounds[max(self.rounds)].broadcast.radio_map


@dataclass
class RoundRecorder:
    """Collects the updates of one round, all clients' or some."""

    only: Collection[ClientId] | None = None
    covers_theta: bool = False  # whether the server sees θ's gradients and weights only in sums
    _links: int = field(default=0, init=False)  # of all users
    _users: int = field(default=0, init=False)
    _updates: list[Update] = field(default_factory=list, init=False)

    def add(self, update: Update) -> None:
        """Remember an update."""
        self._links += update.weight
        self._users += 1
        if self.only is None or update.client in self.only:
            self._updates.append(update)

    def seen(self, broadcast: Broadcast) -> SeenRound:
        """The round as the server saw it."""
        updates, count = self._updates, len(self._updates)
        heights = np.array([u.height_gradient for u in updates], dtype=np.float32)
        theta = np.array([u.theta_gradient for u in updates], dtype=np.float64)
        weights = np.array([u.weight for u in updates], dtype=np.int64)
        parameters = len(broadcast.radio_map.theta)
        if self.covers_theta:
            mean = max(1, round(self._links / max(self._users, 1)))
            heights = heights.reshape(count, -1) * (weights / mean)[:, None].astype(np.float32)
            theta, parameters, weights = theta[:, :0], 0, np.full(count, mean)
        return SeenRound(
            broadcast,
            tuple(update.client for update in updates),
            heights.reshape(count, broadcast.radio_map.grid.cells),
            theta.reshape(count, parameters),
            weights,
        )
