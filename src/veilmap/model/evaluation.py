"""How far predictions are from measurements."""

from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from veilmap._util.arrays import Floats
from veilmap.data.measurements import Measurements
from veilmap.model.radio_map import HasMeasurements


class Predictor(Protocol):
    """Anything that predicts the gain of links: a radio map or a baseline."""

    def predict(self, user_xyz: ArrayLike, bs_xyz: ArrayLike) -> Floats:
        """Gain of each link in dB."""
        ...


@runtime_checkable
class KnowsDevices(Protocol):
    """Something that also knows offsets of base stations and devices."""

    def predict_links(self, data: HasMeasurements) -> Floats:
        """What the devices would read, in dB."""
        ...


def mean_absolute_error(predictor: Predictor, data: Measurements) -> float:
    """MAE of the predicted gain over all links of ``data``, in dB."""
    if isinstance(predictor, KnowsDevices):
        predicted = predictor.predict_links(data)
    else:
        predicted = predictor.predict(data.user_xyz, data.bs_xyz)
    return float(np.mean(np.abs(predicted - data.gain_db)))
