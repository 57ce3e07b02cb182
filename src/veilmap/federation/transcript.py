"""What the server saw, and the public facts beside it: all that an attack may use."""

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from veilmap._util.arrays import Array
from veilmap._util.ids import Id
from veilmap.errors import DataError
from veilmap.federation.messages import Broadcast, ClientId, Update
from veilmap.federation.public import seen_from
from veilmap.geometry.grid import Grid
from veilmap.model.radio_map import RadioMap
from veilmap.privacy.mechanisms import Mechanism

ServerSees = Literal["uploads", "sums"]
"""The trust model: single uploads (the paper's), or only their sum (secure aggregation)."""


@dataclass(frozen=True)
class SeenRound:
    """One round of a server that sees every upload.

    Attributes
    ----------
    broadcast : Broadcast
    clients : tuple of ids
    uploads : (n, M) float32
        Their gradients as they arrived. Kept in single precision: no attack loses by it.
    theta_gradient : (n, P) float
    weight : (n,) int
    """

    broadcast: Broadcast
    clients: tuple[ClientId, ...]
    uploads: NDArray[np.float32] = field(repr=False)
    theta_gradient: NDArray[np.float64] = field(repr=False)
    weight: NDArray[np.int64] = field(repr=False)

    def only(self, users: Set[ClientId]) -> "SeenRound":
        """What it shows of some users."""
        rows = [row for row, client in enumerate(self.clients) if client in users]
        return SeenRound(
            self.broadcast, tuple(self.clients[row] for row in rows), self.uploads[rows],
            self.theta_gradient[rows], self.weight[rows],
        )  # fmt: skip


@dataclass(frozen=True)
class SeenSum:
    """One round of a server that sees only the sum.

    Attributes
    ----------
    broadcast : Broadcast
    clients : tuple of ids
        Who took part: secure aggregation hides what they sent, not that they did.
    height_gradient : (M,) float
        The weighted mean of their uploads.
    theta_gradient : (P,) float
    weight : int
        The sum of their weights.
    """

    broadcast: Broadcast
    clients: tuple[ClientId, ...]
    height_gradient: NDArray[np.float64] = field(repr=False)
    theta_gradient: NDArray[np.float64] = field(repr=False)
    weight: int


@dataclass(frozen=True)
class Transcript:
    """Rounds that were kept, and what everybody knows.

    Attributes
    ----------
    grid : Grid
    mechanism : Mechanism
        With its parameters, which are public.
    base_stations : (B, 3) float
        Public too; with ``bs`` a row for each id, so that those on one mast repeat its place.
    rounds : mapping from round to SeenRound or SeenSum
    server_sees : "uploads" or "sums"
        Which of the two ``rounds`` holds.
    radio_map : RadioMap or None
        The map that came out, which the server has as well.
    bs : (B,) ids, optional
        Of the base stations, where their offsets were learned.
    targets : set of ids, optional
        Whom an attacker is after; by default everybody. All others still count where sums are
        compared.
    """

    grid: Grid
    mechanism: Mechanism
    base_stations: NDArray[np.float64] = field(repr=False)
    rounds: Mapping[int, SeenRound | SeenSum] = field(default_factory=dict, repr=False)
    server_sees: ServerSees = "uploads"
    radio_map: RadioMap | None = field(default=None, repr=False)
    bs: Array | None = field(default=None, repr=False)
    targets: Set[ClientId] | None = field(default=None, repr=False)

    def knowing(self, stations: NDArray[np.float64], ids: Sequence[Id]) -> "Transcript":
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
    def best_map(self) -> RadioMap:
        """The server's best knowledge of the city: the learned map, or its last broadcast."""
        return self.radio_map or self.rounds[max(self.rounds)].broadcast.radio_map


@dataclass
class RoundRecorder:
    """Collects the updates of one round, all clients' or some."""

    only: Collection[ClientId] | None = None
    _updates: list[Update] = field(default_factory=list, init=False)

    def add(self, updates: list[Update]) -> None:
        """Remember updates as they arrive."""
        self._updates += [u for u in updates if self.only is None or u.client in self.only]

    def seen(self, broadcast: Broadcast) -> SeenRound:
        """The round as the server saw it."""
        updates = self._updates
        cells = broadcast.radio_map.grid.cells
        return SeenRound(
            broadcast,
            tuple(update.client for update in updates),
            np.array([u.height_gradient for u in updates], dtype=np.float32).reshape(-1, cells),
            np.array([u.theta_gradient for u in updates], dtype=np.float64).reshape(
                len(updates), -1
            ),
            np.array([u.weight for u in updates], dtype=np.int64),
        )
