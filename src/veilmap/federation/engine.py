"""How a broadcast reaches users and their answers come back: the part engines differ in."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from veilmap._util.arrays import Ints
from veilmap.data.folders import Crowd
from veilmap.errors import ConfigurationError
from veilmap.federation.client import Clients, Insight, can_add_up
from veilmap.federation.messages import ClientId
from veilmap.federation.participation import Turnout
from veilmap.federation.server import RoundSum
from veilmap.geometry.tiling import Tiles
from veilmap.privacy.mechanisms import Mechanism

# Gradients, uploads and variances of the users worked on at once stay below about this.
_BLOCK_BYTES = 64e6

# Users who are added up without uploads of their own, at once.
_USERS_PER_BLOCK = 1000

# Below this norm a gradient moves nothing.
_NO_GRADIENT = 1e-12


@dataclass(frozen=True)
class Gathered:
    """What came of a round beside the sum."""

    # What users know of their own answers; empty where they keep it to themselves.
    insights: list[Insight] = field(default_factory=list)
    # Why users who were asked did not answer, beyond those the turnout already counts.
    absent: Mapping[ClientId, str] = field(default_factory=dict)
    # What else was odd about those who did, known once the sum is open.
    remarks: Mapping[ClientId, str] = field(default_factory=dict)


class Exchange(Protocol):
    """What an engine gives a training: it knows the users and carries messages."""

    def users(self) -> Sequence[ClientId]:
        """Everybody who can be asked now, always in the same order."""

    def tiles_of(self, tiles: Tiles) -> Ints:
        """The tile that each of them reveals, where an area is divided."""

    def collect(self, total: RoundSum, turnout: Turnout) -> Gathered:
        """Send the broadcast of ``total`` to those who turn out and add up what they answer.

        Updates are added in the order of users: sums depend on it in their last bits.
        """


@dataclass(frozen=True)
class LocalExchange:
    """All users in this process, some at a time; the order of their ids."""

    data: Crowd
    mechanism: Mechanism
    seed: int | None = None

    def users(self) -> Sequence[ClientId]:
        """Everybody who has measured."""
        return self.data.users.tolist()

    def tiles_of(self, tiles: Tiles) -> Ints:
        """The tile that each user reveals, where an area is divided."""
        return tiles.of(self.data.mean_positions())

    def collect(self, total: RoundSum, turnout: Turnout) -> Gathered:
        """Let the users answer, block after block."""
        radio_map = total.broadcast.radio_map
        whole = total.recorder is None and total.held is None
        if whole and can_add_up(self.mechanism, radio_map, self.seed):
            insights = self._add_up(total, turnout)
        else:
            insights = []
            at_once = max(1, int(_BLOCK_BYTES / (3 * 8 * total.cells)))
            for clients in self._answering(turnout, at_once):
                updates, insight = clients.answer(total.broadcast)
                total.add(updates)
                insights.append(insight)
        norms = [insight.norm.max() for insight in insights]
        if total.broadcast.round == 0 and max(norms, default=math.inf) < _NO_GRADIENT:
            raise ConfigurationError(
                "no link can move the map: every one is blocked or off the grid;"
                " start lower (start_height, such as 4 m) or check the positions"
            )
        return Gathered(insights)

    def _add_up(self, total: RoundSum, turnout: Turnout) -> list[Insight]:
        """Fused aggregation: no user takes up memory as large as the map."""
        tiles = total.tiles or Tiles.single(total.broadcast.radio_map.grid)
        running = total.empty(whole=self.mechanism.whole_numbers)
        insights = [
            clients.add_up(total.broadcast, tiles, total.cohorts, running)
            for clients in self._answering(turnout, _USERS_PER_BLOCK)
        ]
        own = None if total.tiles is None else self.tiles_of(tiles)[turnout.answers].tolist()
        total.take(turnout.answering(), running, own)
        return insights

    def _answering(self, turnout: Turnout, size: int) -> Iterator[Clients]:
        """The users who answer this round, in blocks of ``size`` who are asked or not."""
        blocks = range(0, len(turnout.users), size)
        for first, links in zip(blocks, self.data.blocks(size), strict=True):
            own = slice(first, first + size)
            chosen = turnout.answering(own)
            if chosen:
                answers = links.of_users(turnout.answers[own])
                yield Clients(chosen, answers, self.mechanism, self.seed)
