"""What people use today, and the best this model could do: yardsticks for a radio map.

Each has ``fit(data)``, which returns itself, and ``predict(user_xyz, bs_xyz)`` in dB.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilmap import _checks
from veilmap.errors import VeilmapError
from veilmap.evaluation import Predictor, mean_absolute_error
from veilmap.geometry import paired
from veilmap.measurements import Measurements
from veilmap.radiomap import RadioMap, log_distance
from veilmap.scene import Scene

if TYPE_CHECKING:
    from scipy.spatial import KDTree

__all__ = [
    "Baseline",
    "LogDistance",
    "NearestNeighbours",
    "OrdinaryKriging",
    "Predictor",
    "TrueMap",
    "mean_absolute_error",
]

_FEWEST_FOR_KRIGING = 5


class Baseline(Predictor, Protocol):
    """A predictor that is fitted to pooled measurements."""

    def fit(self, data: Measurements) -> "Predictor":
        """Fit and return itself."""
        ...


@dataclass
class LogDistance:
    """One straight line: gain = intercept + slope · log10(distance)."""

    intercept: float = field(default=0.0, init=False)
    slope: float = field(default=0.0, init=False)

    def fit(self, data: Measurements) -> "LogDistance":
        """Least squares over all links."""
        log_d = log_distance(data.user_xyz, data.bs_xyz)
        design = np.column_stack([np.ones_like(log_d), log_d])
        self.intercept, self.slope = np.linalg.lstsq(design, data.gain_db, rcond=None)[0].tolist()
        return self

    def predict(self, user_xyz: ArrayLike, bs_xyz: ArrayLike) -> NDArray[np.float64]:
        """Gain of each link in dB."""
        user, bs = paired(user_xyz, bs_xyz)
        return self.intercept + self.slope * log_distance(user, bs)


@dataclass
class NearestNeighbours:
    """Mean of the k links whose two ends are nearest, weighted by inverse distance.

    A link is a point in four dimensions: x and y of the user and of the base station.
    """

    neighbours: int = 5
    _tree: "KDTree | None" = field(default=None, init=False, repr=False)
    _gain: NDArray[np.float64] = field(default_factory=lambda: np.empty(0), init=False, repr=False)

    def fit(self, data: Measurements) -> "NearestNeighbours":
        """Remember all links."""
        _checks.whole("neighbours", self.neighbours, least=1)
        self._tree, self._gain = _tree(_both_ends(data.user_xyz, data.bs_xyz)), data.gain_db
        return self

    def predict(self, user_xyz: ArrayLike, bs_xyz: ArrayLike) -> NDArray[np.float64]:
        """Gain of each link in dB."""
        if self._tree is None:
            raise VeilmapError("fit the baseline before predicting with it")
        count = min(self.neighbours, len(self._gain))
        apart, index = self._tree.query(_both_ends(*paired(user_xyz, bs_xyz)), count, workers=-1)
        apart, index = apart.reshape(-1, count), index.reshape(-1, count)
        weights = 1.0 / np.maximum(apart, 1e-6)  # a link at the same place counts alone
        return (weights * self._gain[index]).sum(axis=1) / weights.sum(axis=1)


@dataclass
class OrdinaryKriging:
    """Ordinary kriging (PyKrige) of the gain over the ground, base station by base station.

    It knows only base stations that were measured; others are answered by the nearest one.
    """

    variogram: str = "exponential"
    _fields: list = field(default_factory=list, init=False, repr=False)
    _stations: NDArray[np.float64] = field(
        default_factory=lambda: np.empty((0, 3)), init=False, repr=False
    )

    def fit(self, data: Measurements) -> "OrdinaryKriging":
        """One variogram and kriging system per base station."""
        try:
            from pykrige.ok import OrdinaryKriging as Kriging
        except ImportError:
            raise VeilmapError("kriging needs PyKrige: pip install 'veilmap[baselines]'") from None
        self._stations, index = np.unique(data.bs_xyz, axis=0, return_inverse=True)
        self._fields = []
        for station in range(len(self._stations)):
            own = index.reshape(-1) == station
            places, gain = _mean_by_place(data.user_xyz[own, :2], data.gain_db[own])
            if len(places) < _FEWEST_FOR_KRIGING or np.ptp(gain) == 0:
                self._fields.append(float(gain.mean()))
            else:
                self._fields.append(Kriging(*places.T, gain, variogram_model=self.variogram))
        return self

    def predict(self, user_xyz: ArrayLike, bs_xyz: ArrayLike) -> NDArray[np.float64]:
        """Gain of each link in dB."""
        if not self._fields:
            raise VeilmapError("fit the baseline before predicting with it")
        user, bs = paired(user_xyz, bs_xyz)
        station = _tree(self._stations).query(bs)[1]
        gain = np.empty(len(user))
        for number in np.unique(station):
            own, fitted = station == number, self._fields[number]
            if isinstance(fitted, float):
                gain[own] = fitted
            else:
                gain[own] = fitted.execute("points", user[own, 0], user[own, 1])[0]
        return gain


@dataclass
class TrueMap:
    """The true heights on the model's own grid with the best θ: the floor for this model.

    Open ground is put at ``floor`` metres, as a learned map may put it: at 0 m the smooth
    model calls a clear link near the ground half blocked.
    """

    scene: Scene
    floor: float = -8.0
    radio_map: RadioMap | None = field(default=None, init=False)

    def fit(self, data: Measurements) -> "TrueMap":
        """θ by least squares."""
        heights = np.where(self.scene.heights > 0, self.scene.heights, self.floor)
        self.radio_map = RadioMap(self.scene.grid, heights).fit_propagation(data)
        return self

    def predict(self, user_xyz: ArrayLike, bs_xyz: ArrayLike) -> NDArray[np.float64]:
        """Gain of each link in dB."""
        if self.radio_map is None:
            raise VeilmapError("fit the baseline before predicting with it")
        return self.radio_map.predict(user_xyz, bs_xyz)


def _tree(points: NDArray[np.float64]) -> "KDTree":
    from scipy.spatial import KDTree  # slow to import, needed only here

    return KDTree(points)


def _both_ends(user_xyz: NDArray[np.float64], bs_xyz: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.hstack([user_xyz[:, :2], bs_xyz[:, :2]])


def _mean_by_place(
    xy: NDArray[np.float64], gain: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """One value per distinct place: repeated places make kriging's matrix singular."""
    places, index = np.unique(xy, axis=0, return_inverse=True)
    index = index.reshape(-1)
    return places, np.bincount(index, gain) / np.bincount(index)
