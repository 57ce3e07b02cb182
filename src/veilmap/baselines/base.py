"""What all estimators of gains share: parameters, stations by place and id, predictions."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from veilmap._util import extras
from veilmap._util.arrays import Array, Bools, Floats, Ints
from veilmap._util.ids import in_order, places
from veilmap.data.measurements import Measurements
from veilmap.errors import ConfigurationError
from veilmap.geometry.grid import paired
from veilmap.model.radio_map import HasMeasurements

if TYPE_CHECKING:
    from scipy.spatial import KDTree

T = TypeVar("T")


@dataclass
class Estimator(ABC):
    """A predictor of links' gains that is fitted to measurements, as scikit-learn's are to X, y.

    A subclass is a dataclass. The fields that its constructor takes are its parameters, which
    `fit` leaves as they are; what `fit` finds is kept in other fields. `sklearn.base.clone` and
    `get_params` work, and scikit-learn itself is not needed.
    """

    needs: ClassVar[tuple[str, str] | None] = None
    """A library that `fit` needs, and the extra of veilmap that it comes with."""

    @abstractmethod
    def fit(self, data: Measurements) -> Self:
        """Fit to pooled measurements and return itself."""

    @abstractmethod
    def predict_by_station(self, user: Floats, mast: Floats, bs: Array | None) -> Floats:
        """Gain of each link in dB; without ``bs`` the nearest base station answers."""

    def predict(self, user_xyz: ArrayLike, bs_xyz: ArrayLike) -> Floats:
        """Gain of each link in dB."""
        return self.predict_by_station(*paired(user_xyz, bs_xyz), None)

    def predict_links(self, data: HasMeasurements) -> Floats:
        """Gain of each link in dB, by its base station's id."""
        return self.predict_by_station(data.user_xyz, data.bs_xyz, data.bs)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters by name; ``deep`` adds those of estimators among them, as outer__inner."""
        own = {field.name: getattr(self, field.name) for field in fields(self) if field.init}
        return own | {
            f"{name}__{key}": value
            for name, inner in own.items()
            if deep and hasattr(inner, "get_params")
            for key, value in inner.get_params().items()
        }

    def set_params(self, **parameters: Any) -> Self:
        """Change parameters and return itself."""
        for name, value in parameters.items():
            own, _, inner = name.partition("__")
            if own not in self.get_params(deep=False):
                raise ConfigurationError(f"{type(self).__name__} has no parameter {own!r}", own)
            if inner:
                getattr(self, own).set_params(**{inner: value})
            else:
                setattr(self, own, value)
        return self

    def clone(self, **changes: Any) -> Self:
        """An estimator with the same parameters but for some changes, not fitted to anything."""
        own = self.get_params(deep=False) | changes
        return type(self)(**{k: v.clone() if hasattr(v, "clone") else v for k, v in own.items()})

    @classmethod
    def check_installed(cls, what: str) -> None:
        """Raise an error if a library that ``what`` needs is not installed."""
        if cls.needs is not None:
            module, extra = cls.needs
            extras.require(module, what, extra)


@dataclass(frozen=True)
class KnownStations:
    """The base stations of some measurements, each by its id, and where it is."""

    ids: Array
    xyz: Floats

    @classmethod
    def of(cls, data: Measurements) -> "KnownStations":
        """Every id once, at its first position."""
        ids, first = np.unique(data.bs, return_index=True)
        return cls(ids, data.bs_xyz[first])

    def __len__(self) -> int:
        return len(self.ids)

    def numbers(self, bs: Array | None, bs_xyz: Floats) -> Ints:
        """Each link's station: by its id, or the nearest one where the id is not known."""
        nearest = tree_of(self.xyz).query(bs_xyz)[1]
        if bs is None:
            return np.asarray(nearest)
        known = places(bs, in_order(self.ids.tolist()))
        return np.where(known >= 0, known, nearest)

    def rows(self, data: Measurements) -> list[Bools]:
        """Which links of ``data`` are each station's."""
        number = self.numbers(data.bs, data.bs_xyz)
        return [number == station for station in range(len(self))]

    def by_station(
        self,
        bs: Array | None,
        bs_xyz: Floats,
        places: Floats,
        at: Callable[[int, Floats], Floats | float],
    ) -> Floats:
        """What ``at`` says of each link's station at the link's place, (J,)."""
        station, found = self.numbers(bs, bs_xyz), np.empty(len(places))
        for number in np.unique(station):
            own = station == number
            found[own] = at(number, places[own])
        return found


def tree_of(points: Floats) -> "KDTree":
    """A tree that finds the nearest among points."""
    from scipy.spatial import KDTree  # slow to import, needed only here

    return KDTree(points)


def fitted(found: T | None) -> T:
    """What `fit` found; an error where it has not run."""
    if found is None:
        raise ConfigurationError("fit the estimator before predicting with it")
    return found
