"""What the server saw, and the public facts beside it: all that an attack may use."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilmap.federation.messages import Broadcast, ClientId, Update
from veilmap.geometry import Grid


@dataclass(frozen=True)
class SeenRound:
    """One round as the server saw it.

    Attributes
    ----------
    broadcast : Broadcast
    clients : tuple of ids
    uploads : (n, M) float32
        Their gradients as they arrived. Kept in single precision: no attack loses by it.
    propagation : (n, 4) float
    links : (n,) int
    """

    broadcast: Broadcast
    clients: tuple[ClientId, ...]
    uploads: NDArray[np.float32] = field(repr=False)
    propagation: NDArray[np.float64] = field(repr=False)
    links: NDArray[np.int64] = field(repr=False)


@dataclass(frozen=True)
class Transcript:
    """Rounds that were kept, and what everybody knows.

    Attributes
    ----------
    grid : Grid
    mechanism : mapping
        The mechanism's name and parameters, which are public.
    base_stations : (B, 3) float
        Public too.
    rounds : mapping from round to SeenRound
    """

    grid: Grid
    mechanism: Mapping[str, Any]
    base_stations: NDArray[np.float64] = field(repr=False)
    rounds: Mapping[int, SeenRound] = field(default_factory=dict, repr=False)


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
            np.array([u.heights for u in updates], dtype=np.float32).reshape(-1, cells),
            np.array([u.propagation for u in updates], dtype=np.float64).reshape(-1, 4),
            np.array([u.links for u in updates], dtype=np.int64),
        )
