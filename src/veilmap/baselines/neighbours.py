"""The nearest measured links."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from veilmap._util import checks
from veilmap._util.arrays import Array, Floats
from veilmap.baselines.base import Estimator, KnownStations, fitted, tree_of
from veilmap.data.measurements import Measurements

if TYPE_CHECKING:
    from scipy.spatial import KDTree


@dataclass
class NearestNeighbours(Estimator):
    """Mean of the k links whose ends are nearest, weighted by inverse distance.

    Parameters
    ----------
    neighbours : int
        k.
    same_station : bool
        Only among links of the same base station: better where each was measured often. Else a
        link is a point in four dimensions, x and y of both its ends.
    """

    neighbours: int = 5
    same_station: bool = False
    _trees: "list[KDTree] | None" = field(default=None, init=False, repr=False)
    _gains: list[Floats] = field(default_factory=list, init=False, repr=False)
    _stations: KnownStations | None = field(default=None, init=False, repr=False)

    def fit(self, data: Measurements) -> "NearestNeighbours":
        """Keep all links."""
        checks.whole("neighbours", self.neighbours, least=1)
        if not self.same_station:
            self._trees = [tree_of(np.hstack([data.user_xyz[:, :2], data.bs_xyz[:, :2]]))]
            self._gains, self._stations = [data.gain_db], None
            return self
        self._stations = KnownStations.of(data)
        number = self._stations.numbers(data.bs, data.bs_xyz)
        own = [number == station for station in range(len(self._stations))]
        self._trees = [tree_of(data.user_xyz[rows, :2]) for rows in own]
        self._gains = [data.gain_db[rows] for rows in own]
        return self

    def predict_by_station(self, user: Floats, mast: Floats, bs: Array | None) -> Floats:
        """Gain of each link in dB; without ``bs`` the nearest base station answers."""
        if self._stations is None:
            return self._mean_of_nearest(0, np.hstack([user[:, :2], mast[:, :2]]))
        station, gain = self._stations.numbers(bs, mast), np.empty(len(user))
        for number in np.unique(station):
            own = station == number
            gain[own] = self._mean_of_nearest(number, user[own, :2])
        return gain

    def _mean_of_nearest(self, number: int, places: Floats) -> Floats:
        tree, gains = fitted(self._trees)[number], self._gains[number]
        count = min(self.neighbours, len(gains))
        apart, index = tree.query(places, count, workers=-1)
        apart, index = apart.reshape(-1, count), index.reshape(-1, count)
        weights = 1.0 / np.maximum(apart, 1e-6)  # a link at the same place counts alone
        return (weights * gains[index]).sum(axis=1) / weights.sum(axis=1)
