"""What the server believes about maps before any gradient speaks.

A prior takes heights and the step's length in metres and returns heights it likes better.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from veilmap._kernels import images
from veilmap._util import checks
from veilmap._util.arrays import Floats
from veilmap._util.plain import plain


class Prior(Protocol):
    """Anything that improves heights after a step of ``metres``."""

    def __call__(self, heights: Floats, metres: float, known: Floats | None = None) -> Floats:
        """The heights after the prior; ``known`` are public ones, of buildings."""
        ...


@plain
@dataclass(frozen=True)
class OpenGround:
    """Most ground is open: every step lowers all heights by ``share`` of its length.

    What no link speaks for sinks to the floor, and noise does not pile up. Where heights are known
    beforehand, all come nearer to them instead.
    """

    share: float = 0.45

    def __post_init__(self) -> None:
        checks.number("share", self.share, least=0)

    def __call__(self, heights: Floats, metres: float, known: Floats | None = None) -> Floats:
        """The heights, lower or nearer to known ones."""
        reach = self.share * metres
        if known is None:
            return heights - reach
        return heights + np.clip(known - heights, -reach, reach)


@plain
@dataclass(frozen=True)
class FlatPieces:
    """Maps are made of flat pieces: a total-variation prior of ``weight`` times the step."""

    weight: float = 0.4
    iterations: int = 30

    def __post_init__(self) -> None:
        checks.number("weight", self.weight, least=0)
        checks.whole("iterations", self.iterations, least=1)

    def __call__(self, heights: Floats, metres: float, known: Floats | None = None) -> Floats:
        """The heights, flatter: argmin ½‖x − h‖² + weight · metres · TV(x)."""
        return images.total_variation_prox(
            image=heights, weight=self.weight * metres, iterations=self.iterations
        )
