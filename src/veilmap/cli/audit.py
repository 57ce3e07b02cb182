"""`veilmap audit`."""

from pathlib import Path
from typing import Annotated

import typer

from veilmap.cli.options import console, counted, folder_names, writable_folder
from veilmap.federation.run_folder import RunFolder
from veilmap.federation.study import STUDY, StudyFolder, is_promised, unpublished
from veilmap.runs.source import crowd_behind, is_data_known


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
        Path | None,
        typer.Option(
            help="Folder for figures and JSON; by default RUN/audit, RUN.study/audit for a run of"
            " aggregate."
        ),
    ] = None,
    json_out: Annotated[
        Path | None, typer.Option("--json", help="Also write the figures' numbers to this file.")
    ] = None,
) -> None:
    """Attack runs in every way we know and show what the strongest attack finds.

    With several runs, also draw their map error against it. Attacks are scored by where users
    were: of a run of aggregate all of it is a study, not for publication.
    """
    from veilmap import reports
    from veilmap.auditing import audit
    from veilmap.auditing.audit import Audit
    from veilmap.cli import tables
    from veilmap.federation import Run

    folder = out or (unpublished(runs[0]) / "audit" if len(runs) == 1 else Path("veilmap-audit"))
    writable_folder(folder)
    names = folder_names(runs)
    loaded = [(path, Run.load(path, study=True), *crowd_behind(path, data, test)) for path in runs]
    for path in runs:
        _say_study(path)
    found_of: list[tuple[str, Audit]] = []
    for name, (path, run, truth, unseen) in zip(names, loaded, strict=True):
        with console.status(f"attacking {path} …"):
            found = audit.audit(run, truth, rounds=_chosen_rounds(rounds), users=users, test=unseen)
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


def _say_study(run: Path) -> None:
    """Head what follows about a run with a guarantee, and make room for it beside the run."""
    if not is_promised(RunFolder(run).config()):
        return
    StudyFolder(run).make()
    console.print(f"{STUDY}: the audit of {run} uses the truth, which its guarantee does not cover")
    if not is_data_known(run):
        console.print(
            f"Whether {run} was trained on these measurements is not known: there is no study of it"
            " that says so, only the same users"
        )


def _chosen_rounds(text: str) -> list[int] | None:
    """The kept rounds to audit, or None for the default."""
    return counted("--rounds", text) or None
