"""What was measured as a page of Markdown."""

import platform
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path

from suite import Measured
from suite._figure import Figure
from suite._stage import Stage
from veilmap import __version__
from veilmap._util import files, threads

_HOW = (
    "Times are medians on 100 users × 200 links and 100 × 100 cells. The ratio is the"
    " alternative's time over ours in the same run: above 1 ours is faster; what is *alone* is a"
    " limit, a part of the work that the stage cannot do without. The exponent is that of the"
    " time in the size it grows with, over a factor of 16 or more. Ours run on all threads but"
    " for tracing, screening, the step and the centroid attack; so do normal numbers, matrix"
    " products and k-NN, while other work of NumPy and SciPy runs on one."
)


def write(measured: Sequence[Measured], path: Path) -> None:
    """Write the page, whole or not at all."""
    files.write_text(markdown(measured), path)


def markdown(measured: Sequence[Measured]) -> str:
    """The machine in a line, the stages, then all other figures."""
    stages = [one for one in measured if isinstance(one, Stage)]
    figures = [one for one in measured if isinstance(one, Figure)]
    parts = ["# Performance", _wrapped(_machine())]
    if stages:
        parts += ["## Every stage", _wrapped(_HOW), _stage_table(stages)]
    if figures:
        parts += ["## Other figures", _figure_table(figures)]
    return "\n\n".join(parts) + "\n"


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 100, break_long_words=False, break_on_hyphens=False)


def _machine() -> str:
    """What may be said of the machine: nothing that names it."""
    count = threads.threads()
    cores = "1 thread" if count == 1 else f"{count} threads"
    return (
        f"Written by `make bench`: veilmap {__version__}, Python"
        f" {platform.python_version()}, {cores} on {platform.machine()}."
        " Machines differ and are noisy: ratios say more than times."
    )


def _stage_table(stages: Iterable[Stage]) -> str:
    head = ("stage", "time", "against", "ratio", "grows with", "exponent")
    return _table(head, (_stage_row(stage) for stage in stages))


def _stage_row(stage: Stage) -> tuple[str, ...]:
    time, ratio, exponent = (figure.shown for figure in stage.figures)
    return stage.name, time, stage.against, ratio, stage.grows_with, exponent


def _figure_table(figures: Iterable[Figure]) -> str:
    rows = ((one.name, one.shown, one.bar_shown, one.verdict) for one in figures)
    return _table(("what", "measured", "bar", "ok"), rows)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(_cell(text) for text in line) + " |" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", r"\|")
