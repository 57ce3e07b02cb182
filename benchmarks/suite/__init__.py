"""What the software costs and how good it is, measured on the machine at hand.

Speed is given as ratios within one run, because machines differ and are noisy.
"""

import importlib
import platform
from collections.abc import Sequence
from pathlib import Path

from suite._figure import Figure
from suite._stage import Stage
from veilmap import __version__
from veilmap._util import files, threads
from veilmap.errors import VeilmapError

# Name of each benchmark and the module whose ``measure(seed)`` runs it.
BENCHMARKS = {
    "fused-pass": "suite.fused_pass",
    "stages": "suite.stages",
    "growth": "suite.growth",
    "accuracy": "suite.accuracy",
    "schemes": "suite.schemes",
    "recipe": "suite.recipe",
    "attacks": "suite.attacks",
    "promise": "suite.promise",
    "page": "suite.page",
    "start-up": "suite.start_up",
}

__all__ = ["BENCHMARKS", "Figure", "Measured", "Stage", "chosen", "figures_of", "run", "save"]

Measured = Figure | Stage


def chosen(only: Sequence[str] | None) -> list[str]:
    """The asked benchmarks, or all of them."""
    for name in only or ():
        if name not in BENCHMARKS:
            raise VeilmapError(f"no benchmark {name!r}; there are {', '.join(BENCHMARKS)}")
    return list(only or BENCHMARKS)


def run(name: str, seed: int) -> Sequence[Measured]:
    """Run one benchmark."""
    return importlib.import_module(BENCHMARKS[name]).measure(seed)


def figures_of(measured: Sequence[Measured]) -> list[Figure]:
    """All figures, those of stages among them."""
    return [
        figure for one in measured for figure in (one.figures if isinstance(one, Stage) else [one])
    ]


def save(figures: Sequence[Figure], path: Path) -> None:
    """Write all figures as JSON, with what they were measured on."""
    content = {
        "veilmap": __version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "threads": threads.threads(),
        "figures": [figure.as_dict() for figure in figures],
    }
    files.write_json(content, path)
