"""Runs and surveys on a page of their own: what each is, its map, and what attackers find."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from veilmap import __version__, figures
from veilmap._util import files
from veilmap.auditing import audit
from veilmap.auditing.audit import Audit
from veilmap.errors import ConfigurationError
from veilmap.federation import HistoryRow
from veilmap.federation.messages import ClientId
from veilmap.figures.content import Curves, Kind, Line, Panel, Values
from veilmap.reports import audits, exposures, html, maps, surveys, words
from veilmap.reports.html import Html
from veilmap.runs.opened import OpenRun
from veilmap.runs.survey import OpenSurvey

_COLUMNS = 2  # of panels: more are too small on paper and on phones

_LIMITS = (
    "An audit shows what these attacks found in these rounds. It bounds nothing: another attack,"
    " or more rounds, could find more."
)

_TOO_LARGE = (
    "The map has too many cells to attack it for a report; `veilmap audit` takes the time that it"
    " needs."
)


def write_page(
    results: Mapping[str, OpenRun | OpenSurvey],
    path: Path,
    *,
    user: str | None = None,
    on_step: Callable[[str], None] | None = None,
) -> None:
    """Write one HTML file about finished runs and surveys, by name.

    With several, first how the runs compare. ``user`` is whom to show, by id, by default a typical
    user of each run; ``on_step`` is called with what is being done.
    """
    for result in results.values():
        result.finished_map()  # an error before the work, not after some of it
    runs = {name: run for name, run in results.items() if isinstance(run, OpenRun)}
    chosen = _users(runs, user)
    say = on_step or (lambda step: None)
    found: dict[str, Audit] = {}
    for name, run in runs.items():
        if _is_auditable(run) and exposures.comparable(run.radio_map().grid):
            say(f"attacking {name}")
            assert run.data is not None
            found[name] = audit.audit(run.run, run.data, test=run.test)
    when = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    body = [html.paragraph(f"Written by veilmap {__version__}, {when}.")]
    if len(results) > 1:
        body.append(html.contents((_anchor(i), name) for i, name in enumerate(results)))
    if len(runs) > 1:
        body += _tradeoff(runs, found)
    for number, (name, result) in enumerate(results.items()):
        say(f"drawing {name}")
        level = 2
        if len(results) > 1:  # else the page's title says it
            words = audits.marked(result.study, _called(name, result))
            body.append(html.heading(words, level, _anchor(number)))
            level += 1
        if isinstance(result, OpenRun):
            body += _about(result, found.get(name), chosen.get(name), level)
        else:
            body += surveys.sections(result, level)
    studies = (result.study for result in results.values() if result.study)
    files.write_text(html.page(audits.marked(next(studies, ""), _title(results)), body), path)


def _called(name: str, result: OpenRun | OpenSurvey) -> str:
    return f"{result.kind.capitalize()} {name}"


def _title(results: Mapping[str, OpenRun | OpenSurvey]) -> str:
    if len(results) == 1:
        ((name, result),) = results.items()
        return _called(name, result)
    kinds = [result.kind for result in results.values()]
    counts = {kind: kinds.count(kind) for kind in kinds}
    named = [f"{count} {kind}{'s' if count > 1 else ''}" for kind, count in counts.items()]
    return f"{' and '.join(named)} compared"


def _users(runs: Mapping[str, OpenRun], user: str | None) -> dict[str, ClientId]:
    """The wanted user of every run that can show one, checked before any work is done."""
    if user is None:
        return {}
    kept = {name: run for name, run in runs.items() if run.attackable_rounds()}
    if not kept:
        raise ConfigurationError("user: no uploads were kept to look at (keep_uploads)", "user")
    return {name: exposures.user_named(run, user) for name, run in kept.items()}


def _is_auditable(run: OpenRun) -> bool:
    """Whether attacks can be scored."""
    return run.data is not None and bool(run.attackable_rounds())


def _anchor(number: int) -> str:
    return f"run-{number + 1}"


def _about(run: OpenRun, audit: Audit | None, user: ClientId | None, level: int) -> list[Html]:
    """All sections about one run, with headings of a level."""
    parts = [
        html.facts(words.facts(run)),
        _heading(run, "The map", level),
        *maps.section(run),
        _heading(run, "Training", level),
        *training_section(run.history(), withheld=bool(run.withheld)),
        _heading(run, "What the server sees", level),
    ]
    if not run.kept_rounds():
        return [*parts, html.paragraph(words.NO_UPLOADS)]
    if not run.attackable_rounds():
        return [*parts, html.paragraph(words.ONLY_FIELDS)]
    if user is None:
        user = exposures.typical_user(run, audit)
        parts.append(html.paragraph(_typical(user, audit)))
    parts += exposures.section(run, user, level + 1)
    parts.append(_heading(run, "What attackers find: the audit", level))
    if audit is None:
        why = f"The measurements are not at hand, so nothing can be scored: {run.missing}."
        return [*parts, html.paragraph(_TOO_LARGE if _is_auditable(run) else why)]
    return parts + _audit(run, audit, user)


def _heading(run: OpenRun, text: str, level: int) -> Html:
    """The heading of a section, which in a study is marked as one."""
    return html.heading(audits.marked(run.study, text), level)


def _typical(user: ClientId, audit: Audit | None) -> str:
    if audit is None:
        return f"User {user} stands for the others here; `--user` looks at another one."
    best = audit.strongest
    return (
        f"User {user} is a typical one: the strongest attack ({best.attack}) places half of the"
        " users better, half worse. `--user` looks at another one."
    )


def _audit(run: OpenRun, audit: Audit, user: ClientId) -> list[Html]:
    """The table, the figures and what was promised."""
    found = audit.verdict.finding
    title = f"Where attackers place the users: {audits.label(audit)}; {audits.UNITS}"
    parts = [
        *map(html.paragraph, audits.verdict(audit)),
        html.paragraph(f"{audits.quality(audit)} {_LIMITS}"),
        html.table(title, audits.COLUMNS, audits.table_rows(audit)),
        html.picture(
            figures.png(audits.errors_figure(audit, _COLUMNS)),
            "Share of users whom attacks find within a distance; further left is closer",
            f"Curves of the share of users found within a distance, an attack each. {found}",
        ),
    ]
    if audit.sums is not None:
        rows = audits.membership_rows(audit.sums.membership)
        title = audits.sums_title(audit, audit.sums)
        parts.append(html.table(title, audits.PROMISE_COLUMNS, rows))
        parts.append(html.paragraph(f"{audits.sums_note(audit.sums)}."))
    beliefs = audits.beliefs_figure(audit, run.radio_map(), user, _COLUMNS)
    if beliefs is not None:
        caption = f"Where an attack that knows the defence believes user {user} to be"
        parts.append(html.picture(figures.png(beliefs), caption))
    return parts


def _tradeoff(runs: Mapping[str, OpenRun], found: Mapping[str, Audit]) -> list[Html]:
    """Map error against the strongest attack, and who is missing there."""
    study = audits.study_among(found.values())
    title = "Map error against the strongest attack"
    parts = [html.heading(audits.marked(study, title))]
    missing = [name for name in runs if name not in found]
    if found:
        named = audits.by_label(found.items())
        caption = f"{title}'s median error: up, attacks are further off"
        parts += [
            html.picture(figures.png(audits.tradeoff_figure(named)), caption),
            html.table(title, audits.TRADEOFF_COLUMNS, audits.tradeoff_rows(named)),
        ]
    large = [name for name in missing if _is_auditable(runs[name])]
    wanting = [name for name in missing if name not in large]
    for why, names in (
        ("for want of kept uploads or measurements", wanting),
        ("because their maps have too many cells to attack them here", large),
    ):
        if names:
            parts.append(html.paragraph(f"Not compared, {why}: {', '.join(names)}."))
    return parts


# ---- how training went


@dataclass(frozen=True)
class _Quantity:
    """A field of the history; what to say where no round has it, or where it is 0 throughout."""

    field: str
    name: str
    unit: str
    caption: str
    unknown: str
    zero: str = ""


_WITHHELD = (
    "Only what comes out of noisy sums, and public facts, is published of this run: no loss, no"
    " error of the map, and no ε where a seed makes the noise computable."
)

_QUANTITIES = (
    _Quantity(
        "loss", "loss", "dB²", "Mean squared error of the map on the users' own links",
        "The loss is not known: it stayed with the users.",
    ),
    _Quantity(
        "mae_db", "MAE", "dB", "Mean absolute error of the map on test users",
        "The map's error over the rounds is not known: there were no test users.",
    ),
    _Quantity(
        "noise_energy", "noise energy Σσ²", "dB⁴/m²", "Energy of a user's noise, on average",
        "The noise's energy is not known: it stayed with the users.", "No noise was added.",
    ),
    _Quantity(
        "epsilon", "ε", "", "ε spent so far by the user who spent most",
        "There is no ε to show: this mechanism has no (ε, δ) guarantee.",
    ),
)  # fmt: skip


def training_section(history: list[HistoryRow], *, withheld: bool = False) -> list[Html]:
    """A curve for each quantity that is known, a sentence for each that is not.

    Of a run with a guarantee what is measured on data is ``withheld``.
    """
    shown, said = [], [_WITHHELD] if withheld else []
    for quantity in _QUANTITIES:
        values = np.array([getattr(row, quantity.field) for row in history], dtype=np.float64)
        known = np.isfinite(values)
        if not known.any():
            said += [] if withheld else [quantity.unknown]
        elif quantity.zero and not values[known].any():
            said.append(quantity.zero)
        else:
            rounds = np.array([row.round + 1.0 for row in history])
            shown.append(_curve(quantity, rounds[known], values[known]))
    return [
        *([html.pictures(shown)] if shown else []),
        *([html.paragraph(" ".join(said))] if said else []),
    ]


def _curve(quantity: _Quantity, rounds: Values, values: Values) -> Html:
    kind: Kind = "line" if len(rounds) > 1 else "dots"
    label = f"{quantity.name} ({quantity.unit})" if quantity.unit else quantity.name
    panel = Panel("", "round", label, (Line(quantity.name, rounds, values, kind=kind),))
    picture = Curves(quantity.field, quantity.caption, (panel,))
    first, last = (f"{values[i]:.3g} {quantity.unit}".rstrip() for i in (0, -1))
    seen = (
        f"Curve over rounds: {quantity.name} is {first} in round {rounds[0]:.0f} and {last} in"
        f" round {rounds[-1]:.0f}"
    )
    return html.picture(figures.png(picture), quantity.caption, seen)
