"""How a broadcast reaches users and their answers come back: the part engines differ in."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from veilmap.data.folders import Crowd
from veilmap.errors import ConfigurationError
from veilmap.federation.client import Clients, Insight
from veilmap.federation.messages import ClientId, Update
from veilmap.federation.participation import Turnout
from veilmap.federation.server import RoundSum
from veilmap.federation.summing import can_add_up
from veilmap.geometry.tiling import Tiles
from veilmap.privacy.mechanisms import Mechanism

# Gradients, uploads and variances of the users worked on at once stay below about this.
_BLOCK_BYTES = 64e6

# Users who are added up without uploads of their own, at once.
_USERS_PER_BLOCK = 1000

# Below this norm a gradient moves nothing.
_NO_GRADIENT = 1e-12


class Recorder(Protocol):
    """Whoever wants to see updates as they arrive."""

    def add(self, updates: list[Update]) -> None:
        """Some updates."""
        ...


@dataclass(frozen=True)
class Gathered:
    """What came of a round beside the sum.

    Attributes
    ----------
    insights : list of Insight
        What users know of their own answers; empty where they keep it to themselves.
    absent : mapping from user to reason
        Who was asked and did not answer, beyond those the turnout already counts.
    remarks : mapping from user to remark
        What else was odd about those who did, known once the sum is open.
    """

    insights: list[Insight] = field(default_factory=list)
    absent: Mapping[ClientId, str] = field(default_factory=dict)
    remarks: Mapping[ClientId, str] = field(default_factory=dict)


class Exchange(Protocol):
    """What an engine gives a training: it knows the users and carries messages."""

    def users(self) -> Sequence[ClientId]:
        """Everybody who can be asked now, always in the same order."""
        ...

    def tiles_of(self, tiles: Tiles) -> NDArray[np.int64]:
        """The tile that each of them reveals, where an area is divided."""
        ...

    def collect(
        self,
        total: RoundSum,
        users: Sequence[ClientId],
        turnout: Turnout,
        recorder: Recorder | None,
    ) -> Gathered:
        """Send the broadcast of ``total`` to those who turn out and add up what they answer.

        ``turnout`` speaks of ``users`` one by one. Updates are added in their order: sums
        depend on it in their last bits.
        """
        ...


@dataclass(frozen=True)
class LocalExchange:
    """All users in this process, some at a time; the order of their ids."""

    data: Crowd
    mechanism: Mechanism
    seed: int | None = None

    def users(self) -> Sequence[ClientId]:
        """Everybody who has measured."""
        return self.data.users.tolist()

    def tiles_of(self, tiles: Tiles) -> NDArray[np.int64]:
        """The tile that each user reveals, where an area is divided."""
        return tiles.of(self.data.mean_positions())

    def collect(
        self,
        total: RoundSum,
        users: Sequence[ClientId],
        turnout: Turnout,
        recorder: Recorder | None,
    ) -> Gathered:
        """Let the users answer, block after block."""
        radio_map = total.broadcast.radio_map
        if recorder is None and can_add_up(self.mechanism, radio_map, self.seed):
            insights = self._add_up(total, users, turnout)
        else:
            insights = []
            for clients in self._answering(users, turnout, _block_size(total.cells)):
                updates, insight = clients.answer(total.broadcast)
                total.add(updates)
                insights.append(insight)
                if recorder:
                    recorder.add(updates)
        if total.broadcast.round == 0:
            _refuse_dead_start(insights)
        return Gathered(insights)

    def _add_up(
        self, total: RoundSum, users: Sequence[ClientId], turnout: Turnout
    ) -> list[Insight]:
        """Fused aggregation: no user takes up memory as large as the map."""
        tiles = total.tiles or Tiles.single(total.broadcast.radio_map.grid)
        running = total.empty(whole=self.mechanism.whole_numbers)
        insights: list[Insight] = []
        came: list[ClientId] = []
        for clients in self._answering(users, turnout, _USERS_PER_BLOCK):
            insights.append(clients.add_up(total.broadcast, tiles, total.cohorts, running))
            came += clients.ids
        own = np.zeros(len(users), np.int64) if total.tiles is None else self.tiles_of(tiles)
        total.take(came, own[turnout.answers], running)
        return insights

    def _answering(self, ids: Sequence[ClientId], turnout: Turnout, size: int) -> Iterator[Clients]:
        """The users who answer this round, in blocks of ``size`` who are asked or not."""
        for first, links in zip(range(0, len(ids), size), self.data.blocks(size), strict=True):
            own = slice(first, first + size)
            answers = turnout.answers[own]
            if answers.any():
                chosen = [client for client, taken in zip(ids[own], answers, strict=True) if taken]
                yield Clients(chosen, links.of_users(answers), self.mechanism, self.seed)


def _block_size(cells: int) -> int:
    """How many users are worked on at once."""
    return max(1, int(_BLOCK_BYTES / (3 * 8 * cells)))


def _refuse_dead_start(insights: list[Insight]) -> None:
    if insights and max(insight.norm.max() for insight in insights) < _NO_GRADIENT:
        raise ConfigurationError(
            "no link can move the map: every one is blocked or off the grid;"
            " start lower (start_height, such as 4 m) or check the positions"
        )
