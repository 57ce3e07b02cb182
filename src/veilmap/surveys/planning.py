"""What to expect of a survey's map, from public numbers alone.

The residual of a reading, beside its station's distance law, is a field over the ground and the
reading's own noise. The field is taken to have the exponential covariance v exp(−distance / ℓ),
as shadowing has (Gudmundson, 1991), so its spectrum in the plane is 2π v ℓ² (1 + k²ℓ²)^(−3/2). What
of it a survey with points s apart can tell is the error of a Wiener filter: waves shorter than the
spacing are lost, and the others stand against the noise of privacy and of the readings. Longer
links vary less, as nearly all of them are blocked, and their shadows reach further: v has the
share of clear links after 3GPP TR 38.901, and ℓ grows with the distance. Near base stations have
long waves in common, and tell them together.

`benchmarks/survey_plan.py` fits the constants to synthetic cities, and compares what is expected
with what surveys measure.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from veilmap._util.arrays import Floats
from veilmap.geometry.grid import Grid
from veilmap.surveys.design import NEAREST, Survey
from veilmap.surveys.surroundings import USUAL, Surroundings

_WAVES = 400  # wave numbers of the integral
_ALONG = 20  # places along a side of the area, at which distances to base stations are taken

_CLEAR_M, _SURE_M = 63.0, 18.0  # of the share of clear links: 3GPP TR 38.901, table 7.4.2-1, UMa
_OPEN_DB = 4.0  # shadowing among clear links: ibid., table 7.4.1-1; of blocked ones: in the curve
_OWN, _SLOWER = 0.2, 1.5  # what masts have not in common, as in `model.field_prior`
_LEVEL_DB = 15.0  # how far the posterior lets a station's level lie from the others'

# The mean absolute error of a Gaussian is 0.80 of its deviation; shadows have heavier tails.
_TAILS = 0.77


@dataclass(frozen=True)
class Curve:
    """What `benchmarks/survey_plan.py` fits to synthetic cities."""

    blocked_db: float  # what clear and blocked links differ by
    reach: float  # ℓ, as a share of the mean distance to base stations
    laws: float  # what distance laws cost, as a multiple of the noise's share in them


CURVE = Curve(35.5, 0.48, 1.6)


@dataclass(frozen=True)
class Expectation:
    """What to expect of a survey."""

    error_db: float  # mean absolute error, at readings of people who did not take part
    deviation_db: float  # standard deviation of such readings around the map
    upload_bytes: int  # of a participant, once
    spacing: float  # metres between points
    participants_per_point: float


@dataclass(frozen=True)
class Change:
    """Another design, and how much larger the expected error would be."""

    what: str
    error_db: float


def expected(
    survey: Survey, surroundings: Surroundings = USUAL, curve: Curve = CURVE
) -> Expectation:
    """What to expect of a survey's map."""
    variance = surroundings.reading_noise_db**2 + _unknown(survey, surroundings, curve)
    return Expectation(
        error_db=_TAILS * math.sqrt(variance),
        deviation_db=math.sqrt(variance),
        upload_bytes=survey.upload_bytes,
        spacing=survey.grid.cell_size,
        participants_per_point=survey.participants / survey.grid.cells,
    )


def changes(survey: Survey, surroundings: Surroundings = USUAL) -> list[Change]:
    """What twice the participants, twice the ε, and other spacings would change."""
    spacing = survey.grid.cell_size
    more = replace(survey, participants=2 * survey.participants)
    looser = replace(survey, epsilon=2 * survey.epsilon)
    others = {
        f"{more.participants:,} participants": _as_noisy(more, survey),
        f"ε = {looser.epsilon:g}": _as_noisy(looser, survey),
        f"points {0.7 * spacing:.0f} m apart": _spaced(survey, 0.7 * spacing),
        f"points {1.4 * spacing:.0f} m apart": _spaced(survey, 1.4 * spacing),
    }
    now = expected(survey, surroundings).error_db
    return [
        Change(what, expected(other, surroundings).error_db - now) for what, other in others.items()
    ]


def _as_noisy(other: Survey, survey: Survey) -> Survey:
    """``other`` with points as far apart as gives them the noise that those of ``survey`` have."""
    ratio = other.noise_db(1.0) / survey.noise_db(1.0)
    return _spaced(other, survey.grid.cell_size * math.sqrt(ratio))


def _spaced(survey: Survey, spacing: float) -> Survey:
    west, east, south, north = survey.grid.extent
    corners = [(west, south), (east, north)]
    return replace(survey, grid=Grid.covering(corners, spacing, crs=survey.grid.crs))


def _unknown(survey: Survey, surroundings: Surroundings, curve: Curve) -> float:
    """Variance of the residual that a survey leaves open, in dB²: of the field and of the law."""
    spacing, reading = survey.grid.cell_size, surroundings.reading_noise_db**2
    variance, reach = _shadowing(survey, surroundings, curve)
    area = survey.grid.cells * spacing**2
    occupied = surroundings.occupied * area
    # Longer waves than the area are the law's; with two numbers it takes two modes, (2π)² / A each.
    k = np.geomspace(math.sqrt(8 * math.pi / area), 1e3 / min(reach, spacing), _WAVES)
    modes = k**2 / (2 * math.pi) * math.log(k[1] / k[0])  # k dk / 2π
    field = modes * 2 * math.pi * variance * reach**2 * (1 + (k * reach) ** 2) ** -1.5
    seen = np.exp(-((k * spacing) ** 2) / 12)  # of a wave, by bilinear shares
    within = float(field @ (1 - seen**2))  # between points
    # Noise per m² and wave: of privacy, with angles shortened by what readings differ by; and of
    # readings, with what they differ by between points.
    turns = 2 * math.pi / survey.range_db
    shortened = math.exp(-(turns**2) * (reading + within) / 2)
    privacy = survey.noise_db(area, surroundings) / spacing / shortened
    heard = surroundings.heard_of(len(survey.stations)) / len(survey.stations)
    noise = privacy**2 + (reading + within) * occupied / (survey.participants * heard)
    law = 1 / (1 / _LEVEL_DB**2 + occupied / (2 * curve.laws * noise))
    open_ = 0.0
    for share, strength in _alike(survey, k):
        told = strength * field * seen**2
        told /= told + noise * modes  # Wiener's filter
        told[k > math.sqrt(4 * math.pi) / spacing] = 0.0  # as many waves as points
        lost = strength * field * (1 - seen**2 * told) ** 2
        open_ += float(share @ (lost + modes * noise * (seen * told) ** 2))
    return open_ + law


def _alike(survey: Survey, k: Floats) -> list[tuple[Floats, Floats]]:
    """What masts have in common at every wave, and what not: the share of it, and its strength.

    Waves of masts d apart are correlated by x K₁(x), x = kd / 1.5, as `field_prior` has it; that
    is Σ (x K₁(x))² = 1 + (4π / 3) (1.5 / k)² masts per m² that a mast is like.
    """
    masts = len(np.unique(survey.positions[:, :2], axis=0))
    dense = masts / (survey.grid.cells * survey.grid.cell_size**2)
    alike = np.minimum(1 + dense * 4 * math.pi / 3 * (_SLOWER / k) ** 2, masts)
    common = _OWN + (1 - _OWN) * alike
    return [(1 / alike, common), (1 - 1 / alike, np.full_like(k, _OWN))]


def _shadowing(survey: Survey, surroundings: Surroundings, curve: Curve) -> tuple[float, float]:
    """The field's variance in dB², and the distance over which its correlation falls to 1/e."""
    west, east, south, north = survey.grid.extent
    x, y = np.meshgrid(np.linspace(west, east, _ALONG), np.linspace(south, north, _ALONG))
    masts = survey.positions
    apart = np.hypot(x.ravel()[:, None] - masts[:, 0], y.ravel()[:, None] - masts[:, 1])
    apart = np.maximum(apart, NEAREST)
    reach = curve.reach * float(apart.mean())
    if surroundings.shadowing_db is not None:
        return surroundings.shadowing_db**2, reach
    beyond = np.minimum(_SURE_M / apart, 1.0)
    clear = beyond + np.exp(-apart / _CLEAR_M) * (1 - beyond)
    mixed = float(np.mean(clear * (1 - clear)))
    return _OPEN_DB**2 + curve.blocked_db**2 * mixed, reach
