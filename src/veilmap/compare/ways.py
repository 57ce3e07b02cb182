"""Both ways to a map with (ε, δ) for the same people: rounds of obstacles, and one sum.

The common scale is the error to expect in a city like the synthetic ones, whose buildings make all
shadows, so that obstacles can explain them. In a real city much else does, which obstacles miss and
the field of one sum takes in.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from veilmap._util import checks
from veilmap.errors import ConfigurationError, PrivacyError
from veilmap.federation import planning
from veilmap.federation.planning import CELLS, LINKS, PrivacyPlan
from veilmap.federation.transcript import ServerSees
from veilmap.surveys.design import Station, Survey, stations_of
from veilmap.surveys.planning import Change, Expectation, changes, expected
from veilmap.surveys.surroundings import Surroundings

CELL_M = 3.0  # a cell of the synthetic cities
STATIONS, MAST_M = 200, 50.0  # their base stations, and how high they are
READING_NOISE_DB = 3.0

# Rounds for servers without secure aggregation, by what these see.
_UPLOADS: dict[ServerSees, str] = {
    "shuffled": "shuffled uploads",
    "uploads": "uploads with names",
}

_ALIKE = 0.1  # dB: what is expected is not known better


@dataclass(frozen=True)
class Design:
    """A survey as it is planned, and what to expect of it."""

    survey: Survey = field(repr=False)
    surroundings: Surroundings
    expectation: Expectation
    changes: Sequence[Change]

    def as_dict(self) -> dict[str, Any]:
        """For JSON, and for tables."""
        survey, what = self.survey, self.expectation
        return {
            "participants": survey.participants,
            "epsilon": survey.epsilon,
            "delta": survey.delta,
            "stations": len(survey.stations),
            "heard": self.surroundings.heard_of(len(survey.stations)),
            "points": survey.grid.cells,
            "noise_multiplier": survey.deviation / survey.clip,
            **{f"expected_{name}": getattr(what, name) for name in ("error_db", "deviation_db")},
            "spacing": what.spacing,
            "participants_per_point": what.participants_per_point,
            "upload_bytes": what.upload_bytes,
            "changes": {change.what: change.error_db for change in self.changes},
        }


@dataclass(frozen=True)
class Ways:
    """What can be planned; ``refused`` says why a way cannot."""

    rounds: PrivacyPlan | None
    one_sum: Design | None
    refused: Mapping[str, str]
    # Rounds without secure aggregation, by what the server sees: uploads private by themselves.
    uploads: Mapping[ServerSees, PrivacyPlan] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """For JSON, and for tables; how long an answer takes is measured here and now."""
        rounds, one_sum = self.rounds, self.one_sum
        return {
            "rounds": None if rounds is None else rounds.as_dict(rounds.seconds()),
            "one_sum": None if one_sum is None else one_sum.as_dict(),
            "uploads": {sees: plan.as_dict(plan.seconds()) for sees, plan in self.uploads.items()},
            "refused": dict(self.refused),
            "advice": self.advice,
        }

    @property
    def advice(self) -> str:
        """Which way is better for these numbers, and why, in a sentence."""
        if self.one_sum is None:
            return f"Rounds of obstacles are the only way: {self.refused['one sum']}."
        if self.rounds is None:
            return f"One sum is the only way: {self.refused['rounds']}."
        sums, rounds = self.one_sum.expectation.error_db, self.rounds.error_db
        figures = f"{rounds:.1f} dB from rounds, {sums:.1f} dB from one sum"
        lost = f"noise costs {{}} {self.rounds.loss_db:.1f} dB"
        if sums < rounds + _ALIKE:
            return (
                f"One sum is better ({figures}): {lost.format('the rounds')}, and it asks for one"
                " message instead of many."
            )
        return (
            f"Rounds of obstacles are better ({figures}) where buildings make all shadows:"
            f" {lost.format('them')}, and points {self.one_sum.expectation.spacing:.0f} m apart"
            " miss what is smaller; in a real city, where obstacles explain little, take one sum."
        )


def ways(
    users: int,
    epsilon: float,
    delta: float | None = None,
    *,
    area: tuple[float, float, float, float] | None = None,
    stations: int | Sequence[Station] | None = None,
    cells: int | None = None,
    links: int = LINKS,
    within: float | None = None,
    contribute: float = 1.0,
    dropout: float = 0.1,
) -> Ways:
    """Plans for both ways.

    Parameters
    ----------
    users, epsilon, delta, links, within, contribute, dropout
        As `planning.plan` takes them; a survey has the same δ.
    area : (west, south, east, north), optional
        By default a square of ``cells`` cells of 3 m.
    stations : int, or Stations
        How many, spread over the area, by default 200; or which.
    cells : int, optional
        Of the map of obstacles; by default 10,000, or those of 3 m in the area.
    """
    if area is None:
        side = CELL_M * np.sqrt(checks.whole("cells", cells or CELLS, least=1))
        area = (0.0, 0.0, float(side), float(side))
    elif cells is None:
        west, south, east, north = area
        cells = max(1, round((east - west) * (north - south) / CELL_M**2))
    masts = STATIONS if stations is None else stations
    known = spread(area, masts) if isinstance(masts, int) else tuple(masts)
    delta = planning.usual_delta(checks.whole("users", users, least=2)) if delta is None else delta
    refused: dict[str, str] = {}
    rounds, one_sum = None, None
    try:
        rounds = planning.plan(
            users,
            epsilon,
            delta,
            cells=cells or CELLS,
            links=links,
            within=within,
            contribute=contribute,
            dropout=dropout,
        )
    except PrivacyError as error:
        refused["rounds"] = str(error)
    try:
        one_sum = _designed(area, known, users, epsilon, delta, min(links, len(known)))
    except ConfigurationError as error:
        if error.parameter not in ("participants", "epsilon"):
            raise
        refused["one sum"] = str(error)
    if rounds is None and one_sum is None:
        raise PrivacyError("; ".join(f"{way}: {why}" for way, why in refused.items()))
    uploads: dict[ServerSees, PrivacyPlan] = {}
    for sees, name in _UPLOADS.items():
        try:
            uploads[sees] = planning.plan_of_uploads(
                users, epsilon, delta, sees, cells=cells or CELLS, links=links, dropout=dropout
            )
        except PrivacyError as error:
            refused[name] = str(error)
    return Ways(rounds, one_sum, refused, uploads)


def _designed(
    area: tuple[float, float, float, float],
    stations: tuple[Station, ...],
    users: int,
    epsilon: float,
    delta: float,
    heard: float,
) -> Design:
    """For users all over the area and the readings of a synthetic city."""
    told = Surroundings(heard, occupied=1.0, reading_noise_db=READING_NOISE_DB)
    survey = Survey.design(
        area, stations, participants=users, epsilon=epsilon, delta=delta, surroundings=told
    )
    return Design(survey, told, expected(survey, told), changes(survey, told))


def spread(area: tuple[float, float, float, float], count: int) -> tuple[Station, ...]:
    """So many base stations, as high as in the synthetic cities, evenly over an area."""
    from scipy.stats import qmc  # slow to import, needed only here

    count = checks.whole("stations", count, least=1)
    west, south, east, north = area
    x, y = qmc.Halton(2, scramble=False).random(count).T
    places = west + (east - west) * x, south + (north - south) * y, np.full(count, MAST_M)
    return stations_of(np.column_stack(places), range(count))
