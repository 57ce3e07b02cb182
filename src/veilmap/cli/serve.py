"""`veilmap serve`."""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from veilmap._util.files import existing
from veilmap._util.sockets import on_loopback
from veilmap.cli.options import argument, option
from veilmap.cli.output import console, writable_folder
from veilmap.errors import ConfigurationError

_TOKEN = re.compile(r"[A-Za-z0-9_-]{16,}")


def serve(
    runs: list[Path] | None = argument(
        "Folders of runs and surveys, or folders that hold some; by default what NEW_RUNS"
        " holds, or a demo run that is started and shown live.",
        default=None,
    ),
    host: str = option("127.0.0.1", "Address to listen on; beyond loopback a token is required."),
    port: int | None = option(None, "Port; 8765 or a free one by default.", min=0, max=65535),
    token_file: Path | None = option(
        None,
        "File of the access token, readable by its owner alone; default: the environment's"
        " VEILMAP_TOKEN, or one that is generated if required.",
    ),
    new_runs: Path = option(Path("veilmap-runs"), "Folder for runs that are started on the page."),
    buildings: Path | None = option(None, "Footprints to draw the maps on: .geojson or .gpkg."),
    study: bool = option(
        False,
        "Show of surveys and runs of aggregate what their guarantee does not cover as well,"
        " such as users' places; it is marked as not for publication.",
        "--study",
    ),
    open_page: bool = option(False, "Open the page in a browser.", "--open/--no-open"),
) -> None:
    """Show runs and surveys in a browser: the map, and what the server could learn.

    The page shows where users of runs were: it is for who holds their measurements anyway. Of
    surveys and runs of aggregate it shows what was published, unless a study is wanted (--study).
    """
    _check_places(runs or ())
    if buildings is not None:
        existing(buildings)
    token = _token(token_file)
    if open_page and (token or not on_loopback(host)):
        raise ConfigurationError(
            "--open would show the access token to every user of this host, in the browser's"
            " command line: leave it out and open the address that is printed"
        )
    writable_folder(new_runs)
    settings = {"new_runs": new_runs, "buildings": buildings, "study": study}
    show(runs or [], host, port, token, open_page=open_page, **settings)


def _token(file: Path | None) -> str | None:
    """The access token of a file or of the environment, if there is one.

    Not of the command line: every user of this host sees that in the list of processes.
    """
    if file is None:
        source, token = "VEILMAP_TOKEN", os.environ.get("VEILMAP_TOKEN")
    else:
        if existing(file).stat().st_mode & 0o077:
            raise ConfigurationError(f"others may read {file}: chmod 600 {file}", "token_file")
        source, token = str(file), file.read_text(encoding="utf-8", errors="replace").strip()
    if token is not None and not _TOKEN.fullmatch(token):
        raise ConfigurationError(
            f"the token of {source} must be 16 or more letters, digits, - and _: it is part of an"
            " address",
            "token_file",
        )
    return token


def _check_places(places: Sequence[Path]) -> None:
    """Refuse what holds nothing to show."""
    from veilmap.runs.folders import results_in

    for path in places:
        if not path.is_dir():
            raise ConfigurationError(f"{path} is no folder: name a run's folder, or one of runs")
        if next(results_in(path), None) is None:
            raise ConfigurationError(
                f"{path} holds neither a run nor an opened survey: name a folder of one, or one"
                " that holds some"
            )


def show(runs: Sequence[Path], *address: Any, open_page: bool, **settings: Any) -> None:
    """Serve runs at an address (host, port, token) until Ctrl-C, and say where."""
    from veilmap.web.serving import serve

    def on_ready(url: str) -> None:
        console.print(f"The page is at {url}", highlight=False, soft_wrap=True)
        console.print("Ctrl-C ends it, and the runs that it has started.")
        if open_page:
            typer.launch(url)

    serve(runs, *address, on_ready=on_ready, **settings)
