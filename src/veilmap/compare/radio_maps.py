"""Our radio map as an estimator beside the baselines: from pooled links, and federated."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from veilmap.baselines import Estimator
from veilmap.baselines.base import fitted
from veilmap.data.measurements import Measurements
from veilmap.federation import Run
from veilmap.federation.selection import ModelChoice
from veilmap.geometry.grid import Grid
from veilmap.model.radio_map import HasMeasurements, RadioMap
from veilmap.privacy.mechanisms import Mechanism


@dataclass(eq=False)
class PooledMap(Estimator):
    """A radio map learned from all links in one place.

    Parameters
    ----------
    grid : Grid
    model : ModelChoice
        What the map has beside the paper's obstacles.
    rounds : int
    buildings : (rows, columns) float, optional
        Public heights.
    """

    grid: Grid
    model: ModelChoice = field(default_factory=ModelChoice)
    rounds: int = 100
    buildings: NDArray[np.float64] | None = field(default=None, repr=False)
    radio_map_: RadioMap | None = field(default=None, init=False, repr=False)

    def fit(self, data: Measurements) -> "PooledMap":
        """Train without clipping, with exact θ and field."""
        self.radio_map_ = self.model.fit(
            data, self.grid, rounds=self.rounds, buildings=self.buildings
        )
        return self

    def predict_by_station(
        self, user: NDArray[np.float64], mast: NDArray[np.float64], bs: NDArray | None
    ) -> NDArray[np.float64]:
        """Gain of each link in dB, without offsets of base stations or devices."""
        return fitted(self.radio_map_).predict(user, mast)

    def predict_links(self, data: HasMeasurements) -> NDArray[np.float64]:
        """What the devices would read, in dB."""
        return fitted(self.radio_map_).predict_links(data)


@dataclass(eq=False)
class FederatedMap(PooledMap):
    """A radio map learned in rounds from users who keep their links.

    Parameters
    ----------
    grid, model, rounds, buildings
        As of `PooledMap`.
    mechanism : Mechanism, optional
        What users do to their gradients; by default they are only clipped.
    seed : int, optional
        Noise seed; by default noise comes from the operating system's generator.
    """

    mechanism: Mechanism | None = None
    seed: int | None = None
    run_: Run | None = field(default=None, init=False, repr=False)

    def fit(self, data: Measurements) -> "FederatedMap":
        """Train on a federation of the users of ``data``."""
        # What is published of a comparison is errors: base stations are those that were measured.
        self.run_ = self.model.train(
            data,
            self.grid,
            mechanism=self.mechanism,
            rounds=self.rounds,
            seed=self.seed,
            buildings=self.buildings,
            stations=data.stations,
        )
        self.radio_map_ = self.run_.radio_map
        return self
