"""One straight line over the logarithm of the distance."""

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilmap.baselines.base import Stations, not_fitted
from veilmap.data.measurements import Measurements
from veilmap.geometry.grid import paired
from veilmap.model.radio_map import HasMeasurements, log_distance


@dataclass
class LogDistance:
    """One straight line: gain = intercept + slope · log10(distance).

    Parameters
    ----------
    calibrate : bool
        Fit an offset of every base station too: where receivers are not calibrated.
    """

    calibrate: bool = False
    intercept: float = field(default=math.nan, init=False)
    slope: float = field(default=math.nan, init=False)
    offsets: NDArray[np.float64] | None = field(default=None, init=False, repr=False)
    _stations: Stations | None = field(default=None, init=False, repr=False)

    def fit(self, data: Measurements) -> "LogDistance":
        """Least squares over all links."""
        log_d = log_distance(data.user_xyz, data.bs_xyz)
        design = [np.ones((len(data), 1)), log_d[:, None]]
        if self.calibrate:
            self._stations = Stations.of(data)
            number = self._stations.numbers(data.bs, data.bs_xyz)
            design.append(np.eye(len(self._stations))[number])
        found = np.linalg.lstsq(np.hstack(design), data.gain_db, rcond=None)[0]
        self.intercept, self.slope = found[:2].tolist()
        self.offsets = None
        if self.calibrate:
            # Offsets and the intercept share a direction: what all have in common is the line's.
            self.intercept += found[2:].mean()
            self.offsets = found[2:] - found[2:].mean()
        return self

    def predict(self, user_xyz: ArrayLike, bs_xyz: ArrayLike) -> NDArray[np.float64]:
        """Gain of each link in dB, without offsets."""
        if math.isnan(self.intercept):
            raise not_fitted()
        user, bs = paired(user_xyz, bs_xyz)
        return self.intercept + self.slope * log_distance(user, bs)

    def predict_links(self, data: HasMeasurements) -> NDArray[np.float64]:
        """Gain of each link in dB, with its base station's offset."""
        return self.answered(data.user_xyz, data.bs_xyz, data.bs)

    def answered(
        self, user: NDArray[np.float64], mast: NDArray[np.float64], bs: NDArray | None
    ) -> NDArray[np.float64]:
        """With the offset of the base station of that id, or else of the nearest."""
        gain = self.predict(user, mast)
        if self.offsets is None or self._stations is None:
            return gain
        return gain + self.offsets[self._stations.numbers(bs, mast)]
