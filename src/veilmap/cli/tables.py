"""Results as tables for a terminal of eighty columns."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table
from rich.text import Text

from veilmap import reports
from veilmap.auditing.audit import Audit
from veilmap.paper import experiment as results
from veilmap.paper.experiment import Experiment
from veilmap.reports import metres
from veilmap.reports.demo import Row

if TYPE_CHECKING:
    from veilmap.compare import Comparison
    from veilmap.flower.deploy import Process
    from veilmap.ingest import Check

_STATIONS_SHOWN = 40


def demo_table(rows: Sequence[Row], seed: int) -> Table:
    """Map error and attackers' error of every scheme of the demo."""
    table = _table(f"Map error on 200 unseen users; attackers' median error in m (seed {seed})")
    table.add_column("method", no_wrap=True)
    _numbers(table, "MAE (dB)", "centroid", "informed")
    table.add_column("informed attack", no_wrap=True)
    for row in rows:
        centroid, strongest = (
            "" if value is None else metres(value) for value in (row.centroid_m, row.strongest_m)
        )
        mae = _number(row.mae_db, 2) or "–"
        table.add_row(row.name, mae, centroid, strongest, row.strongest or row.note)
    return table


def plan_table(plan: Mapping[str, Any]) -> Table:
    """A plan for a promise, as `PrivacyPlan.as_dict` gives it."""
    table = _table(f"{plan['users']:,} users with ε = {plan['epsilon']:.3g}, δ = {plan['delta']:g}")
    table.add_column("what", no_wrap=True)
    table.add_column("")
    asked = f"{plan['cohort']:,} of them a round, each in {plan['rounds_each']}"
    table.add_row("rounds", f"{plan['rounds']}; {asked}")
    table.add_row("clip", f"{plan['clip']:g}")
    if plan["contribute"] < 1:
        table.add_row("gradient in an answer", f"with probability {plan['contribute']:g}")
    noise = plan["noise_multiplier"]
    table.add_row("noise on each sum", f"{noise:.3g} × the largest contribution in every cell")
    table.add_row("expected loss", f"{plan['expected_loss_db']:.2f} dB")
    table.add_row(
        "a user sends",
        f"{_bytes(plan['upload_bytes'])} a round ({plan['bits_a_cell']} bits a cell),"
        f" {_bytes(plan['sent_bytes'])} in all",
    )
    table.add_row("a user receives", f"{_bytes(plan['received_bytes'])} in all")
    table.add_row(
        "a user computes",
        f"{1e3 * plan['seconds_a_round']:.2g} ms a round, {plan['seconds']:.2g} s in all"
        " (a core of this machine)",
    )
    return table


def _bytes(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} GB"


def audit_table(audit: Audit, path: Path) -> Table:
    """Every attack in the first, middle and last round, and with all rounds together."""
    what = f"Where attackers place the users of {path.resolve().name}: {reports.label(audit)}"
    table = _table(reports.marked(audit.study, what))
    table.caption = reports.UNITS
    for title in reports.COLUMNS[:2]:
        table.add_column(title, no_wrap=True)
    _numbers(table, *reports.COLUMNS[2:])
    before = ""
    for name, *figures in reports.table_rows(audit):
        if before and name != before:
            table.add_section()
        table.add_row("" if name == before else name, *figures)
        before = name
    return table


def tradeoff_table(audits: Mapping[str, Audit]) -> Table:
    """Map error against the strongest attack, one line a run."""
    study = reports.study_among(audits.values())
    table = _table(reports.marked(study, "Map error against the strongest attack"))
    for title in reports.TRADEOFF_COLUMNS:
        number = "(" in title  # has a unit
        table.add_column(title, justify="right" if number else "left", no_wrap=True)
    for row in reports.tradeoff_rows(audits):
        table.add_row(*row)
    return table


def experiment_list(experiments: Mapping[str, type[Experiment]]) -> Table:
    """What can be reproduced, and what it shows."""
    table = _table("veilmap reproduce NAME …, or all")
    table.add_column("name", no_wrap=True)
    table.add_column("what")
    for name, experiment in experiments.items():
        table.add_row(name, experiment.title)
    return table


def result_table(result: results.Table) -> Table:
    """An experiment's table."""
    table = _table(result.title)
    table.add_column(result.columns[0], no_wrap=True)
    for title in result.columns[1:]:
        table.add_column(title, justify="right")
    for row in result.text():
        table.add_row(*row)
    return table


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
    table = _table("The federation on this host")
    table.add_column("process", no_wrap=True)
    _numbers(table, "pid")
    table.add_column("")
    table.add_column("log")
    for one in processes:
        state = "running" if one.running else "stopped"
        table.add_row(one.name, "" if one.pid is None else str(one.pid), state, one.log.name)
    return table


def check_table(check: "Check") -> Table:
    """What a file of measurements holds."""
    table = _table(f"Measurements in {Path(check.file).name}")
    table.add_column("what", no_wrap=True)
    table.add_column("")
    for name, text in check.lines():
        table.add_row(name, text)
    return table


def coverage_table(check: "Check") -> Table:
    """What is known of each base station."""
    table = _table("Base stations")
    table.add_column("base station", overflow="ellipsis")
    _numbers(table, "rows", "users", "median gain (dB)", "nearest (m)", "farthest (m)")
    for one in check.stations[:_STATIONS_SHOWN]:
        table.add_row(
            one.bs,
            f"{one.rows:,}",
            f"{one.users:,}",
            f"{one.gain_median_db:.1f}",
            f"{one.nearest_m:,.0f}",
            f"{one.farthest_m:,.0f}",
        )
    more = len(check.stations) - _STATIONS_SHOWN
    if more > 0:
        table.caption = f"and {more} more (all of them with --json)"
    return table


def doubts(check: "Check") -> Text:
    """What looks wrong, one line each; empty if nothing does."""
    text = Text()
    for doubt in check.doubts:
        text.append("! ", style="red")
        text.append(f"{doubt}\n")
    return text


def _table(title: str) -> Table:
    return Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))


def _numbers(table: Table, *titles: str) -> None:
    for title in titles:
        table.add_column(title, justify="right", no_wrap=True)


def _number(value: float | None, digits: int, sign: str = "-") -> str:
    return "" if value is None or math.isnan(value) else f"{value:{sign}.{digits}f}"


def comparison_tables(comparison: "Comparison") -> list[Table]:
    """A table for each way of setting test data aside."""
    rows = comparison.summaries()
    found = []
    for scheme in dict.fromkeys(row.scheme for row in rows):
        own = [row for row in rows if row.scheme == scheme]
        table = _table(f"Error on test data: {scheme}, {own[0].folds} folds")
        table.caption = (
            "±: standard error over folds; cost: MAE above our central mode; seconds a fold"
        )
        table.add_column("method", no_wrap=True)
        _numbers(table, "MAE (dB)", "±", "RMSE", "cost", "s")
        table.add_column("model")
        for row in own:
            cost = "" if row.method == "central" else _number(row.cost_db, 2, sign="+")
            table.add_row(
                row.method,
                f"{row.mae_db:.2f}",
                _number(row.spread_db, 2),
                f"{row.rmse_db:.2f}",
                cost,
                f"{row.seconds:.1f}",
                _models(row.models),
            )
        found.append(table)
    return found


def _models(models: Sequence[tuple[str, int]]) -> str:
    """What was chosen, and how often where that differs between folds."""
    if len(models) == 1:
        return models[0][0]
    return "; ".join(f"{name} ({count}×)" for name, count in models)
