"""Kriging of gains over the ground, and of what a line leaves over."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilmap._util import checks
from veilmap.baselines.base import AnswersByStation, Stations, not_fitted
from veilmap.baselines.log_distance import LogDistance
from veilmap.data.measurements import Measurements
from veilmap.errors import ConfigurationError
from veilmap.geometry.grid import paired
from veilmap.model.radio_map import HasMeasurements

_FEWEST_FOR_KRIGING = 5
_MANY = 500  # places, from which the variogram has short lags too
_LAGS = 60


@dataclass
class OrdinaryKriging(AnswersByStation):
    """Ordinary kriging (PyKrige) of the gain over the ground, base station by base station.

    It knows only base stations that were measured; others are answered by the nearest one.

    Parameters
    ----------
    variogram : str
        A model of PyKrige's.
    neighbours : int
        How many of the nearest places decide: with all of many thousands the equations take
        minutes, and answer the same.
    """

    variogram: str = "exponential"
    neighbours: int = 32
    _fields: list = field(default_factory=list, init=False, repr=False)
    _stations: Stations | None = field(default=None, init=False, repr=False)

    def fit(self, data: Measurements) -> "OrdinaryKriging":
        """One variogram for every base station."""
        return self.fit_values(data, data.gain_db)

    def fit_values(self, data: Measurements, values: NDArray[np.float64]) -> "OrdinaryKriging":
        """The same of other values on the links of ``data``."""
        checks.whole("neighbours", self.neighbours, least=2)
        try:
            from pykrige.ok import OrdinaryKriging as Kriging
        except ImportError:
            raise ConfigurationError(
                "kriging needs PyKrige: pip install 'veilmap[baselines]'"
            ) from None
        self._stations = Stations.of(data)
        number = self._stations.numbers(data.bs, data.bs_xyz)
        self._fields = []
        for station in range(len(self._stations)):
            own = number == station
            places, gain = _mean_by_place(data.user_xyz[own, :2], values[own])
            if len(places) < _FEWEST_FOR_KRIGING or np.ptp(gain) == 0:
                self._fields.append(float(gain.mean()))
                continue
            # PyKrige's six lags span half the town; near neighbours are what decides.
            lags = {"nlags": _LAGS, "weight": True} if len(places) >= _MANY else {}
            fitted = Kriging(*places.T, gain, variogram_model=self.variogram, **lags)
            self._fields.append(fitted)
        return self

    def _answered(
        self, user: NDArray[np.float64], mast: NDArray[np.float64], bs: NDArray | None
    ) -> NDArray[np.float64]:
        if self._stations is None:
            raise not_fitted()
        station, gain = self._stations.numbers(bs, mast), np.empty(len(user))
        for number in np.unique(station):
            own, fitted = station == number, self._fields[number]
            gain[own] = fitted if isinstance(fitted, float) else self._at(fitted, user[own, :2])
        return gain

    def _at(self, fitted: Any, places: NDArray[np.float64]) -> NDArray[np.float64]:
        if len(fitted.X_ORIG) < max(_MANY, self.neighbours):
            return fitted.execute("points", *places.T)[0]
        near = {"n_closest_points": self.neighbours, "backend": "loop"}
        return fitted.execute("points", *places.T, **near)[0]


@dataclass
class RegressionKriging:
    """A line over log-distance with an offset of every base station, and kriging of the rest."""

    kriging: OrdinaryKriging = field(default_factory=OrdinaryKriging)
    trend: LogDistance = field(default_factory=lambda: LogDistance(calibrate=True), init=False)

    def fit(self, data: Measurements) -> "RegressionKriging":
        """The line first, then what it leaves over."""
        rest = data.gain_db - self.trend.fit(data).predict_links(data)
        self.kriging.fit_values(data, rest)
        return self

    def predict(self, user_xyz: ArrayLike, bs_xyz: ArrayLike) -> NDArray[np.float64]:
        """Gain of each link in dB."""
        ends = paired(user_xyz, bs_xyz)
        return self.trend.answered(*ends, None) + self.kriging.predict(*ends)

    def predict_links(self, data: HasMeasurements) -> NDArray[np.float64]:
        """Gain of each link in dB, by its base station's id."""
        return self.trend.predict_links(data) + self.kriging.predict_links(data)


def _mean_by_place(
    xy: NDArray[np.float64], gain: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """One value per distinct place: repeated places make kriging's matrix singular."""
    places, index = np.unique(xy, axis=0, return_inverse=True)
    index = index.reshape(-1)
    return places, np.bincount(index, gain) / np.bincount(index)
