"""One straight line over the logarithm of the distance."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilmap.baselines.base import Stations
from veilmap.geometry import paired
from veilmap.measurements import Measurements
from veilmap.radiomap import HasMeasurements, log_distance


@dataclass
class LogDistance:
    """One straight line: gain = intercept + slope · log10(distance).

    Parameters
    ----------
    calibrate : bool
        Fit an offset of every base station too: where receivers are not calibrated.
    """

    calibrate: bool = False
    intercept: float = field(default=0.0, init=False)
    slope: float = field(default=0.0, init=False)
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
        # Offsets and the intercept share a direction; the least solution has mean offset near 0.
        found = np.linalg.lstsq(np.hstack(design), data.gain_db, rcond=None)[0]
        self.intercept, self.slope = found[:2].tolist()
        self.offsets = np.asarray(found[2:], dtype=np.float64) if self.calibrate else None
        return self

    def predict(self, user_xyz: ArrayLike, bs_xyz: ArrayLike) -> NDArray[np.float64]:
        """Gain of each link in dB, without offsets."""
        user, bs = paired(user_xyz, bs_xyz)
        return self.intercept + self.slope * log_distance(user, bs)

    def predict_links(self, data: HasMeasurements) -> NDArray[np.float64]:
        """Gain of each link in dB, with its base station's offset."""
        gain = self.predict(data.user_xyz, data.bs_xyz)
        if self.offsets is None or self._stations is None:
            return gain
        return gain + self.offsets[self._stations.numbers(data.bs, data.bs_xyz)]
