"""Central training: the map from pooled data, as the yardstick for everything private."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from veilmap import _checks
from veilmap.errors import VeilmapError
from veilmap.geometry import Grid
from veilmap.measurements import Measurements
from veilmap.radiomap import RadioMap, local_gradient_blocks
from veilmap.server import NoiseAwareStep

# Below this a gradient moves nothing: all links are blocked from the start.
_NO_GRADIENT = 1e-12


@dataclass(frozen=True)
class CentralRun:
    """A learned map and the loss before each round, in dB²."""

    radio_map: RadioMap
    losses: NDArray[np.float64]


@dataclass(frozen=True)
class MeanGradient:
    """Loss and gradients averaged over all links: Σ (J_i / J) · of users' own."""

    loss: float
    heights: NDArray[np.float64] = field(repr=False)
    propagation: NDArray[np.float64]


def mean_gradient(radio_map: RadioMap, data: Measurements) -> MeanGradient:
    """The mean over all links, a block of users at a time."""
    loss, heights, propagation = 0.0, np.zeros(radio_map.grid.cells), np.zeros(4)
    for block in local_gradient_blocks(radio_map, data):
        weights = block.counts / len(data)
        loss += float(weights @ block.loss)
        heights += weights @ block.heights
        propagation += weights @ block.propagation
    return MeanGradient(loss, heights, propagation)


def train_centrally(
    data: Measurements,
    grid: Grid,
    *,
    rounds: int = 200,
    step: NoiseAwareStep | None = None,
    sharpness: float = 1.0,
    on_round: Callable[[int, float], None] | None = None,
) -> CentralRun:
    """Learn a radio map from pooled measurements.

    Parameters
    ----------
    data : Measurements
    grid : Grid
        Cells of the map; links off the grid count only over it.
    rounds : int
    step : NoiseAwareStep, optional
        What is done with each round's mean gradient.
    sharpness : float
        Of the smooth model, per metre.
    on_round : callable, optional
        Called with (round, loss) after each round, for a progress bar.
    """
    rounds = _checks.whole("rounds", rounds, least=1)
    step = step or NoiseAwareStep()
    state = step.start(grid, sharpness=sharpness)
    losses = np.empty(rounds)
    for number in range(rounds):
        gradient = mean_gradient(state.radio_map, data)
        if number == 0 and np.abs(gradient.heights).max() < _NO_GRADIENT:
            raise VeilmapError(
                f"no link can move the map from a start of {step.start_height:g} m: every one"
                " is blocked or off the grid; start lower (4 to 6 m) or check the positions"
            )
        losses[number] = gradient.loss
        state = step(state, gradient.heights, gradient.propagation, rounds)
        if on_round is not None:
            on_round(number, gradient.loss)
    return CentralRun(state.radio_map, losses)
