"""What attackers find out about participants of a survey: scored by the truth."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from veilmap._util import checks
from veilmap._util.arrays import Array, Floats, Ints
from veilmap.attacks import PriorOnly
from veilmap.attacks.membership import membership_score
from veilmap.attacks.survey_location import Ground, SurveyMatchedFilter, crowd_centre
from veilmap.auditing.canaries import CanaryBound, canary_bound
from veilmap.auditing.measured import Fit, Located, finite
from veilmap.auditing.membership import Allowed, Membership, Scored, Scores
from veilmap.auditing.verdict import Told, Verdict, change, strongest
from veilmap.data.measurements import Measurements
from veilmap.errors import ConfigurationError
from veilmap.federation.study import STUDY
from veilmap.model.radio_map import RadioMap
from veilmap.privacy.accounting import Promise, composed_epsilon, gaussian_distance
from veilmap.surveys.aggregate import OpenedSum, summed
from veilmap.surveys.contribution import Entries, entries, usable
from veilmap.surveys.design import Survey

_FEWEST = 4  # participants: two who took part, and two who did not

AREA = "the area"
SUM = "the sum and the map"
OTHERS = "the sum, the map, and exactly what everybody else added"
APART = "the difference of two sums, and exactly what the target adds"
OWN_TWICE = "both sums, and exactly what everybody added; not whether the target took part"
OWN = "the sum, and exactly what everybody added; not whether the target took part"


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

    @property
    def verdict(self) -> Verdict:
        """What the audit comes to."""
        return Verdict.of(
            "one sum over all participants",
            strongest((one, one.knows) for one in self.location if one.knows != AREA),
            self.prior,
            promise=self.promise.words,
            epsilon=self.epsilon,
            change=change("sums", self.epsilon, self.delta),
            told=Told.of(self.membership),
        )

    def _known(self, knows: str) -> list[Located]:
        return [one for one in self.location if one.knows == knows]

    def as_dict(self) -> dict[str, Any]:
        """For JSON; what is not finite is null."""
        words = {"promise": self.promise.words, "verdict": self.verdict.as_dict()}
        content = asdict(self) | words
        return finite({"study": self.study, "epsilon": self.epsilon} | content)


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
    """Refuse data whose sum is not in the opened one, as far as noise lets that be seen."""
    fit, exact = Fit(), total / opened.deviation
    fit.add(opened.total / opened.deviation - exact, exact)
    if fit.is_refuted:
        raise ConfigurationError(
            "data are not those that were summed, or the sum has more noise than its design says",
            "data",
        )


def _membership(crowd: _Crowd) -> Membership:
    """Every other attacked participant is one of a survey that ran without them."""
    survey = crowd.opened.survey
    distance = gaussian_distance(survey.deviation, survey.clip)
    scores = _halves(crowd.own, crowd.noise.total, crowd.opened.deviation, survey.numbers)
    return Membership.of(OWN, scores, Allowed(survey.epsilon, survey.delta, distance))


def audit_two(
    first: OpenedSum, second: OpenedSum, data: Measurements, *, users: int | None = 1000
) -> tuple[Membership, Membership]:
    """What two surveys with the same points tell of people who read the same for both.

    First what their difference tells somebody who knows nobody of those who are missing in the
    second, against those who are in neither, beside what the first allows; then what both sums tell
    somebody who knows everybody else of who is in both, beside what both together allow.
    """
    crowds = [_Crowd.of(one, data, users) for one in (first, second)]
    if not np.array_equal(crowds[0].total, crowds[1].total):
        raise ConfigurationError("the second survey adds up other contributions", "second")
    own, numbers, delta = crowds[0].own, first.survey.numbers, first.survey.delta
    of_noise = [(one.survey.deviation, one.survey.clip) for one in (first, second)]
    distances = [gaussian_distance(*one) for one in of_noise]
    alone = Allowed(first.survey.epsilon, delta, distances[0])
    both = Allowed(composed_epsilon(of_noise, delta), delta, math.hypot(*distances))
    noise = [one.noise.total for one in crowds]
    apart = math.hypot(first.deviation, second.deviation)
    # Of v in both, y₁ and y₂ tell what their mean does that weighs each by 1/σ².
    shares = np.array([1 / one.deviation**2 for one in (first, second)])
    mean, deviation = shares @ noise / shares.sum(), 1 / math.sqrt(shares.sum())
    return (
        Membership.of(APART, _halves(own, noise[0] - noise[1], apart, numbers), alone),
        Membership.of(OWN_TWICE, _halves(own, mean, deviation, numbers), both),
    )


def _halves(own: Sequence[Entries], noise: Array, deviation: float, numbers: int) -> Scores:
    """Scores where every other one of some participants added to noise."""
    match = np.array([noise[one.numbers] @ one.values for one in own]) / deviation**2
    squares = np.array([one.values @ one.values for one in own]) / deviation**2
    match[::2] += squares[::2]
    score = membership_score(match, squares)
    there, away = (Scored(score[at::2], directions(own[at::2], numbers)) for at in (0, 1))
    return Scores(there, away)


def directions(some: Sequence[Entries], numbers: int) -> Any:
    """Contributions of length 1 as a sparse matrix, (n, numbers)."""
    from scipy.sparse import csr_array

    values = np.concatenate([one.values / np.linalg.norm(one.values) for one in some])
    columns = np.concatenate([one.numbers for one in some])
    ends = np.cumsum([0, *(len(one.values) for one in some)])
    return csr_array((values, columns, ends), shape=(len(some), numbers))


def _location(crowd: _Crowd, radio_map: RadioMap) -> tuple[Located, ...]:
    survey = crowd.opened.survey
    ground = Ground.of(survey, radio_map)
    attack = SurveyMatchedFilter(ground)
    found = [attack.locate(crowd.left(one), crowd.others(one)) for one in crowd.own]
    likeliest, mean = (np.array(places) for places in zip(*found, strict=True))
    return (
        Located.of(PriorOnly.name, AREA, PriorOnly().guess(survey.grid), crowd.truth),
        Located.of("crowd density", SUM, crowd_centre(ground, crowd.opened), crowd.truth),
        Located.of("matched filter, mean place", OTHERS, mean, crowd.truth),
        Located.of("matched filter, likeliest place", OTHERS, likeliest, crowd.truth),
    )
