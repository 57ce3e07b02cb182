"""What an audit needs of a model, and what users have: positions, targets, other features."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from veilmap._util import checks
from veilmap._util.arrays import Array, Floats
from veilmap.errors import ConfigurationError, DataError

Parameters = Floats | Mapping[str, Floats]
"""One vector, or named arrays of any shape."""

_BATCH = 4_000_000  # numbers of gradients that are computed at once


@dataclass(frozen=True, eq=False)
class Records:
    """What one user holds: J records, each with a position and a target.

    Parameters
    ----------
    xy : (J, 2) array
        Where they were made, in metres.
    target : (J,) array
        What the model is to predict.
    features : (J, F) array, optional
        What else the model is given.
    """

    xy: Floats
    target: Floats
    features: Floats = None  # type: ignore[assignment]  # filled in below

    def __post_init__(self) -> None:
        xy = checks.points("xy", self.xy, columns=2)
        target = checks.floats("target", self.target)
        features = np.empty((len(xy), 0)) if self.features is None else self.features
        rest = checks.floats("features", features)
        if xy.ndim != 2 or len(xy) == 0 or target.shape != (len(xy),):
            raise DataError(
                f"records need xy of shape (J, 2) and a target each, not {xy.shape} and"
                f" {target.shape}"
            )
        if rest.ndim != 2 or len(rest) != len(xy):
            raise DataError(f"features of {len(xy)} records have that many rows, not {rest.shape}")
        if not (np.isfinite(target).all() and np.isfinite(rest).all()):
            raise DataError("records have a target or a feature that is not finite")
        for name, values in {"xy": xy, "target": target, "features": rest}.items():
            object.__setattr__(self, name, values)

    def __len__(self) -> int:
        return len(self.target)

    @property
    def columns(self) -> Floats:
        """x, y and the features side by side, (J, 2 + F): what most models take."""
        return np.hstack([self.xy, self.features])

    def select(self, rows: ArrayLike) -> "Records":
        """Some of the records: a mask, or row numbers."""
        picked = np.asarray(rows)
        return Records(self.xy[picked], self.target[picked], self.features[picked])

    def shifted(self, by: float) -> "Records":
        """The same with so much added to every target."""
        return replace(self, target=self.target + by)


class GradientModel(Protocol):
    """A model that users train by gradients of their own loss.

    A model whose parameters are the cells of a grid may say so by an attribute ``grid``.
    """

    @property
    def parameters(self) -> Parameters:
        """As the server sends them."""

    def gradient(self, parameters: Parameters, records: Records) -> Parameters:
        """Of one user's loss, by ``parameters`` and in their shape."""


@runtime_checkable
class HasFirstLayer(Protocol):
    """A model whose first layer is dense: its outputs are W z + b for inputs z."""

    @property
    def first_layer(self) -> tuple[str, str] | None:
        """Names of W (H, F) and b (H,) among the parameters; None if no layer is like that."""

    def inputs(self, records: Records) -> Floats:
        """Inputs z of every record, (J, F)."""


@runtime_checkable
class HasBatches(Protocol):
    """A model that computes gradients of several users at once, which is faster."""

    def gradients(self, parameters: Parameters, users: Sequence[Records]) -> Floats:
        """Of each user's loss, flat, (n, M)."""


def flat(parameters: Parameters) -> Floats:
    """One vector (M,), named arrays one after the other."""
    if isinstance(parameters, Mapping):
        parts = [np.ravel(checks.floats(name, part)) for name, part in parameters.items()]
        return np.concatenate(parts) if parts else np.empty(0)
    return checks.floats("parameters", parameters).ravel()


def shaped(vector: Floats, like: Parameters) -> Parameters:
    """A vector (M,) as what `flat` made one of."""
    if not isinstance(like, Mapping):
        return vector.reshape(np.shape(like))
    sizes = [np.size(part) for part in like.values()]
    parts = np.split(vector, np.cumsum(sizes)[:-1])
    return {
        name: part.reshape(np.shape(old))
        for (name, old), part in zip(like.items(), parts, strict=True)
    }


def gradient_of(model: GradientModel, vector: Floats, records: Records) -> Floats:
    """The gradient of one user's loss at parameters ``vector``, (M,)."""
    return _finite(flat(model.gradient(shaped(vector, model.parameters), records)), vector)


def gradients_of(model: GradientModel, vector: Floats, users: Sequence[Records]) -> Floats:
    """`gradient_of` several users, (n, M), at once where the model can."""
    if not isinstance(model, HasBatches):
        return np.array([gradient_of(model, vector, own) for own in users])
    parameters, size = shaped(vector, model.parameters), max(1, _BATCH // len(vector))
    parts = [users[first : first + size] for first in range(0, len(users), size)]
    return np.vstack([_finite(model.gradients(parameters, part), vector) for part in parts])


def _finite(found: Array, vector: Floats) -> Array:
    """Gradients (…, M), if that is what they are."""
    if found.shape[-1] != len(vector):
        raise ConfigurationError(
            f"the model has {len(vector)} parameters, and its gradient {found.shape[-1]}", "model"
        )
    if not np.isfinite(found).all():
        raise ConfigurationError("the model's gradient has an entry that is not finite", "model")
    return found
