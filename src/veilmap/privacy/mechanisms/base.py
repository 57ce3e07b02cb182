"""What every mechanism shares: what it is given, what it promises, and what it must supply."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from veilmap._kernels import rows
from veilmap._util.arrays import Array, Floats, Ints
from veilmap._util.options import check_options, option, options_of
from veilmap._util.threads import even_parts, run_parts
from veilmap.errors import ConfigurationError
from veilmap.geometry.grid import Grid
from veilmap.privacy.mechanisms.sums import Coins, Group, Rest, RunningSum, Summand
from veilmap.privacy.noise import Draw


@dataclass(frozen=True)
class NoGuarantee:
    """No (ε, δ), and why not, in words."""

    reason: str


@dataclass(frozen=True)
class PrivateSums:
    """Every sum that is opened is a Gaussian mechanism for each user, whatever was opened before.

    So says the convolution theorem of `lattice`, but for factors within e^(± ``uneven``/2).
    """

    # μ: how many deviations apart a sum is with and without one user who is certainly in it.
    distance: float
    sampling: float = 1.0  # probability that a user is in it at all, decided secretly by the user
    adjacency: str = "one user's contributions to all rounds replaced by nothing"
    covers: tuple[str, ...] = ("gradient of the heights", "gradient of θ", "number of links")
    uneven: float = 0.0  # what a sum adds to ε for not being quite Gaussian


@dataclass(frozen=True)
class PrivateUploads:
    """Every upload is private by itself, or among those of a round once names are taken off.

    An upload is noise alone with probability ``blanket``, γ, and else the same noise on the
    condition that it lies in a cap around the user's contribution, which a share s of all noise
    does. So its density is never below γ times that of noise alone, nor above γ + (1 − γ)/s times.
    """

    blanket: float  # γ
    cap: float  # s
    among: int | None = None  # how many uploads at least are shuffled; None: they bear their names
    adjacency: str = "one user's uploads replaced by noise alone"
    covers: tuple[str, ...] = PrivateSums.covers


Guarantee = NoGuarantee | PrivateSums | PrivateUploads


@dataclass(frozen=True)
class Contribution:
    """Some users' gradients before anything is done to them."""

    height_gradient: Floats  # g = ∂F_i/∂h, (N, M)
    theta_gradient: Floats  # ∂F_i/∂θ, (N, P)
    counts: Ints  # J_i, (N,)
    user_xy: Floats | None  # where the users are, (N, 2), in metres
    laws: int = 2  # how many pairs (intercept, slope) θ begins with

    @classmethod
    def of_vectors(cls, gradients: Floats) -> "Contribution":
        """Gradients (N, M) of any model, whose parameters need no positions."""
        users = len(gradients)
        return cls(gradients, np.empty((users, 0)), np.ones(users, np.int64), None, laws=0)


@dataclass(frozen=True)
class Protected:
    """Gradients as they leave their users, with what only the users know of them."""

    uploads: Array  # g̃: clipped gradients with noise, (N, M)
    norms: Floats  # ‖g‖ before clipping, (N,)
    noise_energy: Floats  # Σσ² of each user's noise, (N,)


@dataclass(frozen=True)
class Answer(Protected):
    """All that leaves users in a round: more than the heights' gradients."""

    theta_gradient: Array  # what is sent of ∂F_i/∂θ, (N, P)
    weights: Ints  # how much each counts in the mean, (N,)


@dataclass(frozen=True, kw_only=True)
class Mechanism(ABC):
    """What a client does to its gradient before it leaves.

    It sees gradients, the grid and its own user's position, never a measurement or a map.
    ``clip`` is C, the bound of the gradient's norm: ḡ = g · min(1, C/‖g‖).
    """

    clip: float = option(1.0, "--clip", "C: bound of the norm of a gradient.", above=0)

    name: ClassVar[str]  # in configurations and transcripts
    title: ClassVar[str] = ""  # for people who choose among mechanisms; by default the name
    needs_sums: ClassVar[bool] = False  # whether it protects only what is summed before it is seen
    whole_numbers: ClassVar[bool] = False  # whether answers are, which sums without rounding
    filters: ClassVar[bool] = False  # whether gradients of h are filtered before they are clipped
    perturbs_uploads: ClassVar[bool] = False  # whether it adds noise to each gradient itself
    sums_in_place: ClassVar[bool] = False  # whether `summand` and `add_rest` do without uploads
    needs_positions: ClassVar[bool] = False  # whether parameters must be cells of a grid

    def __init_subclass__(cls) -> None:
        # Not inherited: a class that changes the answer would be added up as if it had not.
        cls.sums_in_place = vars(cls).get("sums_in_place", False)

    def __post_init__(self) -> None:
        check_options(self)

    @property
    def in_words(self) -> str:
        """What clients do to their gradients, a clause for reports."""
        settings = ", ".join(f"{name} = {getattr(self, name)}" for name in options_of(type(self)))
        return f"{self.name}: {settings}"

    @property
    @abstractmethod
    def guarantee(self) -> Guarantee:
        """What it promises, as data: `accounting` reads it and computes nothing else."""

    @abstractmethod
    def answer(
        self, raw: Contribution, grid: Grid | None, draws: Sequence[Draw], cohort: int
    ) -> Answer:
        """What users send in a round to which ``cohort`` users were asked; a `Draw` each.

        Only mechanisms that need positions need the grid.
        """

    def summand(self, cells: int, parameters: int) -> Summand:
        """How gradients of h of so many cells are aggregated without an upload of each user.

        `coins` and `add_rest` do the rest.
        """
        raise NotImplementedError

    @property
    def covers_theta(self) -> bool:
        """Whether gradients of θ and numbers of links leave only in sums, where uploads do not."""
        return False

    def coins(self, draws: Sequence[Draw]) -> Coins:
        """To be tossed once a round: a second toss of the system's would fall otherwise."""
        users = len(draws)  # nothing is rounded, and all take part
        return Coins(np.zeros(users, dtype=np.uint64), np.ones(users, dtype=np.bool_))

    def add_rest(
        self, rest: Rest, draws: Sequence[Draw], coins: Coins, group: Group, total: RunningSum
    ) -> Floats:
        """Count the users and add what was not added with their gradients of h.

        Real numbers were added whole, with those of θ and with noise; of whole numbers θ's and
        the noise are left. Returns the noise's energy Σσ², (N,).
        """
        raise NotImplementedError

    def upload_bytes(self, cells: int, parameters: int) -> int:
        """What a user sends in a round: 64-bit floats and a weight."""
        return 8 * (cells + parameters + 1)

    def read(
        self, heights: Floats, propagation: Floats, weight: int, laws: int = 2
    ) -> tuple[Floats, Floats]:
        """Mean gradients from the weighted sums of answers."""
        return heights / max(weight, 1), propagation / max(weight, 1)

    def least_answers(self, cohort: int) -> int:
        """How many of ``cohort`` must have answered before their sum may be opened."""
        return 1

    def is_possible(self, heights: Floats, theta: Floats, answers: int, cohort: int) -> bool:
        """Whether so many honest answers of a cohort can have such an opened sum."""
        return True

    def largest_upload(self, cells: int) -> float:
        """A norm that no honest upload exceeds, for servers that screen what they get."""
        return 10 * self.clip


def norms_of(gradients: Floats) -> Floats:
    """‖row‖ of each row, to the same bits alone or among others."""
    result = np.empty(len(gradients))
    dense = np.ascontiguousarray(gradients)

    def part(start: int, stop: int) -> None:
        rows.lengths(start=start, stop=stop, rows=dense, out=result)

    run_parts(part, even_parts(len(dense)))
    return result


def finite_norms(gradients: Floats) -> Floats:
    """‖row‖ of each row, none of which may hold a number that is not finite."""
    norms = norms_of(gradients)
    if not np.isfinite(norms).all():
        raise ConfigurationError("a gradient has an entry that is not finite")
    return norms
