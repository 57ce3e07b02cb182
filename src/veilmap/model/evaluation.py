"""How far predictions are from measurements."""

from typing import Protocol

import numpy as np

from veilmap._util.arrays import Floats
from veilmap.data.measurements import Measurements
from veilmap.model.radio_map import HasMeasurements


class Predictor(Protocol):
    """Anything that predicts the gain of links: a radio map or a baseline."""

    def predict_links(self, data: HasMeasurements) -> Floats:
        """What the devices of ``data`` would read on its links, in dB."""


def mean_absolute_error(predictor: Predictor, data: Measurements) -> float:
    """MAE of the predicted gain over all links of ``data``, in dB."""
    return float(np.mean(np.abs(predictor.predict_links(data) - data.gain_db)))
