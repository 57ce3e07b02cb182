"""`veilmap audit`."""

from pathlib import Path
from typing import Annotated

import typer

from veilmap.commands._common import console, counted, folder_names, writable_folder
from veilmap.sources import crowd_behind


def audit(
    runs: Annotated[list[Path], typer.Argument(help="Folders of finished runs.")],
    data: Annotated[
        Path | None,
        typer.Option(help="The users' measurements; by default where the run says they are."),
    ] = None,
    test: Annotated[
        Path | None, typer.Option(help="Measurements for the map's error, .csv or .parquet.")
    ] = None,
    rounds: Annotated[
        str, typer.Option(help="Kept rounds to attack, such as 1,50; by default up to five.")
    ] = "",
    users: Annotated[
        int, typer.Option(min=1, help="Attack at most so many users, chosen at random.")
    ] = 1000,
    out: Annotated[
        Path | None, typer.Option(help="Folder for figures and JSON; by default RUN/audit.")
    ] = None,
    json_out: Annotated[
        Path | None, typer.Option("--json", help="Also write the figures' numbers to this file.")
    ] = None,
) -> None:
    """Attack runs in every way we know and show what the strongest attack finds.

    With several runs, also draw their map error against it.
    """
    from veilmap import auditing, reports, tables
    from veilmap.auditing import Audit
    from veilmap.federation import Run

    folder = out or (runs[0] / "audit" if len(runs) == 1 else Path("veilmap-audit"))
    writable_folder(folder)
    names = folder_names(runs)
    loaded = [(path, Run.load(path), *crowd_behind(path, data, test)) for path in runs]
    found_of: list[tuple[str, Audit]] = []
    for name, (path, run, truth, unseen) in zip(names, loaded, strict=True):
        with console.status(f"attacking {path} …"):
            found = auditing.audit(
                run, truth, rounds=_chosen_rounds(rounds), users=users, test=unseen
            )
        console.print(tables.audit_table(found, path))
        console.print(reports.headline(found))
        found_of.append((name, found))
        own = folder if len(runs) == 1 else folder / name
        files = reports.write_audit(found, run.radio_map, own)
        console.print("Wrote " + ", ".join(file.name for file in files) + f" to {own}/")
    audits = reports.by_label(found_of)
    if len(runs) > 1:
        console.print(tables.tradeoff_table(audits))
        console.print(f"Wrote {reports.write_tradeoff(audits, folder)}")
    if json_out is not None:
        reports.write_json({name: found.as_dict() for name, found in audits.items()}, json_out)
        console.print(f"Wrote {json_out}")


def _chosen_rounds(text: str) -> list[int] | None:
    """The kept rounds to audit, or None for the default."""
    return counted("--rounds", text) or None
