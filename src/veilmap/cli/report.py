"""`veilmap report`."""

from collections.abc import Sequence
from pathlib import Path

from rich.markup import escape

from veilmap.cli.options import DATA, TEST, argument, option
from veilmap.cli.output import console, folder_names, writable_file
from veilmap.errors import ConfigurationError
from veilmap.federation.study import unpublished

_ENDINGS = (".html", ".htm")


def report(
    runs: list[Path] = argument("Folders of finished runs."),
    out: Path | None = option(
        None,
        "File to write, .html; by default RUN/report.html, with several runs veilmap-report.html.",
    ),
    user: str | None = option(None, "Whom to look at, by id; by default a typical user."),
    data: Path | None = DATA,
    test: Path | None = TEST,
    study: bool = option(
        False,
        "Show of runs of aggregate what their guarantee does not cover as well, such as"
        " the audit; every such section is marked as not for publication.",
        "--study",
    ),
) -> None:
    """Write a page about runs: the map, the training, what the server sees, the audit.

    One HTML file that needs nothing beside it, to read offline or on paper. With several runs
    it begins with their map error against the strongest attack. The page shows where one user
    was: it is for who holds the measurements. Of a run of aggregate it holds no more than the
    run's folder, unless a study is wanted (--study).
    """
    from veilmap.reports import pages
    from veilmap.runs.opened import OpenRun

    path = _file(runs, out, study)
    names = folder_names(runs)
    with console.status("reading …") as status:
        opened = {
            name: OpenRun(folder, data=data, test=test, study=study)
            for folder, name in zip(runs, names, strict=True)
        }
        pages.write_page(
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
    writable_file(path)
    return path
