"""Who is compared: baselines, and our map in all its modes."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilmap._util import checks
from veilmap._util.arrays import Array
from veilmap._util.options import options_of
from veilmap._util.plugins import Registry
from veilmap.baselines import (
    Estimator,
    GradientBoosting,
    LogDistance,
    NearestNeighbours,
    OrdinaryKriging,
    RegressionKriging,
)
from veilmap.baselines.base import KnownStations, fitted
from veilmap.compare.folds import Fold
from veilmap.data.measurements import Measurements
from veilmap.errors import ConfigurationError
from veilmap.federation import Run
from veilmap.federation.model import Calibrated
from veilmap.federation.selection import NEVER_CLIPS, ModelChoice, ModelTrial, choose, preferred
from veilmap.geometry.grid import Grid
from veilmap.model.radio_map import HasMeasurements, RadioMap
from veilmap.privacy.accounting import has_guarantee
from veilmap.privacy.mechanisms import MECHANISMS, Mechanism, NoNoise
from veilmap.surveys.design import Survey, stations_of
from veilmap.surveys.surveying import survey

ONE_SUM = "one-sum"
OURS = ("central", "federated", "uniform", "aligned", "aggregate", ONE_SUM)
"""Our map in our own modes, see `all_methods` for those of other packages' mechanisms."""


def _checked(name: str, kind: Any) -> Estimator:
    """What a plug-in's class makes without arguments, if it is an estimator."""
    made = kind()
    if not isinstance(made, Estimator):
        raise ConfigurationError("it makes no veilmap.baselines.Estimator")
    return made


BASELINES: Registry[Estimator] = Registry(
    "veilmap.baselines",
    {
        "log-distance": LogDistance(calibrate=True),
        "k-nn": NearestNeighbours(same_station=True),
        "kriging": OrdinaryKriging(),
        "regression-kriging": RegressionKriging(),
        "gradient-boosting": GradientBoosting(),
    },
    _checked,
    taken=OURS,
)
"""Estimators to compare with, by name: ours, then those of other packages."""


@dataclass(eq=False)
class MapEstimator(Estimator):
    """An estimator whose `fit` gives a radio map."""

    radio_map_: RadioMap | None = field(default=None, init=False, repr=False)

    def predict_by_station(
        self, user: NDArray[np.float64], mast: NDArray[np.float64], bs: Array | None
    ) -> NDArray[np.float64]:
        """Gain of each link in dB, without offsets of base stations or devices."""
        return fitted(self.radio_map_).predict(user, mast)

    def predict_links(self, data: HasMeasurements) -> NDArray[np.float64]:
        """What the devices would read, in dB."""
        return fitted(self.radio_map_).predict_links(data)


@dataclass(eq=False)
class PooledMap(MapEstimator):
    """A radio map learned from all links in one place.

    ``model`` says what it has beside the paper's obstacles; ``buildings`` are public heights.
    """

    grid: Grid
    model: ModelChoice = field(default_factory=ModelChoice)
    rounds: int = 100
    buildings: NDArray[np.float64] | None = field(default=None, repr=False)

    def fit(self, data: Measurements) -> "PooledMap":
        """Train without clipping, with exact θ and field."""
        self.radio_map_ = self.model.fit(
            data, self.grid, rounds=self.rounds, buildings=self.buildings
        )
        return self


@dataclass(eq=False)
class FederatedMap(PooledMap):
    """A radio map learned in rounds from users who keep their links.

    Without a ``mechanism`` gradients are only clipped; without a ``seed`` noise comes from the
    operating system's generator.
    """

    mechanism: Mechanism | None = None
    seed: int | None = None
    run_: Run | None = field(default=None, init=False, repr=False)

    def fit(self, data: Measurements) -> "FederatedMap":
        """Train on a federation of the users of ``data``."""
        # What is published of a comparison is errors: base stations are those that were measured.
        self.run_ = self.model.train(
            data,
            self.grid,
            mechanism=self.mechanism,
            rounds=self.rounds,
            seed=self.seed,
            buildings=self.buildings,
            stations=data.stations,
        )
        self.radio_map_ = self.run_.radio_map
        return self


@dataclass(eq=False)
class SurveyedMap(MapEstimator):
    """A radio map from one sum over all users, see `veilmap.survey`.

    The design is made from ``grid``, which says where the area is, the number of users, and the
    base stations that were measured; nothing else of the measurements is used. ``buildings`` are
    public heights on the grid.
    """

    grid: Grid
    epsilon: float = 8.0
    delta: float = 1e-6
    seed: int | None = None
    buildings: NDArray[np.float64] | None = field(default=None, repr=False)

    def fit(self, data: Measurements) -> "SurveyedMap":
        """Survey the users of ``data``; where they are too few, with the fewest points."""
        west, east, south, north = self.grid.extent
        known = KnownStations.of(data)
        planned = Survey.design(
            (west, south, east, north),
            stations_of(known.xyz, known.ids.tolist()),
            participants=len(data.users),
            epsilon=self.epsilon,
            delta=self.delta,
            coarsest=True,
            crs=self.grid.crs,
        )
        public = None if self.buildings is None else (self.grid, self.buildings)
        self.radio_map_ = survey(data, planned, self.seed, buildings=public).radio_map
        return self


@dataclass(frozen=True)
class ComparisonSettings:
    """What our modes have in common.

    ``budget`` is μ of uniform and geometry-aligned noise, ``epsilon`` and ``delta`` are those of
    the mode with a guarantee; ``calibrate`` takes "stations" and/or "devices", ``buildings``
    (rows, columns) are public heights, and ``seed`` is the noise seed.
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
        if set(self.calibrate) - {"stations", "devices"}:
            named = ",".join(self.calibrate)
            raise ConfigurationError(
                f"calibrate takes stations and devices, not {named!r}", "calibrate"
            )

    def mechanism(self, mode: str) -> Mechanism:
        """What users do in a mode."""
        if mode in _WITHOUT_NOISE:
            return _WITHOUT_NOISE[mode]
        shared = {"noise_budget": self.budget, "epsilon": self.epsilon, "delta": self.delta}
        kind = MECHANISMS[mode]
        return kind(**{name: shared[name] for name in shared.keys() & options_of(kind).keys()})

    @property
    def surveyed(self) -> SurveyedMap:
        """Our map from one sum."""
        return SurveyedMap(self.grid, self.epsilon, self.delta, self.seed, self.buildings)

    def estimator(self, mode: str) -> PooledMap:
        """Our map in a mode."""
        shared: dict[str, Any] = {
            "grid": self.grid,
            "rounds": self.rounds,
            "buildings": self.buildings,
        }
        if mode == "central":
            return PooledMap(**shared)
        return FederatedMap(**shared, mechanism=self.mechanism(mode), seed=self.seed)


# Only these learn a field: where the server sees uploads there can be none, see `train`; under a
# guarantee one sum is better spent on a survey.
_WITHOUT_NOISE: Mapping[str, Mechanism] = {
    "central": NoNoise(),
    "federated": NoNoise(clip=NEVER_CLIPS),
}


def all_methods() -> list[str]:
    """The names of all that can be compared, with the mechanisms and baselines of plug-ins."""
    return list(dict.fromkeys([*BASELINES, *OURS, *(kind.name for kind in MECHANISMS.others)]))


@dataclass
class ModelSelection:
    """Models tried on the validation rows of a fold, once for all our modes."""

    settings: ComparisonSettings
    _fold: tuple[str, int] | None = field(default=None, init=False)
    _trials: list[ModelTrial] = field(default_factory=list, init=False, repr=False)

    def model(self, fold: Fold, *, fields: bool) -> ModelChoice:
        """The model preferred for a fold, among all or only those without a field."""
        if self._fold != (fold.scheme, fold.number):
            own = self.settings
            learned, validation, groups = fold.for_validation()
            self._trials = choose(
                learned,
                validation,
                own.grid,
                calibrate=own.calibrate,
                groups=groups,
                rounds=own.rounds,
                buildings=own.buildings,
            )
            self._fold = fold.scheme, fold.number
        return preferred([one for one in self._trials if fields or not one.model.residual]).model


@dataclass(frozen=True)
class Method:
    """One row of the table: a name, an estimator, and how its model is chosen, if it has one.

    ``choose`` gives the estimator's parameter ``model`` for a fold.
    """

    name: str
    estimator: Estimator
    choose: Callable[[Fold], ModelChoice] | None = field(default=None, repr=False)


def methods(names: Iterable[str], settings: ComparisonSettings) -> list[Method]:
    """The methods of these names, in their order."""
    choice, found = ModelSelection(settings), []
    for name in names:
        if name == ONE_SUM:
            found.append(Method(name, settings.surveyed))
        elif name in BASELINES:
            BASELINES[name].check_installed(name)
            found.append(Method(name, BASELINES[name]))
        elif name in OURS or (name in MECHANISMS and MECHANISMS[name] in MECHANISMS.others):
            found.append(_ours(name, settings, choice))
        else:
            known = ", ".join(all_methods())
            raise ConfigurationError(f"there is no method {name!r}; there are {known}", "methods")
    if len({method.name for method in found}) < len(found):
        raise ConfigurationError("a method is named twice", "methods")
    return found


def _ours(mode: str, settings: ComparisonSettings, choice: ModelSelection) -> Method:
    """A mode of ours, with the model that did best on validation data."""
    # A wrong budget or guarantee is refused here, before any work.
    if has_guarantee(settings.mechanism(mode)) and "devices" in settings.calibrate:
        raise ConfigurationError(
            f"{mode} cannot learn offsets of devices, whose kinds only users' data tell:"
            " leave devices or this method out",
            "calibrate",
        )
    fields = mode in _WITHOUT_NOISE
    return Method(mode, settings.estimator(mode), lambda fold: choice.model(fold, fields=fields))
