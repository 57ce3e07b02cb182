"""Where base stations are, estimated from what was measured of them."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from veilmap._util.arrays import Array, Bools, Floats, Ints

# A level falls by some 35 dB per decade of distance, more or less, and readings scatter about that
# law: shadowing, sectors, quantised levels. Those within a square share their shadowing.
_SLOPE_DB, _SLOPE_SD_DB = -35.0, 8.0
_SCATTER_DB = 8.0
_SQUARE_M = 50.0
_NEAREST_M = 30.0
# Sites are about as far from the middle of what hears them as that spreads, or within a kilometre.
_USUAL_M = 1000.0
_CANDIDATES, _ZOOMS = 33, 5
_MOST_SQUARES = 400
# What the law lacks, sectors and terrain, is alike in many readings: no number of squares says more
# about how far off an estimate is than these, and nothing says less than some 100 m. (Chosen where
# sites are known: of 35 in Durham and Salt Lake City one is off by more than twice what is said.)
_AS_MANY_SQUARES = 40
_SECTORS_M = 100.0
FEWEST_SQUARES = 4


@dataclass(frozen=True)
class Estimates:
    """Where sites may be, (S, 2) in metres, the root mean square error, and how much was heard.

    Sites heard in fewer than `FEWEST_SQUARES` squares have no estimate: NaN.
    """

    xy: Floats
    error_m: Floats
    squares: Ints


def estimated(site: Ints, cell: Ints, xy: Floats, level_db: Floats) -> Estimates:
    """The mean and spread of where each site may be, given readings of its cells.

    Parameters
    ----------
    site, cell : (J,) arrays
        Whom each reading is of: sites and cells count from 0, and a cell has one site.
    xy : (J, 2) array
        Where it was read, in metres.
    level_db : (J,) array
        What was read, in dB.
    """
    count = int(site.max()) + 1 if len(site) else 0
    found, error = np.full((count, 2), np.nan), np.full(count, np.nan)
    squares = np.zeros(count, dtype=np.int64)
    thin = _thinned(site, cell, xy, level_db)
    order = np.argsort(thin["site"], kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(thin["site"][order])) + 1):
        if len(rows) == 0:
            continue
        own = int(thin["site"][rows[0]])
        squares[own] = len(np.unique(thin["square"][rows]))
        if squares[own] >= FEWEST_SQUARES:
            kept = rows[np.linspace(0, len(rows) - 1, min(len(rows), _MOST_SQUARES)).astype(int)]
            found[own], error[own] = _located(*(thin[name][kept] for name in ("cell", "xy", "db")))
    return Estimates(found, error, squares)


def _thinned(site: Ints, cell: Ints, xy: Floats, level_db: Floats) -> dict[str, Array]:
    """One reading a cell and square: the mean of all in it."""
    place = np.floor(xy / _SQUARE_M).astype(np.int64)
    _, square = np.unique(place, axis=0, return_inverse=True)
    keys, row = np.unique(np.column_stack([cell, square.reshape(-1)]), axis=0, return_inverse=True)
    row = row.reshape(-1)
    many = np.bincount(row)

    def mean(values: Floats) -> Floats:
        return np.asarray(np.bincount(row, values) / many)

    owner = np.zeros(int(cell.max()) + 1, dtype=np.int64) if len(cell) else np.zeros(0, np.int64)
    owner[cell] = site
    return {
        "site": owner[keys[:, 0]],
        "cell": keys[:, 0],
        "square": keys[:, 1],
        "xy": np.column_stack([mean(xy[:, 0]), mean(xy[:, 1])]),
        "db": mean(level_db),
    }


def _located(cell: Ints, xy: Floats, db: Floats) -> tuple[Floats, float]:
    """The most sensible place, and its root mean square error.

    The place is the posterior's mean. Errors are those of a posterior that trusts less in
    readings, and what sectors do to all of them.
    """
    mean, _ = _posterior(cell, xy, db, 1.0)
    around, variance = _posterior(cell, xy, db, min(1.0, _AS_MANY_SQUARES / len(db)))
    squared = variance.sum() + ((around - mean) ** 2).sum() + _SECTORS_M**2
    return mean, float(np.sqrt(squared))


def _posterior(cell: Ints, xy: Floats, db: Floats, trust: float) -> tuple[Floats, Floats]:
    """Mean and variance of where a site may be, on ever finer candidates."""
    middle = xy.mean(axis=0)
    usual = max(_USUAL_M, float(np.sqrt(((xy - middle) ** 2).sum(axis=1).mean() / 2)))
    centre, half = middle, 3.0 * usual
    mean, variance = centre, np.zeros(2)
    for _ in range(_ZOOMS):
        step = np.linspace(-half, half, _CANDIDATES)
        places = centre + np.stack(np.meshgrid(step, step), axis=-1).reshape(-1, 2)
        log = _log_likelihood(places, cell, xy, db, trust)
        log -= ((places - middle) ** 2).sum(axis=1) / (2 * usual**2)
        weight = np.exp(log - log.max())
        weight /= weight.sum()
        mean = weight @ places
        variance = weight @ (places - mean) ** 2
        spacing = 2 * half / (_CANDIDATES - 1)
        centre, half = mean, max(4.0 * float(np.sqrt(variance.max())), 2.5 * spacing)
        if half > 12 * spacing:
            break
    return mean, variance


def _log_likelihood(places: Floats, cell: Ints, xy: Floats, db: Floats, trust: float) -> Floats:
    """The log likelihood of each place, up to a constant; every reading counts as ``trust``.

    Levels are y = a_cell + b x + e with x = log10 d, a flat prior on every a, b normal around the
    usual slope, and e normal. Taking off the means of every cell removes the a, and b integrates to
    −½ log(Sxx/σ² + 1/τ²) + ½ (Sxy/σ² + b₀/τ²)² / (Sxx/σ² + 1/τ²).
    """
    distance = np.hypot(*np.moveaxis(places[:, None, :] - xy[None], -1, 0))
    x = np.log10(np.maximum(distance, _NEAREST_M))
    _, own = np.unique(cell, return_inverse=True)
    own = own.reshape(-1)
    member: Bools = own[:, None] == np.arange(own.max() + 1)
    share = member / member.sum(axis=0)
    x = x - (x @ share) @ member.T
    y = db - (db @ share) @ member.T
    sxx, sxy = trust * (x * x).sum(axis=1), trust * (x @ y)
    noise, slope = _SCATTER_DB**2, _SLOPE_SD_DB**2
    precision = sxx / noise + 1 / slope
    pull: Any = sxy / noise + _SLOPE_DB / slope
    return np.asarray(0.5 * pull**2 / precision - 0.5 * np.log(precision))
