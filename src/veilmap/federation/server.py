"""The server: broadcasts the map, screens and sums what comes back, takes a step."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from veilmap.federation.messages import Broadcast, ClientId, Update
from veilmap.federation.steps import ServerState, StepRule


@dataclass
class RoundSum:
    """Σ J_i · update over one round, with what was refused and why.

    Sums depend on the order of additions in their last bits: callers add updates in the
    order of client ids, whatever order they came in.

    Parameters
    ----------
    broadcast : Broadcast
        What the updates must answer.
    largest_norm : float
        A longer upload is refused: no honest client sends it.
    """

    broadcast: Broadcast
    largest_norm: float
    heights: NDArray[np.float64] = field(init=False)
    propagation: NDArray[np.float64] = field(init=False)
    links: int = field(default=0, init=False)
    clients: list[ClientId] = field(default_factory=list, init=False)
    refused: dict[ClientId, str] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.heights = np.zeros(self.broadcast.radio_map.grid.cells)
        self.propagation = np.zeros(4)

    def add(self, updates: Iterable[Update]) -> None:
        """Take in some updates; bad ones are refused by name, the others are unharmed."""
        seen = set(self.clients)
        accepted = []
        for update in updates:
            problem = self._problem(update, seen)
            if problem:
                self.refused[update.client] = problem
            else:
                accepted.append(update)
                seen.add(update.client)
        if not accepted:
            return
        weights = np.array([update.links for update in accepted], dtype=np.float64)
        self.heights += weights @ np.stack([update.heights for update in accepted])
        self.propagation += weights @ np.stack([update.propagation for update in accepted])
        self.links += int(weights.sum())
        self.clients += [update.client for update in accepted]

    def _problem(self, update: Update, seen: set[ClientId]) -> str:
        """Why an update cannot be used, or nothing."""
        if update.round != self.broadcast.round:
            return f"answers round {update.round} in round {self.broadcast.round}"
        if update.client in seen:
            return "answered twice"
        if update.links < 1:
            return f"claims {update.links} links"
        if update.heights.shape != self.heights.shape or update.propagation.shape != (4,):
            return f"has the wrong shape {update.heights.shape}"
        norm = float(np.sqrt(update.heights @ update.heights))
        if not (np.isfinite(norm) and np.isfinite(update.propagation).all()):
            return "is not finite"
        if norm > self.largest_norm:
            return f"has norm {norm:.3g}, more than {self.largest_norm:.3g}"
        return ""


class Server:
    """Holds the map and moves it round by round.

    Parameters
    ----------
    step : StepRule
    state : ServerState
        From ``step.start(grid)``, or a checkpoint.
    rounds : int
        How many there will be: steps follow schedules.
    largest_norm : float
        Of an honest upload; see `Mechanism.largest_upload`.
    """

    def __init__(
        self, step: StepRule, state: ServerState, rounds: int, largest_norm: float = np.inf
    ) -> None:
        self.step = step
        self.state = state
        self.rounds = rounds
        self.largest_norm = largest_norm

    def open_round(self) -> RoundSum:
        """Broadcast the current map; the sum is where updates go."""
        return RoundSum(Broadcast(self.state.round, self.state.radio_map), self.largest_norm)

    def close_round(self, total: RoundSum) -> None:
        """Step by the weighted mean; a round without any update leaves the map as it is."""
        links = max(total.links, 1)
        self.state = self.step(
            self.state, total.heights / links, total.propagation / links, self.rounds
        )
