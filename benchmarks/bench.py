"""Measure speed, growth, memory, accuracy and start-up on this machine.

make bench                                # everything, and docs/performance.md
make bench ARGS='--only attacks'          # one benchmark, to the terminal
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

import suite
from suite import page_written
from veilmap.cli.output import writable_file
from veilmap.errors import VeilmapError


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the chosen benchmarks, show their figures, write what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0, help="of cities and noise (default 0)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to this file")
    parser.add_argument("--page", type=Path, metavar="FILE", help="write a Markdown page of them")
    parser.add_argument(
        "--only", action="append", metavar="NAME",
        help=f"run only this one (may be repeated): {', '.join(suite.BENCHMARKS)}",
    )  # fmt: skip
    options = parser.parse_args(arguments)
    try:
        names = suite.chosen(options.only)
        for path in filter(None, (options.json, options.page)):
            writable_file(path)
    except VeilmapError as error:
        sys.stderr.write(f"bench: {error}\n")
        raise SystemExit(2) from None
    console = Console()
    measured: list[suite.Measured] = []
    for name in names:
        with console.status(f"measuring {name} …"):
            measured += suite.run(name, options.seed)
    figures = suite.figures_of(measured)
    console.print(_table(figures))
    if options.json is not None:
        suite.save(figures, options.json)
    if options.page is not None:
        page_written.write(measured, options.page)


def _table(figures: Sequence[suite.Figure]) -> Table:
    """Measured figures beside their bars."""
    table = Table(title="Benchmarks (ratios within this run)")
    table.add_column("what")
    for name in ("measured", "bar"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("")
    for figure in figures:
        table.add_row(figure.name, figure.shown, figure.bar_shown, figure.verdict)
    return table


if __name__ == "__main__":
    main()
