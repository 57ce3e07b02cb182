"""An audit on paper: its table, its figures, and a JSON file."""

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from veilmap import __version__, figures
from veilmap._util import files
from veilmap.attacks import PriorOnly
from veilmap.attacks.base import When
from veilmap.auditing.audit import Audit
from veilmap.auditing.measured import Located, metres
from veilmap.auditing.membership import Membership
from veilmap.auditing.opened_sums import SumsAudit
from veilmap.auditing.surveys import SurveyAudit
from veilmap.federation.messages import ClientId
from veilmap.figures import Figure
from veilmap.model.radio_map import RadioMap
from veilmap.runs.opened import label_of

COLUMNS = ("attack", "round", "median", "95 % CI", "RMSE", "95 %", "≤10", "≤50", "≤100")
UNITS = "distances in metres; ≤10: percent of users found within 10 m"
PROMISE_COLUMNS = ("what", "allowed", "measured", "95 % CI")
TRADEOFF_COLUMNS = ("run", "map MAE (dB)", "strongest attack", "median (m)")


def write_audit(audit: Audit, radio_map: RadioMap, out: Path) -> list[Path]:
    """Write ``audit.json`` and the figures of one run; their paths."""
    write_json(audit.as_dict(), out / "audit.json")
    written = [out / "audit.json", figures.save(errors_figure(audit), out / "errors.png")]
    beliefs = beliefs_figure(audit, radio_map)
    if beliefs is not None:
        written.append(figures.save(beliefs, out / "posterior.png"))
    return written


def write_json(content: Mapping[str, Any], path: Path) -> None:
    """Write results with the version that gave them."""
    files.write_json({"veilmap": __version__} | dict(content), path)


def marked(study: str, text: str) -> str:
    """A heading, behind the words of a study where there are any."""
    return f"{study}: {text}" if study else text


def study_among(audits: Iterable[Audit]) -> str:
    """The words that head what is made of several audits; empty if none of them is a study."""
    return next((audit.study for audit in audits if audit.study), "")


def tradeoff_figure(audits: Mapping[str, Audit]) -> Figure:
    """Map error against the strongest attack's; runs whose map was never tested are left out."""
    known = []
    for name, audit in audits.items():
        if not math.isnan(audit.mae_db):
            title, median = f"{name} ({audit.prior.users:,} users)", audit.strongest.median
            known.append((title, audit.mae_db, (median.value, median.low, median.high)))
    prior = float(np.mean([audit.prior.median.value for audit in audits.values()]))
    return figures.curves.tradeoff(known, prior, study_among(audits.values()))


def tradeoff_rows(audits: Mapping[str, Audit]) -> list[list[str]]:
    """The same as text, one line a run."""
    rows = []
    for name, audit in audits.items():
        best = audit.strongest
        mae = "–" if math.isnan(audit.mae_db) else f"{audit.mae_db:.2f}"
        rows.append([name, mae, best.attack, metres(best.median.value)])
    return rows


def by_label(audits: Iterable[tuple[str, Audit]]) -> dict[str, Audit]:
    """Audits by what they are of, with their own names beside it where that is alike."""
    named: dict[str, Audit] = {}
    for name, audit in audits:
        words = label(audit)
        named[words if words not in named else f"{words} ({name})"] = audit
    return named


def shown_rounds(audit: Audit) -> dict[str, When]:
    """The rounds that tables and figures show: first, middle, last, and all together."""
    rounds = audit.rounds
    some = rounds[0], rounds[len(rounds) // 2], rounds[-1]
    shown: dict[str, When] = {f"round {number + 1}": number for number in some}
    if len(rounds) > 1:
        shown[f"all {len(rounds)} rounds together"] = "all"
    return shown


def label(audit: Audit) -> str:
    """A run in a few words."""
    return label_of(audit.mechanism, audit.server_sees)


def verdict(audit: Audit | SurveyAudit) -> list[str]:
    """What the audit comes to, a sentence or two in each line."""
    first, *rest = audit.verdict.lines
    return [marked(audit.study, first), *rest]


def quality(audit: Audit) -> str:
    """How far the map is off, and any attack in the worst case."""
    mae = "not measured" if math.isnan(audit.mae_db) else f"{audit.mae_db:.2f} dB"
    return f"Map MAE: {mae}. Least RMSE of all attacks: {audit.closest_rmse:.2f} × guessing."


def survey_rows(audit: SurveyAudit) -> list[list[str]]:
    """The text table of what the promise allows: measure, allowed, measured, 95 % interval."""
    canaries, claimed = audit.canaries, f"{audit.design_epsilon:.3g}"
    return [
        [
            "ε, from canaries",
            claimed,
            f"≥ {canaries.epsilon_at_least:.2f}",
            f"{canaries.right:,} of {canaries.guesses:,} right",
        ],
        ["ε, whatever the noise is", claimed, f"≥ {canaries.epsilon_at_least_of_any:.2f}", ""],
        *membership_rows(audit.membership),
    ]


def membership_rows(told: Membership) -> list[list[str]]:
    """The same of who took part."""
    auc, found = told.auc, told.found_at_5_percent
    return [
        [
            "who took part: AUC",
            f"{told.auc_allowed:.3f}",
            f"{auc.value:.3f}",
            f"{auc.low:.3f}–{auc.high:.3f}",
        ],
        [
            "found at 5 % false alarms",
            f"{100 * told.found_at_5_percent_allowed:.1f} %",
            f"{100 * found.value:.1f} %",
            f"{100 * found.low:.1f}–{100 * found.high:.1f} %",
        ],
    ]


def sums_title(audit: Audit, sums: SumsAudit) -> str:
    """What the table of who took part shows."""
    return marked(
        audit.study,
        f"What the sums of {len(sums.rounds)} rounds tell somebody who knows everybody else,"
        f" beside their ε = {sums.epsilon:.3g}",
    )


def sums_note(sums: SumsAudit) -> str:
    """What that table's figures are of, and what places are found."""
    told, best = sums.membership, sums.strongest
    return (
        f"{told.users:,} users; the noise allows an AUC of {told.auc_of_noise:.3f} and"
        f" {100 * told.found_at_5_percent_of_noise:.1f} %. The same adversary places users with"
        f" {sums.closest_rmse:.2f} × the RMSE of guessing, and"
        f" {100 * best.found[50].value:.0f} % of them within 50 m (guessing:"
        f" {100 * sums.prior.found[50].value:.0f} %). Rounds that were not kept are not in it"
    )


def located_rows(location: Iterable[Located]) -> list[list[str]]:
    """The text table of places: an attack's figures in metres and percent."""
    rows = []
    for one in location:
        middle = f"{metres(one.median.low)}–{metres(one.median.high)}"
        figures_of = [metres(own.value) for own in (one.median, one.rmse, one.within_95)]
        found = [f"{100 * share.value:.0f}" for share in one.found.values()]
        rows.append([one.attack, figures_of[0], middle, *figures_of[1:], *found])
    return rows


def errors_figure(audit: Audit, columns: int | None = None) -> Figure:
    """How far every attack is off: the share of users found within a distance."""
    panels = {
        title: {
            name: found.placed[when].errors(audit.truth) for name, found in audit.estimates.items()
        }
        for title, when in shown_rounds(audit).items()
    }
    title = marked(audit.study, f"How far attackers are off ({label(audit)})")
    return figures.curves.error_shares(panels, title, columns)


def beliefs_figure(
    audit: Audit, radio_map: RadioMap, client: ClientId | None = None, columns: int | None = None
) -> Figure | None:
    """What an attack believes about one user; None where none believes anything.

    By default about the user whom it places as well as the median one.
    """
    found = next((found for found in audit.estimates.values() if found.posteriors), None)
    if found is None:
        return None
    if client is None:
        placed = found.placed["all"]
        errors = placed.errors(audit.truth)
        client = placed.clients[int(np.argsort(errors)[len(errors) // 2])]
    beliefs = [
        (title, belief.grid, belief.map_of(client))
        for title, when in shown_rounds(audit).items()
        if client in (belief := found.posteriors[when]).clients
    ]
    if not beliefs:
        return None
    about = f"What the {found.attack} attack believes about user {client} ({label(audit)})"
    title, position = marked(audit.study, about), audit.truth[client]
    return figures.maps.beliefs(
        radio_map.grid, radio_map.heights, beliefs, position, title, columns
    )


def table_rows(audit: Audit) -> list[list[str]]:
    """The text table: attack, rounds seen, and figures in metres and percent."""
    rows = []
    for name in audit.estimates:
        for title, when in shown_rounds(audit).items():
            if name == PriorOnly.name and when != "all" and len(audit.rounds) > 1:
                continue  # the same in every round
            score = audit.score(name, when)
            seen = title.removeprefix("round ").removesuffix(" rounds together")
            middle = f"{metres(score.median.low)}–{metres(score.median.high)}"
            distances = [metres(one.value) for one in (score.median, score.rmse, score.within_95)]
            found = [f"{100 * share.value:.0f}" for share in score.found.values()]
            rows.append([name, seen, distances[0], middle, *distances[1:], *found])
    return rows
