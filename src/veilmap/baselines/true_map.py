"""The truth, as far as this model can tell it."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilmap.baselines.base import not_fitted
from veilmap.data.measurements import Measurements
from veilmap.model.radio_map import HasMeasurements, RadioMap
from veilmap.scenes.scene import Scene


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
            raise not_fitted()
        return self.radio_map.predict(user_xyz, bs_xyz)

    def predict_links(self, data: HasMeasurements) -> NDArray[np.float64]:
        """Gain of each link in dB."""
        return self.predict(data.user_xyz, data.bs_xyz)
