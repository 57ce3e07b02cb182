"""`veilmap audit`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from veilmap.cli.options import DATA, TEST, argument, counted, listed, option
from veilmap.cli.output import console, folder_names, working, writable_folder
from veilmap.errors import ConfigurationError
from veilmap.federation.study import STUDY, StudyFolder, unpublished

if TYPE_CHECKING:
    from veilmap.attacks import Attack
    from veilmap.auditing.audit import Audit
    from veilmap.auditing.surveys import SurveyAudit
    from veilmap.data.measurements import Measurements
    from veilmap.model.radio_map import RadioMap
    from veilmap.runs.opened import OpenRun
    from veilmap.surveys.aggregate import OpenedSum


def audit(
    runs: list[Path] = argument("Folders of finished runs, or of opened surveys."),
    data: Path | None = DATA,
    test: Path | None = TEST,
    rounds: str = option("", "Kept rounds to attack, such as 1,50; by default up to five."),
    attacks: str = option(
        "", "Only these attacks, by their first words, with commas; by default all that fit."
    ),
    users: int = option(1000, "Attack at most so many users, chosen at random.", min=1),
    out: Path | None = option(
        None,
        "Folder for figures and JSON; by default RUN/audit, RUN.study/audit for a survey and for a"
        " run of aggregate.",
    ),
    json_out: Path | None = option(None, "Also write the figures' numbers to this file.", "--json"),
) -> None:
    """Attack runs and surveys in every way we know and show what the strongest attack finds.

    With several runs, also draw their map error against it; a survey is audited by itself, against
    the measurements that it summed (--data). Attacks are scored by where users were: of a survey or
    a run of aggregate all of it is a study, not for publication.
    """
    from veilmap.attacks import attacks_named
    from veilmap.reports import audits
    from veilmap.runs.opened import OpenRun

    folder = out or (_beside(runs[0]) / "audit" if len(runs) == 1 else Path("veilmap-audit"))
    writable_folder(folder)
    chosen = attacks_named(listed(attacks))
    counts = counted("--rounds", rounds, "rounds such as 1,50") if rounds else ()
    places = {name: folder if len(runs) == 1 else folder / name for name in folder_names(runs)}
    named = dict(zip(places, runs, strict=True))
    surveys = {name: path for name, path in named.items() if _is_survey(path)}
    if len(surveys) == len(runs) and (rounds or test or attacks):
        flag = "rounds" if rounds else "test" if test else "attacks"
        raise ConfigurationError(f"{flag} is for training runs: a survey has one sum", flag)
    opened = {
        name: OpenRun(path, data=data, test=test, study=True)
        for name, path in named.items()
        if name not in surveys
    }
    summed = {name: _Summed.of(path, data) for name, path in surveys.items()}
    for run in opened.values():  # a mistake shows before the work, not after some of it
        run.finished_map()
        _ = run.crowd
    kept = [number - 1 for number in counts] or None
    found = audits.by_label(
        (name, _audit_run(run, kept, chosen, users, places[name])) for name, run in opened.items()
    )
    if len(found) > 1:
        _compare(found, folder)
    results: dict[str, Audit | SurveyAudit] = {**found}
    results |= {f"survey {name}": one.audit(users, places[name]) for name, one in summed.items()}
    if json_out is not None:
        audits.write_json({name: one.as_dict() for name, one in results.items()}, json_out)
        console.print(f"Wrote {json_out}")


def _compare(found: Mapping[str, "Audit"], folder: Path) -> None:
    """Show the map errors of several training runs against their strongest attacks."""
    from veilmap import figures
    from veilmap.cli import tables
    from veilmap.reports import audits

    console.print(tables.tradeoff_table(found))
    drawn = figures.save(audits.tradeoff_figure(found), folder / "tradeoff.png")
    console.print(f"Wrote {drawn}")


def _audit_run(
    run: "OpenRun",
    rounds: Sequence[int] | None,
    attacks: "Sequence[Attack]",
    users: int,
    folder: Path,
) -> "Audit":
    """Attack a training run, by default in every way; show what was found, and write it."""
    from veilmap.auditing import audit
    from veilmap.cli import tables
    from veilmap.reports import audits

    _say_study(run)
    truth, unseen = run.crowd
    with working(f"attacking {run.path} …"):
        found = audit.audit_run(
            run.run, truth, attacks=attacks, battery=not attacks, rounds=rounds, users=users,
            test=unseen,
        )  # fmt: skip
    shown = tables.audit_table(found, run.path), *tables.sums_tables(found)
    console.print(*shown, *audits.verdict(found), audits.quality(found), sep="\n")
    files = audits.write_audit(found, run.radio_map(), folder)
    console.print("Wrote " + ", ".join(file.name for file in files) + f" to {folder}/")
    return found


@dataclass(frozen=True, eq=False)
class _Summed:
    """An opened survey, and the measurements that it summed."""

    path: Path
    opened: "OpenedSum"
    radio_map: "RadioMap"
    data: "Measurements"

    @classmethod
    def of(cls, path: Path, data: Path | None) -> "_Summed":
        from veilmap.auditing.surveys import check_origin
        from veilmap.data.measurements import Measurements
        from veilmap.model.radio_map import RadioMap
        from veilmap.surveys.folder import SurveyFolder

        if data is None:
            raise ConfigurationError(
                f"{path} is a survey, which keeps no measurements: name those that it summed with"
                " data",
                "data",
            )
        folder, links = SurveyFolder(path), Measurements.load(data)
        found = cls(path, folder.opened(), RadioMap.load(folder.map_file), links)
        check_origin(found.opened, links)
        return found

    def audit(self, users: int, folder: Path) -> "SurveyAudit":
        """Attack it; show what was found, and write it."""
        from veilmap.auditing.surveys import audit_survey
        from veilmap.cli import tables
        from veilmap.reports import audits

        _say_truth(self.path, STUDY)
        with working(f"attacking {self.path} …"):
            found = audit_survey(self.opened, self.radio_map, self.data, users=users)
        shown = tables.survey_audit_tables(found, self.path)
        console.print(*shown, *audits.verdict(found), sep="\n")
        StudyFolder(self.path).make()
        audits.write_json(found.as_dict(), folder / "audit.json")
        console.print(f"Wrote audit.json to {folder}/")
        return found


def _is_survey(path: Path) -> bool:
    return (path / "survey.json").is_file()


def _beside(path: Path) -> Path:
    """The folder for what is known of a run or a survey beyond its own publishing."""
    return StudyFolder(path).path if _is_survey(path) else unpublished(path)


def _say_study(run: "OpenRun") -> None:
    """Head what follows about a run with a guarantee, and make room for it beside the run."""
    if run.promised:
        StudyFolder(run.path).make()
        _say_truth(run.path, run.study)
    if not run.is_data_known:
        console.print(
            f"Whether {run.path} was trained on these measurements is not known: nothing beside it"
            " says so, only the same users"
        )


def _say_truth(path: Path, study: str) -> None:
    console.print(
        f"{study}: the audit of {path} uses the truth, which its guarantee does not cover"
    )
