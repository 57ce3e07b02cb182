"""What a server may see of users' gradients: single ones, sums, or what a recording has."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from veilmap._util import checks
from veilmap._util.arrays import Floats
from veilmap.attacks.any_model import SeenGradients
from veilmap.attacks.any_model.places import layout
from veilmap.auditing.gradient_canaries import of_vectors, summed
from veilmap.auditing.verdict import change, delta_of
from veilmap.errors import ConfigurationError
from veilmap.federation.messages import ClientId
from veilmap.federation.transcript import ServerSees
from veilmap.model.gradient_models import GradientModel, Records
from veilmap.model.gradient_models.base import flat, gradients_of
from veilmap.privacy import accounting, noise
from veilmap.privacy.accounting import Promise
from veilmap.privacy.mechanisms import AggregateGaussian, Contribution, Mechanism
from veilmap.privacy.mechanisms.upload import UploadNoise

Users = Mapping[ClientId, Records]
_NOTHING = Promise(float("nan"), "no (ε, δ) guarantee: gradients leave as they are")


class Sees(ABC):
    """One thing that a server may see of users' gradients."""

    mechanism: Mechanism | None

    @property
    @abstractmethod
    def words(self) -> str:
        """For tables."""

    @abstractmethod
    def of(self, model: GradientModel, users: Users, seed: int | None) -> SeenGradients:
        """What it sees of these users in one round."""

    def change(self, epsilon: float) -> str:
        """What to do about the privacy of users, whom ``epsilon`` is promised."""
        seen: ServerSees = "sums" if isinstance(self, Sums) else "uploads"
        return change(seen, epsilon, delta_of(self.mechanism))

    def promise(self, seed: int | None) -> Promise:
        """What users are promised for one round, or why nothing is."""
        if self.mechanism is None:
            return _NOTHING
        spent = float("nan")
        if isinstance(self.mechanism, AggregateGaussian):
            spent = accounting.epsilon(self.mechanism, 1, self.mechanism.delta)
        return accounting.promise(self.mechanism, spent, seed)


@dataclass(frozen=True)
class Uploads(Sees):
    """Every user's gradient, as it is or after a mechanism.

    Parameters
    ----------
    mechanism : NoNoise, UniformNoise or GeometryAligned, optional
        Clips and adds noise; without one nothing is done. `GeometryAligned` needs a model whose
        parameters are the cells of its ``grid``.
    batch : callable, optional
        Which of its records a user trains on, such as `DiverseBatch`.
    """

    mechanism: UploadNoise | None = None
    batch: Callable[[Records], Records] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.mechanism, UploadNoise | None):
            raise ConfigurationError(
                f"single uploads have no {type(self.mechanism).__name__}: give it to Sums",
                "mechanism",
            )

    @property
    def words(self) -> str:
        """For tables."""
        return _with("every upload", self)

    def of(self, model: GradientModel, users: Users, seed: int | None) -> SeenGradients:
        """Each user's gradient."""
        own = gradients_of_users(model, users, self.batch)
        sent = _sent(self.mechanism, model, own, users, seed)
        clip = np.inf if self.mechanism is None else self.mechanism.clip
        return SeenGradients(flat(model.parameters), tuple((u,) for u in users), sent, clip)


@dataclass(frozen=True)
class Sums(Sees):
    """For each cohort who took part, and the mean of their gradients: one round.

    Rounds of other cohorts can be compared with it; an audit of one round says nothing about that.

    Parameters
    ----------
    size : int, optional
        How many users are in a cohort, by default all in one; the last ones join the one before.
    mechanism : optional
        `AggregateGaussian` for formal noise on the sum, or a mechanism for single uploads.
    batch : callable, optional
        Which of its records a user trains on.
    """

    size: int | None = None
    mechanism: Mechanism | None = None
    batch: Callable[[Records], Records] | None = None

    def __post_init__(self) -> None:
        if self.size is not None:
            object.__setattr__(self, "size", checks.whole("size", self.size, least=2))
        if isinstance(self.mechanism, AggregateGaussian):
            formal = of_vectors(self.mechanism)
            if formal.noise_multiplier is None:
                formal = accounting.calibrated(formal, 1)
            object.__setattr__(self, "mechanism", formal)

    @property
    def words(self) -> str:
        """For tables."""
        return _with("one sum" if self.size is None else f"sums over {self.size}", self)

    def of(self, model: GradientModel, users: Users, seed: int | None) -> SeenGradients:
        """The mean of each cohort."""
        ids, size = list(users), self.size or len(users)
        if len(ids) < max(size if self.size else 2, 2):
            raise ConfigurationError(
                f"a sum over {max(size, 2)} users needs as many, not {len(ids)}", "users"
            )
        own = gradients_of_users(model, users, self.batch)
        parts = np.array_split(np.arange(len(ids)), len(ids) // size)
        if isinstance(self.mechanism, AggregateGaussian):
            formal = self.mechanism
            means = [summed(formal, own[part], seed, f"cohort {k}") / len(part)
                     for k, part in enumerate(parts)]  # fmt: skip
        else:
            sent = _sent(self.mechanism, model, own, users, seed)
            means = [sent[part].mean(axis=0) for part in parts]
        clients = tuple(tuple(ids[i] for i in part) for part in parts)
        clip = np.inf if self.mechanism is None else self.mechanism.clip
        return SeenGradients(flat(model.parameters), clients, np.array(means), clip, sums=True)


@dataclass(frozen=True, eq=False)
class Recorded(Sees):
    """A round that was recorded where a server, or a node's own mod, saw it.

    Parameters
    ----------
    seen : SeenGradients
    called : str
        For tables.
    """

    seen: SeenGradients
    called: str = "recorded round"

    mechanism = None

    @property
    def words(self) -> str:
        """For tables."""
        return self.called

    def of(self, model: GradientModel, users: Users, seed: int | None) -> SeenGradients:
        """What was recorded of these users."""
        wanted = flat(model.parameters).shape
        if self.seen.parameters.shape != wanted:
            raise ConfigurationError(
                f"the model has {wanted[0]} parameters, the recording"
                f" {len(self.seen.parameters)}", "model",
            )  # fmt: skip
        rows = [i for i, own in enumerate(self.seen.clients) if set(own) <= set(users)]
        if not rows:
            raise ConfigurationError("the recording has nobody of these users", "users")
        clients = tuple(self.seen.clients[row] for row in rows)
        return replace(self.seen, clients=clients, uploads=self.seen.uploads[rows])

    def promise(self, seed: int | None) -> Promise:
        """Nothing is known of what the app did."""
        return Promise(float("nan"), "not known: the recording does not say how it was protected")


def gradients_of_users(
    model: GradientModel, users: Users, batch: Callable[[Records], Records] | None = None
) -> Floats:
    """The gradient of every user's loss, (N, M)."""
    vector = flat(model.parameters)
    chosen: Sequence[Records] = [own if batch is None else batch(own) for own in users.values()]
    return gradients_of(model, vector, chosen)


def _sent(
    mechanism: Mechanism | None, model: GradientModel, own: Floats, users: Users, seed: int | None
) -> Floats:
    """Single gradients as they leave their users."""
    if mechanism is None:
        return own
    grid = layout(model, own.shape[1])
    raw = Contribution.of_vectors(own)
    if grid is not None:
        places = np.array([records.xy.mean(axis=0) for records in users.values()])
        raw = replace(raw, user_xy=places)
    draws = [noise.draw(seed, client, 0) for client in users]
    sent: Any = mechanism.answer(raw, grid, draws, len(own)).uploads
    return np.asarray(sent, dtype=np.float64)


def _with(seen: str, sees: Uploads | Sums) -> str:
    """The trust model, and what is done before."""
    parts = [seen]
    if sees.mechanism is not None:
        parts.append(_settings(sees.mechanism))
    if sees.batch is not None:
        parts.append(str(sees.batch) if hasattr(sees.batch, "radius") else "chosen batches")
    return ", ".join(parts)


def _settings(mechanism: Mechanism) -> str:
    """A mechanism in a few words."""
    if isinstance(mechanism, AggregateGaussian):
        return f"formal noise ε = {mechanism.epsilon:g}, δ = {mechanism.delta:g}"
    noisy = getattr(mechanism, "noise_budget", None)
    clipped = f"clipped to {mechanism.clip:.3g}"
    return clipped if noisy is None else f"{clipped}, {mechanism.name} noise μ = {noisy:g}"
