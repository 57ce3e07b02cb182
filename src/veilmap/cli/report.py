"""`veilmap report`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from veilmap.cli.options import DATA, TEST, argument, option
from veilmap.cli.output import console, folder_names, working, writable_file
from veilmap.errors import ConfigurationError

if TYPE_CHECKING:
    from veilmap.runs.result import OpenResult

_ENDINGS = (".html", ".htm")


def report(
    runs: list[Path] = argument("Folders of finished runs and surveys."),
    out: Path | None = option(
        None,
        "File to write, .html; by default RUN/report.html, with several runs veilmap-report.html.",
    ),
    user: str | None = option(None, "Whom to look at, by id; by default a typical user."),
    data: Path | None = DATA,
    test: Path | None = TEST,
    study: bool = option(
        False,
        "Show of surveys and runs of aggregate what their guarantee does not cover as well,"
        " such as the audit; every such section is marked as not for publication.",
        "--study",
    ),
) -> None:
    """Write a page about runs and surveys: map, training, what the server sees, the audit.

    One HTML file that needs nothing beside it, to read offline or on paper. With several runs
    it begins with their map error against the strongest attack. The page shows where one user of
    a run was: it is for who holds the measurements. Of a survey or a run of aggregate it holds no
    more than its folder, unless a study is wanted (--study).
    """
    from veilmap.reports import pages
    from veilmap.runs.folders import open_result

    opened = {
        name: open_result(folder, data=data, test=test, study=study)
        for folder, name in zip(runs, folder_names(runs), strict=True)
    }
    path = _file([*opened.values()], out, study)
    with working("reading …") as change:
        pages.write_page(opened, path, user=user, on_step=lambda step: change(f"{step} …"))
    console.print(f"Wrote {path}")


def _file(opened: "Sequence[OpenResult]", out: Path | None, study: bool) -> Path:
    """Where to write, checked before the work; a study does not go beside a guarantee."""
    path = out or Path("veilmap-report.html")
    if out is None and len(opened) == 1:
        path = (opened[0].unpublished if study else opened[0].path) / "report.html"
    if path.suffix.lower() not in _ENDINGS:
        raise ConfigurationError(f"{path}: a report is written as .html")
    writable_file(path)
    return path
