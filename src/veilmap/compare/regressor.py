"""The radio map as a scikit-learn estimator, to be judged beside other models.

It wraps `FederatedMap` for X and y. scikit-learn is an extra: `veilmap` imports this when asked
for it.
"""

from collections.abc import Collection
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import NDArray

from veilmap._util import checks
from veilmap._util.arrays import Array
from veilmap.baselines.base import fitted
from veilmap.compare.methods import FederatedMap, PooledMap
from veilmap.data.measurements import DUPLICATE, BadRowsError, Measurements, listed
from veilmap.errors import ConfigurationError, DataError, MissingExtraError
from veilmap.federation.selection import ModelChoice
from veilmap.geometry.grid import Grid
from veilmap.model.radio_map import RadioMap
from veilmap.privacy.mechanisms import Mechanism

try:
    from sklearn.base import BaseEstimator, RegressorMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError:
    raise MissingExtraError(
        "RadioMapRegressor needs scikit-learn: pip install 'veilmap[learn]'", "learn"
    ) from None

_POSITIONS = 6
_ID_COLUMNS = {"stations": (6, "base-station id"), "devices": (7, "device id")}
_COLUMNS = (
    "six columns, user x, y, z and base station x, y, z in metres,"
    " then perhaps a base-station id and a device id"
)


@dataclass(frozen=True)
class _LinkColumns:
    """The columns of X by what they mean."""

    user_xyz: NDArray[np.float64]
    bs_xyz: NDArray[np.float64]
    bs: NDArray[np.int64]
    device: NDArray[np.int64]

    @classmethod
    def of(cls, X: NDArray[np.float64]) -> "_LinkColumns":
        """Whoever has no id column is number 0."""
        given = X[:, _POSITIONS:]
        if np.any(given != np.floor(given)) or np.any(np.abs(given) > 2**53):
            raise DataError("the id columns of X (7 and 8) hold whole numbers")
        ids = np.zeros((len(X), len(_ID_COLUMNS)), dtype=np.int64)
        ids[:, : given.shape[1]] = given
        return cls(X[:, :3], X[:, 3:_POSITIONS], ids[:, 0], ids[:, 1])


class RadioMapRegressor(RegressorMixin, BaseEstimator):
    """A radio map that is fitted, cross-validated and searched like any regressor.

    X has the columns user x, y, z and base station x, y, z in metres, then perhaps a
    base-station id and a device id (whole numbers); y is the gain in dB: of received power,
    subtract what was transmitted, since training begins near the gains of radio links. Exact
    repeats of a row count once.

    Parameters
    ----------
    cell_size : float
        Side of a cell, in metres.
    margin : float
        Ground around the links seen in `fit` that the grid covers too, in metres.
    degrees : 2, 3 or 4
        Degrees of obstruction, see `Propagation.of_degrees`.
    calibrate : "stations" and/or "devices", in a tuple
        Learn an offset of every base station or kind of device, known by its id column.
        Those that `fit` has not seen have none.
    obstacles : bool
        Whether obstacles are learned; without them one law of distance is, which takes no rounds.
    residual : float, optional
        Metres between the points of a field of what obstacles and law leave over, for every base
        station. Without a mechanism it is solved on all rows at once, and predictions have
        standard deviations.
    rounds : int
    mechanism : Mechanism, optional
        What users do to their gradients; by default they are only clipped.
    users : "place" or "groups"
        Who a user is: whoever measures at one position, or what ``groups`` of `fit` says.
        ``groups`` count whenever they are passed; "groups" refuses to do without.
    random_state : int, RandomState or None
        Of the noise. With None it comes from the operating system's cryptographic generator.

    Attributes
    ----------
    radio_map_ : RadioMap
    n_iter_ : int
        Rounds taken; fewer than ``rounds`` if a mechanism's privacy budget ended before.
    n_features_in_ : int
    feature_names_in_ : array of str
        Only if X had names.
    """

    radio_map_: RadioMap
    n_iter_: int

    def __init__(
        self,
        cell_size: float = 3.0,
        margin: float = 0.0,
        degrees: int = 2,
        calibrate: Collection[str] = (),
        obstacles: bool = True,
        residual: float | None = None,
        rounds: int = 200,
        mechanism: Mechanism | None = None,
        users: str = "place",
        random_state: Any = None,
    ) -> None:
        self.cell_size = cell_size
        self.margin = margin
        self.degrees = degrees
        self.calibrate = calibrate
        self.obstacles = obstacles
        self.residual = residual
        self.rounds = rounds
        self.mechanism = mechanism
        self.users = users
        self.random_state = random_state

    def fit(self, X: Any, y: Any, groups: Any = None) -> "RadioMapRegressor":
        """Train on the links X with gains y in dB.

        ``groups``, one id a row, says which user measured it.
        """
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        if not isinstance(self.mechanism, Mechanism | None):
            raise ConfigurationError(
                f"mechanism is one of veilmap's or None, not {self.mechanism!r}", "mechanism"
            )
        links = self._link_columns(X)
        data = _measurements(_users(self.users, groups, links), links, y)
        model = ModelChoice(
            self.obstacles,
            self.degrees,
            residual=self.residual,
            calibrate=tuple(self.calibrate),  # type: ignore[arg-type]
        )
        shared = self._grid(links), model, self.rounds
        if self.mechanism is None and self.residual is not None:
            self.radio_map_ = fitted(PooledMap(*shared).fit(data).radio_map_)
            self.n_iter_ = self.rounds if self.obstacles else 1
            return self
        seed = _seed(self.random_state)
        run = fitted(FederatedMap(*shared, mechanism=self.mechanism, seed=seed).fit(data).run_)
        self.radio_map_ = run.radio_map
        self.n_iter_ = len(run.history)
        return self

    @overload
    def predict(self, X: Any, return_std: Literal[False] = False) -> NDArray[np.float64]: ...

    @overload
    def predict(
        self, X: Any, return_std: Literal[True]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]: ...

    def predict(
        self, X: Any, return_std: bool = False
    ) -> NDArray[np.float64] | tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Gain of each link in dB, with the offsets of known stations and devices.

        ``return_std`` adds the standard deviation of a reading, which fields on all rows have.
        """
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        links = self._link_columns(X)
        gain = self.radio_map_.predict_links(links)
        if not return_std:
            return gain
        return gain, self.radio_map_.deviation(links.user_xyz, links.bs_xyz, links.bs)

    def _link_columns(self, X: NDArray[np.float64]) -> _LinkColumns:
        _check_columns(X.shape[1], self.calibrate)
        return _LinkColumns.of(X)

    def _grid(self, links: _LinkColumns) -> Grid:
        ends = np.vstack([links.user_xyz, links.bs_xyz])
        margin = checks.number("margin", self.margin, least=0)
        return Grid.covering(ends[:, :2], self.cell_size, margin)


def _check_columns(columns: int, calibrate: Collection[str]) -> None:
    """Refuse an X that has not the columns of links, or not the ids to calibrate by."""
    if not _POSITIONS <= columns <= _POSITIONS + len(_ID_COLUMNS):
        raise DataError(f"X has {columns} feature(s); it takes {_COLUMNS}")
    if not isinstance(calibrate, tuple | list | set | frozenset) or set(calibrate) - {*_ID_COLUMNS}:
        raise ConfigurationError(
            f"calibrate is a tuple of 'stations' and 'devices', or (), not {calibrate!r}",
            "calibrate",
        )
    for asked in calibrate:
        index, name = _ID_COLUMNS[asked]
        if columns <= index:
            raise ConfigurationError(
                f"calibrating {asked} takes the {name} as column {index + 1} of X,"
                f" which has {columns} columns",
                "calibrate",
            )


def _users(rule: str, groups: Any, links: _LinkColumns) -> Array:
    """Who measured each row."""
    if rule not in ("place", "groups"):
        raise ConfigurationError(f"users is 'place' or 'groups', not {rule!r}", "users")
    if groups is not None:
        users = np.asarray(groups)
        if users.shape != (len(links.bs),):
            raise DataError(f"groups have shape {users.shape}; X has {len(links.bs)} rows")
        return users
    if rule == "groups":
        raise ConfigurationError(
            "users='groups' takes the users from fit(X, y, groups=...)", "users"
        )
    return np.unique(links.user_xyz, axis=0, return_inverse=True)[1].reshape(-1)


def _measurements(users: Array, links: _LinkColumns, gain_db: Array) -> Measurements:
    columns = (users, links.user_xyz, links.bs_xyz, gain_db, links.bs, links.device)
    try:
        return Measurements(*columns)
    except BadRowsError as error:
        wrong = [problem for problem in error.bad if problem.reason != DUPLICATE]
        if wrong:
            raise DataError(f"X and y: {listed(wrong, error.total)}") from None
    # Resampling (bagging, the bootstrap) draws rows twice.
    return Measurements(*columns, on_bad="drop")


def _seed(random_state: Any) -> int | None:
    """The seed for `train`; an int is its own, so that both give the same map."""
    generator = check_random_state(random_state)
    if random_state is None:
        return None
    if isinstance(random_state, Integral):
        return int(random_state)
    return int(generator.randint(2**31 - 1))
