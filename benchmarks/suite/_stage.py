"""One stage on the way of the data: what it costs, beside what else, and how it grows."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from suite._figure import Figure

# A stage whose time grows faster than this power of its size would not reach a large city.
_STEEPEST = 1.2


@dataclass(frozen=True)
class Stage:
    """One row of the table of stages.

    Attributes
    ----------
    name : str
    grows_with : str
        The size whose power the time follows: links, users, cells or places.
    milliseconds : float
        On the paper's setting.
    against : str
        A named alternative, or a limit that no such stage can beat.
    ratio : float
        Its time over ours, within the same run: above 1 ours is faster.
    exponent : float
        Of the time in that size.
    """

    name: str
    grows_with: str
    milliseconds: float
    against: str
    ratio: float
    exponent: float

    @property
    def figures(self) -> list[Figure]:
        """The same as figures: time, ratio and growth."""
        return [
            Figure(self.name, self.milliseconds, "ms"),
            Figure(f"{self.name}: {self.against} / ours", self.ratio, "×"),
            Figure(f"{self.name}: exponent in {self.grows_with}", self.exponent, at_most=_STEEPEST),
        ]


def growth_exponent(sizes: Sequence[int], seconds: Sequence[float]) -> float:
    """The slope of the straight line that fits log time over log size best."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])
