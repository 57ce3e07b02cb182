"""Obstacles first, then what they leave over."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

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


@plain
@dataclass(frozen=True)
class ThenField:
    """Learns obstacles first, and in the last rounds a residual field on top of them.

    The regression-kriging idea: near dense samples no physical model is as good as its
    residuals' neighbours. The field is linear, so that one sum over all users suffices: how far
    gains lie from the obstacles' prediction around every point, and how many there are. Under
    noise more rounds average it.

    The field's stiffness is weighted in mean numbers of links at a point.
    """

    spacing: float  # metres between the field's points
    first: StepRule = field(default_factory=NoiseAwareStep)  # for the obstacles
    rounds: int = 1  # for the field, of all rounds
    tension: float = 1.0  # weight of its squared steps between neighbours
    shrinking: float = 0.003  # weight of its squared values: far from all links it is 0

    def __post_init__(self) -> None:
        for name in ("spacing", "tension", "shrinking"):
            value = checks.number(name, getattr(self, name), above=0)
            object.__setattr__(self, name, value)
        object.__setattr__(self, "rounds", checks.whole("rounds", self.rounds, least=1))

    def start(self, grid: Grid, public: Public = NOTHING) -> ServerState:
        """The state before the first round; it keeps where the base stations are."""
        if len(public.stations) == 0:
            raise ConfigurationError("a residual field needs to know the base stations")
        state = self.first.start(grid, public)
        ids = np.array([str(one) for one in public.ids], dtype=np.str_)
        known = {"stations": public.stations, "station_ids": ids}
        return replace(state, memory={**state.memory, **known})

    def __call__(
        self, state: ServerState, by_cells: Floats, by_theta: Floats, rounds: int
    ) -> ServerState:
        """The next state, from the weighted mean gradients of a round (of ``rounds``)."""
        before = rounds - self.rounds
        if before < 1:
            raise ConfigurationError(
                f"{rounds} rounds leave none for the obstacles before the field"
            )
        if state.radio_map.field is not None:
            return self._field_step(state, state.radio_map.field, by_cells)
        new = self.first(state, by_cells, by_theta, before)
        known = {name: state.memory[name] for name in ("stations", "station_ids")}
        if new.round < before:
            return replace(new, memory={**new.memory, **known})
        empty = self.empty(new.radio_map.grid, known["stations"], known["station_ids"].tolist())
        sums = {"field_sum": np.zeros(2 * empty.values.size), "field_rounds": np.zeros(1)}
        return ServerState(replace(new.radio_map, field=empty), new.round, sums)

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
        values = self.solved(slopes, np.maximum(curvatures, 0.0))
        radio_map = replace(state.radio_map, field=old.moved_to(values))
        memory = {"field_sum": total, "field_rounds": taken}
        return ServerState(radio_map, state.round + 1, memory)

    def solved(self, slopes: Floats, curvatures: Floats) -> Floats:
        """Argmin ½ Σ n c² + Σ g c + ½ tension ‖∇c‖² + ½ shrinking ‖c‖² for every station.

        n is how many links lie around a point (curvature), g the slope at c = 0.
        """
        from scipy.sparse import diags_array, eye_array
        from scipy.sparse.linalg import spsolve

        unit = curvatures.mean()
        if unit == 0:
            return np.zeros_like(slopes)
        stiff = unit * (
            self.tension * _squared_steps(slopes.shape[1:])
            + self.shrinking * eye_array(slopes[0].size)
        )
        values = [
            spsolve((diags_array(n.ravel()) + stiff).tocsc(), -g.ravel())
            for g, n in zip(slopes, curvatures, strict=True)
        ]
        return np.reshape(values, slopes.shape)


def _squared_steps(shape: tuple[int, ...]) -> Any:
    """The matrix of Σ (c_a − c_b)² over neighbours a, b of an image."""
    from scipy.sparse import diags_array, eye_array, kron

    def along(count: int) -> Any:
        ones = np.ones(max(count - 1, 0))
        return diags_array([-ones, ones], offsets=[0, 1], shape=(max(count - 1, 0), count))

    rows, columns = shape
    east = kron(eye_array(rows), along(columns))
    north = kron(along(rows), eye_array(columns))
    return east.T @ east + north.T @ north
