"""What all baselines share: base stations by place and id."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilmap._util.ids import in_order, places
from veilmap.data.measurements import Measurements
from veilmap.errors import ConfigurationError, VeilmapError
from veilmap.geometry.grid import paired
from veilmap.model.evaluation import KnowsDevices, Predictor
from veilmap.model.radio_map import HasMeasurements

if TYPE_CHECKING:
    from scipy.spatial import KDTree


class Baseline(Predictor, KnowsDevices, Protocol):
    """A predictor that is fitted to pooled measurements."""

    def fit(self, data: Measurements) -> "Baseline":
        """Fit and return itself."""
        ...


@dataclass(frozen=True)
class Stations:
    """The base stations of some measurements, each by its id, and where it is."""

    ids: NDArray
    xyz: NDArray[np.float64]

    @classmethod
    def of(cls, data: Measurements) -> "Stations":
        """Every id once, at its first position."""
        ids, first = np.unique(data.bs, return_index=True)
        return cls(ids, data.bs_xyz[first])

    def __len__(self) -> int:
        return len(self.ids)

    def numbers(self, bs: NDArray | None, bs_xyz: NDArray[np.float64]) -> NDArray[np.int64]:
        """Each link's station: by its id, or the nearest one where the id is not known."""
        nearest = tree_of(self.xyz).query(bs_xyz)[1]
        if bs is None:
            return nearest
        known = places(bs, in_order(self.ids.tolist()))
        return np.where(known >= 0, known, nearest)


class AnswersByStation(ABC):
    """A baseline that asks which base station a link belongs to."""

    def predict(self, user_xyz: ArrayLike, bs_xyz: ArrayLike) -> NDArray[np.float64]:
        """Gain of each link in dB."""
        return self._answered(*paired(user_xyz, bs_xyz), None)

    def predict_links(self, data: HasMeasurements) -> NDArray[np.float64]:
        """Gain of each link in dB, by its base station's id."""
        return self._answered(data.user_xyz, data.bs_xyz, data.bs)

    @abstractmethod
    def _answered(
        self, user: NDArray[np.float64], mast: NDArray[np.float64], bs: NDArray | None
    ) -> NDArray[np.float64]:
        """Gain of each link in dB; without ``bs`` the nearest station answers."""


def tree_of(points: NDArray[np.float64]) -> "KDTree":
    """For the nearest among points."""
    from scipy.spatial import KDTree  # slow to import, needed only here

    return KDTree(points)


def not_fitted() -> VeilmapError:
    """What to say to whoever predicts too early."""
    return ConfigurationError("fit the baseline before predicting with it")
