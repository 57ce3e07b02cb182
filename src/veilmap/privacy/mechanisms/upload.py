"""Noise on each upload itself, and the two simplest kinds of it: none, and the same everywhere."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from veilmap._util import checks
from veilmap._util.arrays import Floats
from veilmap._util.options import option
from veilmap._util.plain import plain
from veilmap._util.threads import even_parts, run_parts
from veilmap.errors import ConfigurationError
from veilmap.geometry.grid import Grid
from veilmap.privacy.mechanisms.base import (
    Answer,
    Contribution,
    Mechanism,
    NoGuarantee,
    Protected,
    finite_norms,
)
from veilmap.privacy.mechanisms.sums import Coins, Group, Rest, RunningSum, Summand
from veilmap.privacy.noise import Draw

# A user whose gradient vanishes still sends noise, as if its norm were this share of the
# clip: an upload of zeros would say that the user sees nothing the map does not know.
LEAST_NORM = 0.01

_ROUNDING = 1e-6  # of norms that are compared
_CERTAINTY = 50.0  # t: honest uploads are refused with a probability below e^(−t)


@dataclass(frozen=True, kw_only=True)
class UploadNoise(Mechanism):
    """A mechanism that adds noise to each upload of ∂F_i/∂h; it supplies `_variances`.

    ``theta`` says what becomes of ∂F_i/∂θ and J_i. In the "clear" they leave as they are: the paper
    protects only h. With "sum" the server gets no more than their sums, as secure aggregation of
    a handful of numbers gives them, and J_i times a user's gradient of h.
    """

    theta: str = option(
        "clear",
        "--theta",
        "Users' gradients of θ and numbers of links: in the clear, or only their sum.",
        choices=("clear", "sum"),
    )

    @property
    def covers_theta(self) -> bool:
        """Whether gradients of θ and numbers of links leave only in sums."""
        return self.theta == "sum"

    @property
    def _clipped(self) -> str:
        return f"gradients are clipped to norm C = {self.clip:g}"

    @abstractmethod
    def _variances(
        self, gradients: Floats, energies: Floats, grid: Grid | None, places: Floats | None
    ) -> Floats:
        """σ² for clipped gradients (N, M) of energies ‖ḡ‖² > 0 at positions (N, 2)."""

    def variances(self, gradient: ArrayLike, grid: Grid, user_xy: ArrayLike) -> Floats:
        """σ² of every cell for clipped gradients: (M,) with one position, or (N, M) with (N, 2)."""
        gradients, norms, places = _checked(gradient, grid, user_xy)
        if (norms > self.clip * (1 + 1e-9)).any():
            raise ConfigurationError(
                f"clip the gradient to {self.clip:g} before asking for its noise"
            )
        result = self._by_layers(gradients, self._energies(norms), grid, places)
        return result.reshape(np.shape(gradient))

    def protect(
        self,
        gradients: ArrayLike,
        grid: Grid | None,
        user_xy: ArrayLike | None,
        draws: Sequence[Draw],
    ) -> Protected:
        """Clip the gradients (N, M) of users at (N, 2) and add noise; one `Draw` per user.

        Without a grid the gradients are vectors of any length, whose entries have no positions.
        """
        if grid is None:
            raw, norms, places = *self._without_positions(gradients), None
        else:
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
    ) -> Floats:
        """Only the weights J_i are left."""
        np.add.at(total.weights, group.tiles, rest.counts)
        return self._noise_energies(self._energies(np.minimum(rest.norms, self.clip)))

    def answer(
        self, raw: Contribution, grid: Grid | None, draws: Sequence[Draw], cohort: int
    ) -> Answer:
        """Noisy gradients of the heights, with those of θ and the number of links as they are."""
        sent = self.protect(raw.height_gradient, grid, raw.user_xy, draws)
        return Answer(sent.uploads, sent.norms, sent.noise_energy, raw.theta_gradient, raw.counts)

    def _add_noise(
        self,
        uploads: Floats,
        energies: Floats,
        grid: Grid | None,
        places: Floats | None,
        draws: Sequence[Draw],
    ) -> None:
        """Add noise to the clipped gradients in place."""
        variances = self._by_layers(uploads, energies, grid, places)

        def part(start: int, stop: int) -> None:
            for i in range(start, stop):
                draws[i].add_noise(uploads[i], variances[i])

        run_parts(part, even_parts(len(uploads)))

    def _by_layers(
        self, gradients: Floats, energies: Floats, grid: Grid | None, places: Floats | None
    ) -> Floats:
        """σ² of gradients that may have several layers over the grid, alike in all of them."""
        layers = 1 if grid is None else gradients.shape[1] // grid.cells
        if grid is None or layers == 1:
            return self._variances(gradients, energies, grid, places)
        stacked = gradients.reshape(len(gradients), layers, grid.cells)
        folded = np.sqrt(np.einsum("ilm,ilm->im", stacked, stacked))
        return np.tile(self._variances(folded, energies, grid, places) / layers, (1, layers))

    def _without_positions(self, gradients: ArrayLike) -> tuple[Floats, Floats]:
        """Gradients (N, M) and their norms, for mechanisms that need no more."""
        if self.needs_positions:
            raise ConfigurationError(
                f"{type(self).__name__} needs parameters with positions: give their grid", "grid"
            )
        dense = np.ascontiguousarray(np.atleast_2d(checks.floats("gradient", gradients)))
        return dense, finite_norms(dense)

    @abstractmethod
    def _noise_energies(self, energies: Floats) -> Floats:
        """Σσ² for clipped gradients of these energies, (N,)."""

    def _energies(self, norms: Floats) -> Floats:
        """‖ḡ‖² that the budget refers to; never 0, so that a vanishing gradient does not show."""
        return np.maximum(norms, LEAST_NORM * self.clip) ** 2


@plain
@dataclass(frozen=True, kw_only=True)
class NoNoise(UploadNoise):
    """Clipped gradients leave as they are, as in plain federated learning."""

    name = "none"
    title = "No noise"
    sums_in_place = True
    guarantee = NoGuarantee("it adds no noise: gradients leave as they are")

    @property
    def in_words(self) -> str:
        """What clients do to their gradients."""
        return f"no noise: {self._clipped} and leave as they are"

    def _variances(
        self, gradients: Floats, energies: Floats, grid: Grid | None, places: Floats | None
    ) -> Floats:
        return np.zeros_like(gradients)

    def _add_noise(
        self,
        uploads: Floats,
        energies: Floats,
        grid: Grid | None,
        places: Floats | None,
        draws: Sequence[Draw],
    ) -> None:
        """None."""

    def _noise_energies(self, energies: Floats) -> Floats:
        return np.zeros_like(energies)

    def summand(self, cells: int, parameters: int) -> Summand:
        """Clipped gradients, each weighted by its links."""
        return Summand(self.clip)

    def largest_upload(self, cells: int) -> float:
        """The clip, but for rounding."""
        return self.clip * (1 + _ROUNDING)


@dataclass(frozen=True, kw_only=True)
class BudgetedNoise(UploadNoise):
    """A mechanism whose noise energy is a multiple of the gradient's: Σσ² = μ‖ḡ‖²."""

    noise_budget: float = option(
        10.0, "--budget", "Noise budget μ: noise energy over gradient energy.", least=0, symbol="μ"
    )

    perturbs_uploads = True
    unevenness: ClassVar[float] = 1.0  # s: largest variance of a cell over their mean

    @property
    def _noisy(self) -> str:
        times = f"μ = {self.noise_budget:g} times their energy"
        return f"{self._clipped} and get Gaussian noise of {times}"

    def coins(self, draws: Sequence[Draw]) -> Coins:
        """Seeds of the users' noise; only for draws that have one."""
        if self.noise_budget == 0:
            return super().coins(draws)
        seeds = np.array([draw.seed("") for draw in draws]).reshape(len(draws), 3)
        return Coins(seeds, np.ones(len(draws), dtype=np.bool_))

    def _noise_energies(self, energies: Floats) -> Floats:
        return self.noise_budget * energies

    def largest_upload(self, cells: int) -> float:
        """C and √μ C (1 + √(2 t s/M)), which noise exceeds with a probability below e^(−t).

        No cell has more than s times the mean variance, and a norm varies no more than along its
        steepest direction (Gaussian concentration). Never more than ten times √(1 + μ) C.
        """
        spread = (2 * _CERTAINTY * self.unevenness / cells) ** 0.5
        largest = self.clip * (1 + _ROUNDING + self.noise_budget**0.5 * (1 + spread))
        return min(largest, 10 * self.clip * (1 + self.noise_budget) ** 0.5)


@plain
@dataclass(frozen=True, kw_only=True)
class UniformNoise(BudgetedNoise):
    """Gaussian noise of equal variance everywhere, Σσ² = μ‖ḡ‖², with μ the ``noise_budget``.

    It hides nothing for certain: like every mechanism whose variance follows the private
    gradient, it is obfuscation and has no (ε, δ) guarantee.
    """

    name = "uniform"
    title = "Uniform noise"
    sums_in_place = True
    guarantee = NoGuarantee(
        "it is obfuscation: the noise's variance follows the private gradient, so the noise"
        " itself tells of it, and θ's gradient leaves without any"
    )

    @property
    def in_words(self) -> str:
        """What clients do to their gradients."""
        return f"uniform noise: {self._noisy}, the same in every cell"

    def summand(self, cells: int, parameters: int) -> Summand:
        """Clipped gradients with noise, each weighted by its links."""
        return Summand(self.clip, budget=self.noise_budget)

    def _variances(
        self, gradients: Floats, energies: Floats, grid: Grid | None, places: Floats | None
    ) -> Floats:
        each = self.noise_budget * energies / gradients.shape[1]
        return np.broadcast_to(each[:, None], gradients.shape)


def _checked(
    gradients: ArrayLike, grid: Grid, user_xy: ArrayLike | None
) -> tuple[Floats, Floats, Floats]:
    """Gradients (N, M), their norms (N,) and positions (N, 2)."""
    dense = np.ascontiguousarray(np.atleast_2d(checks.floats("gradient", gradients)))
    if dense.ndim != 2 or dense.shape[1] == 0 or dense.shape[1] % grid.cells:
        raise ConfigurationError(
            f"a gradient needs {grid.cells} entries, not shape {np.shape(gradients)}"
        )
    norms = finite_norms(dense)
    if user_xy is None:
        raise ConfigurationError("gradients over a grid need their users' positions", "user_xy")
    places = np.atleast_2d(checks.points("user_xy", user_xy, columns=2))
    if len(places) != len(dense):
        raise ConfigurationError(
            f"{len(dense)} gradients need as many positions, not {len(places)}"
        )
    return dense, norms, places
