"""Estimators by laws over distance: one straight line, and the truth as the model can tell it."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from veilmap._util.arrays import Array, Floats
from veilmap.baselines.base import Estimator, KnownStations, fitted
from veilmap.data.measurements import Measurements
from veilmap.geometry.grid import paired
from veilmap.model.radio_map import RadioMap, log_distance
from veilmap.scenes.scene import Scene


@dataclass
class LogDistance(Estimator):
    """One straight line: gain = intercept + slope · log10(distance).

    ``calibrate`` fits an offset of every base station too: where receivers are not calibrated.
    """

    calibrate: bool = False
    intercept_: float | None = field(default=None, init=False)
    slope_: float | None = field(default=None, init=False)
    offsets_: Floats | None = field(default=None, init=False, repr=False)
    _stations: KnownStations | None = field(default=None, init=False, repr=False)

    def fit(self, data: Measurements) -> "LogDistance":
        """Fit by least squares over all links."""
        log_d = log_distance(data.user_xyz, data.bs_xyz)
        design = [np.ones((len(data), 1)), log_d[:, None]]
        if self.calibrate:
            self._stations = KnownStations.of(data)
            number = self._stations.numbers(data.bs, data.bs_xyz)
            design.append(np.eye(len(self._stations))[number])
        found = np.linalg.lstsq(np.hstack(design), data.gain_db, rcond=None)[0]
        self.intercept_, self.slope_ = found[:2].tolist()
        self.offsets_ = None
        if self.calibrate:
            # Offsets and the intercept share a direction: what all have in common is the line's.
            self.intercept_ += found[2:].mean()
            self.offsets_ = found[2:] - found[2:].mean()
        return self

    def predict(self, user_xyz: ArrayLike, bs_xyz: ArrayLike) -> Floats:
        """Gain of each link in dB, without offsets."""
        distances = log_distance(*paired(user_xyz, bs_xyz))
        return fitted(self.intercept_) + fitted(self.slope_) * distances

    def predict_by_station(self, user: Floats, mast: Floats, bs: Array | None) -> Floats:
        """Gain of each link in dB, with the offset of its base station or of the nearest."""
        gain = self.predict(user, mast)
        if self.offsets_ is None:
            return gain
        return gain + self.offsets_[fitted(self._stations).numbers(bs, mast)]


@dataclass
class TrueMap(Estimator):
    """The true heights on the model's own grid with the best θ: the floor for this model.

    Open ground is put at ``floor`` metres, as a learned map may put it: at 0 m the smooth
    model calls a clear link near the ground half blocked.
    """

    scene: Scene
    floor: float = -8.0
    radio_map_: RadioMap | None = field(default=None, init=False)

    def fit(self, data: Measurements) -> "TrueMap":
        """Fit θ by least squares."""
        heights = np.where(self.scene.heights > 0, self.scene.heights, self.floor)
        self.radio_map_ = RadioMap(self.scene.grid, heights).fit_propagation(data)
        return self

    def predict_by_station(self, user: Floats, mast: Floats, bs: Array | None) -> Floats:
        """Gain of each link in dB, whichever the base station."""
        return fitted(self.radio_map_).predict(user, mast)
