"""Where a participant of a survey was, from the opened sum and the map that it gave."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from veilmap._util.arrays import Floats, Ints
from veilmap.geometry.grid import Grid
from veilmap.model.radio_map import RadioMap
from veilmap.surveys.aggregate import OpenedSum
from veilmap.surveys.design import LEVEL_RANGES, RECEIVER_HEIGHT, Survey

_FINER = 2  # candidate places along the side of a point's cell
_CLOSEST = 16  # places along it among which the best candidate is settled
_EMPTY = 0.1  # how likely a place is where nobody else was, against an average one
_LEAST_VARIANCE = 1e-2  # dB²: of readings around the map


@dataclass(frozen=True, eq=False)
class Ground:
    """What the public expects of readings at every station and point, (S, P)."""

    survey: Survey
    residual: Floats  # mean, in dB: the map's gain less the nominal one
    variance: Floats  # in dB², of a reading around it

    @classmethod
    def of(cls, survey: Survey, radio_map: RadioMap) -> "Ground":
        """By a survey's own map."""
        centres = survey.grid.centres
        places = np.column_stack([centres, np.full(len(centres), RECEIVER_HEIGHT)])
        gains, deviations = np.empty((2, *survey.shape))
        for number, station in enumerate(survey.stations):
            gain, deviation = radio_map.predict(
                places, survey.positions[number], station=station.id, return_std=True
            )
            gains[number] = gain - survey.nominal(np.full(len(centres), number), centres)
            deviations[number] = deviation
        return cls(survey, gains, deviations**2)

    def density(self, total: OpenedSum) -> Floats:
        """How likely a participant is at every point, (P,), by how long the sum's angles are.

        Turned back by the map, their real part is the number of participants, and noise beside it;
        what differs between points no more than noise does is evened out.
        """
        seen = (total.angles * np.exp(-1j * self.omega * self.residual)).real.sum(axis=0)
        noise, mean = len(self.survey.stations) * total.noise**2, float(seen.mean())
        signal = max(float(seen.var()) - noise, 0.0)
        kept = signal / (signal + noise) if signal > 0 else 0.0
        density = mean + kept * (seen - mean)
        density = np.maximum(density, _EMPTY * mean) if mean > 0 else np.ones_like(seen)
        return np.asarray(density / density.sum())

    @property
    def omega(self) -> float:
        """From dB to the angle that tells it."""
        return 2 * math.pi / self.survey.range_db


def crowd_centre(ground: Ground, total: OpenedSum) -> Floats:
    """Where whoever sees only the sum expects anybody, (2,): the guess of least squared error."""
    return ground.density(total) @ ground.survey.grid.centres


@dataclass(frozen=True, eq=False)
class Templates:
    """Contributions that are expected of a participant at each of some places.

    A participant there reads each station with some probability, once; the residual is normal
    around the map's. Given the place, stations are independent.
    """

    ground: Ground
    xy: Floats  # (K, 2)

    def expected(self, density: Floats) -> Floats:
        """A density over points at the places, (K,)."""
        cells, shares = self._shares
        return (density[cells] * shares).sum(axis=1)

    def evidence(self, left: OpenedSum) -> Floats:
        """Log-likelihood of a participant at each place against nobody at all, (K,).

        ``left`` is what all others leave of the sum. How many of S stations the participant has
        read is not known: anything from one to all, by factors of about three.
        """
        cells, shares = self._shares
        angles = (left.angles[:, cells] * shares).sum(axis=2)  # X, (S, K)
        along = self._concentration * (angles * self._turn.conj()).real
        turned = (left.levels[:, None] * self._level_turn.conj()).real
        seen = _Seen(along, np.abs(angles) ** 2, self.ground.survey.level_weight * turned)
        stations, variance = len(left.levels), left.noise**2
        counts = np.rint(np.geomspace(1, stations, round(math.log(stations, 3)) + 1))
        each = [self._if_read(seen, variance, heard / stations, heard) for heard in counts]
        return np.logaddexp.reduce(each) - math.log(len(counts))

    def _if_read(self, seen: "_Seen", variance: float, chance: float, heard: float) -> Floats:
        """The same if so many stations are read, each with this probability.

        Those have length 1 together: with bilinear shares c and weight a of the level entry, each
        is A = 1 / √(heard (Σc² + a²)) times as long. The ratio of likelihoods given the angle φ is
        exp(A/τ² Re(e^{-iφ} X + a e^{-iφ/4} L) − 1/(2 τ² heard)), with X = Σ c y at the points
        around, L the level entry, and τ² the variance of noise. Over a von Mises φ around ψ,
        E exp(z cos(φ − arg z)) is I₀(|κ e^{iψ} + z|) / I₀(κ).
        """
        kappa, size = self._concentration, self._length / (math.sqrt(heard) * variance)
        joined = kappa**2 + 2 * size * seen.along + size**2 * seen.squared
        joined = np.sqrt(np.maximum(joined, 0.0))
        ratio = joined - kappa + size * seen.level - 1 / (2 * variance * heard)
        most = np.maximum(ratio.max(axis=1, keepdims=True), 0.0)  # keeps exponentials finite
        ratio = _bessel(joined) / self._prior_bessel * np.exp(ratio - most)
        product = ((1 - chance) * np.exp(-most) + chance * ratio).prod(axis=0)
        return np.log(np.maximum(product, 1e-300)) + float(most.sum())

    @cached_property
    def _shares(self) -> tuple[Ints, Floats]:
        return self.ground.survey.grid.between_centres(self.xy)

    @cached_property
    def _angle(self) -> Floats:
        """ψ at the places, (S, K): linear between points, as the map's field is."""
        cells, shares = self._shares
        return self.ground.omega * (self.ground.residual[:, cells] * shares).sum(axis=2)

    @cached_property
    def _turn(self) -> NDArray[np.complex128]:
        return np.exp(1j * self._angle)

    @cached_property
    def _level_turn(self) -> NDArray[np.complex128]:
        return np.exp(1j * self._angle / LEVEL_RANGES)

    @cached_property
    def _concentration(self) -> Floats:
        """κ of a von Mises distribution about as wide as angles at the places are, (S, K)."""
        cells, shares = self._shares
        variance = (self.ground.variance[:, cells] * shares).sum(axis=2)
        return np.asarray(1 / (self.ground.omega**2 * np.maximum(variance, _LEAST_VARIANCE)))

    @cached_property
    def _prior_bessel(self) -> Floats:
        return _bessel(self._concentration)

    @cached_property
    def _length(self) -> Floats:
        """1 / √(Σc² + a²) at the places, (K,)."""
        shares = self._shares[1]
        squares = (shares**2).sum(axis=1) + self.ground.survey.level_weight**2
        return np.asarray(1 / np.sqrt(squares))


@dataclass(frozen=True, eq=False)
class _Seen:
    """What a sum says at some places: κ Re(e^{-iψ} X), |X|² and a Re(e^{-iψ/4} L), (S, K)."""

    along: Floats
    squared: Floats
    level: Floats


def _bessel(x: Floats) -> Floats:
    """e^{-x} I₀(x) to 6e-3 of itself (Olivares and others, J. Phys. Conf. Ser. 1043, 2018).

    The exact function would take most of an attack's time.
    """
    square = x * x
    rational = (1 + 0.24273 * square) / (1 + 0.43023 * square)
    return np.asarray(rational * (0.5 + 0.5 * np.exp(-2 * x)) / np.sqrt(np.sqrt(1 + square / 4)))


@dataclass(frozen=True, eq=False)
class SurveyMatchedFilter:
    """Finds a participant for whoever knows what everybody else added, and the map.

    What is left of the sum is compared with what a participant at each candidate place would have
    added; places where others were are likelier before.
    """

    ground: Ground

    @cached_property
    def _candidates(self) -> Templates:
        grid = self.ground.survey.grid
        rows, columns = grid.shape
        finer = Grid(
            grid.cell_size / _FINER, (rows * _FINER, columns * _FINER), grid.origin, grid.crs
        )
        return Templates(self.ground, finer.centres)

    def locate(self, left: OpenedSum, others: OpenedSum) -> tuple[Floats, Floats]:
        """The most probable place and the mean place of the target, both (2,).

        ``others`` is the sum of what all others added, without noise, and ``left`` what it leaves
        of the opened one.
        """
        density = self.ground.density(others)
        belief = self._log_probability(self._candidates, left, density)
        weight = np.exp(belief - belief.max())
        near = self._around(self._candidates.xy[belief.argmax()])
        best = self._log_probability(near, left, density).argmax()
        return near.xy[best], weight @ self._candidates.xy / weight.sum()

    def _log_probability(self, places: Templates, left: OpenedSum, density: Floats) -> Floats:
        return places.evidence(left) + np.log(places.expected(density))

    def _around(self, xy: Floats) -> Templates:
        """Closer candidates around a place, which is one of them."""
        steps = np.arange(-_CLOSEST // 4, _CLOSEST // 4 + 1) / _CLOSEST
        apart = self.ground.survey.grid.cell_size * np.array(np.meshgrid(steps, steps))
        return Templates(self.ground, xy + apart.reshape(2, -1).T)
