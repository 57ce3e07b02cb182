"""The field that readings tell: from sums of residuals around its points, without privacy noise."""

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from veilmap._util.arrays import Floats, Ints
from veilmap.data.links import Links
from veilmap.geometry.grid import Grid
from veilmap.model.field import Field
from veilmap.model.field_prior import Estimate, Hyperparameters, Laws, Observations, Solver, lines
from veilmap.model.radio_map import RadioMap, log_distance

_NUGGET = 8.0
"""dB²: how much readings of one link differ by fading and by who holds the receiver.

Sums do not tell it: what spreads over four points looks like the field. The map hardly depends on
it.
"""

_LAWS_DB = (15.0, 12.0)  # how far stations' levels and slopes per decade lie from the map's law
_RECEIVER_HEIGHT = 1.5  # metres
_POINTS_FITTED = 2_500  # hyperparameters know no scale: fewer points tell them as well
_LARGEST = 200.0  # dB; mean residuals beyond are noise over an empty sum
_POINTS_PER_PLACE = 6  # measured; more points change nothing, fewer blur
_MOST_POINTS = 40_000
_FEWEST_READINGS = 20  # to tell how much a station's readings differ
_LEAST_LEFT = 0.1  # of readings, however closely a field follows them
_NOBODY = 1e-9  # readings where there are none
_HARDLY_TOLD = 1e-6  # singular values of the normal equations for θ, as a share of the largest


def points_apart(grid: Grid, places: int) -> float:
    """Metres between the points of a field that so many measured places can tell."""
    points = min(max(_POINTS_PER_PLACE * places, 16), _MOST_POINTS)
    west, east, south, north = grid.extent
    return math.sqrt((east - west) * (north - south) / points)


def fitted_field(field: Field, sums: Floats, counts: Floats, nugget: float = _NUGGET) -> Estimate:
    """What is known of a field from Σ residuals and numbers of readings, both like its values.

    Residuals are gains less what the map without a field says; a reading between four points counts
    at each by its bilinear share. Time grows with points times the shorter side of their grid.
    """
    solver = _solver(field, field.grid, sums, counts)
    return solver.estimate(_hyperparameters(field, sums, counts, nugget))


@dataclass(frozen=True, eq=False)
class _Readings:
    """Pooled links at the points of an empty field."""

    field: Field
    numbers: Ints  # (J, 4): entries of the field around each link's user
    shares: Floats  # (J, 4)

    @classmethod
    def of(cls, field: Field, links: Links) -> "_Readings":
        return cls(field, *field.shares(links.user_xyz, links.bs_xyz, links.bs))

    def total(self, values: Floats) -> Floats:
        """Σ of the links' values around every point, (B · points,)."""
        weighted = self.shares * values[:, None]
        found = np.bincount(self.numbers.ravel(), weighted.ravel(), self.field.values.size)
        return np.asarray(found, dtype=np.float64)

    @cached_property
    def counts(self) -> Floats:
        """How many links there are around every point."""
        return self.total(np.ones(len(self.numbers)))

    def at_links(self, values: Floats) -> Floats:
        """A field at every link, (J,)."""
        return np.asarray((values.ravel()[self.numbers] * self.shares).sum(axis=1))

    def by_station(self, values: Floats) -> Floats:
        """Σ of the links' values of every station, (B,)."""
        station = self.numbers[:, 0] // self.field.grid.cells
        return np.asarray(np.bincount(station, values, len(self.field.stations)), np.float64)


def with_fitted_field(radio_map: RadioMap, empty: Field, links: Links) -> RadioMap:
    """The map with the field that pooled links tell, and how far readings lie from both."""
    bare, readings = replace(radio_map, field=None), _Readings.of(empty, links)
    residual = links.gain_db - bare.predict_links(links)
    sums = readings.total(residual)
    found = fitted_field(empty, sums, readings.counts)
    nuggets = _nuggets(found, readings, residual - readings.at_links(found.mean))
    if nuggets.mean() < _NUGGET / 2:  # more exact readings than usual
        found = fitted_field(empty, sums, readings.counts, float(nuggets.mean()))
        nuggets = _nuggets(found, readings, residual - readings.at_links(found.mean))
    spread = np.sqrt(found.deviation**2 + nuggets[:, None])
    shape = empty.values.shape
    field = replace(empty, values=found.mean.reshape(shape), deviations=spread.reshape(shape))
    return replace(bare, field=field)


def with_fitted_laws(radio_map: RadioMap, empty: Field, links: Links) -> RadioMap:
    """The map with θ by generalised least squares: as the best field on top of it would have it.

    With X = ∂γ/∂θ, y the gains and R what a field leaves over of anything: Xᵀ R X θ = Xᵀ R y.
    """
    bare, readings = replace(radio_map, field=None), _Readings.of(empty, links)
    plain = bare.without_patterns(links)
    columns = bare.by_theta(plain)
    residual = plain.gain_db - columns @ bare.theta
    own = _hyperparameters(empty, readings.total(residual), readings.counts)

    def left_over(values: Floats) -> Floats:
        solver = _solver(empty, empty.grid, readings.total(values), readings.counts)
        return values - readings.at_links(solver.mean(own))

    told = columns.T @ np.column_stack([left_over(column) for column in columns.T])
    change = np.linalg.lstsq(
        (told + told.T) / 2, columns.T @ left_over(residual), rcond=_HARDLY_TOLD
    )[0]
    return bare.moved_to(bare.heights, bare.theta + change)


def _nuggets(found: Estimate, readings: _Readings, left_over: Floats) -> Floats:
    """Variance of readings around the field, (B,), in dB², from what it leaves over of each.

    A field that follows its readings with d degrees of freedom leaves over readings − d of them.
    """
    count = readings.by_station(np.ones(len(left_over)))
    counts = readings.counts.reshape(found.mean.shape)
    freedom = (counts * found.deviation**2).sum(axis=1) / found.hyperparameters.nugget
    left = np.maximum(count - freedom, _LEAST_LEFT * count)
    squares = readings.by_station(left_over**2)
    prior = _FEWEST_READINGS * squares.sum() / max(left.sum(), 1.0)
    return np.asarray((squares + prior) / (left + _FEWEST_READINGS))


def _hyperparameters(
    field: Field, sums: Floats, counts: Floats, nugget: float = _NUGGET
) -> Hyperparameters:
    """Of largest marginal likelihood; the field knows no scale, so that few points tell them."""
    grid = field.grid
    times = max(1, math.ceil(math.sqrt(grid.cells / _POINTS_FITTED)))
    few = _coarser(grid, times)
    solver = _solver(field, few, _blocks(sums, grid, times), _blocks(counts, grid, times))
    return solver.fitted(Hyperparameters(nugget=nugget)).at_spacing(1 / times)


def _solver(field: Field, grid: Grid, sums: Floats, counts: Floats) -> Solver:
    """For the means around every point; laws lie around the map's own."""
    stations = len(field.stations)
    counts = counts.reshape(stations, -1)
    values = np.clip(sums.reshape(stations, -1) / np.maximum(counts, _NOBODY), -_LARGEST, _LARGEST)
    ground = np.column_stack([grid.centres, np.full(grid.cells, _RECEIVER_HEIGHT)])
    x = np.array([log_distance(ground, place) for place in field.stations])
    laws = Laws(np.zeros((stations, 2)), np.tile(_LAWS_DB, (stations, 1)), lines(x))
    return Solver.of(grid, field.stations, Observations(values, counts), laws)


def _coarser(grid: Grid, times: int) -> Grid:
    """The grid with squares of so many cells in one."""
    rows, columns = (math.ceil(side / times) for side in grid.shape)
    return Grid(times * grid.cell_size, (rows, columns), grid.origin, grid.crs)


def _blocks(values: Floats, grid: Grid, times: int) -> Floats:
    """What lies in each square of so many cells, added up, one image a row."""
    rows, columns = _coarser(grid, times).shape
    images = values.reshape(-1, *grid.shape)
    whole = np.zeros((len(images), rows * times, columns * times))
    whole[:, : grid.shape[0], : grid.shape[1]] = images
    return whole.reshape(-1, rows, times, columns, times).sum(axis=(2, 4))
