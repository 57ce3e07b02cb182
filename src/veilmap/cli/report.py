"""`veilmap report`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from veilmap.cli.options import console, folder_names, writable_folder
from veilmap.errors import ConfigurationError
from veilmap.federation.study import unpublished

_ENDINGS = (".html", ".htm")


def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of finished runs.")],
    out: Annotated[
        Path | None,
        typer.Option(
            help="File to write, .html; by default RUN/report.html, with several runs"
            " veilmap-report.html."
        ),
    ] = None,
    user: Annotated[
        str | None, typer.Option(help="Whom to look at, by id; by default a typical user.")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="The users' measurements; by default where the run says they are."),
    ] = None,
    test: Annotated[
        Path | None, typer.Option(help="Measurements for the map's error, .csv or .parquet.")
    ] = None,
    study: Annotated[
        bool,
        typer.Option(
            "--study",
            help="Show of runs of aggregate what their guarantee does not cover as well, such as"
            " the audit; every such section is marked as not for publication.",
        ),
    ] = False,
) -> None:
    """Write a page about runs: the map, the training, what the server sees, the audit.

    One HTML file that needs nothing beside it, to read offline or on paper. With several runs
    it begins with their map error against the strongest attack. The page shows where one user
    was: it is for who holds the measurements. Of a run of aggregate it holds no more than the
    run's folder, unless a study is wanted (--study).
    """
    from veilmap import reports
    from veilmap.runs.opened import OpenRun

    path = _file(runs, out, study)
    names = folder_names(runs)
    with console.status("reading …") as status:
        opened = {
            name: OpenRun(folder, data=data, test=test, study=study)
            for folder, name in zip(runs, names, strict=True)
        }
        reports.write_page(
            opened, path, user=user, on_step=lambda step: status.update(escape(f"{step} …"))
        )
    console.print(escape(f"Wrote {path}"))


def _file(runs: Sequence[Path], out: Path | None, study: bool) -> Path:
    """Where to write, checked before the work; a study does not go into a run with a guarantee."""
    path = out or Path("veilmap-report.html")
    if out is None and len(runs) == 1:
        path = (unpublished(runs[0]) if study else runs[0]) / "report.html"
    if path.suffix.lower() not in _ENDINGS:
        raise ConfigurationError(f"{path}: a report is written as .html")
    if path.is_dir():
        raise ConfigurationError(f"{path} is a folder; name a file to write")
    writable_folder(path.parent)
    return path
