"""What every mechanism shares: clipping, the budget, and adding the noise."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilmap._kernels import rows
from veilmap._util import checks
from veilmap._util.arrays import Array
from veilmap._util.options import check_options, option
from veilmap._util.threads import even_parts, run_parts
from veilmap.errors import ConfigurationError
from veilmap.geometry.grid import Grid
from veilmap.privacy.mechanisms.guarantees import Guarantee
from veilmap.privacy.mechanisms.sums import Coins, Group, Rest, RunningSum, Summand
from veilmap.privacy.noise import Draw

# A user whose gradient vanishes still sends noise, as if its norm were this share of the
# clip: an upload of zeros would say that the user sees nothing the map does not know.
LEAST_NORM = 0.01


@dataclass(frozen=True)
class Contribution:
    """Some users' gradients before anything is done to them.

    Attributes
    ----------
    height_gradient : (N, M) float
        g = ∂F_i/∂h.
    theta_gradient : (N, P) float
        ∂F_i/∂θ.
    counts : (N,) int
        J_i.
    user_xy : (N, 2) float
        Where the users are, in metres.
    laws : int
        How many pairs (intercept, slope) θ begins with.
    """

    height_gradient: NDArray[np.float64]
    theta_gradient: NDArray[np.float64]
    counts: NDArray[np.int64]
    user_xy: NDArray[np.float64]
    laws: int = 2


@dataclass(frozen=True)
class Protected:
    """Gradients as they leave their users, with what only the users know of them.

    Attributes
    ----------
    uploads : (N, M)
        g̃: clipped gradients with noise.
    norms : (N,) float
        ‖g‖ before clipping.
    noise_energy : (N,) float
        Σσ² of each user's noise.
    """

    uploads: Array
    norms: NDArray[np.float64]
    noise_energy: NDArray[np.float64]


@dataclass(frozen=True)
class Answer(Protected):
    """All that leaves users in a round: more than the heights' gradients.

    Attributes
    ----------
    theta_gradient : (N, P)
        What is sent of ∂F_i/∂θ.
    weights : (N,) int
        How much each counts in the mean.
    """

    theta_gradient: Array
    weights: NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Mechanism(ABC):
    """What a client does to its gradient before it leaves.

    It sees gradients, the grid and its own user's position, never a measurement or a map.

    Parameters
    ----------
    clip : float
        C: bound of the gradient's norm, ḡ = g · min(1, C/‖g‖).
    """

    clip: float = option(1.0, "--clip", "C: bound of the norm of a gradient.", above=0)

    name: ClassVar[str]  # in configurations and transcripts
    needs_sums: ClassVar[bool] = False  # whether it protects only what is summed before it is seen
    whole_numbers: ClassVar[bool] = False  # whether answers are, which sums without rounding
    fused: ClassVar[bool] = False  # whether users can be aggregated in process, see `summand`
    perturbs_uploads: ClassVar[bool] = False  # whether it adds noise to each gradient itself

    def __post_init__(self) -> None:
        check_options(self)

    @property
    @abstractmethod
    def guarantee(self) -> Guarantee:
        """What it promises, as data."""

    @abstractmethod
    def answer(self, raw: Contribution, grid: Grid, draws: Sequence[Draw], cohort: int) -> Answer:
        """What users send in a round to which ``cohort`` users were asked; a `Draw` each."""

    def summand(self, cells: int, parameters: int) -> Summand:
        """How gradients of h of so many cells are aggregated without an upload of each user.

        Only of a mechanism that is ``fused``; `coins` and `add_rest` do the rest.
        """
        raise NotImplementedError

    def coins(self, draws: Sequence[Draw]) -> Coins:
        """To be tossed once a round: a second toss of the system's would fall otherwise."""
        return Coins.untossed(len(draws))

    def add_rest(
        self, rest: Rest, draws: Sequence[Draw], coins: Coins, group: Group, total: RunningSum
    ) -> NDArray[np.float64]:
        """Count the users and add what was not added with their gradients of h.

        Real numbers were added whole, with those of θ and with noise; of whole numbers θ's and
        the noise are left. Returns the noise's energy Σσ², (N,).
        """
        raise NotImplementedError

    def upload_bytes(self, cells: int, parameters: int) -> int:
        """What a user sends in a round: 64-bit floats and a weight."""
        return 8 * (cells + parameters + 1)

    def read(
        self,
        heights: NDArray[np.float64],
        propagation: NDArray[np.float64],
        weight: int,
        laws: int = 2,
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean gradients from the weighted sums of answers."""
        return heights / max(weight, 1), propagation / max(weight, 1)

    def least_answers(self, cohort: int) -> int:
        """How many of ``cohort`` must have answered before their sum may be opened."""
        return 1

    def largest_upload(self) -> float:
        """A norm that no honest upload exceeds, for servers that screen what they get."""
        return 10 * self.clip


@dataclass(frozen=True, kw_only=True)
class UploadNoise(Mechanism):
    """A mechanism that adds noise to each upload of ∂F_i/∂h; it supplies `_variances`.

    ∂F_i/∂θ and J_i leave as they are: the paper protects only h.
    """

    @abstractmethod
    def _variances(
        self,
        gradients: NDArray[np.float64],
        energies: NDArray[np.float64],
        grid: Grid,
        user_xy: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        """σ² for clipped gradients (N, M) of energies ‖ḡ‖² > 0 at positions (N, 2)."""

    def variances(self, gradient: ArrayLike, grid: Grid, user_xy: ArrayLike) -> NDArray[np.float64]:
        """σ² of every cell for clipped gradients: (M,) with one position, or (N, M) with (N, 2)."""
        gradients, norms, places = _checked(gradient, grid, user_xy)
        if (norms > self.clip * (1 + 1e-9)).any():
            raise ConfigurationError(
                f"clip the gradient to {self.clip:g} before asking for its noise"
            )
        result = self._by_layers(gradients, self._energies(norms), grid, places)
        return result.reshape(np.shape(gradient))

    def protect(
        self, gradients: ArrayLike, grid: Grid, user_xy: ArrayLike, draws: Sequence[Draw]
    ) -> Protected:
        """Clip the gradients (N, M) of users at (N, 2) and add noise; one `Draw` per user."""
        raw, norms, places = _checked(gradients, grid, user_xy)
        uploads, factors = np.empty_like(raw), self.clip / np.maximum(norms, self.clip)

        def clip(start: int, stop: int) -> None:
            np.multiply(raw[start:stop], factors[start:stop, None], out=uploads[start:stop])

        run_parts(clip, even_parts(len(raw)))
        energies = self._energies(np.minimum(norms, self.clip))
        self._add_noise(uploads, energies, grid, places, draws)
        return Protected(uploads, norms, self._noise_energies(energies))

    def add_rest(
        self, rest: Rest, draws: Sequence[Draw], coins: Coins, group: Group, total: RunningSum
    ) -> NDArray[np.float64]:
        """Only the weights J_i are left."""
        np.add.at(total.weights, group.tiles, rest.counts)
        return self._noise_energies(self._energies(np.minimum(rest.norms, self.clip)))

    def answer(self, raw: Contribution, grid: Grid, draws: Sequence[Draw], cohort: int) -> Answer:
        """Noisy gradients of the heights, with those of θ and the number of links as they are."""
        sent = self.protect(raw.height_gradient, grid, raw.user_xy, draws)
        return Answer(sent.uploads, sent.norms, sent.noise_energy, raw.theta_gradient, raw.counts)

    def _add_noise(
        self,
        uploads: NDArray[np.float64],
        energies: NDArray[np.float64],
        grid: Grid,
        places: NDArray[np.float64],
        draws: Sequence[Draw],
    ) -> None:
        """Add noise to the clipped gradients in place."""
        variances = self._by_layers(uploads, energies, grid, places)

        def part(start: int, stop: int) -> None:
            for i in range(start, stop):
                draws[i].add_noise(uploads[i], variances[i])

        run_parts(part, even_parts(len(uploads)))

    def _by_layers(
        self,
        gradients: NDArray[np.float64],
        energies: NDArray[np.float64],
        grid: Grid,
        places: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        """σ² of gradients that may have several layers over the grid, alike in all of them."""
        layers = gradients.shape[1] // grid.cells
        if layers == 1:
            return self._variances(gradients, energies, grid, places)
        stacked = gradients.reshape(len(gradients), layers, grid.cells)
        folded = np.sqrt(np.einsum("ilm,ilm->im", stacked, stacked))
        return np.tile(self._variances(folded, energies, grid, places) / layers, (1, layers))

    @abstractmethod
    def _noise_energies(self, energies: NDArray[np.float64]) -> NDArray[np.float64]:
        """Σσ² for clipped gradients of these energies, (N,)."""

    def _energies(self, norms: NDArray[np.float64]) -> NDArray[np.float64]:
        """‖ḡ‖² that the budget refers to; never 0, so that a vanishing gradient does not show."""
        return np.maximum(norms, LEAST_NORM * self.clip) ** 2


@dataclass(frozen=True, kw_only=True)
class BudgetedNoise(UploadNoise):
    """A mechanism whose noise energy is a multiple of the gradient's: Σσ² = μ‖ḡ‖²."""

    noise_budget: float = option(
        10.0, "--budget", "Noise budget μ: noise energy over gradient energy.", least=0
    )

    def coins(self, draws: Sequence[Draw]) -> Coins:
        """Seeds of the users' noise; only for draws that have one."""
        if self.noise_budget == 0:
            return super().coins(draws)
        seeds = np.array([draw.seed("") for draw in draws]).reshape(len(draws), 3)
        return Coins(seeds, np.ones(len(draws), dtype=np.bool_))

    def _noise_energies(self, energies: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.noise_budget * energies

    def largest_upload(self) -> float:
        """Ten times the root-mean-square norm at the clip: √(1 + μ) C."""
        return 10 * self.clip * (1 + self.noise_budget) ** 0.5


def norms_of(gradients: NDArray[np.float64]) -> NDArray[np.float64]:
    """‖row‖ of each row, to the same bits alone or among others."""
    result = np.empty(len(gradients))
    dense = np.ascontiguousarray(gradients)

    def part(start: int, stop: int) -> None:
        rows.lengths(start=start, stop=stop, rows=dense, out=result)

    run_parts(part, even_parts(len(dense)))
    return result


def _checked(
    gradients: ArrayLike, grid: Grid, user_xy: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Gradients (N, M), their norms (N,) and positions (N, 2)."""
    dense = np.ascontiguousarray(np.atleast_2d(checks.floats("gradient", gradients)))
    if dense.ndim != 2 or dense.shape[1] == 0 or dense.shape[1] % grid.cells:
        raise ConfigurationError(
            f"a gradient needs {grid.cells} entries, not shape {np.shape(gradients)}"
        )
    norms = norms_of(dense)
    if not np.isfinite(norms).all():
        raise ConfigurationError("a gradient has an entry that is not finite")
    places = np.atleast_2d(checks.points("user_xy", user_xy, columns=2))
    if len(places) != len(dense):
        raise ConfigurationError(
            f"{len(dense)} gradients need as many positions, not {len(places)}"
        )
    return dense, norms, places
