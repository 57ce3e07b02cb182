"""The truth, as far as this model can tell it."""

from dataclasses import dataclass, field

import numpy as np

from veilmap._util.arrays import Array, Floats
from veilmap.baselines.base import Estimator, fitted
from veilmap.data.measurements import Measurements
from veilmap.model.radio_map import RadioMap
from veilmap.scenes.scene import Scene


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
