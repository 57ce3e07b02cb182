"""Estimators by interpolation: the nearest measured links, and kriging over the ground."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from veilmap._util import checks
from veilmap._util.arrays import Array, Floats
from veilmap.baselines.base import Estimator, KnownStations, fitted, tree_of
from veilmap.baselines.laws import LogDistance
from veilmap.data.measurements import Measurements

if TYPE_CHECKING:
    from scipy.spatial import KDTree

_FEWEST_FOR_KRIGING = 5
_MANY = 500  # places, from which the variogram has short lags too
_LAGS = 60


@dataclass
class NearestNeighbours(Estimator):
    """Mean of the k links whose ends are nearest, weighted by inverse distance.

    With ``same_station`` only among links of the same base station: better where each was measured
    often. Else a link is a point in four dimensions, x and y of both its ends.
    """

    neighbours: int = 5
    same_station: bool = False
    _trees: "list[KDTree] | None" = field(default=None, init=False, repr=False)
    _gains: list[Floats] = field(default_factory=list, init=False, repr=False)
    _stations: KnownStations | None = field(default=None, init=False, repr=False)

    def fit(self, data: Measurements) -> "NearestNeighbours":
        """Keep all links."""
        checks.whole("neighbours", self.neighbours, least=1)
        if not self.same_station:
            self._trees = [tree_of(np.hstack([data.user_xyz[:, :2], data.bs_xyz[:, :2]]))]
            self._gains, self._stations = [data.gain_db], None
            return self
        self._stations = KnownStations.of(data)
        own = self._stations.rows(data)
        self._trees = [tree_of(data.user_xyz[rows, :2]) for rows in own]
        self._gains = [data.gain_db[rows] for rows in own]
        return self

    def predict_by_station(self, user: Floats, mast: Floats, bs: Array | None) -> Floats:
        """Gain of each link in dB; without ``bs`` the nearest base station answers."""
        if self._stations is None:
            return self._mean_of_nearest(0, np.hstack([user[:, :2], mast[:, :2]]))
        places = user[:, :2]
        return self._stations.by_station(bs, mast, places, self._mean_of_nearest)

    def _mean_of_nearest(self, number: int, places: Floats) -> Floats:
        tree, gains = fitted(self._trees)[number], self._gains[number]
        count = min(self.neighbours, len(gains))
        apart, index = tree.query(places, count, workers=-1)
        apart, index = apart.reshape(-1, count), index.reshape(-1, count)
        weights = 1.0 / np.maximum(apart, 1e-6)  # a link at the same place counts alone
        return np.asarray((weights * gains[index]).sum(axis=1) / weights.sum(axis=1))


@dataclass
class OrdinaryKriging(Estimator):
    """Ordinary kriging (PyKrige) of the gain over the ground, base station by base station.

    It knows only base stations that were measured; others are answered by the nearest one.

    ``variogram`` is a model of PyKrige's. The nearest ``neighbours`` places decide: with all of
    many thousands the equations take minutes, and answer the same.
    """

    needs: ClassVar = ("pykrige", "baselines")

    variogram: str = "exponential"
    neighbours: int = 32
    _fields: list[Any] = field(default_factory=list, init=False, repr=False)
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
        self._fields, self._means = [], []
        for own in self._stations.rows(data):
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
        return fitted(self._stations).by_station(bs, mast, user[:, :2], self._at)

    def _at(self, station: int, places: Floats) -> Floats | float:
        kriged = self._fields[station]
        if kriged is None:
            return self._means[station]
        near: dict[str, Any] = {}
        if len(kriged.X_ORIG) >= max(_MANY, self.neighbours):
            near = {"n_closest_points": self.neighbours, "backend": "loop"}
        found: Floats = kriged.execute("points", *places.T, **near)[0]
        return found


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
