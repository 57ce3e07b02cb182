"""What travels between the server and its clients: these two messages, nothing else."""

from dataclasses import dataclass, field

import numpy as np

from veilmap._util.arrays import Array
from veilmap.errors import ConfigurationError
from veilmap.model.radio_map import RadioMap

ClientId = int | str

# What a broadcast may hold (docs/flower.md): far more than any training comes to.
LARGEST_ROUND = 1_000_000
LARGEST_COHORT = 10_000_000
MOST_CELLS = 50_000_000
WIDEST_FILTER = 20.0
CELL_SIZES = (0.01, 10_000.0)
SHARPNESS = (0.01, 10.0)
HIGHEST = 2_000.0
LARGEST_DB = 1_000.0

# What an update may hold: more than any user's does.
LARGEST_WEIGHT = 100_000_000  # links
LARGEST_SLOPE = 1e6  # of F_i by θ, in dB² per dB: readings thousands of dB off give less


@dataclass(frozen=True)
class Broadcast:
    """Server to clients: the map as it is before round ``round`` (from 0).

    ``cohort`` is how many users are asked: their shares of noise depend on it. ``filter_width`` is
    the standard deviation, in cells, of the Gaussian filter that clients apply to their gradients
    of h before they clip them; 0 for none.
    """

    round: int
    radio_map: RadioMap = field(repr=False)
    cohort: int = 1
    filter_width: float = 0.0

    def check(self) -> None:
        """Refuse a map that no training comes to, before any data are looked at.

        Extreme numbers make gradients of some users overflow and not those of others. Whether
        that happens must not be a question that a server can ask.
        """
        grid = self.radio_map.grid
        _within("round", self.round, 0, LARGEST_ROUND)
        _within("cohort", self.cohort, 1, LARGEST_COHORT)
        _within("filter's width in cells", self.filter_width, 0, WIDEST_FILTER)
        _within("cells", self.radio_map.trained_cells, 1, MOST_CELLS)
        _within("cell size in metres", grid.cell_size, *CELL_SIZES)
        _within("sharpness per metre", self.radio_map.sharpness, *SHARPNESS)
        _within("height in metres", self.radio_map.heights, -HIGHEST, HIGHEST)
        _within("law or offset in dB", self.radio_map.theta, -LARGEST_DB, LARGEST_DB)
        if self.radio_map.field is not None:
            _within("field in dB", self.radio_map.field.values, -LARGEST_DB, LARGEST_DB)


def _within(what: str, values: float | Array, low: float, high: float) -> None:
    """Refuse numbers outside a range, and those that are none."""
    numbers = np.ravel(values)
    outside = numbers[~((numbers >= low) & (numbers <= high))]
    if len(outside):
        raise ConfigurationError(
            f"the broadcast has a {what} of {outside[0]:g}, not between {low:g} and {high:g}"
        )


@dataclass(frozen=True)
class Update:
    """Client to server: one user's protected gradients."""

    client: ClientId
    round: int  # of the broadcast it answers
    weight: int  # in the mean: J_i, or 1 where the mechanism keeps that to itself
    height_gradient: Array = field(repr=False)  # (M,): g̃, made of ∂F_i/∂h
    theta_gradient: Array = field(repr=False)  # (P,): made of ∂F_i/∂θ, or the same in the paper

    def problem(self, broadcast: Broadcast) -> str:
        """Why this cannot be an answer to a broadcast, or nothing.

        How long its gradients may be is looked at where their bounds are known.
        """
        if self.round != broadcast.round:
            return f"answers round {self.round} in round {broadcast.round}"
        if not 1 <= self.weight <= LARGEST_WEIGHT:
            return f"claims {self.weight:.6g} links"
        radio_map = broadcast.radio_map
        shapes = self.height_gradient.shape, self.theta_gradient.shape
        if shapes != ((radio_map.trained_cells,), (len(radio_map.theta),)):
            return f"has the wrong shape {shapes[0]}"
        return "" if np.isfinite(self.theta_gradient).all() else "is not finite"
