"""A Gaussian field over distance laws, with its uncertainty.

The residual of station s at point p is f_sp = a_s + b_s x_sp + g_sp, with x the centred
log-distance. Laws (a_s, b_s) are Gaussian around common ones; g_s is a Gaussian Markov field with
precision t (L + κ I), L the graph Laplacian of the points. The hyperparameters t and κ are those of
largest marginal likelihood.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from veilmap._kernels.banded import inverse_diagonal
from veilmap._util.arrays import Floats

_STATIONS_FITTED = 8  # those that tell most; hyperparameters are common to all
_EVALUATIONS = 45


@dataclass(frozen=True)
class Hyperparameters:
    """Of the field; all positive."""

    tension: float = 0.04  # t, per dB²
    shrinking: float = 0.01  # κ

    @property
    def logarithms(self) -> Floats:
        """Of tension and shrinking, as an optimiser takes them."""
        return np.log([self.tension, self.shrinking])

    @classmethod
    def of(cls, logarithms: Floats) -> "Hyperparameters":
        """What `logarithms` gave."""
        return cls(*np.exp(logarithms).tolist())


_TYPICAL = Hyperparameters()
_SPREAD = np.array([2.0, 2.0])  # of the logarithms around the typical ones


@dataclass(frozen=True, eq=False)
class Observations:
    """Gaussian observations of the residuals f, (S, P): values in dB, and 1 / variance."""

    values: Floats
    precision: Floats


@dataclass(frozen=True, eq=False)
class Laws:
    """Where the stations' distance laws (a_s, b_s) lie before the points are seen."""

    means: Floats  # (S, 2), in dB and dB per decade
    deviations: Floats  # (S, 2)
    x: Floats  # (S, P)


@dataclass(frozen=True, eq=False)
class Estimate:
    """What is known of f after all."""

    mean: Floats  # (S, P), in dB
    deviation: Floats  # (S, P), in dB
    laws: Floats  # (S, 2)
    hyperparameters: Hyperparameters


@dataclass(frozen=True)
class Lattice:
    """The graph of points: rows × columns, each joined to its neighbours."""

    shape: tuple[int, int]

    @property
    def turned(self) -> bool:
        """Whether columns come first, so that the band is narrow."""
        return self.shape[1] > self.shape[0]

    def ordered(self, values: Floats) -> Floats:
        """(S, P) with points in the order of the band."""
        return _transposed(values, self.shape) if self.turned else values

    def restored(self, values: Floats) -> Floats:
        """What `ordered` took."""
        return _transposed(values, self.shape[::-1]) if self.turned else values

    @cached_property
    def band(self) -> Floats:
        """L in LAPACK's lower banded form, (width + 1, P)."""
        width, length = sorted(self.shape)
        points = np.arange(width * length)
        inner, outer = points % width, points // width
        band = np.zeros((width + 1, width * length))
        neighbours = (inner < width - 1, inner > 0, outer < length - 1, outer > 0)
        band[0] = np.sum(neighbours, axis=0)
        band[1] -= neighbours[0]
        band[width] -= neighbours[2]
        return band

    @cached_property
    def eigenvalues(self) -> Floats:
        """Of L, (P,)."""
        along = [2 - 2 * np.cos(np.pi * np.arange(n) / n) for n in self.shape]
        return np.add.outer(*along).ravel()


def _transposed(values: Floats, shape: tuple[int, ...]) -> Floats:
    """Images of this shape, one a row, with rows and columns swapped."""
    return values.reshape(-1, *shape).swapaxes(1, 2).reshape(values.shape)


@dataclass(frozen=True, eq=False)
class Solver:
    """The posterior of every station by itself, given observations and laws."""

    lattice: Lattice
    seen: Observations  # in the order of the band
    laws: Laws

    @classmethod
    def of(cls, shape: tuple[int, int], seen: Observations, laws: Laws) -> "Solver":
        """For observations of stations at the points of a grid."""
        lattice = Lattice(shape)
        ordered = Observations(lattice.ordered(seen.values), lattice.ordered(seen.precision))
        return cls(lattice, ordered, replace(laws, x=lattice.ordered(laws.x)))

    def fitted(self, start: Hyperparameters = _TYPICAL) -> Hyperparameters:
        """Those of largest marginal likelihood, with a weak prior around typical ones."""
        from scipy.optimize import minimize

        told = self.seen.precision.sum(axis=1)
        chosen = np.argsort(-told, kind="stable")[:_STATIONS_FITTED]

        def unlikely(logarithms: Floats) -> float:
            own = Hyperparameters.of(logarithms)
            likelihood = sum(self._station(s, own).likelihood for s in chosen)
            apart = (logarithms - _TYPICAL.logarithms) / _SPREAD
            return float(0.5 * apart @ apart - likelihood)

        options = {"maxfev": _EVALUATIONS, "xatol": 0.05, "fatol": 0.5}
        found = minimize(unlikely, start.logarithms, method="Nelder-Mead", options=options)
        return Hyperparameters.of(found.x)

    def estimate(self, own: Hyperparameters) -> Estimate:
        """Mean and standard deviation of f at every point."""
        mean, deviation = np.empty_like(self.laws.x), np.empty_like(self.laws.x)
        laws = np.empty((len(mean), 2))
        for s in range(len(mean)):
            station = self._station(s, own)
            mean[s], deviation[s], laws[s] = station.mean, station.deviation(), station.law
        restored = self.lattice.restored
        return Estimate(restored(mean), restored(deviation), laws, own)

    def _station(self, s: int, own: Hyperparameters) -> "_StationPosterior":
        """One station's f: (Q + W)⁻¹ for the field, and a 2 × 2 problem for the law."""
        from scipy.linalg import cho_solve_banded, cholesky_banded

        precision = self.seen.precision[s]  # W
        matrix = own.tension * self.lattice.band
        matrix[0] += own.tension * own.shrinking + precision
        factor = cholesky_banded(matrix, lower=True, overwrite_ab=True, check_finite=False)
        columns = np.column_stack([np.ones_like(precision), self.laws.x[s]])  # H
        rest = self.seen.values[s] - columns @ self.laws.means[s]  # e
        weighted = precision[:, None] * np.column_stack([columns, rest])  # W [H e]
        solved = cho_solve_banded((factor, True), weighted, check_finite=False)
        # (W⁻¹ + Q⁻¹)⁻¹ = W − W (Q + W)⁻¹ W, between [H e] and [H e].
        inner = np.column_stack([columns, rest]).T @ weighted - weighted.T @ solved
        around = np.diag(self.laws.deviations[s] ** 2)
        known = np.linalg.inv(around) + inner[:2, :2]
        change = np.linalg.solve(known, inner[:2, 2])
        fit = inner[:2, 2] @ change - inner[2, 2]
        # log det of the observations' precision, that of the prior over that of the posterior.
        volume = np.log(own.tension * (self.lattice.eigenvalues + own.shrinking)).sum()
        volume += np.log(precision[precision > 0]).sum() - 2 * np.log(factor[0]).sum()
        volume -= np.linalg.slogdet(known)[1] + np.linalg.slogdet(around)[1]
        field = solved[:, 2] - solved[:, :2] @ change
        law = self.laws.means[s] + change
        left = columns - solved[:, :2]
        return _StationPosterior(
            0.5 * float(fit + volume), columns @ law + field, law, factor, left, known
        )


@dataclass(frozen=True, eq=False)
class _StationPosterior:
    likelihood: float  # log of the marginal one, but for a constant
    mean: Floats  # (P,)
    law: Floats  # (2,)
    factor: Floats  # Cholesky, of Q + W
    left: Floats  # (P, 2): how f follows the law
    known: Floats  # (2, 2): precision of the law

    def deviation(self) -> Floats:
        """Standard deviation of f: of the field given the law, and of the law."""
        variance = np.empty(len(self.mean))
        inverse_diagonal(self.factor, variance)
        law = np.einsum("pi,ij,pj->p", self.left, np.linalg.inv(self.known), self.left)
        return np.sqrt(variance + law)
