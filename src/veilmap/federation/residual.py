"""Obstacles first, then what they leave over."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from veilmap._util import checks
from veilmap._util.arrays import Floats
from veilmap._util.ids import Id
from veilmap._util.plain import plain
from veilmap.errors import ConfigurationError
from veilmap.federation.public import NOTHING, Public
from veilmap.federation.steps import NoiseAwareStep, ServerState, StepRule
from veilmap.geometry.grid import Grid
from veilmap.model.field import Field
from veilmap.model.field_fit import fitted_field


@plain
@dataclass(frozen=True)
class ThenField:
    """Learns obstacles first, and in the last rounds a residual field on top of them.

    The regression-kriging idea: near dense samples no physical model is as good as its
    residuals' neighbours. The field is linear, so that one sum over all users suffices: how far
    gains lie from the obstacles' prediction around every point, and how many there are. Under
    noise more rounds average it.
    """

    spacing: float  # metres between the field's points
    first: StepRule = field(default_factory=NoiseAwareStep)  # for the obstacles
    rounds: int = 1  # for the field, of all rounds

    def __post_init__(self) -> None:
        object.__setattr__(self, "spacing", checks.number("spacing", self.spacing, above=0))
        object.__setattr__(self, "rounds", checks.whole("rounds", self.rounds, least=1))

    def start(self, grid: Grid, public: Public = NOTHING) -> ServerState:
        """The state before the first round; it keeps where the base stations are."""
        if len(public.stations) == 0:
            raise ConfigurationError("a residual field needs to know the base stations")
        state = self.first.start(grid, public)
        ids = np.array([str(one) for one in public.ids], dtype=np.str_)
        known = {"stations": public.stations, "station_ids": ids}
        return replace(state, memory={**state.memory, **known})

    def filter_width(self, state: ServerState, rounds: int) -> float:
        """That of the step for obstacles, in its rounds."""
        return self.first.filter_width(state, self._rounds_before(rounds))

    def __call__(
        self, state: ServerState, by_cells: Floats, by_theta: Floats, rounds: int
    ) -> ServerState:
        """The next state, from the weighted mean gradients of a round (of ``rounds``)."""
        before = self._rounds_before(rounds)
        if state.radio_map.field is not None:
            return self._field_step(state, state.radio_map.field, by_cells)
        new = self.first(state, by_cells, by_theta, before)
        known = {name: state.memory[name] for name in ("stations", "station_ids")}
        if new.round < before:
            return replace(new, memory={**new.memory, **known})
        empty = self.empty(new.radio_map.grid, known["stations"], known["station_ids"].tolist())
        sums = {"field_sum": np.zeros(2 * empty.values.size), "field_rounds": np.zeros(1)}
        return ServerState(replace(new.radio_map, field=empty), new.round, sums)

    def _rounds_before(self, rounds: int) -> int:
        """How many of all rounds are for the obstacles."""
        before = rounds - self.rounds
        if before < 1:
            raise ConfigurationError(
                f"{rounds} rounds leave none for the obstacles before the field"
            )
        return before

    def empty(self, grid: Grid, stations: Floats, ids: Sequence[Id]) -> Field:
        """A field over the ground of ``grid`` that is 0 everywhere."""
        west, east, south, north = grid.extent
        places = Grid.covering([(west, south), (east, north)], self.spacing, crs=grid.crs)
        return Field(places, stations, ids=tuple(ids))

    def _field_step(self, state: ServerState, old: Field, by_cells: Floats) -> ServerState:
        """The field that fits the mean of all rounds' sums best."""
        total = state.memory["field_sum"] + by_cells
        taken = state.memory["field_rounds"] + 1
        slopes, curvatures = (total / taken).reshape(2, *old.values.shape)
        counts = np.maximum(curvatures, 0.0)  # of readings around every point, as shares
        if counts.any():
            links = state.links / counts.sum()
            values = fitted_field(old, -links * slopes, links * counts).mean
        else:
            values = np.zeros_like(old.values)
        radio_map = replace(state.radio_map, field=old.moved_to(values))
        memory = {"field_sum": total, "field_rounds": taken}
        return ServerState(radio_map, state.round + 1, memory)
