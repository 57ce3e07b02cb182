"""The server: broadcasts the map, screens and sums what comes back, takes a step."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from veilmap._kernels import rows
from veilmap._util.arrays import Array, Bools, Floats, Ints
from veilmap.federation.messages import LARGEST_SLOPE, Broadcast, ClientId, Update
from veilmap.federation.robust import LEFT_OUT, RobustMean
from veilmap.federation.steps import ServerState, StepRule
from veilmap.federation.transcript import RoundRecorder, SeenRound, SeenSum, ServerSees
from veilmap.geometry.tiling import Tiles
from veilmap.privacy.mechanisms import Mechanism
from veilmap.privacy.mechanisms.sums import RunningSum


@dataclass(frozen=True)
class OpenedSum:
    """A sum after unmasking: Σ J_i, Σ J_i · heights and Σ J_i · θ's gradient."""

    weight: int
    height_gradient: Floats
    theta_gradient: Floats


IMPOSSIBLE = "the opened sum is none of honest users: the map is left as it was"

Unmask = Callable[[], OpenedSum | str]


@dataclass
class RoundSum:
    """Σ J_i · update over one round, with what was refused and why.

    A map without tiles has one sum. Of a divided area each tile has its own, which opens by
    itself. Sums depend on the order of additions in their last bits: callers add updates in the
    order of client ids, whatever order they came in.
    """

    broadcast: Broadcast  # what the updates must answer; its cohort is that of all tiles together
    largest_norm: float = np.inf  # a longer upload is refused: no honest client sends it
    largest_slope: float = np.inf  # likewise for each entry of its gradient of θ
    # (T,): with fewer a sum is not opened, as if nobody had answered
    least_answers: Ints = field(default_factory=lambda: np.zeros(1, np.int64))
    tiles: Tiles | None = None
    tile_cohorts: Ints | None = None  # (T,): how many users of each tile were asked
    recorder: RoundRecorder | None = None  # of single updates
    # Updates that are looked at together before they are added up; None to add them as they come.
    held: list[Update] | None = None
    impossible: bool = field(default=False, init=False)  # no honest crowd has such a sum
    refused: dict[ClientId, str] = field(default_factory=dict, init=False)
    _answered: list[ClientId] = field(default_factory=list, init=False)
    _tile_of: list[int] = field(default_factory=list, init=False, repr=False)
    _running: RunningSum = field(init=False, repr=False)
    _unmask: Unmask | None = field(default=None, init=False, repr=False)
    _unmasked: OpenedSum | None = field(default=None, init=False, repr=False)
    _problem_unmasking: str = field(default="", init=False)

    def __post_init__(self) -> None:
        self._running = self.empty(whole=False)

    def empty(self, *, whole: bool) -> RunningSum:
        """Sums over nobody, of whole numbers or of real ones."""
        cells = [self.cells] if self.tiles is None else self.tiles.cells.tolist()
        return RunningSum.empty(cells, self.parameters, whole=whole)

    @cached_property
    def cells(self) -> int:
        """How many numbers of an upload are gradients of h."""
        return self.broadcast.radio_map.trained_cells

    @cached_property
    def parameters(self) -> int:
        """How many are gradients of θ."""
        return len(self.broadcast.radio_map.theta)

    @property
    def cohorts(self) -> Ints:
        """How many users were asked, (T,)."""
        return np.array([self.broadcast.cohort]) if self.tile_cohorts is None else self.tile_cohorts

    @property
    def sum(self) -> OpenedSum:
        """What has been added up so far, or what a mask hid; of a map without tiles."""
        if self._unmasked is not None:
            return self._unmasked
        return OpenedSum(int(self._running.weights[0]), *self._running.total())

    @property
    def weight(self) -> int:
        """Σ of the weights of all who answered."""
        return self.sum.weight if self.tiles is None else int(self._running.weights.sum())

    @property
    def _came(self) -> Ints:
        """How many answered, (T,)."""
        return np.bincount(self._tile_of, minlength=len(self.least_answers))

    @property
    def _open(self) -> Bools:
        """Which sums may be seen, (T,)."""
        # An empty tile has nothing to see; a round without answers moves the map by its priors.
        some = True if self.tiles is None else self._came > 0
        return some & (self._came >= self.least_answers)

    @property
    def opens(self) -> bool:
        """Whether enough users answered for any sum to be seen."""
        return bool(self._open.any())

    @property
    def clients(self) -> list[ClientId]:
        """The users who answered; of a divided area, those whose sums open."""
        if self.tiles is None:
            return self._answered
        among = self._open[self._tile_of]
        return [client for client, taken in zip(self._answered, among, strict=True) if taken]

    @property
    def why_shut(self) -> str:
        """Which sums are not seen or not used, and why."""
        if self.impossible:
            return IMPOSSIBLE
        if self._problem_unmasking:
            return f"round abandoned: {self._problem_unmasking}"
        shut = np.flatnonzero((self.cohorts > 0) & ~self._open)
        what = "round abandoned" if self.tiles is None else "tile {} stays shut"
        needs = "{} of the {} answers it needs came"
        return "; ".join(
            f"{what.format(tile)}: {needs.format(self._came[tile], self.least_answers[tile])}"
            for tile in shut
        )

    def seal(self, clients: Sequence[ClientId], unmask: Unmask) -> None:
        """Take in a sum over these users that is still masked."""
        self.take(clients)
        self._unmask = unmask

    def unseal(self) -> None:
        """Open a masked sum; where that fails, it stays shut, and the text says why."""
        if self._unmask is None:
            return
        opened = self._unmask()
        if isinstance(opened, str):
            self._problem_unmasking = opened
            self._answered.clear()
            self._tile_of.clear()
        else:
            self._unmasked = opened

    def add(self, updates: Iterable[Update]) -> None:
        """Take in some updates; bad ones are refused by name, the others are unharmed."""
        seen = set(self._answered)
        for update in updates:
            problem = self._problem(update, seen)
            if problem:
                self.refused[update.client] = problem
                continue
            if self.held is None:
                self._running.add(update.height_gradient, update.theta_gradient, update.weight)
            else:
                self.held.append(update)
            self.take([update.client])
            seen.add(update.client)
            if self.recorder:
                self.recorder.add(update)

    def settle(self, robust: RobustMean, before: Mapping[str, Array]) -> dict[str, Array]:
        """Add up what was held, as a robust mean weighs it; what it is to remember."""
        updates, self.held = self.held or [], None
        if not updates:
            return {}
        radio_map = self.broadcast.radio_map
        added, left, memory = robust.weighed(
            updates, radio_map.grid.shape, radio_map.propagation.laws, before
        )
        for update in added:
            self._running.add(update.height_gradient, update.theta_gradient, update.weight)
        self.refused |= dict.fromkeys(left, LEFT_OUT)
        self._answered = [update.client for update in added]
        self._tile_of = [0] * len(added)
        return memory

    def take(
        self,
        clients: Sequence[ClientId],
        added: RunningSum | None = None,
        tile_of: Sequence[int] | None = None,
    ) -> None:
        """Note who answered; ``added`` is their sum where they were all aggregated in process."""
        self._running = self._running if added is None else added
        self._answered += clients
        self._tile_of += [0] * len(clients) if tile_of is None else tile_of

    def means(self, mechanism: Mechanism) -> tuple[Floats, Floats]:
        """The mean gradients of h and θ of the whole map, as the mechanism reads them."""
        radio_map = self.broadcast.radio_map
        laws = radio_map.propagation.laws
        if self.tiles is None:
            one = self.sum
            return mechanism.read(one.height_gradient, one.theta_gradient, one.weight, laws)
        heights, theta = np.zeros(radio_map.grid.shape), np.zeros(self.parameters)
        links = int(self._running.weights[self._open].sum())
        for tile in np.flatnonzero(self._open).tolist():
            weight = int(self._running.weights[tile])
            by_cells, by_theta = mechanism.read(*self._running.total(tile), weight, laws)
            self.tiles.add_window(tile, weight / links * by_cells, heights)
            theta += weight / links * by_theta
        return heights.ravel(), theta

    def upload_bytes(self, mechanism: Mechanism) -> int:
        """What those who answered sent; of a divided area, those whose sums open."""
        if self.tiles is None:
            return len(self._answered) * mechanism.upload_bytes(self.cells, self.parameters)
        sizes = [mechanism.upload_bytes(int(n), self.parameters) for n in self.tiles.cells]
        return int((self._came * self._open) @ np.array(sizes))

    def _problem(self, update: Update, seen: set[ClientId]) -> str:
        """Why an update cannot be used, or nothing."""
        problem = update.problem(self.broadcast)
        if problem:
            return problem
        if update.client in seen:
            return "answered twice"
        norm = rows.length(update.height_gradient)
        if not np.isfinite(norm):
            return "is not finite"
        if norm > self.largest_norm:
            return f"has norm {norm:.3g}, more than {self.largest_norm:.3g}"
        slope = np.abs(update.theta_gradient).max(initial=0.0)
        if slope > self.largest_slope:
            return f"has a gradient of θ of {slope:.3g}, more than {self.largest_slope:.3g}"
        return ""


@dataclass
class Server:
    """Holds the map and moves it round by round."""

    step: StepRule
    state: ServerState  # from ``step.start(grid)``, or a checkpoint
    rounds: int  # how many there will be: steps follow schedules
    mechanism: Mechanism  # what clients do, which is public; it says how to read their sum
    server_sees: ServerSees = "uploads"  # single uploads can be screened, only their sum cannot
    robust: RobustMean | None = None  # how uploads are added up; None for their plain mean

    def open_round(self, cohorts: Sequence[int] = (1,), tiles: Tiles | None = None) -> RoundSum:
        """Broadcast the current map to so many users of each tile; updates go to the sum."""
        # A field's sums are those of its points, which have no neighbours to be filtered with.
        filters = self.mechanism.filters and self.state.radio_map.field is None
        width = self.step.filter_width(self.state, self.rounds) if filters else 0.0
        broadcast = Broadcast(self.state.round, self.state.radio_map, sum(cohorts), width)
        least = [self._least_answers(cohort) for cohort in cohorts]
        largest = slope = np.inf  # of what is not seen
        if self.server_sees != "sums":
            largest = self.mechanism.largest_upload(self.state.radio_map.trained_cells)
            slope = np.inf if self.mechanism.whole_numbers else LARGEST_SLOPE
        total = RoundSum(broadcast, largest, slope, np.array(least), tiles, np.array(cohorts))
        total.held = None if self.robust is None else []
        return total

    def _least_answers(self, cohort: int) -> int:
        """With how many answers of a cohort the sum may be seen."""
        # Of one user the sum, or what is shuffled, would be that user's upload.
        return 0 if self.server_sees == "uploads" else max(2, self.mechanism.least_answers(cohort))

    def read(self, total: RoundSum) -> SeenRound | SeenSum:
        """The round as this server sees it: single updates, or their sum once it is open."""
        if total.recorder:
            return total.recorder.seen(total.broadcast)
        means = total.means(self.mechanism)
        return SeenSum(total.broadcast, tuple(total.clients), *means, total.sum.weight)

    def close_round(self, total: RoundSum) -> None:
        """Step by the weighted mean; a round without any leaves the map to the priors."""
        moved = total.broadcast.radio_map
        traces: dict[str, Array] = {}
        if self.robust is not None:
            traces = total.settle(self.robust, self.state.memory)
        total.impossible = total.opens and not self._is_possible(total)
        if total.impossible:
            self.state = replace(self.state, round=self.state.round + 1)
            return
        if total.opens:
            means = total.means(self.mechanism)
        else:
            means = np.zeros(moved.trained_cells), np.zeros(len(moved.theta))
        before = replace(
            self.state, links=max(total.weight, 1), filtered=total.broadcast.filter_width
        )
        after = self.step(before, *means, self.rounds)
        self.state = replace(after, memory={**after.memory, **traces}) if traces else after

    def _is_possible(self, total: RoundSum) -> bool:
        """Whether honest users can have answered so; a sum that was seen before it is screened."""
        if self.server_sees != "sums" or total.tiles is not None:
            return True
        opened, answers = total.sum, len(total.clients)
        given = opened.height_gradient, opened.theta_gradient
        return self.mechanism.is_possible(*given, answers, total.broadcast.cohort)
