"""What gradients of anybody's model give away about where users are."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from veilmap._util import checks
from veilmap._util.arrays import Floats
from veilmap.attacks import Estimates
from veilmap.attacks.any_model import (
    DeepLeakage,
    FirstLayer,
    GradientAttack,
    Guess,
    Inversion,
    Places,
    SeenGradients,
    TemplateFilter,
)
from veilmap.attacks.base import Places as Truth
from veilmap.auditing.audit import Score, scores_of
from veilmap.auditing.canaries import CanaryBound
from veilmap.auditing.gradient_canaries import gradient_canary_bound
from veilmap.auditing.measured import Measured, interval, metres, percent
from veilmap.auditing.seen_gradients import Sees, Sums, Uploads, Users, gradients_of_users
from veilmap.auditing.verdict import NEAR, Verdict
from veilmap.errors import ConfigurationError
from veilmap.geometry.grid import Grid
from veilmap.model.gradient_models import GradientModel, Records
from veilmap.model.gradient_models.base import flat
from veilmap.privacy.mechanisms import AggregateGaussian, NoNoise, UniformNoise

_CANDIDATES = 2_500  # places that are compared, where templates of all of them have room
_FEWEST = 64
_TEMPLATE_BYTES = 512e6


@dataclass(frozen=True)
class Exposed:
    """What one thing that the server may see gives away.

    Attributes
    ----------
    sees : str
        The trust model and what is done before, in words.
    promise : str
        What is proven for one round, or why nothing is.
    epsilon : float
        NaN where nothing is promised.
    change : str
        What to do about it.
    scores : tuple of Score
        Of every attack; "prior only" looks at nothing.
    membership : CanaryBound, optional
        A lower bound of ε that canaries measure, where formal noise claims one.
    """

    sees: str
    promise: str
    epsilon: float
    change: str
    scores: tuple[Score, ...]
    estimates: Mapping[str, Estimates] = field(repr=False)
    membership: CanaryBound | None = None

    def score(self, attack: str) -> Score:
        """One attack's score."""
        return next(score for score in self.scores if score.attack == attack)

    @property
    def prior(self) -> Score:
        """What guessing without any gradient gives."""
        return self.score(Guess.name)

    @property
    def strongest(self) -> Score:
        """The attack that places the typical user best; guessing, where none is better."""
        return min(self.scores, key=lambda score: (score.median.value, score is not self.prior))

    @property
    def verdict(self) -> Verdict:
        """What it comes to for this trust model."""
        return Verdict.of(
            self.sees,
            (self.strongest, "one round and the model"),
            self.prior,
            promise=self.promise,
            epsilon=self.epsilon,
            change=self.change,
        )

    def as_dict(self) -> dict[str, Any]:
        """For JSON; NaN is null."""
        return {
            "sees": self.sees,
            "verdict": self.verdict.as_dict(),
            "promise": self.promise,
            "epsilon": None if math.isnan(self.epsilon) else self.epsilon,
            "scores": [asdict(score) for score in self.scores],
            "membership": None if self.membership is None else asdict(self.membership),
        }


@dataclass(frozen=True)
class GradientAudit:
    """All attacks on one round of gradients, for each thing that the server may see."""

    users: int
    parameters: int
    candidates: Grid
    exposed: tuple[Exposed, ...]
    truth: Truth = field(repr=False)

    def __getitem__(self, number: int) -> Exposed:
        return self.exposed[number]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "users": self.users,
            "parameters": self.parameters,
            "candidates": self.candidates.cells,
            "exposed": [one.as_dict() for one in self.exposed],
        }

    @property
    def table(self) -> list[list[str]]:
        """A line for each thing that the server may see, below a line of titles."""
        titles = ["server sees", "strongest attack", "median (95 %)", f"within {NEAR} m",
                  "guessing: median", f"within {NEAR} m", "ε promised / at least"]  # fmt: skip
        return [titles, *(_line(one) for one in self.exposed)]

    def __str__(self) -> str:
        widths = [max(map(len, column)) for column in zip(*self.table, strict=True)]
        rows = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in self.table)
        verdicts = ("\n".join(one.verdict.lines) for one in self.exposed)
        return "\n".join([*rows, *(f"\n{text}" for text in verdicts)])


def _line(one: Exposed) -> list[str]:
    """One line of the table."""
    found, guess = one.strongest, one.prior
    claimed = "none" if math.isnan(one.epsilon) else f"{one.epsilon:.3g}"
    least = "" if one.membership is None else f" / {one.membership.epsilon_at_least:.3g}"
    return [
        one.sees,
        found.attack,
        f"{metres(found.median.value)} m ({interval(found.median, metres)})",
        _near(found.found[NEAR]),
        f"{guess.median.value:.0f} m",
        _near(guess.found[NEAR]),
        claimed + least,
    ]


def _near(value: Measured) -> str:
    return f"{percent(value.value)} % ({interval(value, percent)})"


def audit_gradients(
    model: GradientModel,
    users: Users,
    *,
    area: Grid | Sequence[float],
    sees: Sees | Sequence[Sees] | None = None,
    attacks: Sequence[GradientAttack] | None = None,
    around: Callable[[Floats], Records] | None = None,
    shift: float | None = None,
    seed: int | None = None,
) -> GradientAudit:
    """Attack gradients of any model in every way that fits, and score against users' places.

    Parameters
    ----------
    model : GradientModel
        Its parameters and the gradient of a user's loss; see `veilmap.gradient_models`.
    users : mapping from user to Records
        A user's true place is the mean of its records.
    area : Grid, or (west, south, east, north)
        Where users are known to be, in metres. The cells of a grid are the candidates.
    sees : Uploads, Sums or Recorded, or several of them
        By default raw uploads, uploads with uniform noise, and sums over everybody without and
        with formal noise, clipped to the median length of the users' gradients.
    attacks : attacks, optional
        By default all that fit the model. Guessing is always among them.
    around : callable, optional
        What a user at (x, y) is publicly known to have, as records. By default one record there
        whose target is in the middle of all users' targets, the range of which is taken as public.
        Records with features need it.
    shift : float, optional
        How far targets may be from those; by default half of the range of all users' targets.
    seed : int, optional
        Fixes the noise, for studies; by default it comes from the operating system.
    """
    truth = _checked(users)
    public = _public(model, users, area, around, shift)
    chosen = [sees] if isinstance(sees, Sees) else list(sees or _usual(model, users))
    battery = [Guess(), *(usual_attacks() if attacks is None else attacks)]
    exposed = []
    for one in chosen:
        seen = one.of(model, users, seed)
        places = public
        if not np.array_equal(seen.parameters, public.parameters):
            places = replace(public, parameters=seen.parameters)
        exposed.append(_exposed(one, seen, places, battery, truth, seed))
    numbers = len(public.parameters)
    return GradientAudit(len(users), numbers, public.grid, tuple(exposed), truth)


def usual_attacks() -> list[GradientAttack]:
    """Every attack we have on gradients of any model."""
    return [TemplateFilter(), Inversion("cosine"), Inversion("L2"), FirstLayer(), DeepLeakage()]


def _exposed(
    one: Sees,
    seen: SeenGradients,
    places: Places,
    battery: Sequence[GradientAttack],
    truth: Truth,
    seed: int | None,
) -> Exposed:
    """Scores of all attacks on what was seen."""
    fitting = [attack for attack in battery if attack.applies(places)]
    found = {attack.name: attack.locate(seen, places) for attack in fitting}
    scores = tuple(score for each in found.values() for score in scores_of(each, truth))
    promised = one.promise(seed)
    bound = None
    if isinstance(one.mechanism, AggregateGaussian):
        bound = gradient_canary_bound(one.mechanism, len(places.parameters), seed)
    todo = one.change(promised.epsilon)
    return Exposed(one.words, promised.words, promised.epsilon, todo, scores, found, bound)


def _checked(users: Users) -> Truth:
    """Where every user is."""
    if not isinstance(users, Mapping) or not users:
        raise ConfigurationError("users must be a mapping from user to Records", "users")
    for user, records in users.items():
        if not isinstance(records, Records):
            raise ConfigurationError(f"users must have Records, as {user!r} has not", "users")
    return {user: records.xy.mean(axis=0) for user, records in users.items()}


def _public(
    model: GradientModel,
    users: Users,
    area: Grid | Sequence[float],
    around: Callable[[Floats], Records] | None,
    shift: float | None,
) -> Places:
    """Candidates, and what is known of users there."""
    vector = flat(model.parameters)
    targets = np.concatenate([records.target for records in users.values()])
    low, high = float(targets.min()), float(targets.max())
    if around is None:
        if any(records.features.size for records in users.values()):
            raise ConfigurationError("around must say what features a user at (x, y) has", "around")
        middle = np.array([0.5 * (low + high)])

        def around(xy: Floats) -> Records:
            return Records(np.reshape(xy, (1, 2)), middle)

    half = 0.5 * (high - low) or 1.0
    step = half if shift is None else checks.number("shift", shift, above=0)
    return Places(model, vector, _candidates(area, len(vector)), around, step)


def _candidates(area: Grid | Sequence[float], numbers: int) -> Grid:
    """A grid, or the area in squares so large that there is room for all templates."""
    if isinstance(area, Grid):
        return area
    edges = [checks.number("area", edge) for edge in area]
    if len(edges) != 4 or edges[0] >= edges[2] or edges[1] >= edges[3]:
        raise ConfigurationError("area is a Grid or (west, south, east, north) in metres", "area")
    west, south, east, north = edges
    most = int(np.clip(_TEMPLATE_BYTES / (8 * numbers), _FEWEST, _CANDIDATES))
    size = math.sqrt((east - west) * (north - south) / most)
    shape = math.ceil((north - south) / size), math.ceil((east - west) / size)
    return Grid(size, (shape[0], shape[1]), (west, south))


def _usual(model: GradientModel, users: Users) -> list[Sees]:
    """What most people ask first."""
    lengths = np.linalg.norm(gradients_of_users(model, users), axis=1)
    clip = float(np.median(lengths)) or 1.0
    uploads: list[Sees] = [Uploads(), Uploads(NoNoise(clip=clip)), Uploads(UniformNoise(clip=clip))]
    if len(users) < 2:
        return uploads
    formal = AggregateGaussian(epsilon=8.0, delta=min(1e-6, 0.1 / len(users)), clip=clip)
    return [*uploads, Sums(), Sums(mechanism=formal)]
