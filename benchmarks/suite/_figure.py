"""One measured figure, and the bar it is held to."""

import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Figure:
    """A measured value with its unit, and where there is one the bar it should meet."""

    name: str
    value: float
    unit: str = ""
    at_least: float | None = None
    at_most: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", float(self.value))  # numpy's numbers are not JSON's

    @property
    def meets_bar(self) -> bool | None:
        """Whether the bar is met; None where there is none."""
        if self.at_least is None and self.at_most is None:
            return None
        enough = self.at_least is None or self.value >= self.at_least
        within = self.at_most is None or self.value <= self.at_most
        return enough and within

    @property
    def shown(self) -> str:
        """The value with its unit, to three digits."""
        return f"{_short(self.value)} {self.unit}".strip()

    @property
    def bar_shown(self) -> str:
        """The bar with its unit, or nothing."""
        if self.at_least is not None:
            return f"≥ {_short(self.at_least)} {self.unit}".strip()
        if self.at_most is not None:
            return f"≤ {_short(self.at_most)} {self.unit}".strip()
        return ""

    @property
    def verdict(self) -> str:
        """A word for the table."""
        return {None: "", True: "ok", False: "MISSED"}[self.meets_bar]

    def as_dict(self) -> dict:
        """For JSON."""
        return asdict(self) | {"meets_bar": self.meets_bar}


def alternate(*calls: Callable[[], object], repeats: int = 10, burst: int = 4) -> list[float]:
    """Median seconds of each call, taken in turns so that all meet the same disturbances.

    A turn is a burst of calls after one that does not count: it finds the caches as the
    other call left them.
    """
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(repeats):
        for call, own in zip(calls, times, strict=True):
            call()
            for _ in range(burst):
                started = time.perf_counter()
                call()
                own.append(time.perf_counter() - started)
    return [statistics.median(own) for own in times]


def _short(value: float) -> str:
    if value != 0 and not 1e-3 <= abs(value) < 1e5:
        return f"{value:.1e}"
    digits = max(0, 2 - math.floor(math.log10(abs(value)))) if value else 0
    return f"{value:.{digits}f}"


def in_a_fresh_process(script: str, *arguments: object, **environment: str) -> str:
    """What a script prints that finds this suite."""
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)], cwd=Path(__file__).parents[1],
        capture_output=True, text=True, check=True, env=os.environ | environment,
    )  # fmt: skip
    return done.stdout
