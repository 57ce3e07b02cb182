"""What attackers find out about participants of a survey: scored by the truth."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from veilmap._util import checks
from veilmap._util.arrays import Floats, Ints
from veilmap.attacks import PriorOnly
from veilmap.attacks.survey_location import Ground, SurveyMatchedFilter, crowd_centre
from veilmap.attacks.survey_membership import membership_score
from veilmap.auditing.canaries import CanaryBound, canary_bound
from veilmap.auditing.measured import Measured, distances
from veilmap.auditing.membership import Membership, Scored, Scores
from veilmap.data.measurements import Measurements
from veilmap.errors import ConfigurationError
from veilmap.federation.study import STUDY
from veilmap.model.radio_map import RadioMap
from veilmap.privacy.accounting import Promise
from veilmap.surveys.aggregate import OpenedSum, summed
from veilmap.surveys.contribution import Entries, entries, usable
from veilmap.surveys.design import Survey

_FEWEST = 4  # participants: two who took part, and two who did not
_SURELY = 5.0  # deviations that no sum of these data is off by

AREA = "the area"
SUM = "the sum and the map"
OTHERS = "the sum, the map, and exactly what everybody else added"
OWN = "the sum, and exactly what everybody added; not whether the target took part"


@dataclass(frozen=True)
class Located:
    """How far one attack is from where participants were, in metres."""

    attack: str
    knows: str
    users: int
    median: Measured
    rmse: Measured
    within_95: Measured
    found: Mapping[int, Measured]  # shares of users within some distances


@dataclass(frozen=True)
class SurveyAudit:
    """All attacks on one opened survey."""

    survey: str  # digest of the design
    design_epsilon: float  # that the noise was made for, whether or not it is a promise
    promise: Promise
    delta: float
    participants: int
    membership: Membership
    canaries: CanaryBound
    location: tuple[Located, ...]

    study = STUDY
    """Scores are made from the truth: no guarantee covers them."""

    @property
    def epsilon(self) -> float:
        """The claimed one; NaN where nothing is promised."""
        return self.promise.epsilon

    @property
    def prior(self) -> Located:
        """What guessing gives."""
        return self._known(AREA)[0]

    @property
    def crowd(self) -> Located:
        """What the sum tells of where anybody is."""
        return self._known(SUM)[0]

    @property
    def strongest(self) -> Located:
        """The attack of those who know all others that places the typical participant best."""
        return min(self._known(OTHERS), key=lambda one: one.median.value)

    def _known(self, knows: str) -> list[Located]:
        return [one for one in self.location if one.knows == knows]

    def as_dict(self) -> dict[str, Any]:
        """For JSON; what is not finite is null."""
        content = asdict(self) | {"promise": self.promise.words}
        return _finite({"study": self.study, "epsilon": self.epsilon} | content)


def _finite(content: Any) -> Any:
    if isinstance(content, Mapping):
        return {str(key): _finite(value) for key, value in content.items()}
    if isinstance(content, tuple | list):
        return [_finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


def audit_survey(
    opened: OpenedSum,
    radio_map: RadioMap,
    data: Measurements,
    *,
    users: int | None = 1000,
    seed: int | None = None,
) -> SurveyAudit:
    """Attack an opened survey in every way we know, and score against the truth.

    Parameters
    ----------
    opened : OpenedSum
    radio_map : RadioMap
        That the sum gave.
    data : Measurements
        Of all its participants, as they were summed.
    users : int, optional
        Attack at most so many, chosen at random; with None everybody. All others still count.
    seed : int, optional
        Of the canaries: they have sums and noise of their own, by default from the operating
        system.
    """
    crowd = _Crowd.of(opened, data, users)
    return SurveyAudit(
        opened.survey.digest,
        opened.survey.epsilon,
        opened.promise,
        opened.survey.delta,
        opened.participants,
        _membership(crowd),
        canary_bound(opened.survey, seed),
        _location(crowd, radio_map),
    )


@dataclass(frozen=True, eq=False)
class _Crowd:
    """What everybody added to an opened sum, and the participants that are attacked."""

    opened: OpenedSum
    total: Ints  # of all contributions, without noise
    own: tuple[Entries, ...]  # of each attacked participant
    truth: Floats  # where each of them was, on average, (n, 2)

    @classmethod
    def of(cls, opened: OpenedSum, data: Measurements, most: int | None) -> "_Crowd":
        """Of the survey's own data; others are refused."""
        survey = opened.survey
        check_origin(opened, data)
        xy = data.user_xyz[:, :2]
        rows = np.flatnonzero(usable(survey, xy, data.bs, data.gain_db).all(axis=0))
        owner = np.searchsorted(data.users, data.user[rows])
        rows = rows[np.argsort(owner, kind="stable")]
        _, first = np.unique(data.user[rows], return_index=True)
        each = np.split(rows, first[1:])
        total = summed(survey, np.sort(owner), xy[rows], data.bs[rows], data.gain_db[rows])
        _check_sum(opened, total)
        wanted = len(each) if most is None else checks.whole("users", most, least=_FEWEST)
        order = np.random.default_rng(0).permutation(len(each))
        chosen = [(each[i], _contribution(survey, data, each[i])) for i in order[:wanted]]
        # Where nothing was added, there is nothing to find.
        chosen = [(readings, own) for readings, own in chosen if own.values.any()]
        if len(chosen) < _FEWEST:
            raise ConfigurationError(
                f"data have readings of fewer than {_FEWEST} participants", "data"
            )
        truth = np.array([xy[readings].mean(axis=0) for readings, _ in chosen])
        return cls(opened, total, tuple(own for _, own in chosen), truth)

    @cached_property
    def noise(self) -> OpenedSum:
        """What is left of the sum without anybody's contribution."""
        return replace(self.opened, total=self.opened.total - self.total)

    def left(self, own: Entries) -> OpenedSum:
        """What all others leave of the sum."""
        return _changed(self.noise, own, 1)

    def others(self, own: Entries) -> OpenedSum:
        """What all others added, which is known without noise."""
        return _changed(replace(self.opened, total=self.total, deviation=0.0), own, -1)


def _changed(total: OpenedSum, own: Entries, sign: int) -> OpenedSum:
    numbers = total.total.copy()
    numbers[own.numbers] += sign * own.values
    return replace(total, total=numbers)


def _contribution(survey: Survey, data: Measurements, rows: Ints) -> Entries:
    """Of one participant's rows, all of them usable."""
    nobody = np.zeros(len(rows), dtype=np.int64)
    return entries(survey, nobody, data.user_xyz[rows, :2], data.bs[rows], data.gain_db[rows])


def check_origin(opened: OpenedSum, data: Measurements) -> None:
    """Refuse data that cannot be the survey's."""
    if not isinstance(data, Measurements):
        raise ConfigurationError(
            "data of a survey's audit are the Measurements of its participants", "data"
        )
    crs = opened.survey.grid.crs
    if data.crs != crs and None not in (data.crs, crs):
        raise ConfigurationError(f"data are in {data.crs} and the survey in {crs}", "data")
    if len(data.users) != opened.participants:
        raise ConfigurationError(
            f"data have {len(data.users)} participants and the survey {opened.participants}: name"
            " the measurements that were summed",
            "data",
        )


def _check_sum(opened: OpenedSum, total: Ints) -> None:
    """Refuse data whose sum s is not in the opened one, y, as far as noise lets that be seen.

    If it is, ⟨y − s, s⟩ is normal of deviation σ ‖s‖, and ‖y − s‖² of n numbers of mean n σ² and
    deviation σ² √(2n); what other people added makes the latter larger.
    """
    exact, variance = total.astype(np.float64), opened.deviation**2
    rest = opened.total - exact
    along = abs(float(rest @ exact)) / math.sqrt(variance * max(float(exact @ exact), 1.0))
    excess = (float(rest @ rest) / variance - len(rest)) / math.sqrt(2 * len(rest))
    if not exact.any() or max(along, excess) > _SURELY:
        raise ConfigurationError(
            "data are not those that were summed, or the sum has more noise than its design says",
            "data",
        )


def _membership(crowd: _Crowd) -> Membership:
    """Every other attacked participant is one of a survey that ran without them."""
    own, survey = crowd.own, crowd.opened.survey
    there, away = own[::2], own[1::2]
    scores = Scores(
        Scored(np.array([membership_score(crowd.left(one), one) for one in there]), there),
        Scored(np.array([membership_score(crowd.noise, one) for one in away]), away),
        survey.numbers,
    )
    return Membership.of(OWN, scores, survey)


def _location(crowd: _Crowd, radio_map: RadioMap) -> tuple[Located, ...]:
    survey = crowd.opened.survey
    ground = Ground.of(survey, radio_map)
    attack = SurveyMatchedFilter(ground)
    found = [attack.locate(crowd.left(one), crowd.others(one)) for one in crowd.own]
    likeliest, mean = (np.array(places) for places in zip(*found, strict=True))
    return (
        _located(PriorOnly.name, AREA, PriorOnly().guess(survey.grid), crowd.truth),
        _located("crowd density", SUM, crowd_centre(ground, crowd.opened), crowd.truth),
        _located("matched filter, mean place", OTHERS, mean, crowd.truth),
        _located("matched filter, likeliest place", OTHERS, likeliest, crowd.truth),
    )


def _located(attack: str, knows: str, places: Floats, truth: Floats) -> Located:
    errors = np.linalg.norm(places - truth, axis=1)
    return Located(attack, knows, **distances(errors))
