"""What attackers find out about users of a run: the only place where the truth is known."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, overload

import numpy as np

from veilmap._util import checks
from veilmap._util.arrays import Floats
from veilmap._util.plain import to_plain
from veilmap.attacks import ATTACKS, Attack, Estimates, PriorOnly
from veilmap.attacks.base import Places, When
from veilmap.auditing.measured import Measured, distances
from veilmap.auditing.opened_sums import SumsAudit, audit_sums, can_audit
from veilmap.auditing.surveys import SurveyAudit, audit_survey
from veilmap.auditing.verdict import Placed, Told, Verdict, change, delta_of, strongest
from veilmap.data.folders import Crowd
from veilmap.data.measurements import Measurements
from veilmap.errors import ConfigurationError
from veilmap.federation import Run, Transcript
from veilmap.federation.history import last_mae
from veilmap.federation.messages import ClientId
from veilmap.federation.study import STUDY
from veilmap.federation.transcript import SEEN, ServerSees
from veilmap.model.evaluation import mean_absolute_error
from veilmap.privacy.accounting import has_guarantee
from veilmap.privacy.mechanisms import Mechanism
from veilmap.surveys.surveying import SurveyResult

_MOST_ROUNDS = 5

Truth = Crowd | Places


@dataclass(frozen=True)
class Score:
    """How well one attack did in one round (from 0), or with all audited rounds together.

    Distances to the truth are in metres; ``median`` is the 50 % circular error, ``within_95`` the
    95 % one, and ``found`` the share of users within some distances. Attacks that have beliefs
    have their median entropy, and the share of users inside their 95 % credible regions.
    """

    attack: str
    when: When
    users: int
    rmse: Measured
    median: Measured
    within_95: Measured
    found: Mapping[int, Measured]
    entropy_bits: float | None = None
    coverage: float | None = None


@dataclass(frozen=True)
class Audit:
    """All attacks on one run."""

    mechanism: Mechanism
    server_sees: ServerSees
    promise: str  # the guarantee in words, or why there is none
    epsilon: float  # NaN where there is none: for mechanisms without a guarantee, and with a seed
    mae_db: float  # of the map; NaN where no test data was at hand
    rounds: tuple[int, ...]  # those that were audited, from 0
    scores: tuple[Score, ...]
    estimates: Mapping[str, Estimates] = field(repr=False)
    truth: Places = field(repr=False)
    # By who knows everybody else, of sums with noise; None without their users' measurements.
    sums: SumsAudit | None = None

    @property
    def study(self) -> str:
        """The words that head whatever shows an audit of a run with a guarantee; else empty.

        Scores are made from the truth: the guarantee does not cover them.
        """
        return STUDY if has_guarantee(self.mechanism) else ""

    @property
    def _rivals(self) -> Sequence[Score]:
        """Scores of attacks that look at something, if there are any."""
        return [s for s in self.scores if s.attack != PriorOnly.name] or self.scores

    @property
    def strongest(self) -> Score:
        """The attack that places the typical user best."""
        return min(self._rivals, key=lambda score: score.median.value)

    @property
    def prior(self) -> Score:
        """What guessing without any upload gives."""
        return self.score(PriorOnly.name, "all")

    @property
    def closest_rmse(self) -> float:
        """The least RMSE of any attack over that of the prior: 1 if nothing was learned."""
        return min(score.rmse.value for score in self._rivals) / self.prior.rmse.value

    @property
    def verdict(self) -> Verdict:
        """What the audit comes to: who knows everybody else may be the strongest."""
        best, sums = self.strongest, self.sums
        rivals: list[tuple[Placed, str]] = [(best, self._rounds_of(best))]
        if sums is not None:
            rivals += [(one, one.knows) for one in sums.location[1:]]
        return Verdict.of(
            SEEN[self.server_sees],
            strongest(rivals),
            self.prior,
            promise=self.promise,
            epsilon=self.epsilon,
            change=change(self.server_sees, self.epsilon, delta_of(self.mechanism)),
            told=None if sums is None else Told.of(sums.membership),
        )

    def _rounds_of(self, score: Score) -> str:
        """What an attack was given, in words."""
        if score.when != "all":
            return f"round {int(score.when) + 1}"
        count = len(self.rounds)
        return f"{count} kept rounds" if count > 1 else "the kept round"

    def score(self, attack: str, when: When) -> Score:
        """One attack's score."""
        return next(s for s in self.scores if (s.attack, s.when) == (attack, when))

    def as_dict(self) -> dict[str, Any]:
        """For JSON; rounds count from 1 there, and NaN is null."""
        scores = [asdict(one) | {"when": _from_one(one.when)} for one in self.scores]
        return ({"study": self.study} if self.study else {}) | {
            "mechanism": to_plain(self.mechanism) | {"name": self.mechanism.name},
            "server_sees": self.server_sees,
            "promise": self.promise,
            "epsilon": None if math.isnan(self.epsilon) else self.epsilon,
            "map_mae_db": None if math.isnan(self.mae_db) else self.mae_db,
            "rounds": [number + 1 for number in self.rounds],
            "verdict": self.verdict.as_dict(),
            "least_rmse_over_prior": self.closest_rmse,
            "scores": scores,
            "sums": None if self.sums is None else self.sums.as_dict(),
        }


def _from_one(when: When) -> When:
    """A round counted from 1, for people."""
    return when if when == "all" else int(when) + 1


@overload
def audit(
    run: Run,
    truth: Truth,
    *,
    attacks: Sequence[Attack] = (),
    battery: bool = True,
    rounds: Sequence[int] | None = None,
    users: int | None = None,
    test: Measurements | None = None,
) -> Audit: ...


@overload
def audit(
    run: SurveyResult, truth: Measurements, *, users: int | None = 1000, seed: int | None = None
) -> SurveyAudit: ...


def audit(run: Run | SurveyResult, truth: Any, **options: Any) -> Audit | SurveyAudit:
    """Attack a run, or a survey, in every way we know, and score against the truth.

    The options are those of `audit_run` and of `veilmap.auditing.surveys.audit_survey`.
    """
    if isinstance(run, SurveyResult):
        return audit_survey(run.opened, run.radio_map, truth, **options)
    return audit_run(run, truth, **options)


def audit_run(
    run: Run,
    truth: Truth,
    *,
    attacks: Sequence[Attack] = (),
    battery: bool = True,
    rounds: Sequence[int] | None = None,
    users: int | None = None,
    test: Measurements | None = None,
) -> Audit:
    """Attack a run in every way that fits what its server saw, and score against the truth.

    Parameters
    ----------
    run : Run
        Trained with ``keep_uploads``.
    truth : Measurements, MeasurementFolder, or mapping from user to (x, y) in metres
        Where a run does not say where base stations are, measurements say that too.
    attacks : attacks, optional
        Further ones; one that has the name of a usual one takes its place.
    battery : bool
        Whether to try all that fit the trust model, those of plug-ins among them, and for sums with
        noise what somebody finds who knows everybody else (`veilmap.auditing.opened_sums`), if
        ``truth`` are the measurements. Else only ``attacks`` are tried.
    rounds : rounds from 0, optional
        By default all kept ones, or five of them from first to last; who knows everybody else
        looks at all.
    users : int, optional
        Attack at most so many, chosen at random: beliefs about many users take much memory.
        In sums all others still count.
    test : Measurements, optional
        For the map's MAE; by default what the history says.
    """
    whole = run.transcript
    if not isinstance(truth, Mapping):
        whole = whole.knowing(*truth.stations)
    transcript = _some_users(chosen_rounds(whole, rounds, _MOST_ROUNDS), users)
    positions = _positions(truth, transcript)
    estimates: dict[str, Estimates] = {}
    for attack in _chosen(transcript, attacks, battery):
        estimates[attack.name] = attack.locate_after(transcript, estimates)
    if PriorOnly.name not in estimates:
        estimates[PriorOnly.name] = PriorOnly().locate(transcript)
    sums = None
    if battery and not isinstance(truth, Mapping) and can_audit(whole):
        # One round says little, and one that was left out would say nothing.
        sums = audit_sums(_some_users(chosen_rounds(whole, rounds), users), truth, run.seed)
    promised = run.promise
    return Audit(
        transcript.mechanism,
        transcript.server_sees,
        promised.words,
        promised.epsilon,
        last_mae(run.history) if test is None else mean_absolute_error(run.radio_map, test),
        tuple(sorted(transcript.rounds)),
        tuple(score for found in estimates.values() for score in scores_of(found, positions)),
        estimates,
        positions,
        sums,
    )


def battery(transcript: Transcript) -> list[Attack]:
    """Every attack, ours and of plug-ins, that works on what this server saw."""
    return [attack for attack in ATTACKS.values() if attack.fits(transcript)]


def _chosen(transcript: Transcript, attacks: Sequence[Attack], usual: bool) -> list[Attack]:
    """The usual attacks and others, which take the place of those that have their names."""
    everything = [*(battery(transcript) if usual else ()), *attacks]
    return [*{attack.name: attack for attack in everything}.values()]


def chosen_rounds(
    transcript: Transcript, rounds: Sequence[int] | None, most: int | None = None
) -> Transcript:
    """The transcript with only the rounds to audit, by default ``most`` of them or all."""
    kept = sorted(transcript.rounds)
    if not kept:
        raise ConfigurationError(
            "the run kept no round to audit: train with keep_uploads", "rounds"
        )
    fields = {n for n in kept if transcript.rounds[n].broadcast.radio_map.field is not None}
    if rounds is None:
        usable = [number for number in kept if number not in fields] or kept
        steps = np.linspace(0, len(usable) - 1, min(most or len(usable), len(usable)))
        rounds = [usable[i] for i in np.unique(np.round(steps).astype(int))]
    for number in rounds:
        if number in fields:
            raise ConfigurationError(
                f"round {number + 1} learns a residual field, which no attack here reads; audit"
                " earlier rounds",
                "rounds",
            )
        if number not in transcript.rounds:
            known = ", ".join(str(n + 1) for n in kept[:12]) + (", …" if len(kept) > 12 else "")
            raise ConfigurationError(
                f"round {number + 1} was not kept; there are {known}", "rounds"
            )
    return replace(transcript, rounds={n: transcript.rounds[n] for n in sorted(set(rounds))})


def _some_users(transcript: Transcript, most: int | None) -> Transcript:
    """The transcript with at most so many users to attack."""
    everybody = transcript.wanted(transcript.rounds.values())
    if most is None or len(everybody) <= checks.whole("users", most, least=1):
        return transcript
    chosen = np.random.default_rng(0).choice(len(everybody), most, replace=False)
    return replace(transcript, targets={everybody[i] for i in chosen})


def _positions(truth: Truth, transcript: Transcript) -> dict[ClientId, Floats]:
    if not isinstance(truth, Mapping):
        truth = dict(zip(truth.users.tolist(), truth.mean_positions(), strict=True))
    clients = transcript.wanted(transcript.rounds.values())
    if unknown := [client for client in clients if client not in truth]:
        raise ConfigurationError(f"the true position of user {unknown[0]} is not given", "truth")
    return {client: np.asarray(truth[client], dtype=np.float64) for client in clients}


def scores_of(estimates: Estimates, truth: Places) -> Iterator[Score]:
    """How well an attack did, by round and for "all"."""
    for when, errors in estimates.errors(truth).items():
        if len(errors) == 0:  # nobody who is attacked was in that round
            continue
        belief = estimates.posteriors.get(when)
        yield Score(
            estimates.attack,
            when,
            **distances(errors),
            entropy_bits=float(np.median(belief.entropy())) if belief else None,
            coverage=float(belief.covers(truth).mean()) if belief else None,
        )
