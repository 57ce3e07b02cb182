"""What mechanisms with a proven (ε, δ) share: the promise, and one vector for all that is sent."""

import math
from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from veilmap._util import checks
from veilmap._util.arrays import Array, Floats
from veilmap._util.options import option
from veilmap.model.propagation import at_100_m
from veilmap.privacy.mechanisms.base import Mechanism


@dataclass(frozen=True, kw_only=True)
class PrivateMechanism(Mechanism):
    """A mechanism with a guarantee, once `train` has fixed its noise for the number of rounds.

    A user's contribution is one vector of norm C at most: the gradient of h, filtered and clipped
    to √(1 − s²) C, and that of θ, in dB² per dB at 100 m, clipped to ``theta_clip`` and scaled to
    s C, with s the ``theta_share``. Users count equally; how many links one has is not told.
    """

    epsilon: float = option(
        8.0, "--epsilon", "ε of the guarantee for every user.", above=0, symbol="ε"
    )
    delta: float = option(1e-6, "--delta", "δ of the guarantee, below 1/users.", above=0, below=1)
    clip: float = option(0.3, "--clip", "C: bound of the norm of a gradient.", above=0)
    dropout: float = option(
        0.1, "--allow-missing", "Share of a round's users that the guarantee does not rest on.",
        least=0, below=1,
    )  # fmt: skip
    theta_clip: float = 3.0
    theta_share: float = 0.2

    whole_numbers = True
    filters = True

    def __post_init__(self) -> None:
        super().__post_init__()
        settled = {
            "theta_clip": checks.number("theta_clip", self.theta_clip, above=0),
            "theta_share": checks.number("theta_share", self.theta_share, least=0, below=1),
        }
        for name, value in settled.items():
            object.__setattr__(self, name, value)

    @abstractmethod
    def deviation_of_mean(self, cells: int, parameters: int, cohort: int) -> float:
        """σ of the noise in each cell of a round's mean over ``cohort`` answers, in units of C."""

    def counted_on(self, cohort: int) -> int:
        """How many of ``cohort`` users the guarantee rests on: all but those who may be missing."""
        return max(2, math.ceil((1 - self.dropout) * cohort))

    def least_answers(self, cohort: int) -> int:
        """How many must have answered before anything of a round may be seen."""
        return self.counted_on(cohort)

    @property
    def _heights_share(self) -> float:
        return math.sqrt(1 - self.theta_share**2)

    @property
    def _theta_scale(self) -> float:
        """From θ's gradient to its part of the contribution."""
        return max(self.theta_share, 1e-12) * self.clip / self.theta_clip

    def _read(
        self, heights: Floats, propagation: Floats, unit: float, laws: int
    ) -> tuple[Floats, Floats]:
        """Mean gradients of h and θ from sums of contributions that count in ``unit``."""
        axes = at_100_m(laws, len(propagation) - 2 * laws)
        theta: Array = np.linalg.solve(axes, propagation * unit / self._theta_scale)
        return heights * unit, theta
