"""What a map of real measurements is made of, and how to choose it on validation data."""

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

import numpy as np
from numpy.typing import ArrayLike

from veilmap._util import checks
from veilmap._util.arrays import Floats
from veilmap._util.plain import plain
from veilmap.data.measurements import Measurements
from veilmap.errors import ConfigurationError
from veilmap.federation import Model, NoiseAwareStep, Run, train
from veilmap.federation.model import Calibrated
from veilmap.federation.public import Stations
from veilmap.federation.residual import ThenField
from veilmap.federation.steps import StepRule
from veilmap.geometry.grid import Grid
from veilmap.model.field_fit import points_apart, with_fitted_field, with_fitted_laws
from veilmap.model.propagation import Propagation
from veilmap.model.radio_map import RadioMap
from veilmap.privacy.mechanisms import Mechanism, NoNoise

# Gains of other people's data may lie 20 dB and more from where θ starts.
_START_THETA_RATE = 2.0

# Pooled rows are one user to the mathematics; several keep all cores busy.
_PARTS = 16

NEVER_CLIPS = 1e9
"""The clip of gradients that need no bound, as nobody adds noise for it."""

_BLOCKS_ALONG = 10
_VALIDATION_SHARE = 0.25


@plain
@dataclass(frozen=True)
class ModelChoice:
    """Which parts a map has beyond the paper's.

    A ``wide`` one smooths gradients over twice as many cells: where real streets do not keep to
    the model's edges, less is fitted that is not there.
    """

    obstacles: bool = True  # learned; without them laws of distance, by line of sight on buildings
    degrees: int = 2  # of obstruction: 2, 3 or 4
    wide: bool = False
    residual: float | None = None  # metres between the points of a field of what is left over
    calibrate: tuple[Calibrated, ...] = ()  # whose offsets are learned

    def __post_init__(self) -> None:
        if self.residual is not None:
            checks.number("residual", self.residual, above=0)
        Propagation.of_degrees(self.degrees)

    def __str__(self) -> str:
        base = f"obstacles of {self.degrees} degrees" if self.obstacles else "no obstacles"
        base = f"wide {base}" if self.wide else base
        return base + (f", field of {self.residual:g} m" if self.residual else "")

    @property
    def complexity(self) -> int:
        """Laws that obstacles choose between."""
        return self.degrees if self.obstacles else 0

    @property
    def step(self) -> StepRule:
        """For the obstacles; the field comes after them."""
        laws = Propagation.of_degrees(self.degrees)
        step = NoiseAwareStep(start_propagation=laws, start_theta_rate=_START_THETA_RATE)
        if self.wide:
            first, last = 2 * step.smoothing, 2 * step.last_smoothing
            step = replace(step, smoothing=first, last_smoothing=last)
        if self.obstacles:
            return step
        # Open ground blocks nothing; where buildings are public facts, they stand as they are.
        return replace(
            step, step=0.0, priors=(), start_height=step.floor, start_sharpness=step.sharpness
        )

    def train(
        self,
        data: Measurements,
        grid: Grid,
        *,
        mechanism: Mechanism | None = None,
        rounds: int = 100,
        seed: int | None = None,
        buildings: ArrayLike | None = None,
        stations: Stations | None = None,
    ) -> Run:
        """Learn the map federated; with a field the server sees only sums.

        ``stations`` are public base stations, see `train`.
        """
        model = Model(self.step, self.residual, self.calibrate, stations, buildings)
        return train(
            data,
            grid,
            mechanism=mechanism,
            rounds=rounds,
            seed=seed,
            server_sees="sums" if self.residual else None,
            model=model,
        )

    def fit(
        self,
        data: Measurements,
        grid: Grid,
        *,
        rounds: int = 100,
        buildings: ArrayLike | None = None,
    ) -> RadioMap:
        """Learn the map from pooled measurements: nothing is clipped, θ and field are exact."""
        bare = replace(self, residual=None)
        run = bare.train(
            _in_parts(data),
            grid,
            mechanism=NoNoise(clip=NEVER_CLIPS),
            rounds=rounds if self.obstacles else 1,  # what is linear is solved below
            buildings=buildings,
        )
        fitted = run.radio_map.fit_propagation(data)
        if self.residual is None:
            return fitted
        if not self.obstacles and buildings is not None:
            # Lines of sight come in patches, as fields do: the laws are solved with the field.
            empty = ThenField(self.residual).empty(grid, *data.stations)
            fitted = with_fitted_laws(fitted, empty, data.links)
        return with_field(fitted, data, self.residual)


def _in_parts(data: Measurements) -> Measurements:
    """The same rows dealt out evenly; rows alike but for their user go to different parts."""
    ids = (np.unique(own, return_inverse=True)[1].reshape(-1) for own in (data.bs, data.device))
    rows = np.column_stack([data.user_xyz, data.bs_xyz, data.gain_db, *ids])
    _, alike, counts = np.unique(rows, axis=0, return_inverse=True, return_counts=True)
    parts = max(min(_PARTS, len(data)), int(counts.max()))
    part = np.empty(len(data), dtype=np.int64)
    part[np.argsort(alike.reshape(-1), kind="stable")] = np.arange(len(data)) % parts
    return replace(data, user=part)


def with_field(radio_map: RadioMap, data: Measurements, spacing: float) -> RadioMap:
    """The map and, on top, the field of what it leaves over of pooled measurements."""
    empty = ThenField(spacing).empty(radio_map.grid, *data.stations)
    return with_fitted_field(radio_map, empty, data.links)


@dataclass(frozen=True)
class ModelTrial:
    """How well a model did on validation data."""

    model: ModelChoice
    mae_db: float  # over all links
    by_group: Floats = field(repr=False)  # (G,): what each group of links adds to it

    def as_good_as(self, other: "ModelTrial") -> bool:
        """Whether the difference lies within its standard error over groups."""
        apart = self.by_group - other.by_group
        error = math.sqrt(len(apart)) * np.std(apart, ddof=1) if len(apart) > 1 else 0.0
        return bool(apart.sum() <= error)


def preferred(trials: Sequence[ModelTrial]) -> ModelTrial:
    """The simplest kind of obstacles that is as good as the best, with its best field."""
    by_error = sorted(trials, key=lambda trial: trial.mae_db)
    by_kind = sorted(by_error, key=lambda trial: trial.model.complexity)
    best_of_kinds = [next(own) for _, own in groupby(by_kind, lambda one: one.model.complexity)]
    alike = (simple for simple in best_of_kinds if simple.as_good_as(by_error[0]))
    return next(alike, by_error[0])


def chosen_on(
    own: Measurements,
    grid: Grid,
    *,
    residuals: Sequence[float | None] | None = None,
    calibrate: Collection[Calibrated] = (),
    rounds: int = 100,
    buildings: ArrayLike | None = None,
) -> ModelTrial:
    """The model for measurements that are one's own, a quarter of their ground set aside.

    Nothing of anybody else's is used: a federation can start from what it says.
    """
    side = float(np.ptp(own.user_xyz[:, :2], axis=0).max()) / _BLOCKS_ALONG
    learned, validation = own.split_by_place(_VALIDATION_SHARE, block=side, seed=0)
    trials = choose(
        learned,
        validation,
        grid,
        residuals=residuals,
        calibrate=calibrate,
        rounds=rounds,
        groups=np.floor(validation.user_xyz[:, :2] / side) @ [1.0, 1e9],
        buildings=buildings,
    )
    return preferred(trials)


def choose(
    data: Measurements,
    validation: Measurements,
    grid: Grid,
    *,
    degrees: Iterable[int] = (2, 3),
    residuals: Sequence[float | None] | None = None,
    calibrate: Collection[Calibrated] = (),
    groups: ArrayLike | None = None,
    rounds: int = 100,
    buildings: ArrayLike | None = None,
    on_trial: Callable[[ModelTrial], None] | None = None,
) -> list[ModelTrial]:
    """Models fitted to pooled ``data``, in the order of their error on ``validation``.

    `preferred` takes one of them. For data that may be pooled, an operator's own or a study's:
    what is chosen on users' measurements tells of them, and no mechanism covers it.

    Parameters
    ----------
    degrees : ints
        Degrees of obstruction to try, beside no obstacles at all; the last also ``wide``.
    residuals : floats and None, optional
        Fields to try, by their points' distance in metres; None is no field. By default none,
        and one with some more points than places were measured.
    calibrate : "stations" and/or "devices"
    groups : ids, optional
        Which rows of ``validation`` stand or fall together, such as those of a block; by default
        those of a user.
    buildings : (rows, columns) array, optional
        Public heights to start from.
    on_trial : callable, optional
        Called with each `ModelTrial`.
    """
    if residuals is None:
        places = np.unique(data.user_xyz[:, :2], axis=0)
        residuals = (None, round(points_apart(grid, len(places)), 1))
    tried = list(degrees)
    # Without buildings nothing tells laws apart.
    laws = [2] if buildings is None else tried
    kinds = [ModelChoice(obstacles=False, degrees=count) for count in laws]
    kinds += [ModelChoice(degrees=count) for count in tried]
    kinds += [ModelChoice(degrees=count, wide=True) for count in tried[-1:]]
    if not residuals:
        raise ConfigurationError(
            "choose needs at least one of residuals; None is no field", "residuals"
        )
    group = np.unique(validation.user if groups is None else groups, return_inverse=True)[1]
    trials = []
    for kind in kinds:
        bare = replace(kind, calibrate=tuple(calibrate))
        fitted = bare.fit(data, grid, rounds=rounds, buildings=buildings)
        for spacing in residuals:
            radio_map = fitted if spacing is None else with_field(fitted, data, spacing)
            wrong = np.abs(radio_map.predict_links(validation) - validation.gain_db)
            parts = np.bincount(group.reshape(-1), wrong) / len(wrong)
            trials.append(ModelTrial(replace(bare, residual=spacing), float(wrong.mean()), parts))
            if on_trial:
                on_trial(trials[-1])
    return sorted(trials, key=lambda trial: trial.mae_db)
