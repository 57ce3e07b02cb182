"""A survey on paper: what it is, its map, what was opened, and what an audit found."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from veilmap import figures, layers
from veilmap.auditing.measured import Measured, metres
from veilmap.reports import audits, html
from veilmap.reports.html import Html
from veilmap.runs.survey import OpenSurvey, StationSum
from veilmap.runs.survey_audit import Canaries, Location, Membership, SurveyAudit

_PICTURED = 3  # base stations: those that most is known of
_LISTED = 20
_ALTITUDE = 1.5
_UNKNOWN = "–"

UNIT = (
    "Counts are in contributions of participants. Somebody who is heard by several base stations,"
    " or lies between points, adds less than one at each."
)
NO_AUDIT = "there is no audit beside this survey: `veilmap audit` makes one from the measurements"


class Table(NamedTuple):
    """Numbers as text; rows begin with their name."""

    caption: str
    columns: tuple[str, ...]
    rows: list[list[str]]


# ---- in words and numbers


def facts(opened: OpenSurvey) -> list[tuple[str, str]]:
    """What a reader should know first, by name."""
    survey, account = opened.survey, opened.account
    rows, columns = survey.grid.shape
    field = opened.finished_map().field
    assert field is not None  # of a survey's map both are there
    assert field.deviations is not None
    when = account["opened"].replace("T", " ").replace("+00:00", " UTC")
    least, spacing = survey.participants, survey.grid.cell_size
    return [
        ("Survey", f"{survey.id}, digest {survey.digest[:16]}"),
        ("Participants", f"{opened.users:,}; the design asks for {least:,} at least"),
        ("Base stations", f"{len(survey.stations)}"),
        ("Points", f"{columns} × {rows}, {spacing:.0f} m apart, in one sum"),
        ("Noise", f"standard deviation of {opened.opened.noise:.3g} contributions in every count"),
        (
            "Uncertainty",
            f"readings deviate from the map by {np.median(field.deviations):.1f} dB (standard"
            " deviation; median over points and base stations)",
        ),
        *([("Opened", f"{when}, by veilmap {account['veilmap']}")] if when else []),
    ]


def tables(audit: SurveyAudit) -> list[Table]:
    """All that an audit found, beside what the promise allows."""
    found = []
    if audit.membership is not None:
        found.append(_membership(audit.membership))
    if audit.canaries is not None:
        found.append(_canaries(audit.canaries, audit.epsilon))
    if audit.location:
        found.append(_location(audit.location))
    return found


def _membership(found: Membership) -> Table:
    caption = (
        f"Who took part, as told by somebody who knows {found.knows}"
        f" ({_count(found.users)} participants tried)"
    )
    auc = [*_with_interval(found.auc, _number), _number(found.auc_allowed)]
    share = [*_with_interval(found.found, _percent), _percent(found.found_allowed)]
    rows = [["area under the ROC curve", *auc], ["found at 5 % false alarms", *share]]
    return Table(caption, ("measure", "found", "95 % CI", "promise allows"), rows)


def _canaries(found: Canaries, claimed: float) -> Table:
    caption = (
        f"Planted participants: of {_count(found.canaries)} canaries {_count(found.guesses)}"
        f" guessed, {_count(found.right)} of them right"
    )
    numbers = _number(found.epsilon_at_least), _percent(found.confidence), _number(claimed)
    columns = ("measure", "at least", "confidence", "promise")
    return Table(caption, columns, [["ε", *numbers]])


def _location(found: Sequence[Location]) -> Table:
    distances = list(found[0].found)
    columns = ("attack", "knows", "users", "median", "95 % CI", "RMSE", "95 %")
    caption = (
        "Where participants were: distances in metres; ≤10: percent of participants found within"
        " 10 m"
    )
    rows = [
        [
            own.attack,
            own.knows,
            _count(own.users),
            *_with_interval(own.median, _metres),
            *(_metres(one.value) for one in (own.rmse, own.within_95)),
            *(_percent(share.value) for share in own.found.values()),
        ]
        for own in found
    ]
    return Table(caption, (*columns, *(f"≤{metres}" for metres in distances)), rows)


def _with_interval(found: Measured, shown: Callable[[float], str]) -> list[str]:
    """A value and its 95 % interval."""
    low, high = shown(found.low), shown(found.high)
    known = _UNKNOWN not in (low, high)
    return [shown(found.value), f"{low} to {high}" if known else _UNKNOWN]


def _number(value: float) -> str:
    return _UNKNOWN if math.isnan(value) else f"{value:.2f}"


def _percent(share: float) -> str:
    return _UNKNOWN if math.isnan(share) else f"{100 * share:.0f} %"


def _metres(value: float) -> str:
    return _UNKNOWN if math.isnan(value) else metres(value)


def _count(value: float) -> str:
    return _UNKNOWN if math.isnan(value) else f"{value:,.0f}"


def told(found: StationSum) -> str:
    """What a sum says of one base station, in a sentence."""
    return (
        f"The noise deviates by {found.noise:.3g} contributions; {found.standing_out} of"
        f" {found.counts.size:,} points stand out of it by more than three deviations."
    )


# ---- as sections of a page


def sections(opened: OpenSurvey, level: int) -> list[Html]:
    """All about one survey, under headings of a level."""
    loudest = _loudest(opened)
    return [
        html.facts([("Promise", f"{opened.promise.words}."), *facts(opened)]),
        html.heading("The map", level),
        *_map(opened, loudest[:_PICTURED]),
        html.heading("What the server sees", level),
        *_seen(opened, loudest),
        html.heading(audits.marked(opened.study, "What attackers find: the audit"), level),
        *_audit(opened),
    ]


def _loudest(opened: OpenSurvey) -> list[str]:
    """Ids of the base stations that most is known of, at most as many as a table lists."""
    _, ids = opened.stations
    order = np.argsort(-np.abs(opened.opened.levels), kind="stable")
    return [ids[number] for number in order[:_LISTED]]


def _map(opened: OpenSurvey, shown: Sequence[str]) -> list[Html]:
    """Gain and its uncertainty of some base stations, and which is heard best."""
    radio_map, (places, ids) = opened.radio_map(), opened.stations
    pictures = []
    for name in shown:
        bs = places[ids.index(name)]
        gain = layers.gain(radio_map, bs, _ALTITUDE, station=name)
        sure = layers.deviation(radio_map, bs, _ALTITUDE, station=name)
        whose = f"from base station {name}, at 1.5 m"
        drawn = figures.maps.gain(gain.grid, gain.values, bs, "gain at 1.5 m")
        low, high = np.nanmin(gain.values), np.nanmax(gain.values)
        seen = f"Map of the gain {whose}, {low:.0f} to {high:.0f} dB"
        pictures.append(html.picture(figures.png(drawn), f"Gain {whose}", seen))
        drawn = figures.maps.deviation(sure.grid, sure.values, bs, "uncertainty of the gain")
        caption = f"Standard deviation of a reading around the gain {whose}"
        low, high = np.nanmin(sure.values), np.nanmax(sure.values)
        seen = f"Map of the uncertainty, {low:.1f} to {high:.1f} dB"
        pictures.append(html.picture(figures.png(drawn), caption, seen))
    server, best = layers.best_server(radio_map, places, _ALTITUDE, ids=ids)
    areas = figures.maps.servers(server.grid, server.values, places, ids, "best server at 1.5 m")
    heard = np.unique(server.values).size
    seen = f"Map of the {heard} base stations that are heard best somewhere"
    caption = "The base station with the highest gain at every place"
    pictures.append(html.picture(figures.png(areas), caption, seen))
    drawn = figures.maps.gain(best.grid, best.values, None, "gain of the best server")
    caption = "The highest gain of all base stations, at 1.5 m"
    pictures.append(html.picture(figures.png(drawn), caption))
    words = "Pictured are base stations that the sum tells most of, and the best of all."
    return [html.paragraph(words), html.pictures(pictures)]


def _seen(opened: OpenSurvey, names: Sequence[str]) -> list[Html]:
    """The opened sum of some base stations as pictures, of more as numbers."""
    (places, ids), grid = opened.stations, opened.survey.grid
    found = [opened.sum_of(name) for name in names]
    pictures = []
    for one in found[:_PICTURED]:
        bs = places[ids.index(one.station)]
        drawn = figures.maps.counts(grid, one.counts, bs, "opened sum, turned by the map")
        caption = f"Contributions about base station {one.station} at every point, noise and all"
        seen = f"Map of counts, {one.counts.min():.3g} to {one.counts.max():.3g}. {told(one)}"
        pictures.append(html.picture(figures.png(drawn), caption, seen))
    noise, points = opened.opened.noise, grid.cells
    rows = [
        [
            one.station,
            f"{one.counts.sum():,.0f} ± {noise * math.sqrt(points):,.0f}",
            f"{one.counts.max():.3g}",
            f"{one.standing_out}",
        ]
        for one in found
    ]
    columns = ("base station", "in all", "most at a point", "points that stand out")
    caption = f"Contributions, and of {points:,} points those above three noise deviations"
    opening = (
        "One sum over all participants was opened, with noise; that is all anybody saw."
        f" {UNIT} The noise at every point deviates by {noise:.3g}."
    )
    return [
        html.paragraph(opening),
        html.pictures(pictures),
        html.table(caption, columns, rows),
    ]


def _audit(opened: OpenSurvey) -> list[Html]:
    """Tables of the audit, or why there are none."""
    if opened.withheld:
        return [html.paragraph(f"Not shown: {opened.withheld}.")]
    if opened.audit is None:
        return [html.paragraph(f"{NO_AUDIT[0].upper()}{NO_AUDIT[1:]}.")]
    return [
        *map(html.paragraph, _verdict(opened, opened.audit)),
        *(html.table(*table) for table in tables(opened.audit)),
    ]


def _verdict(opened: OpenSurvey, audit: SurveyAudit) -> Sequence[str]:
    """What the audit comes to, or at least what is promised."""
    promise = f"Promise: {opened.promise.words}."
    return (promise,) if audit.verdict is None else audit.verdict.lines
