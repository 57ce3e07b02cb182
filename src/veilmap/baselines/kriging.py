"""Kriging of gains over the ground, and of what a line leaves over."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from veilmap._util import checks
from veilmap._util.arrays import Array, Floats
from veilmap.baselines.base import Estimator, KnownStations, fitted
from veilmap.baselines.log_distance import LogDistance
from veilmap.data.measurements import Measurements

_FEWEST_FOR_KRIGING = 5
_MANY = 500  # places, from which the variogram has short lags too
_LAGS = 60


@dataclass
class OrdinaryKriging(Estimator):
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

    needs: ClassVar = ("pykrige", "baselines")

    variogram: str = "exponential"
    neighbours: int = 32
    _fields: list = field(default_factory=list, init=False, repr=False)
    _means: list[float] = field(default_factory=list, init=False, repr=False)
    _stations: KnownStations | None = field(default=None, init=False, repr=False)

    def fit(self, data: Measurements) -> "OrdinaryKriging":
        """Fit a variogram to every base station."""
        return self.fit_values(data, data.gain_db)

    def fit_values(self, data: Measurements, values: Floats) -> "OrdinaryKriging":
        """Fit to other values on the links of ``data``."""
        checks.whole("neighbours", self.neighbours, least=2)
        self.check_installed("kriging")
        from pykrige.ok import OrdinaryKriging as Kriging

        self._stations = KnownStations.of(data)
        number = self._stations.numbers(data.bs, data.bs_xyz)
        self._fields, self._means = [], []
        for station in range(len(self._stations)):
            own = number == station
            places, gain = _mean_by_place(data.user_xyz[own, :2], values[own])
            self._means.append(float(gain.mean()))
            if len(places) < _FEWEST_FOR_KRIGING or np.ptp(gain) == 0:
                self._fields.append(None)
                continue
            # PyKrige's six lags span half the town; near neighbours are what decides.
            lags = {"nlags": _LAGS, "weight": True} if len(places) >= _MANY else {}
            self._fields.append(Kriging(*places.T, gain, variogram_model=self.variogram, **lags))
        return self

    def predict_by_station(self, user: Floats, mast: Floats, bs: Array | None) -> Floats:
        """Gain of each link in dB; without ``bs`` the nearest base station answers."""
        station, gain = fitted(self._stations).numbers(bs, mast), np.empty(len(user))
        for number in np.unique(station):
            own, kriged = station == number, self._fields[number]
            at = self._means[number] if kriged is None else self._at(kriged, user[own, :2])
            gain[own] = at
        return gain

    def _at(self, kriged: Any, places: Floats) -> Floats:
        near: dict[str, Any] = {}
        if len(kriged.X_ORIG) >= max(_MANY, self.neighbours):
            near = {"n_closest_points": self.neighbours, "backend": "loop"}
        return kriged.execute("points", *places.T, **near)[0]


@dataclass
class RegressionKriging(Estimator):
    """A line over log-distance with an offset of every base station, and kriging of the rest."""

    needs: ClassVar = OrdinaryKriging.needs

    kriging: OrdinaryKriging = field(default_factory=OrdinaryKriging)
    trend_: LogDistance | None = field(default=None, init=False, repr=False)
    rest_: OrdinaryKriging | None = field(default=None, init=False, repr=False)

    def fit(self, data: Measurements) -> "RegressionKriging":
        """Fit the line first, then kriging to what it leaves over."""
        self.trend_ = LogDistance(calibrate=True).fit(data)
        rest = data.gain_db - self.trend_.predict_links(data)
        self.rest_ = self.kriging.clone().fit_values(data, rest)
        return self

    def predict_by_station(self, user: Floats, mast: Floats, bs: Array | None) -> Floats:
        """Gain of each link in dB; without ``bs`` the nearest base station answers."""
        parts = fitted(self.trend_), fitted(self.rest_)
        line, rest = (part.predict_by_station(user, mast, bs) for part in parts)
        return line + rest


def _mean_by_place(xy: Floats, gain: Floats) -> tuple[Floats, Floats]:
    """One value per distinct place: repeated places make kriging's matrix singular."""
    places, index = np.unique(xy, axis=0, return_inverse=True)
    index = index.reshape(-1)
    return places, np.bincount(index, gain) / np.bincount(index)
