"""How a broadcast reaches users and their answers come back: the part engines differ in."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from veilmap.errors import VeilmapError
from veilmap.federation.client import Clients, Insight
from veilmap.federation.messages import ClientId, Update
from veilmap.federation.participation import Turnout
from veilmap.federation.server import RoundSum
from veilmap.measurements import Measurements
from veilmap.mechanisms import Mechanism

# Gradients, uploads and variances of the users worked on at once stay below about this.
_BLOCK_BYTES = 64e6

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
    """An engine: it knows its users and carries messages."""

    def users(self) -> Sequence[ClientId]:
        """Everybody who can be asked now, always in the same order."""
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
class InProcess:
    """All users in this process, some at a time; the order of their ids."""

    data: Measurements
    mechanism: Mechanism
    seed: int | None = None

    def users(self) -> Sequence[ClientId]:
        """Everybody who has measured."""
        return self.data.users.tolist()

    def collect(
        self,
        total: RoundSum,
        users: Sequence[ClientId],
        turnout: Turnout,
        recorder: Recorder | None,
    ) -> Gathered:
        """Let the users answer, block after block."""
        insights = []
        for clients in self._answering(users, turnout, len(total.heights)):
            updates, insight = clients.answer(total.broadcast)
            total.add(updates)
            insights.append(insight)
            if recorder:
                recorder.add(updates)
        if total.broadcast.round == 0:
            _refuse_dead_start(insights)
        return Gathered(insights)

    def _answering(
        self, ids: Sequence[ClientId], turnout: Turnout, cells: int
    ) -> Iterator[Clients]:
        """The users who answer this round."""
        parts = self.data.links.blocks(block_size(cells))
        for own, links in zip(blocks(len(ids), cells), parts, strict=True):
            answers = turnout.answers[own]
            if answers.any():
                chosen = [client for client, taken in zip(ids[own], answers, strict=True) if taken]
                yield Clients(chosen, links.of_users(answers), self.mechanism, self.seed)


def block_size(cells: int) -> int:
    """How many users are added up at once."""
    return max(1, int(_BLOCK_BYTES / (3 * 8 * cells)))


def blocks(users: int, cells: int) -> Iterator[slice]:
    """The users who are added up together: engines that keep to it sum to the same bits."""
    size = block_size(cells)
    for first in range(0, users, size):
        yield slice(first, first + size)


def _refuse_dead_start(insights: list[Insight]) -> None:
    if insights and max(insight.norm.max() for insight in insights) < _NO_GRADIENT:
        raise VeilmapError(
            "no link can move the map: every one is blocked or off the grid;"
            " start lower (start_height, such as 4 m) or check the positions"
        )
