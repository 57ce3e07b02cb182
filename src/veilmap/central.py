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


def mean_gradient(
    radio_map: RadioMap, data: Measurements, clip: float | None = None
) -> MeanGradient:
    """The mean over all links, a block of users at a time.

    ``clip`` bounds the norm of each user's ∂F_i/∂h first, ḡ = g · min(1, C/‖g‖).
    """
    loss, heights, propagation = 0.0, np.zeros(radio_map.grid.cells), np.zeros(4)
    for block in local_gradient_blocks(radio_map, data):
        weights = block.counts / len(data)
        loss += float(weights @ block.loss)
        heights += (weights * _clip_factors(block.heights, clip)) @ block.heights
        propagation += weights @ block.propagation
    return MeanGradient(loss, heights, propagation)


def _clip_factors(gradients: NDArray[np.float64], clip: float | None) -> NDArray[np.float64]:
    """min(1, C/‖g‖) of each row."""
    if clip is None:
        return np.ones(len(gradients))
    norms = np.sqrt(np.einsum("im,im->i", gradients, gradients))
    return clip / np.maximum(norms, clip)


def train_centrally(
    data: Measurements,
    grid: Grid,
    *,
    rounds: int = 200,
    step: NoiseAwareStep | None = None,
    clip: float = 1.0,
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
    clip : float
        Bound of each user's gradient norm, so that no single user drives the map.
    on_round : callable, optional
        Called with (round, loss) after each round, for a progress bar.
    """
    rounds = _checks.whole("rounds", rounds, least=1)
    step = step or NoiseAwareStep()
    clip = _checks.number("clip", clip, above=0)
    state = step.start(grid)
    losses = np.empty(rounds)
    for number in range(rounds):
        gradient = mean_gradient(state.radio_map, data, clip)
        if number == 0 and np.abs(gradient.heights).max() < _NO_GRADIENT:
            raise VeilmapError(
                f"no link can move the map from a start of {step.start_height:g} m: every one"
                " is blocked or off the grid; start lower (such as 4 m) or check the positions"
            )
        losses[number] = gradient.loss
        state = step(state, gradient.heights, gradient.propagation, rounds)
        if on_round is not None:
            on_round(number, gradient.loss)
    return CentralRun(state.radio_map, losses)
