"""What a user at each place would send as ∂F/∂θ, and how well that explains what users did send.

With φ_b = ∂γ/∂θ of the link to station b, a user with J links sends ∂F/∂θ = −(2/J) Σ_b r_b φ_b: a
few exact sums of its residuals r_b = y_b − γ_b. At a place the broadcast map says γ_b and φ_b, and
the server's best map says what the user measured: y_b = γ*_b + ξ_b, with ξ_b of deviation σ. With
offsets of base stations that are learned, every single r_b leaves too.
"""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from veilmap._kernels import moments as kernels
from veilmap._kernels.arguments import CellsOfGrids, ExpectedLinks, SumsMoments
from veilmap._util.arrays import Array, Bools, Floats, Ints
from veilmap._util.threads import even_parts, run_parts

# σ may also be half, or up to four times, what is assumed.
_SCALES = (0.5, 1.0, 2.0, 4.0)
# A place that would need a covariance this many times as large explains nothing.
_REFUTED = 200.0
# Nothing is known better than to this share of the mean variance of its kind,
_EXACT = 1e-9
# or, where single residuals are seen, than to so many dB, and their sums to this share.
_EXACT_DB, _EXACT_SHARE = 0.02, 1e-3
# How far residuals are from those at the cell's centre depends on the same two coordinates of the
# user for all stations: this share of them counts.
_INDEPENDENT = 0.25
# A user is anywhere in its cell. In sides of it a uniform position has a variance of 1/12; three
# times as much again is for what is not linear in the position.
_WITHIN = 4 / 12


@dataclass(frozen=True)
class Design:
    """Links to B stations in R rounds, with P parameters of the laws, of cells of small grids."""

    by_theta: Floats  # φ at all cells, (n, R, P, B)
    residuals: Floats  # γ* − γ, what the best map expects of r, (n, R, B)
    shape: tuple[int, ...]  # of the grids: …, rows, columns; n cells in all
    rows: slice  # those that are asked for; others are there as their neighbours

    @property
    def cells(self) -> CellsOfGrids:
        """The cells that are asked for, and their neighbours within their grids."""
        numbers = np.arange(math.prod(self.shape)).reshape(self.shape)
        before, after, scale = [], [], []
        for axis in (-2, -1):
            at, last = np.arange(self.shape[axis]), self.shape[axis] - 1
            ends = np.maximum(at - 1, 0), np.minimum(at + 1, last)
            before.append(self._asked(numbers.take(ends[0], axis)))
            after.append(self._asked(numbers.take(ends[1], axis)))
            between = np.maximum(ends[1] - ends[0], 1)  # none: nothing changes
            between = between[:, None] if axis == -2 else between
            scale.append(self._asked(np.broadcast_to(1 / between, self.shape)))
        return CellsOfGrids(
            own=self._asked(numbers), before=np.stack(before), after=np.stack(after),
            scale=np.stack(scale),
        )  # fmt: skip

    def _asked(self, values: Array) -> Array:
        return values[..., self.rows, :].ravel()


@dataclass(frozen=True)
class Heard:
    """What U users with J links each sent in the rounds in which they all took part.

    The first axis is 1 for all users at all of n places, or n with U = 1 for one user at each.
    """

    links: int  # J
    rounds: Bools  # (R,)
    sums: Floats  # ∂F/∂θ of the laws, by gain at 100 m and slope, (1 or n, U, R, P)
    residuals: Floats | None = None  # Σ r over the links to each station, (1 or n, U, B, R)

    def of(self, users: Ints) -> "Heard":
        """One user for each of n places, out of all."""
        residuals = None if self.residuals is None else self.residuals[0, users, None]
        return Heard(self.links, self.rounds, self.sums[0, users, None], residuals)


@dataclass(frozen=True)
class Fit:
    """How n places explain what U users sent: logarithms of normal densities, taken apart."""

    log_norm: Floats  # at the mean, (n, 1 or U)
    squares: Floats  # squared distance from the mean in deviations, (n, U)
    size: float | Floats  # how many numbers that is of, for all or (1 or n, U)
    counts: float = 1.0  # what its logarithm counts as evidence

    @property
    def evidence(self) -> Floats:
        """Log-likelihood of every place, (n, U)."""
        return self._scaled(self.squares)

    @property
    def refuted(self) -> Floats:
        """What the likelihood of every place would be if it hardly explained anything, (n, U)."""
        limit = _REFUTED * np.asarray(self.size, dtype=np.float64)
        return self._scaled(np.broadcast_to(limit, self.squares.shape))

    def _scaled(self, squares: Floats) -> Floats:
        each = [
            self.log_norm - 0.5 * squares / scale**2 - self.size * np.log(scale)
            for scale in _SCALES
        ]
        return np.asarray(self.counts * np.logaddexp.reduce(each))


class Expected(Protocol):
    """What users at n places would send."""

    def fit(self, heard: Heard) -> Fit:
        """How the places explain what users sent."""


@dataclass(frozen=True)
class ExpectedSums:
    """Mean and covariance of ∂F/∂θ at n places, the K = RP numbers of all rounds in one vector.

    E ∂F/∂θ = −2 E_b[x_b] with x_b = (γ*_b − γ_b) φ_b and E_b over the stations; the covariance is
    4/J (σ² E_b[φ_b φ_bᵀ] + (1 − J/B) Cov_b[x_b]), as the J stations that a user heard are taken to
    be any. A user's y_b are the same in all rounds, whose φ_b and γ_b differ.
    """

    mean: Floats  # (n, K)
    noise: Floats  # σ² E_b[φ φᵀ], and what the place within its cell adds, (n, K, K)
    sampling: Floats  # Cov_b[x], (n, K, K)
    looked_at: int  # how many stations the means are over,
    stations: int  # and how many there are, B

    @classmethod
    def at(cls, design: Design, spread: float, stations: int) -> "ExpectedSums":
        """At all cells that a design asks for, for σ = ``spread``."""
        cells, (places, *_, count) = design.cells, design.by_theta.shape
        links = ExpectedLinks(
            by_theta=design.by_theta.reshape(places, -1, count), residuals=design.residuals
        )
        asked, size = len(cells.own), links.by_theta.shape[1]
        noise, sampling = np.empty((2, asked, size, size))
        found = SumsMoments(mean=np.empty((asked, size)), noise=noise, sampling=sampling)

        def part(start: int, stop: int) -> None:
            kernels.sums_moments(
                start=start, stop=stop, expected=links, cells=cells, spread=spread,
                within=_WITHIN**0.5, out=found,
            )  # fmt: skip

        run_parts(part, even_parts(asked))
        return cls(*found, count, stations)

    def fit(self, heard: Heard) -> Fit:
        """By a Cholesky factor of the covariance at every place."""
        each = self.mean.shape[1] // len(heard.rounds)
        kept = np.flatnonzero(np.repeat(heard.rounds, each))
        covariance = self.covariance(heard.links)[:, kept[:, None], kept]
        variances = np.einsum("nkk->nk", covariance)
        variances += _EXACT * variances.mean(axis=1, keepdims=True) + 1e-300
        root = np.linalg.cholesky(covariance)
        sums = heard.sums.reshape(*heard.sums.shape[:2], -1)[:, :, kept]
        excess = (sums - self.mean[:, None, kept]).transpose(0, 2, 1)
        squares = (np.linalg.solve(root, excess) ** 2).sum(axis=1)
        log_norm = -np.log(np.einsum("nkk->nk", root)).sum(axis=1)
        return Fit(log_norm[:, None], squares, len(kept))

    def covariance(self, links: int) -> Floats:
        """Of a user with so many links, (n, K, K)."""
        # All stations leave nothing to chance; more links than that are drawn with repeats.
        left_out = 1 - links / self.stations if links <= self.stations else 1.0
        unknown = left_out / links + 1 / self.looked_at - 1 / self.stations
        return np.asarray(4 * (self.noise / links + unknown * self.sampling))


@dataclass(frozen=True)
class ExpectedResiduals:
    """Residuals of single stations at n places, for maps that learn offsets of stations.

    With the residuals known, the laws' sums hold no noise at all: −(2/J) Σ_b r_b φ_b at the user's
    place. And y_b = r_b + γ_b is the same in all rounds, and near γ*_b.
    """

    residuals: Floats  # γ* − γ, (n, B, R)
    exact: Floats  # variance by which r_b may differ between rounds, (n, B)
    by_theta: Floats  # φ, (n, B, R, P)
    varying: Floats  # its variance within the cell, (n, B, R, P)
    spread: float  # σ
    complete: bool  # whether all stations are there, as the sums are over all

    @classmethod
    def at(cls, design: Design, spread: float, *, complete: bool) -> "ExpectedResiduals":
        """At all cells that a design asks for."""
        own, before, after, scale = design.cells
        moved, varying = np.zeros((2, 1))
        for axis in range(2):
            per = scale[axis, :, None, None]
            change = per * (design.residuals[after[axis]] - design.residuals[before[axis]])
            moved = moved + _WITHIN * change**2
            change = per[..., None] * (design.by_theta[after[axis]] - design.by_theta[before[axis]])
            varying = varying + _WITHIN * change**2
        exact = np.mean(moved, axis=1) + _EXACT_DB**2
        by_station = np.moveaxis(design.by_theta[own], -1, 1), np.moveaxis(varying, -1, 1)
        residuals = design.residuals[own].transpose(0, 2, 1)
        return cls(residuals, exact, *by_station, spread, complete)

    def fit(self, heard: Heard) -> Fit:
        """Station by station; those of which a user sent nothing were not heard."""
        assert heard.residuals is not None
        seen, expected = heard.residuals[..., heard.rounds], self.residuals[..., heard.rounds]
        count = seen.shape[-1]
        there = (seen != 0).any(axis=-1).astype(np.float64)  # (1 or n, U, B)
        variance = self.exact + count * self.spread**2  # of the rounds' sum, over its length
        means = seen.mean(axis=-1), expected.mean(axis=-1)
        squares = _distances(*means, count / variance, there)
        for number in range(count):
            apart = seen[..., number] - means[0], expected[..., number] - means[1]
            squares = squares + _distances(*apart, 1 / self.exact, there)
        log_norms = -0.5 * ((count - 1) * np.log(self.exact) + np.log(variance))
        log_norm, size = np.matmul(there, log_norms[..., None])[..., 0], count * there.sum(axis=-1)
        counts = _INDEPENDENT / count  # rounds repeat the same measurements
        if not self.complete:
            return Fit(log_norm, squares, size, counts)
        misfit, variances = self._sums(heard)
        squares = squares + (misfit**2 / variances).sum(axis=(-2, -1))
        log_norm = log_norm - 0.5 * np.log(variances).sum(axis=(-2, -1))
        return Fit(log_norm, squares, size + misfit.shape[-1] * count, counts)

    def _sums(self, heard: Heard) -> tuple[Floats, Floats]:
        """How far the laws' sums are off, and the variance of that, (n, U, R, P)."""
        assert heard.residuals is not None
        off, variances = [], []
        for number in np.flatnonzero(heard.rounds):
            seen = 2 / heard.links * heard.residuals[..., number]
            off.append(heard.sums[:, :, number] + np.matmul(seen, self.by_theta[:, :, number]))
            exact = (_EXACT_SHARE**2 * (seen**2).sum(axis=-1, keepdims=True)) + 1e-300
            variances.append(np.matmul(seen**2, self.varying[:, :, number]) + exact)
        return np.stack(off, axis=-2), np.stack(variances, axis=-2)


def _distances(seen: Floats, expected: Floats, weights: Floats, there: Floats) -> Floats:
    """Σ_b w_b (r_b − c_b)² over the stations that were heard, (n, U); c and w are (n, B)."""
    parts = (seen**2, weights), (-2 * seen, weights * expected), (there, weights * expected**2)
    return np.asarray(sum(np.matmul(user, place[..., None])[..., 0] for user, place in parts))
