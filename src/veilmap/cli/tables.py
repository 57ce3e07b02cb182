"""Results as tables for a terminal of eighty columns."""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich import box
from rich.table import Table
from rich.text import Text

from veilmap._util import files
from veilmap.auditing.audit import Audit
from veilmap.auditing.measured import metres
from veilmap.auditing.surveys import SurveyAudit
from veilmap.paper import experiment as results
from veilmap.paper.experiment import Experiment
from veilmap.reports import audits
from veilmap.reports.demo import Row

if TYPE_CHECKING:
    from veilmap.collection.checking import Checked
    from veilmap.collection.collector import Standing
    from veilmap.collection.demo import Played
    from veilmap.collection.task import Task
    from veilmap.compare import Comparison
    from veilmap.data.measurements import BadRows
    from veilmap.flower.deploy.processes import Process
    from veilmap.ingest import Check
    from veilmap.surveys.contribution import Contribution
    from veilmap.surveys.design import Survey
    from veilmap.surveys.surroundings import Surroundings

_STATIONS_SHOWN = 40


def demo_table(rows: Sequence[Row], seed: int) -> Table:
    """Map error and attackers' error of every scheme of the demo."""
    columns = ["method", "#MAE (dB)", "#centroid", "#informed", "informed attack"]
    title = f"Map error on 200 unseen users; attackers' median error in m (seed {seed})"
    table = _table(title, columns)
    for row in rows:
        mae, attack = _number(row.mae_db) or "–", row.strongest or row.note
        table.add_row(row.name, mae, _metres(row.centroid_m), _metres(row.strongest_m), attack)
    return table


def plan_table(plan: Mapping[str, Any]) -> Table:
    """Both ways to a promise, as `Ways.as_dict` gives them."""
    rounds, one_sum = plan["rounds"], plan["one_sum"]
    found = [
        {"": "cannot work"} if rounds is None else _rounds_rows(rounds),
        {"": "cannot work"} if one_sum is None else _one_sum_rows(one_sum),
    ]
    names = dict.fromkeys(name for rows in found for name in rows)
    known = rounds or one_sum
    people = rounds["users"] if rounds else one_sum["participants"]
    title = f"{people:,} users with ε = {known['epsilon']:.3g}, δ = {known['delta']:g}"
    rows = ([name, *(own.get(name, "") for own in found)] for name in names)
    return _table(title, ["what", "~rounds of obstacles", "~one sum"], rows)


def trust_table(plan: Mapping[str, Any]) -> Table:
    """What the same ε costs a map under every trust model, as `Ways.as_dict` gives it."""
    uploads, rounds, one_sum = plan["uploads"], plan["rounds"], plan["one_sum"]
    rows = [
        _trust_row("one sum of all, opened once", one_sum and one_sum | {"rounds_each": 1}),
        _trust_row("sums, one a round", rounds),
        _trust_row("uploads without names, shuffled", uploads.get("shuffled")),
        _trust_row("every upload, with its name", uploads.get("uploads")),
    ]
    columns = ["the server sees", "#error (dB)", "#messages", "#in all"]
    return _table("What is trusted, and what it takes", columns, rows)


def _trust_row(sees: str, plan: Mapping[str, Any] | None) -> list[str]:
    if not plan:
        return [sees, "too much", "", ""]
    sent = plan["rounds_each"] * plan["upload_bytes"]
    return [sees, f"{plan['expected_error_db']:.2f}", f"{plan['rounds_each']}", _bytes(sent)]


def _rounds_rows(plan: Mapping[str, Any]) -> dict[str, str]:
    """A plan of rounds, as `PrivacyPlan.as_dict` gives it."""
    asked = f"{plan['cohort']:,} of them a round, each in {plan['rounds_each']}"
    rows = {
        "expected error": f"{plan['expected_error_db']:.2f} dB, {plan['expected_loss_db']:.2f} of"
        " them by noise",
        "messages": f"{plan['rounds']} rounds; {asked}",
        "noise on each sum": f"{plan['noise_multiplier']:.3g} × the largest contribution in every"
        " cell",
        "clip": f"{plan['clip']:g}",
        "gradient in an answer": f"with probability {plan['contribute']:g}",
        "a user sends": f"{_bytes(plan['upload_bytes'])} a round ({plan['bits_a_cell']} bits a"
        f" cell), {_bytes(plan['sent_bytes'])} in all",
        "a user receives": f"{_bytes(plan['received_bytes'])} in all",
        "a user computes": f"{1e3 * plan['seconds_a_round']:.2g} ms a round,"
        f" {plan['seconds']:.2g} s in all (a core of this machine)",
    }
    if plan["contribute"] == 1:
        del rows["gradient in an answer"]
    return rows


def _one_sum_rows(design: Mapping[str, Any]) -> dict[str, str]:
    """A survey, as `Design.as_dict` of `compare.ways` gives it."""
    return {
        "expected error": f"{design['expected_error_db']:.2f} dB",
        "messages": "one of each",
        "noise on each sum": f"{design['noise_multiplier']:.3g} × the largest contribution in every"
        " number",
        "a user sends": f"{_bytes(design['upload_bytes'])}, once",
        "points": f"{design['points']:,}, {design['spacing']:.3g} m apart,"
        f" {design['participants_per_point']:.3g} users each",
        "would change it": _changes(design["changes"]),
    }


def _changes(changes: Mapping[str, float]) -> str:
    return "; ".join(f"{what}: {decibels:+.1f} dB" for what, decibels in changes.items())


def survey_table(survey: "Survey", surroundings: "Surroundings") -> Table:
    """A survey's design, what it asks and promises, and what to expect of its map."""
    from veilmap.surveys.planning import changes, expected

    rows, columns = survey.grid.shape
    what = expected(survey, surroundings)
    heard = surroundings.heard_of(len(survey.stations))
    others = {change.what: change.error_db for change in changes(survey, surroundings)}
    said = f"{survey.noise:.3g} × the largest contribution in every number"
    if survey.aggregators > 1:
        said += f", by {survey.aggregators} aggregators"
    content = {
        "points": f"{rows} × {columns}, {what.spacing:.3g} m apart,"
        f" {what.participants_per_point:.3g} participants each",
        "base stations": f"{len(survey.stations)}",
        "participants": f"{survey.participants:,} at least",
        "promise": f"ε = {survey.epsilon:g}, δ = {survey.delta:g} for all that one measured",
        "noise on the sum": said,
        "a participant sends": f"{_bytes(what.upload_bytes)}, once",
        "expected error": f"{what.error_db:.1f} dB, mean absolute, at readings of others",
        "expected deviation": f"{what.deviation_db:.1f} dB of such readings around the map",
        "would change it": _changes(others),
        "digest": survey.digest[:16],
    }
    table = _table(f"Survey {survey.id}", ["what", "~"], content.items())
    table.caption = (
        f"Expected if participants hear {heard:.3g} of {len(survey.stations)} base stations and"
        f" are on {surroundings.occupied:.0%} of the area, and readings at one place differ by"
        f" {surroundings.reading_noise_db:g} dB"
    )
    return table


def contribution_table(task: "Task", own: "Contribution", left_out: "Sequence[BadRows]") -> Table:
    """What a participant's file says, what of it leaves, and who could see what."""
    from veilmap.collection.report import half_bytes

    survey = task.survey
    unused = {
        "outside the area": own.outside,
        "of other base stations": own.unknown,
        "unusable": own.unusable + sum(len(one.rows) for one in left_out),
    }
    skipped = ", ".join(f"{count:,} {why}" for why, count in unused.items() if count)
    sizes = {role: _bytes(half_bytes(task, role)) for role in ("leader", "helper")}
    content = {
        "stays here": f"{own.used:,} readings with their places and times",
        "left out": skipped or "nothing",
        "leaves": f"{survey.numbers:,} whole numbers made of them, as two halves, once",
        "to the leader": f"{task.leader}: {sizes['leader']}, random by itself",
        "to the helper": f"{task.helper}: {sizes['helper']}, a seed drawn by lot",
        "both together": "would tell where you were, if the two collude against the rules",
        "the sum": f"of {survey.participants:,} people at least, with noise of both aggregators",
        "promise": f"ε = {survey.epsilon:g}, δ = {survey.delta:g} for all that you measured",
        "survey": f"{survey.id}, until {task.closes}; task {task.digest[:16]}",
    }
    table = _table("What leaves this computer, and what does not", ["what", "~"], content.items())
    table.caption = "Not hidden: that you take part, your network address, and when"
    return table


def standing_table(task: "Task", found: "Sequence[Standing]", left: str, error: str) -> Table:
    """How a survey of real participants stands."""
    survey = task.survey
    rows: list[tuple[str, ...]] = [
        ("state", *(one.state for one in found)),
        ("reports received", *(f"{one.received:,}" for one in found)),
        ("in the sum", *(f"{one.added:,}" for one in found)),
        ("without their other half", *(f"{one.unpaired:,}" for one in found)),
        ("refused", *(_rejected(one.rejected) for one in found)),
        ("clock", *(f"{one.clock_off:+.1f} s" for one in found)),
    ]
    leader = found[0]
    if leader.invitations:
        used = f"{leader.invitations_used:,} of {leader.invitations:,}"
        rows.insert(1, ("invitations used", used, ""))
    table = _table(f"Survey {survey.id}, {left}", ["what", "#leader", "#helper"], rows)
    table.caption = f"{survey.participants:,} reports are needed at least. {error}"
    return table


def _rejected(counts: "Mapping[str, int]") -> str:
    """How many reports an aggregator did not add, and why."""
    return ", ".join(f"{count:,} {why}" for why, count in counts.items() if count) or "0"


def collected_table(played: "Played") -> Table:
    """What a survey of simulated people took."""
    content = {
        "participants": f"{played.people:,}, with an invitation and a receipt each",
        "a participant": f"{1e3 * played.seconds_each:.0f} ms from measurements to both receipts",
        "sent by each": f"{_bytes(played.bytes_each)} to the leader, a seed to the helper",
        "map error": f"{played.error_db:.1f} dB, mean absolute, on people who did not take part",
    }
    return _table("A survey over two aggregators on this machine", ["what", "~"], content.items())


def aggregators_table(task: "Task", found: "Sequence[Checked]") -> Table:
    """What both aggregators of a task answered."""
    rows = []
    for one in found:
        clock = "" if one.clock_off is None else f"{one.clock_off:+.0f} s"
        days = "none" if one.certificate_days is None else f"{one.certificate_days:.0f} days left"
        answers = "yes" if one.answers else "no"
        same = ("yes" if one.same_task else "no") if one.answers else ""
        rows.append((one.role, one.address, answers, same, clock, days if one.answers else ""))
    columns = ["role", "address", "answers", "same task", "#clock", "certificate"]
    return _table(f"Aggregators of task {task.digest[:16]}", columns, rows)


def audit_table(audit: Audit, path: Path) -> Table:
    """Every attack in the first, middle and last round, and with all rounds together."""
    what = f"Where attackers place the users of {path.resolve().name}: {audits.label(audit)}"
    columns = [*audits.COLUMNS[:2], *(f"#{title}" for title in audits.COLUMNS[2:])]
    table = _table(audits.marked(audit.study, what), columns)
    table.caption = audits.UNITS
    for name, rows in groupby(audits.table_rows(audit), key=lambda row: row[0]):
        for number, (_, *figures) in enumerate(rows):
            table.add_row("" if number else name, *figures)
        table.add_section()
    return table


def sums_tables(audit: Audit) -> list[Table]:
    """What who knows everybody else finds in noisy sums beside what is allowed; none without."""
    if audit.sums is None:
        return []
    columns = [audits.PROMISE_COLUMNS[0], *(f"#{title}" for title in audits.PROMISE_COLUMNS[1:])]
    rows = audits.membership_rows(audit.sums.membership)
    told = _table(audits.sums_title(audit, audit.sums), columns, rows)
    told.caption = audits.sums_note(audit.sums)
    columns = [audits.COLUMNS[0], *(f"#{title}" for title in audits.COLUMNS[2:])]
    title = audits.marked(audit.study, "Where somebody who knows everybody else places users")
    places = _table(title, columns, audits.located_rows(audit.sums.location))
    places.caption = audits.UNITS
    return [told, places]


def survey_audit_tables(audit: SurveyAudit, path: Path) -> list[Table]:
    """What the adversary of the promise finds beside what is allowed; where attacks place users."""
    name = path.resolve().name
    columns = [audits.PROMISE_COLUMNS[0], *(f"#{title}" for title in audits.PROMISE_COLUMNS[1:])]
    title = audits.marked(audit.study, f"What the sum of {name} tells, beside its design's ε")
    promise = _table(title, columns, audits.survey_rows(audit))
    told = audit.membership
    promise.caption = (
        f"{told.users:,} participants; the noise allows an AUC of {told.auc_of_noise:.3f} and"
        f" {100 * told.found_at_5_percent_of_noise:.1f} %; canaries have sums and noise of their"
        " own"
    )
    columns = [audits.COLUMNS[0], *(f"#{title}" for title in audits.COLUMNS[2:])]
    title = audits.marked(audit.study, f"Where attackers place the participants of {name}")
    places = _table(title, columns, audits.located_rows(audit.location))
    places.caption = audits.UNITS
    return [promise, places]


def tradeoff_table(found: Mapping[str, Audit]) -> Table:
    """Map error against the strongest attack, one line a run."""
    study = audits.study_among(found.values())
    # Numbers have a unit.
    columns = [f"#{title}" if "(" in title else title for title in audits.TRADEOFF_COLUMNS]
    title = audits.marked(study, "Map error against the strongest attack")
    return _table(title, columns, audits.tradeoff_rows(found))


def experiment_list(experiments: Mapping[str, type[Experiment]]) -> Table:
    """What can be reproduced, and what it shows."""
    rows = ([name, experiment.title] for name, experiment in experiments.items())
    return _table("veilmap reproduce NAME …, or all", ["name", "~what"], rows)


def result_table(result: results.Table) -> Table:
    """An experiment's table."""
    first, *others = result.columns
    return _table(result.title, [first, *(f"#~{title}" for title in others)], result.text())


def findings(result: results.Result) -> Text:
    """What holds of an experiment's statements, one paragraph each."""
    text = Text()
    for finding in result.findings:
        colour = "green" if finding.holds else "red"
        text.append(f"{'✓' if finding.holds else '✗'} ", style=colour)
        text.append(f"{finding.claim} ")
        text.append(finding.verdict.capitalize(), style=colour)
        text.append(f": {finding.measured}.\n")
    return text


def process_table(processes: "Sequence[Process]") -> Table:
    """A federation's processes."""
    rows = (
        [one.name, str(one.pid or ""), "running" if one.running else "stopped", one.log.name]
        for one in processes
    )
    return _table("The federation on this host", ["process", "#pid", "~", "~log"], rows)


def check_table(check: "Check") -> Table:
    """What a file of measurements holds."""
    return _table(f"Measurements in {Path(check.file).name}", ["what", "~"], check.lines())


def coverage_table(check: "Check") -> Table:
    """What is known of each base station."""
    columns = ["#rows", "#users", "#median gain (dB)", "#nearest (m)", "#farthest (m)"]
    estimated = any(one.position_error_m is not None for one in check.stations)
    columns += ["#position ± (m)"] * estimated
    table = _table("Base stations", ["~base station", *columns])
    for one in check.stations[:_STATIONS_SHOWN]:
        links = f"{one.rows:,}", f"{one.users:,}", f"{one.gain_median_db:.1f}"
        error = "" if one.position_error_m is None else f"{one.position_error_m:,.0f}"
        lengths = f"{one.nearest_m:,.0f}", f"{one.farthest_m:,.0f}", *[error] * estimated
        table.add_row(one.bs, *links, *lengths)
    more = len(check.stations) - _STATIONS_SHOWN
    if more > 0:
        table.caption = f"and {more} more (all of them with --json)"
    return table


def doubts(check: "Check") -> Text:
    """What looks wrong, one line each; empty if nothing does."""
    lines = [part for doubt in check.doubts for part in (("! ", "red"), f"{doubt}\n")]
    return Text.assemble(*lines)


def comparison_tables(comparison: "Comparison") -> list[Table]:
    """A table for each way of setting test data aside."""
    columns = ["method", "#MAE (dB)", "#±", "#RMSE", "#cost", "#s", "~model"]
    found = []
    for scheme, group in groupby(comparison.summaries(), key=lambda row: row.scheme):
        own = list(group)
        table = _table(f"Error on test data: {scheme}, {own[0].folds} folds", columns)
        for row in own:
            errors = f"{row.mae_db:.2f}", _number(row.spread_db), f"{row.rmse_db:.2f}"
            cost = "" if row.method == "central" else _number(row.cost_db, sign="+")
            table.add_row(row.method, *errors, cost, f"{row.seconds:.1f}", _models(row.models))
        table.caption = "±: standard error over folds; cost: MAE above central; s: per fold"
        found.append(table)
    return found


def _table(title: str, columns: Iterable[str], rows: Iterable[Iterable[str]] = ()) -> Table:
    """A table of texts, none of them markup; #: a column of numbers, ~: one whose text may wrap."""
    table = Table(title=_text(title), box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in columns:
        justify: Literal["right", "left"] = "right" if name.startswith("#") else "left"
        wraps = name.removeprefix("#").startswith("~")
        table.add_column(name.lstrip("#~"), justify=justify, no_wrap=not wraps)
    for row in rows:
        table.add_row(*map(_text, row))
    return table


def _text(text: str) -> Text:
    """A text, which may be a stranger's, as it is."""
    return Text("\n".join(files.printable(line, most=2000) for line in text.splitlines()))


def _metres(value: float | None) -> str:
    return "" if value is None else metres(value)


def _number(value: float | None, sign: str = "-") -> str:
    return "" if value is None or math.isnan(value) else f"{value:{sign}.2f}"


def _bytes(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} GB"


def _models(models: Sequence[tuple[str, int]]) -> str:
    """What was chosen, and how often where that differs between folds."""
    if len(models) == 1:
        return models[0][0]
    return "; ".join(f"{name} ({count}×)" for name, count in models)
