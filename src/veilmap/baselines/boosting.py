"""Gradient-boosted trees over the ends of links."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from veilmap._util.arrays import Array, Floats
from veilmap.baselines.base import Estimator, KnownStations, fitted
from veilmap.data.measurements import Measurements
from veilmap.model.radio_map import log_distance

_MOST_CATEGORIES = 255  # scikit-learn's limit


@dataclass
class GradientBoosting(Estimator):
    """scikit-learn's histogram gradient boosting on positions, distance, bearing and station."""

    needs: ClassVar = ("sklearn", "learn")

    iterations: int = 300
    _model: Any = field(default=None, init=False, repr=False)
    _stations: KnownStations | None = field(default=None, init=False, repr=False)

    def fit(self, data: Measurements) -> "GradientBoosting":
        """Grow the trees."""
        self.check_installed("gradient-boosting")
        from sklearn.ensemble import HistGradientBoostingRegressor

        self._stations = KnownStations.of(data)
        columns = self._columns(data.user_xyz, data.bs_xyz, data.bs)
        kinds = [columns.shape[1] - 1] if len(self._stations) <= _MOST_CATEGORIES else None
        model = HistGradientBoostingRegressor(
            max_iter=self.iterations, categorical_features=kinds, random_state=0
        )
        self._model = model.fit(columns, data.gain_db)
        return self

    def predict_by_station(self, user: Floats, mast: Floats, bs: Array | None) -> Floats:
        """Gain of each link in dB; without ``bs`` the nearest base station answers."""
        return np.asarray(fitted(self._model).predict(self._columns(user, mast, bs)))

    def _columns(self, user: Floats, mast: Floats, bs: Array | None) -> Floats:
        east, north = (user - mast)[:, :2].T
        numbers = fitted(self._stations).numbers(bs, mast)
        return np.column_stack(
            [user, mast, log_distance(user, mast), np.arctan2(east, north), numbers]
        )
