"""How far predictions are from measurements."""

from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilmap.measurements import Measurements


class Predictor(Protocol):
    """Anything that predicts the gain of links: a radio map or a baseline."""

    def predict(self, user_xyz: ArrayLike, bs_xyz: ArrayLike) -> NDArray[np.float64]:
        """Gain of each link in dB."""
        ...


def mean_absolute_error(predictor: Predictor, data: Measurements) -> float:
    """MAE of the predicted gain over all links of ``data``, in dB."""
    return float(np.mean(np.abs(predictor.predict(data.user_xyz, data.bs_xyz) - data.gain_db)))
