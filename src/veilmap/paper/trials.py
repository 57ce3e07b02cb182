"""The work most experiments share: train on a city, look at the map and at what leaked."""

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from veilmap._util.arrays import Floats
from veilmap.attacks import GradientInversion, MatchedFilter, WeightedCentroid
from veilmap.attacks.base import When
from veilmap.auditing.audit import audit
from veilmap.data.measurements import Measurements
from veilmap.federation import Model, NoiseAwareStep, PlainDescent, Recording, Run, train
from veilmap.federation.steps import StepRule
from veilmap.model.evaluation import mean_absolute_error
from veilmap.model.propagation import Propagation
from veilmap.model.radio_map import RadioMap
from veilmap.paper.tasks import Outcome, Task
from veilmap.privacy.mechanisms import Mechanism, NoNoise
from veilmap.scenes.scene import Scene

INF = float("inf")
POWERS = (1.0, 2.0, 5.0, 10.0, INF)
"""ν of the centroid attackers."""

_LOOKS = 8  # rounds looked at after the first, evenly spaced

# η_h = 1000 is the plain rate that got furthest in 200 rounds; see the experiment `choices`.
AS_WRITTEN = PlainDescent(heights_rate=1000.0)
FLOOR_0 = NoiseAwareStep(floor=0.0)
DEFAULT = NoiseAwareStep()

STEPS: dict[str, StepRule] = {"as written": AS_WRITTEN, "floor 0": FLOOR_0, "default": DEFAULT}
"""As the paper writes it; its heights (h ≥ 0) with our step; all ours."""


def power_name(power: float) -> str:
    """ν as people write it."""
    return "ν = ∞" if power == INF else f"ν = {power:g}"


@dataclass(frozen=True)
class City:
    """A synthetic city with its users."""

    seed: int
    users: int

    @cached_property
    def scene(self) -> Scene:
        """Buildings and base stations."""
        return Scene.synthetic(self.seed)

    @cached_property
    def data(self) -> Measurements:
        """What the users measured."""
        return self.scene.measure(users=self.users, seed=2 * self.seed)

    @cached_property
    def unseen(self) -> Measurements:
        """Other users, for the map's error."""
        return self.scene.measure(users=200, seed=2 * self.seed + 1)


city = lru_cache(maxsize=8)(City)
"""The city of a seed; the last ones are kept."""


def looked_at(rounds: int) -> tuple[int, ...]:
    """The rounds, counted from 1, in which attackers look: the first and eight more."""
    later = np.linspace(0, rounds, _LOOKS + 1).round().astype(int)[1:]
    return tuple(sorted({1, *later.tolist()} - {0}))


@dataclass(frozen=True)
class TrainingTask(Task):
    """A task that trains on one city under one mechanism."""

    seed: int
    mechanism: Mechanism
    step: StepRule
    rounds: int = 200
    users: int = 100

    def trained(self, kept: tuple[int, ...]) -> Run:
        """The training, with uploads of some rounds, counted from 1."""
        own = city(self.seed, self.users)
        return train(
            own.data,
            own.scene.grid,
            mechanism=self.mechanism,
            rounds=self.rounds,
            seed=self.seed,
            model=Model(step=self.step),
            recording=Recording(keep_uploads={number - 1 for number in kept}),
        )

    @property
    def weight(self) -> float:
        """A round takes about 0.03 s for 100 users, with noise twice that."""
        noisy = 1 if isinstance(self.mechanism, NoNoise) else 2
        return 1 + 3e-4 * self.rounds * self.users * noisy

    @property
    def noise(self) -> str:
        """The mechanism in a few words."""
        budget = getattr(self.mechanism, "noise_budget", None)
        return self.mechanism.name + ("" if budget is None else f" μ = {budget:g}")


@dataclass(frozen=True)
class Trial(TrainingTask):
    """The map's error and the centroid attackers' in some rounds.

    Its outcome: ``rounds`` (R,) counted from 1; ``mae`` (R,) in dB of the map users received
    in that round, in the last round of the map that came out; ``rmse`` (powers, R) of
    centroid attackers in metres.
    """

    powers: tuple[float, ...] = POWERS

    about = "{self.noise}, city {self.seed}"

    def run(self) -> Outcome:
        """Train and attack."""
        looks = looked_at(self.rounds)
        trained = self.trained(looks)
        received = [trained.transcript.uploads(n - 1).broadcast.radio_map for n in looks]
        unseen = city(self.seed, self.users).unseen
        mae = [mean_absolute_error(m, unseen) for m in (*received[:-1], trained.radio_map)]
        rmse = np.array([self._rmse(trained, power) for power in self.powers])
        return {"rounds": np.array(looks), "mae": np.array(mae), "rmse": rmse}

    def _rmse(self, run: Run, power: float) -> Floats:
        """RMSE in metres of a centroid attacker in each kept round, (R,)."""
        data = city(self.seed, self.users).data
        truth = dict(zip(data.users.tolist(), data.mean_positions(), strict=True))
        errors = WeightedCentroid(power).locate(run.transcript).errors(truth)
        return np.array([np.sqrt(np.mean(errors[n] ** 2)) for n in sorted(run.transcript.rounds)])


@dataclass(frozen=True)
class Audited(TrainingTask):
    """What attackers who know the defence find in the audited rounds.

    Its outcome: ``strongest``, the median error in metres of the best attack by audited round, and
    of all together.
    """

    audited: tuple[int, ...] = (1,)

    about = "audit of {self.noise}, city {self.seed}"

    def run(self) -> Outcome:
        """Train and audit."""
        trained = self.trained(self.audited)
        attacks = [MatchedFilter(), GradientInversion()]
        found = audit(trained, city(self.seed, self.users).data, attacks=attacks, battery=False)
        whens: list[When] = [*(n - 1 for n in self.audited), "all"]
        medians = [[found.score(own.name, when).median.value for when in whens] for own in attacks]
        return {"strongest": np.min(medians, axis=0)}

    @property
    def weight(self) -> float:
        """Training and about 5 s a round for 100 users."""
        return super().weight + 0.05 * self.users * len(self.audited)


@dataclass(frozen=True)
class Snapshot(TrainingTask):
    """The map that users receive in one round, counted from 1."""

    at: int = 1

    about = "map of round {self.at}, city {self.seed}"

    def run(self) -> Outcome:
        """Train up to that round."""
        received = self.trained((self.at,)).transcript.uploads(self.at - 1).broadcast.radio_map
        return {
            "heights": received.heights,
            "theta": received.propagation.as_array(),
            "sharpness": np.array(received.sharpness),
        }

    def map(self, outcome: Outcome) -> RadioMap:
        """The map in an outcome."""
        grid = city(self.seed, self.users).scene.grid
        theta = Propagation.from_array(outcome["theta"])
        return RadioMap(grid, outcome["heights"], theta, float(outcome["sharpness"]))
