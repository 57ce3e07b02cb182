"""`veilmap bench`."""

from pathlib import Path
from typing import Annotated

import typer

from veilmap.commands._common import Seed, console, writable_folder


def bench(
    seed: Seed = 0,
    out: Annotated[
        Path | None, typer.Option("--json", "--out", help="Also write all figures to this file.")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(help="Run only this benchmark (may be repeated).")
    ] = None,
) -> None:
    """Measure speed, growth, memory, accuracy and start-up on this machine."""
    from veilmap import benchmarks, tables

    if out is not None:
        writable_folder(out.parent)
    figures = []
    for name in benchmarks.chosen(only):
        with console.status(f"measuring {name} …"):
            figures += benchmarks.run(name, seed)
    console.print(tables.benchmark_table(figures))
    if out is not None:
        benchmarks.save(figures, out)
        console.print(f"Wrote {out}")
