"""The server: broadcasts the map, screens and sums what comes back, takes a step."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from veilmap._kernels import rows
from veilmap.federation.messages import Broadcast, ClientId, Update
from veilmap.federation.steps import ServerState, StepRule
from veilmap.federation.tiled import TiledSum
from veilmap.federation.transcript import SeenSum, ServerSees
from veilmap.geometry.tiling import Tiles
from veilmap.privacy.mechanisms import Mechanism
from veilmap.privacy.mechanisms.sums import RunningSum


@dataclass(frozen=True)
class OpenedSum:
    """A sum after unmasking: Σ J_i, Σ J_i · heights and Σ J_i · θ's gradient."""

    links: int
    heights: NDArray[np.float64]
    propagation: NDArray[np.float64]


Unmask = Callable[[], OpenedSum | None]


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
    least_answers : int
        With fewer the sum stays shut, as if nobody had answered.
    """

    broadcast: Broadcast
    largest_norm: float
    least_answers: int = 0
    clients: list[ClientId] = field(default_factory=list, init=False)
    refused: dict[ClientId, str] = field(default_factory=dict, init=False)
    _running: RunningSum = field(init=False, repr=False)
    _unmask: Unmask | None = field(default=None, init=False, repr=False)
    _unmasked: OpenedSum | None = field(default=None, init=False, repr=False)
    _problem_unmasking: str = field(default="", init=False)

    def __post_init__(self) -> None:
        self._running = RunningSum.empty([self.cells], self.parameters, whole=False)

    @cached_property
    def cells(self) -> int:
        """How many numbers of an upload are gradients of h."""
        return self.broadcast.radio_map.trained_cells

    @cached_property
    def parameters(self) -> int:
        """How many are gradients of θ."""
        return len(self.broadcast.radio_map.theta)

    @property
    def sum(self) -> OpenedSum:
        """What has been added up so far, or what a mask hid."""
        if self._unmasked is not None:
            return self._unmasked
        return OpenedSum(int(self._running.weights[0]), *self._running.total())

    @property
    def opens(self) -> bool:
        """Whether enough users answered for the sum to be seen."""
        return len(self.clients) >= self.least_answers

    @property
    def why_shut(self) -> str:
        """Why the sum is not seen, or nothing."""
        if self.opens:
            return ""
        few = f"{len(self.clients)} of the {self.least_answers} answers it needs came"
        return f"round abandoned: {self._problem_unmasking or few}"

    def seal(self, clients: Sequence[ClientId], unmask: Unmask) -> None:
        """Take in a sum over these users that is still masked."""
        self.clients += clients
        self._unmask = unmask

    def unseal(self) -> None:
        """Open a masked sum; where too few help to unmask it, it stays shut."""
        if self._unmask is None:
            return
        opened = self._unmask()
        if opened is None:
            self._problem_unmasking = "too few nodes helped to unmask the sum"
            self.clients.clear()
        self._unmasked = opened

    def add(self, updates: Iterable[Update]) -> None:
        """Take in some updates; bad ones are refused by name, the others are unharmed."""
        seen = set(self.clients)
        for update in updates:
            problem = self._problem(update, seen)
            if problem:
                self.refused[update.client] = problem
                continue
            self._running.add(update.heights, update.propagation, update.links)
            self.clients.append(update.client)
            seen.add(update.client)

    def take(self, clients: Sequence[ClientId], added: RunningSum) -> None:
        """Take in users who were added up where they are; nobody was added before."""
        self._running = added
        self.clients += clients

    def means(self, mechanism: Mechanism) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The mean gradients of h and θ, as the mechanism reads them out of the sum."""
        laws, opened = self.broadcast.radio_map.propagation.laws, self.sum
        return mechanism.read(opened.heights, opened.propagation, opened.links, laws)

    def upload_bytes(self, mechanism: Mechanism) -> int:
        """What those who answered sent."""
        return len(self.clients) * mechanism.upload_bytes(self.cells, self.parameters)

    def _problem(self, update: Update, seen: set[ClientId]) -> str:
        """Why an update cannot be used, or nothing."""
        if update.round != self.broadcast.round:
            return f"answers round {update.round} in round {self.broadcast.round}"
        if update.client in seen:
            return "answered twice"
        if update.links < 1:
            return f"claims {update.links} links"
        shapes = update.heights.shape, update.propagation.shape
        if shapes != ((self.cells,), (self.parameters,)):
            return f"has the wrong shape {shapes[0]}"
        norm = rows.length(update.heights)
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
    mechanism : Mechanism
        What clients do, which is public; it says how to read their sum.
    server_sees : "uploads" or "sums"
        Whether single uploads arrive, and can be screened, or only their sum.
    """

    def __init__(
        self,
        step: StepRule,
        state: ServerState,
        rounds: int,
        mechanism: Mechanism,
        server_sees: ServerSees = "uploads",
    ) -> None:
        self.step = step
        self.state = state
        self.rounds = rounds
        self.mechanism = mechanism
        self.server_sees = server_sees

    def open_round(self, cohort: int = 1) -> RoundSum:
        """Broadcast the current map to ``cohort`` users; the sum is where updates go."""
        broadcast = Broadcast(self.state.round, self.state.radio_map, cohort)
        if self.server_sees == "uploads":
            return RoundSum(broadcast, self.mechanism.largest_upload())
        # The sum over one user would be that user's upload.
        return RoundSum(broadcast, np.inf, max(2, self.mechanism.least_answers(cohort)))

    def open_tiles(
        self, tiles: Tiles, tile_of: NDArray[np.int64], invited: NDArray[np.bool_]
    ) -> TiledSum:
        """Broadcast the current map to the users invited, of whom each says its tile."""
        cohorts = np.bincount(tile_of[invited], minlength=len(tiles))
        broadcast = Broadcast(self.state.round, self.state.radio_map, int(cohorts.sum()))
        least = [
            1 if self.server_sees == "uploads" else max(2, self.mechanism.least_answers(cohort))
            for cohort in cohorts.tolist()
        ]
        return TiledSum(broadcast, tiles, tile_of, cohorts, np.array(least))

    def read(self, total: RoundSum) -> SeenSum:
        """The sum as this server sees it, once it is open."""
        means = total.means(self.mechanism)
        return SeenSum(total.broadcast, tuple(total.clients), *means, total.sum.links)

    def close_round(self, total: RoundSum | TiledSum) -> None:
        """Step by the weighted mean; a round without any leaves the map to the priors."""
        moved = total.broadcast.radio_map
        if total.opens:
            means = total.means(self.mechanism)
        else:
            means = np.zeros(moved.trained_cells), np.zeros(len(moved.theta))
        self.state = self.step(self.state, *means, self.rounds)
