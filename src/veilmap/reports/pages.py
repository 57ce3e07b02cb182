"""Runs on a page of their own: what each is, its map, its training, and what attackers find."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from veilmap import __version__, figures
from veilmap._util import files
from veilmap.auditing import audit
from veilmap.auditing.audit import Audit
from veilmap.errors import ConfigurationError
from veilmap.federation.messages import ClientId
from veilmap.reports import audits, exposures, html, maps, training, words
from veilmap.reports.html import Html
from veilmap.reports.subjects import Subject

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
    subjects: Sequence[Subject],
    path: Path,
    *,
    user: str | None = None,
    on_step: Callable[[str], None] | None = None,
) -> None:
    """Write one HTML file about some runs; with several, first how they compare.

    Parameters
    ----------
    subjects : runs
    path : Path
    user : str, optional
        Whom to look at, by id; by default a typical user of each run.
    on_step : callable, optional
        Told what is being done.
    """
    chosen = _users(subjects, user)
    say = on_step or (lambda step: None)
    found: dict[str, Audit] = {}
    for subject in subjects:
        if subject.auditable and exposures.comparable(subject.run.radio_map.grid):
            say(f"attacking {subject.name}")
            assert subject.data is not None
            found[subject.name] = audit.audit(subject.run, subject.data, test=subject.test)
    when = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    body = [html.paragraph(f"Written by veilmap {__version__}, {when}.")]
    if len(subjects) > 1:
        body.append(html.contents((_anchor(i), s.name) for i, s in enumerate(subjects)))
        body += _tradeoff(subjects, found)
    for number, subject in enumerate(subjects):
        say(f"drawing {subject.name}")
        level = 2
        if len(subjects) > 1:  # else the page's title says it
            words = audits.marked(subject.study, f"Run {subject.name}")
            body.append(html.heading(words, level, _anchor(number)))
            level += 1
        body += _about(subject, found.get(subject.name), chosen.get(subject.name), level)
    title = f"Run {subjects[0].name}" if len(subjects) == 1 else f"{len(subjects)} runs compared"
    title = audits.marked(next((s.study for s in subjects if s.study), ""), title)
    files.write_text(html.page(title, body), path)


def _users(subjects: Sequence[Subject], user: str | None) -> dict[str, ClientId]:
    """The wanted user of every run that can show one, checked before any work is done."""
    if user is None:
        return {}
    kept = [subject for subject in subjects if subject.witness.rounds]
    if not kept:
        raise ConfigurationError(
            "--user: no uploads were kept to look at; train with --keep-uploads"
        )
    return {subject.name: subject.user_named(user) for subject in kept}


def _anchor(number: int) -> str:
    return f"run-{number + 1}"


def _about(subject: Subject, audit: Audit | None, user: ClientId | None, level: int) -> list[Html]:
    """All sections about one run, with headings of a level."""
    parts = [
        html.facts(words.facts(subject)),
        _heading(subject, "The map", level),
        *maps.section(subject),
        _heading(subject, "Training", level),
        *training.section(subject.run.history, withheld=subject.withheld),
        _heading(subject, "What the server sees", level),
    ]
    if not subject.run.transcript.rounds:
        return [*parts, html.paragraph(words.NO_UPLOADS)]
    if not subject.witness.rounds:
        return [*parts, html.paragraph(words.ONLY_FIELDS)]
    if user is None:
        user = exposures.typical_user(subject, audit)
        parts.append(html.paragraph(_typical(user, audit)))
    parts += exposures.section(subject, user, level + 1)
    parts.append(_heading(subject, "What attackers find: the audit", level))
    if audit is None:
        why = f"The measurements are not at hand, so nothing can be scored: {subject.missing}."
        return [*parts, html.paragraph(_TOO_LARGE if subject.auditable else why)]
    return parts + _audit(subject, audit, user)


def _heading(subject: Subject, text: str, level: int) -> Html:
    """Of a section, which in a study is marked as one."""
    return html.heading(audits.marked(subject.study, text), level)


def _typical(user: ClientId, audit: Audit | None) -> str:
    if audit is None:
        return f"User {user} stands for the others here; `--user` looks at another one."
    best = audit.strongest
    return (
        f"User {user} is a typical one: the strongest attack ({best.attack}) places half of the"
        " users better, half worse. `--user` looks at another one."
    )


def _audit(subject: Subject, audit: Audit, user: ClientId) -> list[Html]:
    """The table, the figures and what was promised."""
    strongest, least, _ = audits.headline(audit).split("\n")
    label = audits.label(audit)
    parts = [
        html.paragraph(f"{strongest} {least}"),
        html.paragraph(f"Promise: {words.promise(subject)} {_LIMITS}"),
        html.table(
            f"Where attackers place the users: {label}; {audits.UNITS}",
            audits.COLUMNS,
            audits.table_rows(audit),
        ),
        html.picture(
            figures.png(audits.errors_figure(audit, _COLUMNS)),
            "Share of users whom attacks find within a distance; further left is closer",
            f"Curves of the share of users found within a distance, an attack each. {strongest}",
        ),
    ]
    beliefs = audits.beliefs_figure(audit, subject.run.radio_map, user, _COLUMNS)
    if beliefs is not None:
        caption = f"Where an attack that knows the defence believes user {user} to be"
        parts.append(html.picture(figures.png(beliefs), caption))
    return parts


def _tradeoff(subjects: Sequence[Subject], found: Mapping[str, Audit]) -> list[Html]:
    """Map error against the strongest attack, and who is missing there."""
    study = audits.study_among(found.values())
    parts = [html.heading(audits.marked(study, "Map error against the strongest attack"))]
    missing = [subject.name for subject in subjects if subject.name not in found]
    if found:
        named = audits.by_label((name, audit) for name, audit in found.items())
        caption = (
            "Map error against the strongest attack's median error: up, attacks are further off"
        )
        parts += [
            html.picture(figures.png(audits.tradeoff_figure(named)), caption),
            html.table(
                "Map error against the strongest attack",
                audits.TRADEOFF_COLUMNS,
                audits.tradeoff_rows(named),
            ),
        ]
    large = [subject.name for subject in subjects if subject.auditable and subject.name in missing]
    wanting = [name for name in missing if name not in large]
    for why, names in (
        ("for want of kept uploads or measurements", wanting),
        ("because their maps have too many cells to attack them here", large),
    ):
        if names:
            parts.append(html.paragraph(f"Not compared, {why}: {', '.join(names)}."))
    return parts
