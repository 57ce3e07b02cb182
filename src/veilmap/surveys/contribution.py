"""What one participant adds to a survey's sum: a short vector of whole numbers.

Every reading is compared with the design's nominal gain. A residual of r dB becomes the angle
2π r / range, and the participant puts the unit vector of that angle at the four points around,
by bilinear shares. Angles need neither a count beside them (the length of the sum is the count)
nor a known level of the station, and no residual, however wrong, weighs more than another.

Everything but the logarithm of the nominal law, and the bearing where a beam is known, is
whole-number arithmetic or an operation that IEEE 754 rounds exactly, in the order of the
readings and then of the entries. So another implementation gets the same numbers.
"""

import math
from dataclasses import dataclass

import numpy as np

from veilmap._util.arrays import Array, Bools, Floats, Ints
from veilmap.surveys.design import LEVEL_RANGES, Survey

ANGLES = 256
UNIT = 2**14

# (cos, sin) of 2πk/256 in units of 2⁻¹⁴, towards zero, so that no pair is longer than UNIT.
CIRCLE: Ints = np.array(
    [
        [math.trunc(round(UNIT * f(2 * math.pi * k / ANGLES), 6)) for f in (math.cos, math.sin)]
        for k in range(ANGLES)
    ],
    dtype=np.int64,
)

_STRONGEST = 1000.0  # dB, either way

# Room for the rounding of the few floating-point operations that scale a contribution.
_SAFE = 1.0 - 2.0**-30
_TINY = 1e-300  # nobody's length, of participants without a reading


@dataclass(frozen=True, eq=False)
class Contribution:
    """A participant's vector, and for the participant alone what became of the readings."""

    vector: Ints
    used: int
    outside: int  # of the area
    unknown: int  # base stations
    unusable: int  # a coordinate that is not finite, or a gain that no link has


@dataclass(frozen=True, eq=False)
class Entries:
    """Contributions of many participants: ``values`` at ``numbers`` of their vectors."""

    numbers: Ints
    values: Ints


def contribution(survey: Survey, xy: Array, bs: Array, gain_db: Array) -> Contribution:
    """What the readings of one participant add to the sum; nothing if none can be used.

    Parameters
    ----------
    survey : Survey
    xy : (J, 2) array
        Where the readings were taken, in metres of the survey's coordinate system.
    bs : (J,) array
        Ids of the base stations.
    gain_db : (J,) array
    """
    place = np.asarray(xy, dtype=np.float64).reshape(-1, 2)
    gain = np.asarray(gain_db, dtype=np.float64).reshape(-1)
    names = np.asarray(bs).reshape(-1)
    finite, inside, known = usable(survey, place, names, gain)
    used = finite & inside & known
    own = entries(
        survey, np.zeros(used.sum(), dtype=np.int64), place[used], names[used], gain[used]
    )
    vector = np.zeros(survey.numbers, dtype=np.int64)
    vector[own.numbers] = own.values
    return Contribution(
        vector,
        used=int(used.sum()),
        outside=int((finite & ~inside).sum()),
        unknown=int((finite & inside & ~known).sum()),
        unusable=int((~finite).sum()),
    )


def usable(survey: Survey, xy: Floats, bs: Array, gain: Floats) -> Bools:
    """Which readings are finite, lie in the area, and are of a surveyed station, (3, J)."""
    finite = np.isfinite(xy).all(axis=1) & (np.abs(gain) <= _STRONGEST)
    inside = finite.copy()
    inside[finite] = survey.grid.contains(xy[finite])
    return np.stack([finite, inside, survey.numbers_of(bs) >= 0])


def entries(survey: Survey, owner: Ints, xy: Floats, bs: Array, gain_db: Floats) -> Entries:
    """Contributions of many participants at once; all readings must be usable.

    ``owner`` numbers the participant of each reading.
    """
    station = survey.numbers_of(bs)
    residual = gain_db - survey.nominal(station, xy)
    cells, shares = survey.grid.between_centres(xy)
    stations, points = survey.shape
    at = (owner * stations + station)[:, None] * points + cells
    fine = _grouped(at.ravel(), shares.ravel(), np.repeat(residual, 4))
    level = _grouped(owner * stations + station, np.ones(len(owner)), residual)
    # m: how much of a participant is at a point, and at a station as a whole.
    keys = np.concatenate([fine.key // points, level.key])  # participant and station
    weight = np.concatenate([fine.most, survey.level_weight * level.most])
    angle = np.concatenate(
        [_angles(fine.mean, survey.range_db), _angles(level.mean, LEVEL_RANGES * survey.range_db)]
    )
    place = np.concatenate(
        [fine.key % (stations * points), stations * points + level.key % stations]
    )
    owners = keys // stations
    length = np.sqrt(np.bincount(owners, weight * weight))
    # Rounding d numbers adds at most √d / 2 to a vector's length.
    bound = np.maximum(survey.clip - np.sqrt(2.0 * np.bincount(owners)) / 2, 0.0) * _SAFE
    scale = (bound / np.maximum(length, _TINY))[owners] * weight
    values = np.floor(scale[:, None] * CIRCLE[angle] / UNIT + 0.5).astype(np.int64)
    numbers = 2 * place[:, None] + np.arange(2)
    return Entries(numbers.ravel(), values.ravel())


def _angles(residual_db: Floats, range_db: float) -> Ints:
    """The residual as one of 256 angles, the nearest."""
    turns = residual_db / range_db
    return np.floor((turns - np.floor(turns)) * ANGLES + 0.5).astype(np.int64) % ANGLES


@dataclass(frozen=True)
class _Groups:
    key: Ints
    most: Floats  # the largest share of a reading
    mean: Floats  # of the residuals, weighted by shares


def _grouped(key: Ints, share: Floats, residual: Floats) -> _Groups:
    """One entry for each key, in their order; readings without a share there do not count."""
    counts = share > 0
    keys, group = np.unique(key[counts], return_inverse=True)
    group, share, residual = group.reshape(-1), share[counts], residual[counts]
    most = np.zeros(len(keys))
    np.maximum.at(most, group, share)
    sums = np.bincount(group, share * residual, minlength=len(keys))
    return _Groups(keys, most, sums / np.bincount(group, share, minlength=len(keys)))
