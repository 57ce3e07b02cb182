"""`veilmap bench`."""

from pathlib import Path
from typing import Annotated

import typer

from veilmap.commands._common import Seed, console, writable_folder
from veilmap.errors import VeilmapError


def bench(
    seed: Seed = 0,
    out: Annotated[
        Path | None, typer.Option("--json", "--out", help="Also write all figures to this file.")
    ] = None,
    page: Annotated[
        Path | None, typer.Option(help="Also write a Markdown page of them to this file.")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(help="Run only this benchmark (may be repeated).")
    ] = None,
) -> None:
    """Measure speed, growth, memory, accuracy and start-up on this machine."""
    from veilmap import benchmarks, tables
    from veilmap.benchmarks import page_written

    names = benchmarks.chosen(only)
    for path in (out, page):
        if path is not None:
            _writable(path)
    measured: list[benchmarks.Measured] = []
    for name in names:
        with console.status(f"measuring {name} …"):
            measured += benchmarks.run(name, seed)
    figures = benchmarks.figures_of(measured)
    console.print(tables.benchmark_table(figures))
    if out is not None:
        benchmarks.save(figures, out)
        console.print(f"Wrote {out}")
    if page is not None:
        page_written.write(measured, page)
        console.print(f"Wrote {page}")


def _writable(path: Path) -> None:
    """Fail before the work, not after it."""
    if path.is_dir():
        raise VeilmapError(f"{path} is a folder; name a file to write to")
    writable_folder(path.parent)
