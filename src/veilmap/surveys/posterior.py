"""From an opened sum to a radio map with its uncertainty; all of it is post-processing.

At every station and point the sum is y = Σ w e^{iωf} + noise, over the participants there, with
f the residual in dB and ω = 2π / range. Turned back by an estimate of f, its real part tells how
many participants there are, and its imaginary part how far the estimate is off: observations of
f for the Gaussian field of `field_prior`. A few repetitions settle it (Gauss–Newton).
"""

import math
from dataclasses import replace

import numpy as np

from veilmap._util.arrays import Floats
from veilmap.geometry.grid import Grid
from veilmap.model.field import Field
from veilmap.model.field_prior import Estimate, Hyperparameters, Laws, Observations, Solver, lines
from veilmap.model.propagation import Propagation
from veilmap.model.radio_map import RadioMap, log_distance
from veilmap.surveys.aggregate import OpenedSum
from veilmap.surveys.design import LEVEL_RANGES, RECEIVER_HEIGHT, Survey

Buildings = tuple[Grid, Floats]
"""Public heights in metres, 0 for open ground, on a grid of their own."""

_ROUNDS = 4
_SLOPES = np.linspace(-30.0, 30.0, 31)  # dB per decade beside the nominal slope
_LEVEL_STEP = 2.0  # dB
_LEVEL_DB, _SLOPE_DB = 15.0, 12.0  # how far stations' laws lie from common ones
_NOMINAL_DB = 30.0  # how far levels may lie from the nominal ones
_TAIL = 3  # degrees of freedom of the former
_CELLS_PER_POINT = 4  # along a side of the map that is drawn
_BELOW_GROUND = -10.0  # metres: obstacles that block nothing
_LOWEST_BUILDING = 2.0  # metres; public heights below are open ground
_SIGHTS = 4  # lines of sight to the ground around a point, along a side
_SIGHT_DB = (15.0, 10.0)  # what a clear one is worth, and how far that may be off
_NOBODY = 1e-6  # participants where there are none
_NUGGETS = (1.0, 100.0)  # dB²; readings of one place differ by 1 to 10 dB
_TYPICAL_NUGGET = (25.0, 10.0)  # dB²: before anything is seen, and how far that may be off


def estimated(opened: OpenedSum, clear: Floats | None = None) -> tuple[Estimate, Floats]:
    """The posterior of the residuals f: sum → angles → observations → field, a few times.

    ``clear`` is the share of clear lines of sight from every station to the ground around every
    point, (S, P), where public buildings tell it. With the estimate come the nuggets, (S,).
    """
    survey = opened.survey
    omega = 2 * math.pi / survey.range_db
    f, laws = _first_guess(opened, _log_distances(survey))
    if clear is not None:
        f, laws = _with_sight(f, laws, clear - clear.mean(axis=1, keepdims=True))
    own = Hyperparameters()
    fitted_noise = np.zeros_like(f)
    for _ in range(_ROUNDS):
        turned = opened.angles * np.exp(-1j * omega * f) - fitted_noise
        nuggets = _nuggets(opened, f, turned.real)
        kept = np.exp(-0.5 * omega**2 * nuggets)[:, None]  # E cos of a Gaussian angle
        count = np.maximum(_counts(turned.real / kept, opened.noise / kept), _NOBODY)
        slope = omega * kept * count
        weight = min(1.0, opened.participants / max(count.sum(), 1.0))  # of one's entry
        variance = (opened.noise / slope) ** 2 + nuggets[:, None] * weight / count
        seen = Observations(f + turned.imag / slope, 1.0 / variance)
        solver = Solver.of(survey.grid, survey.positions, seen, laws)
        own = solver.fitted(own)
        found = solver.estimate(own)
        f = found.mean
        # An estimate that follows its own noise turns some of it into the real part.
        leverage = seen.weights * found.deviation**2
        fitted_noise = leverage * opened.noise**2 / (kept * count)
    return found, nuggets


def radio_map_of(opened: OpenedSum, buildings: Buildings | None = None) -> RadioMap:
    """The map that an opened sum tells, with the standard deviation of readings around it.

    With public ``buildings`` links have two laws, by line of sight, and a field on top; without
    them one law and the field.
    """
    survey = opened.survey
    stations, points = survey.shape
    terrain = _open_ground(survey) if buildings is None else _standing(*buildings)
    clear = None if buildings is None else _clear_shares(survey, terrain)
    found, nuggets = estimated(opened, clear)
    number = np.repeat(np.arange(stations), points)
    places = np.tile(survey.grid.centres, (stations, 1))
    gain = found.mean.ravel() + survey.nominal(number, places) - survey.pattern(number, places)
    jump = 0.0 if clear is None else float(found.laws[:, 2].mean())
    if clear is not None:
        gain -= jump * clear.ravel()
    # One law for the whole map; what a station's own differs by is in its field.
    slope = float(np.mean([own.slope_db for own in survey.stations]) + found.laws[:, 1].mean())
    ground = np.column_stack([places, np.full(len(places), RECEIVER_HEIGHT)])
    decades = log_distance(ground, survey.positions[number])
    intercept = float(np.mean(gain - slope * decades))
    shape = (stations, *survey.grid.shape)
    field = Field(
        survey.grid,
        survey.positions,
        (gain - intercept - slope * decades).reshape(shape),
        tuple(own.id for own in survey.stations),
        np.sqrt(found.deviation**2 + nuggets[:, None]).reshape(shape),
    )
    laws = Propagation(intercept + jump, slope, intercept, slope)
    return replace(terrain, propagation=laws, field=field, antennas=survey.antennas)


def map_grid(survey: Survey) -> Grid:
    """The cells of a survey's map: some for every point."""
    west, east, south, north = survey.grid.extent
    corners, size = [(west, south), (east, north)], survey.grid.cell_size / _CELLS_PER_POINT
    return Grid.covering(corners, size, crs=survey.grid.crs)


def _open_ground(survey: Survey) -> RadioMap:
    grid = map_grid(survey)
    return RadioMap(grid, np.full(grid.cells, _BELOW_GROUND))


def _standing(grid: Grid, heights: Floats) -> RadioMap:
    heights = heights.reshape(grid.shape)
    return RadioMap(grid, np.where(heights < _LOWEST_BUILDING, _BELOW_GROUND, heights))


def _clear_shares(survey: Survey, terrain: RadioMap) -> Floats:
    """Mean S of the links from every station to the ground around every point, (S, P)."""
    stations, points = survey.shape
    steps = ((np.arange(_SIGHTS) + 0.5) / _SIGHTS - 0.5) * survey.grid.cell_size
    around = np.stack(np.meshgrid(steps, steps), axis=-1).reshape(-1, 2)
    xy = (survey.grid.centres[:, None] + around).reshape(-1, 2)
    ground = np.column_stack([xy, np.full(len(xy), RECEIVER_HEIGHT)])
    each = [terrain.los_weight(ground, place) for place in survey.positions]
    return np.array(each).reshape(stations, points, -1).mean(axis=2)


def _with_sight(f: Floats, laws: Laws, clear: Floats) -> tuple[Floats, Laws]:
    """The first guess with clear lines of sight as a third column of the laws."""
    count = len(f)
    return f + _SIGHT_DB[0] * clear, Laws(
        np.column_stack([laws.means, np.full(count, _SIGHT_DB[0])]),
        np.column_stack([laws.deviations, np.full(count, _SIGHT_DB[1])]),
        np.concatenate([laws.columns, clear[..., None]], axis=-1),
    )


def _log_distances(survey: Survey) -> Floats:
    stations, points = survey.shape
    station = np.repeat(np.arange(stations), points)
    found = survey.log_distances(station, np.tile(survey.grid.centres, (stations, 1)))
    found = found.reshape(stations, points)
    return found - found.mean(axis=1, keepdims=True)


def _first_guess(opened: OpenedSum, x: Floats) -> tuple[Floats, Laws]:
    """A law for every station that fits its angles: f, (S, P), and what laws have in common."""
    survey = opened.survey
    wide = LEVEL_RANGES * survey.range_db
    levels = np.arange(-wide / 2, wide / 2, _LEVEL_STEP)
    omega, slow = 2 * math.pi / survey.range_db, 2 * math.pi / wide
    points = x.shape[1]
    along = np.array([(opened.angles * np.exp(-1j * omega * b * x)).sum(axis=1) for b in _SLOPES])
    fine = (along[:, :, None] * np.exp(-1j * omega * levels)).real  # (slopes, S, levels)
    coarse = (opened.levels[:, None] * np.exp(-1j * slow * levels)).real
    score = fine + survey.level_weight * points * coarse
    weight = np.maximum(fine.max(axis=(0, 2)), opened.noise)  # about how much a station was seen
    likelihood = score * weight[:, None] / (points * opened.noise**2 + weight[:, None])
    likelihood -= (
        0.5 * (_SLOPES[:, None, None] / _SLOPE_DB) ** 2 + 0.5 * (levels / _NOMINAL_DB) ** 2
    )

    def best(likelihood: Floats) -> tuple[Floats, Floats]:
        place = likelihood.transpose(1, 0, 2).reshape(len(weight), -1).argmax(axis=1)
        return levels[place % len(levels)], _SLOPES[place // len(levels)]

    level, slope = best(likelihood)
    order = np.argsort(level)
    middle = level[order][np.searchsorted(np.cumsum(weight[order]), weight.sum() / 2)]
    # Levels are around a common one, with the heavy tails of a Student distribution, and where
    # their own entries say; which is off by where a station's participants happened to be.
    wide_of = (_TAIL * _LEVEL_DB**2 + (level - middle) ** 2) / (_TAIL + 1)
    told = (opened.noise / (slow * np.maximum(np.abs(opened.levels), opened.noise))) ** 2
    told += _LEVEL_DB**2 / 4
    mean = (middle / wide_of + level / told) / (1 / wide_of + 1 / told)
    deviation = 1 / np.sqrt(1 / wide_of + 1 / told)
    slopes = np.full_like(mean, np.average(slope, weights=weight))
    laws = Laws(
        np.column_stack([mean, slopes]),
        np.column_stack([deviation, np.full_like(mean, _SLOPE_DB)]),
        lines(x),
    )
    return level[:, None] + slope[:, None] * x, laws


def _nuggets(opened: OpenedSum, f: Floats, seen: Floats) -> Floats:
    """Variance of readings around f for every station, in dB², from how it shortens their sums.

    Angles of variance ω²v shorten a sum by exp(−ω²v/2). The level entries, in a range four times
    as wide, hardly notice, so the ratio of both tells v; stations that tell little of theirs
    take what all have in common.
    """
    survey, noise = opened.survey, opened.noise
    omega = 2 * math.pi / survey.range_db
    turned = (seen * np.exp(1j * omega / LEVEL_RANGES * f)).sum(axis=1)
    short = np.maximum(np.abs(turned) ** 2 - seen.shape[1] * noise**2, 0.0)
    long = (opened.levels * turned.conj()).real / survey.level_weight
    curvature = omega**2 * (1 - 1 / LEVEL_RANGES**2) / 2

    def variance(short: Floats, long: Floats) -> Floats:
        ratio = np.maximum(long, 1e-9) / np.maximum(short, 1e-9)
        return np.clip(np.log(ratio) / curvature, *_NUGGETS)

    # Noise of the level entry and of the sum over points, relative to what they should be.
    size = np.maximum(np.sqrt(short), noise)
    error = (noise / size) ** 2 * (1 / survey.level_weight**2 + seen.shape[1]) / curvature**2
    all_of_them = size.sum() ** 2 / np.sum(size**2 * error)  # precision of what is common
    typical, spread = _TYPICAL_NUGGET
    common = variance(short.sum(), long.sum())
    common = (common * all_of_them + typical / spread**2) / (all_of_them + 1 / spread**2)
    own = variance(short, long)
    between = max(float(np.average((own - common) ** 2 - error, weights=size)), 1.0)
    return np.asarray(common + between / (between + error) * (own - common))


def _counts(seen: Floats, noise: Floats) -> Floats:
    """Participants at every station and point: what was seen, shrunk to what all stations tell."""
    total = max(seen.sum(), 1e-6)
    expected = np.outer(np.maximum(seen.sum(axis=1), 0), np.maximum(seen.sum(axis=0), 0)) / total
    excess = max(float(np.mean((seen - expected) ** 2 - noise**2)), 1e-9)
    variance = excess * expected / max(float(expected.mean()), 1e-9)
    return np.maximum(expected + variance / (variance + noise**2) * (seen - expected), 0.0)
