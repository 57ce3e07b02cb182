"""Gaussian noise on the sum, a share from every client: a proven (ε, δ) guarantee."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from veilmap import _checks
from veilmap._theta import at_100_m
from veilmap._threads import even_parts, run_parts
from veilmap.errors import VeilmapError
from veilmap.geometry import Grid
from veilmap.mechanisms.base import Answer, Contribution, Mechanism, norms_of
from veilmap.mechanisms.guarantees import PrivateSums
from veilmap.mechanisms.lattice import discrete_gaussian
from veilmap.noise import Draw

# A sum of discrete Gaussians is not quite one. Kairouz, Liu and Steinke (ICML 2021, Theorem 1)
# bound what that adds to 1/z by τ√d, τ = 10 Σ_k exp(−2π²σ² k/(k + 1)) ≤ 10 n exp(−π²σ²). With
# σ ≥ 3 on the lattice it is below this share of 1/z for any n and d that fit a computer.
_LEAST_DEVIATION = 3.0
_UNEVEN = 1e-9


@dataclass(frozen=True, kw_only=True)
class AggregateGaussian(Mechanism):
    """Clients clip, round to a lattice, and add a share of discrete Gaussian noise.

    Only the sum is ever opened (secure aggregation), and it carries all shares: every user
    has (ε, δ)-differential privacy over all rounds, for the gradients of h and θ alike.
    Users count equally; how many links one has is not told.

    Parameters
    ----------
    epsilon, delta : float
        The promise for the whole run.
    clip : float
        C: bound of a user's whole contribution.
    noise_multiplier : float, optional
        z: deviation of the noise on the sum over the largest contribution. By default
        `train` computes it for the number of rounds; if given, training stops before a
        round that would exceed ε.
    dropout : float
        Share of a round's users whose noise may be missing: those who drop out, or who are
        not honest. The noise of the others suffices; with fewer, the sum is not opened.
    contribute : float
        Probability with which a user's gradient is in its answer; else it is noise alone.
        Only the user knows, so that privacy is amplified even against the server.
    theta_clip : float
        Bound of θ's gradient, in dB² per dB at 100 m.
    theta_share : float
        Share of C that θ's gradient may take.
    levels : int
        C in units of the lattice.
    """

    epsilon: float = 8.0
    delta: float = 1e-6
    clip: float = 0.3
    noise_multiplier: float | None = None
    dropout: float = 0.1
    contribute: float = 1.0
    theta_clip: float = 3.0
    theta_share: float = 0.2
    levels: int = 1024

    name = "aggregate"
    needs_sums = True
    whole_numbers = True

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("epsilon", "delta", "theta_clip"):
            object.__setattr__(self, name, _checks.number(name, getattr(self, name), above=0))
        object.__setattr__(self, "levels", _checks.whole("levels", self.levels, least=1))
        if self.delta >= 1:
            raise VeilmapError(f"delta is a small probability, not {self.delta:g}")
        for name, low in (("dropout", 0), ("theta_share", 0), ("contribute", None)):
            value = _checks.number(name, getattr(self, name))
            if not (value > 0 if low is None else value >= low) or value > 1:
                raise VeilmapError(f"{name} is a share, not {value:g}")
            object.__setattr__(self, name, value)
        if self.dropout == 1 or self.theta_share == 1:
            raise VeilmapError("dropout and theta_share must be below 1")
        if self.noise_multiplier is not None:
            z = _checks.number("noise_multiplier", self.noise_multiplier, above=0)
            object.__setattr__(self, "noise_multiplier", z)

    def with_noise(self, noise_multiplier: float) -> "AggregateGaussian":
        """The same with its noise fixed."""
        return replace(self, noise_multiplier=noise_multiplier)

    @property
    def guarantee(self) -> PrivateSums:
        """ρ-zCDP of every opened sum, ρ = 1/(2z²)."""
        return PrivateSums(0.5 * ((1 + _UNEVEN) / self._z) ** 2, self.contribute)

    @property
    def _z(self) -> float:
        if self.noise_multiplier is None:
            raise VeilmapError(
                "the noise of AggregateGaussian is not fixed yet: train does it,"
                " or accounting.calibrated(mechanism, rounds)"
            )
        return self.noise_multiplier

    def least_answers(self, cohort: int) -> int:
        """The answers whose noise shares add up to what is promised."""
        return max(2, math.ceil((1 - self.dropout) * cohort))

    def largest_upload(self) -> float:
        """No bound: single answers are not seen."""
        return math.inf

    def sensitivity(self, dimensions: int) -> float:
        """Δ: bound of a contribution's norm on the lattice. Rounding may add ¼ per entry."""
        return math.sqrt(self.levels**2 + dimensions / 4)

    def share_deviation(self, dimensions: int, cohort: int) -> float:
        """σ of one client's noise on the lattice, rounded up to three digits.

        n shares of σ²: together at least (zΔ)² as long as n answers are in the sum.
        """
        exact = self._z * self.sensitivity(dimensions) / math.sqrt(self.least_answers(cohort))
        digit = 10.0 ** (math.floor(math.log10(exact)) - 2)
        rounded = math.ceil(exact / digit) * digit
        if rounded < _LEAST_DEVIATION:
            raise VeilmapError(
                f"each client's noise would be {rounded:.2g} steps of the lattice, too coarse to"
                f" be proven: take more than {self.levels} levels"
            )
        return rounded

    def answer(self, raw: Contribution, grid: Grid, draws: Sequence[Draw], cohort: int) -> Answer:
        """Whole numbers: clipped gradients on the lattice plus noise shares."""
        users, cells = raw.heights.shape
        norms = norms_of(raw.heights)
        vectors = self._clipped(raw, norms) * (self.levels / self.clip)
        if not np.isfinite(vectors).all():
            raise VeilmapError("a gradient has an entry that is not finite")
        size = vectors.shape[1]
        deviation = self.share_deviation(size, cohort)
        sampler = discrete_gaussian(deviation)
        sent = np.empty(vectors.shape, dtype=np.int64)

        def part(start: int, stop: int) -> None:
            for i in range(start, stop):
                sent[i] = self._on_lattice(vectors[i]) if self._takes_part(draws[i]) else 0
                sent[i] += sampler.sample(size, draws[i])

        run_parts(part, even_parts(users))
        energy = cells * (deviation * self.clip / self.levels) ** 2
        return Answer(
            sent[:, :cells], norms, np.full(users, energy),
            sent[:, cells:], np.ones(users, dtype=np.int64),
        )  # fmt: skip

    def read(
        self,
        heights: NDArray[np.float64],
        propagation: NDArray[np.float64],
        weight: int,
        laws: int = 2,
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean gradients from the opened sum."""
        unit = self.clip / self.levels / (max(weight, 1) * self.contribute)
        axes = at_100_m(laws, len(propagation) - 2 * laws)
        theta: NDArray = np.linalg.solve(axes, propagation * unit / self._theta_scale)
        return heights * unit, theta

    @property
    def _theta_scale(self) -> float:
        """From θ's gradient to its part of the contribution."""
        return max(self.theta_share, 1e-12) * self.clip / self.theta_clip

    def _clipped(self, raw: Contribution, norms: NDArray[np.float64]) -> NDArray[np.float64]:
        """Contributions (h, θ) of norm at most C, (N, M + P)."""
        for_heights = math.sqrt(1 - self.theta_share**2) * self.clip
        heights = raw.heights * (for_heights / np.maximum(norms, for_heights))[:, None]
        axes = at_100_m(raw.laws, raw.propagation.shape[1] - 2 * raw.laws)
        theta = raw.propagation @ axes.T
        theta *= (self.theta_clip / np.maximum(norms_of(theta), self.theta_clip))[:, None]
        return np.hstack([heights, theta * self._theta_scale])

    def _on_lattice(self, vector: NDArray[np.float64]) -> NDArray[np.int64]:
        """Nearest whole numbers, or, should they be too long together, those towards zero."""
        nearest = np.rint(vector).astype(np.int64)
        if nearest @ nearest <= self.levels**2 + len(vector) / 4:
            return nearest
        shorter = np.trunc(vector).astype(np.int64)
        # Clipping leaves the norm within rounding errors of C; a whole step less is certain.
        return shorter if shorter @ shorter <= self.levels**2 + len(vector) / 4 else shorter * 0

    def _takes_part(self, draw: Draw) -> bool:
        """The user's secret coin."""
        if self.contribute == 1:
            return True
        return int(draw.words(1, "coin")[0]) < self.contribute * 2.0**64
