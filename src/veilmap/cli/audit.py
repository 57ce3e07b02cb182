"""`veilmap audit`."""

from pathlib import Path
from typing import TYPE_CHECKING

from veilmap.cli.options import DATA, TEST, argument, counted, option
from veilmap.cli.output import console, folder_names, writable_folder
from veilmap.federation.study import StudyFolder, unpublished

if TYPE_CHECKING:
    from veilmap.runs.opened import OpenRun


def audit(
    runs: list[Path] = argument("Folders of finished runs."),
    data: Path | None = DATA,
    test: Path | None = TEST,
    rounds: str = option("", "Kept rounds to attack, such as 1,50; by default up to five."),
    users: int = option(1000, "Attack at most so many users, chosen at random.", min=1),
    out: Path | None = option(
        None,
        "Folder for figures and JSON; by default RUN/audit, RUN.study/audit for a run of"
        " aggregate.",
    ),
    json_out: Path | None = option(None, "Also write the figures' numbers to this file.", "--json"),
) -> None:
    """Attack runs in every way we know and show what the strongest attack finds.

    With several runs, also draw their map error against it. Attacks are scored by where users
    were: of a run of aggregate all of it is a study, not for publication.
    """
    from veilmap import figures
    from veilmap.auditing import audit
    from veilmap.cli import tables
    from veilmap.reports import audits
    from veilmap.runs.opened import OpenRun

    folder = out or (unpublished(runs[0]) / "audit" if len(runs) == 1 else Path("veilmap-audit"))
    writable_folder(folder)
    counts = counted("--rounds", rounds, "rounds such as 1,50") if rounds else ()
    chosen = [number - 1 for number in counts] or None
    opened = [OpenRun(path, data=data, test=test, study=True) for path in runs]
    for run in opened:  # a mistake shows before the work, not after some of it
        run.finished_map()
        _ = run.crowd
    for run in opened:
        _say_study(run)
    found_of = []
    for name, run in zip(folder_names(runs), opened, strict=True):
        truth, unseen = run.crowd
        with console.status(f"attacking {run.path} …"):
            found = audit.audit(run.run, truth, rounds=chosen, users=users, test=unseen)
        console.print(tables.audit_table(found, run.path), audits.headline(found), sep="\n")
        found_of.append((name, found))
        own = folder if len(runs) == 1 else folder / name
        files = audits.write_audit(found, run.radio_map(), own)
        console.print("Wrote " + ", ".join(file.name for file in files) + f" to {own}/")
    named = audits.by_label(found_of)
    if len(runs) > 1:
        console.print(tables.tradeoff_table(named))
        drawn = figures.save(audits.tradeoff_figure(named), folder / "tradeoff.png")
        console.print(f"Wrote {drawn}")
    if json_out is not None:
        audits.write_json({name: found.as_dict() for name, found in named.items()}, json_out)
        console.print(f"Wrote {json_out}")


def _say_study(run: "OpenRun") -> None:
    """Head what follows about a run with a guarantee, and make room for it beside the run."""
    if run.promised:
        StudyFolder(run.path).make()
        console.print(
            f"{run.study}: the audit of {run.path} uses the truth, which its guarantee does not"
            " cover"
        )
    if not run.is_data_known:
        console.print(
            f"Whether {run.path} was trained on these measurements is not known: nothing beside it"
            " says so, only the same users"
        )
