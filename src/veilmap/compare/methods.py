"""Who is compared: baselines, and our map in all its modes."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from veilmap._util import checks, extras
from veilmap.baselines import (
    Baseline,
    GradientBoosting,
    LogDistance,
    NearestNeighbours,
    OrdinaryKriging,
    RegressionKriging,
)
from veilmap.compare.folds import Fold
from veilmap.errors import ConfigurationError
from veilmap.federation.model import Calibrated
from veilmap.federation.selection import ModelChoice, Trial, choose, preferred
from veilmap.geometry.grid import Grid
from veilmap.model.evaluation import KnowsDevices
from veilmap.model.radio_map import RadioMap
from veilmap.privacy.accounting import has_guarantee
from veilmap.privacy.mechanisms import (
    AggregateGaussian,
    GeometryAligned,
    Mechanism,
    NoNoise,
    UniformNoise,
)

BASELINES: Mapping[str, Callable[[], Baseline]] = {
    "log-distance": lambda: LogDistance(calibrate=True),
    "k-nn": lambda: NearestNeighbours(same_station=True),
    "kriging": OrdinaryKriging,
    "regression-kriging": RegressionKriging,
    "gradient-boosting": GradientBoosting,
}

_NEEDS = {
    "kriging": ("pykrige", "baselines"),
    "regression-kriging": ("pykrige", "baselines"),
    "gradient-boosting": ("sklearn", "learn"),
}

OURS = ("central", "federated", "uniform", "aligned", "aggregate")


@dataclass(frozen=True)
class Setting:
    """What our modes have in common.

    Attributes
    ----------
    grid : Grid
    rounds : int
    calibrate : "stations" and/or "devices"
    budget : float
        μ of uniform and geometry-aligned noise.
    epsilon, delta : float
        Of the mode with a guarantee.
    buildings : (rows, columns) float, optional
        Public heights.
    seed : int
    """

    grid: Grid
    rounds: int = 100
    calibrate: tuple[Calibrated, ...] = ("stations",)
    budget: float = 50.0
    epsilon: float = 8.0
    delta: float = 1e-6
    buildings: NDArray[np.float64] | None = field(default=None, repr=False)
    seed: int = 0

    def __post_init__(self) -> None:
        checks.whole("rounds", self.rounds, least=2)

    def mechanism(self, mode: str) -> Mechanism:
        """What users do in a mode."""
        if mode == "uniform":
            return UniformNoise(noise_budget=self.budget)
        if mode == "aligned":
            return GeometryAligned(noise_budget=self.budget)
        if mode == "aggregate":
            return AggregateGaussian(epsilon=self.epsilon, delta=self.delta)
        return NoNoise()


@dataclass
class Choices:
    """Models tried on validation data, once for a fold and all our modes."""

    setting: Setting
    _fold: tuple[str, int] | None = field(default=None, init=False)
    _trials: list[Trial] = field(default_factory=list, init=False, repr=False)

    def of(self, fold: Fold) -> list[Trial]:
        """The trials for a fold, best first."""
        if self._fold != (fold.scheme, fold.number):
            learned, validation, groups = fold.for_validation()
            self._trials = choose(
                learned, validation, self.setting.grid, calibrate=self.setting.calibrate,
                groups=groups, rounds=self.setting.rounds, buildings=self.setting.buildings,
            )  # fmt: skip
            self._fold = fold.scheme, fold.number
        return self._trials


@dataclass(frozen=True)
class Fitted:
    """A method after learning, and which model it took, if it had a choice."""

    predictor: KnowsDevices
    model: str = ""


@dataclass(frozen=True)
class Method:
    """One row of the table: a name, and how it is made ready for a fold and then learns."""

    name: str
    prepare: Callable[[Fold], Callable[[Fold], Fitted]] = field(repr=False)


def methods(names: Iterable[str], setting: Setting) -> list[Method]:
    """The methods of these names, in their order."""
    choices, found = Choices(setting), []
    for name in names:
        if name in BASELINES:
            module, extra = _NEEDS.get(name, (None, ""))
            if module:
                extras.require(module, name, extra)
            found.append(Method(name, _baseline(BASELINES[name])))
        elif name in OURS:
            # A wrong budget or promise is said before any work.
            if has_guarantee(setting.mechanism(name)) and "devices" in setting.calibrate:
                raise ConfigurationError(
                    f"{name} cannot learn offsets of devices, whose kinds only users' data tell:"
                    " leave devices or this method out"
                )
            found.append(Method(name, _ours(name, setting, choices)))
        else:
            known = ", ".join([*BASELINES, *OURS])
            raise ConfigurationError(f"there is no method {name!r}; there are {known}")
    if len({method.name for method in found}) < len(found):
        raise ConfigurationError("a method is named twice")
    return found


def _baseline(make: Callable[[], Baseline]) -> Callable[[Fold], Callable[[Fold], Fitted]]:
    return lambda _: lambda fold: Fitted(make().fit(fold.train))


def _ours(
    mode: str, setting: Setting, choices: Choices
) -> Callable[[Fold], Callable[[Fold], Fitted]]:
    """A mode of ours, with the model that did best on validation data."""

    def prepare(fold: Fold) -> Callable[[Fold], Fitted]:
        # Where the server sees uploads there can be no field, see `train`.
        seen = mode in ("uniform", "aligned")
        trials = [t for t in choices.of(fold) if not (seen and t.model.residual)]
        model = preferred(trials).model
        return lambda fold: Fitted(_learned(mode, model, fold, setting), str(model))

    return prepare


def _learned(mode: str, model: ModelChoice, fold: Fold, setting: Setting) -> RadioMap:
    rounds, buildings = setting.rounds, setting.buildings
    if mode == "central":
        return model.fit(fold.train, setting.grid, rounds=rounds, buildings=buildings)
    # A comparison publishes errors, and no map: base stations are those that were measured.
    return model.train(
        fold.train, setting.grid, mechanism=setting.mechanism(mode), seed=setting.seed,
        rounds=rounds, buildings=buildings, stations=fold.train.stations,
    ).radio_map  # fmt: skip
