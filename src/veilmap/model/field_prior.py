"""A Gaussian field over distance laws, for all base stations together, with its uncertainty.

The residual of station s at point p is f_sp = a_s + b_s x_sp + g_sp, with x the centred
log-distance; the share of clear lines of sight may be a third column beside 1 and x. Laws
(a_s, b_s) are Gaussian around common ones. The field g knows no scale, at neither end of a
link: its spectrum over the four coordinates of user and station is (k² + k_s²)⁻². What that
leaves for a single station, ∫ (k² + k_s²)⁻² d²k_s ~ k⁻², is on a lattice of points a Gaussian
Markov field with precision t (L + κ I), L the graph Laplacian; and waves of wavenumber k are
correlated between stations d apart by kd K₁(kd): long waves are shared with far stations, short
ones with none. The hyperparameters t and κ are those of largest marginal likelihood, station by
station.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from veilmap._kernels.banded import inverse_diagonal
from veilmap._util import threads
from veilmap._util.arrays import Floats, Ints
from veilmap.geometry.grid import Grid

_STATIONS_FITTED = 8  # those that tell most; hyperparameters are common to all
_EVALUATIONS = 30  # for each hyperparameter
_OWN = 0.2  # α: share of a field's variance that is the station's own: its sector, its receiver
_SLOWER = 1.5  # stations stand above much that shades users: g changes more slowly with their place
_BINS_PER_OCTAVE = 4  # of wavenumbers that are correlated alike
_TOLERANCE = 1e-3  # of the conjugate gradients, relative
_MOST_ITERATIONS = 300


@dataclass(frozen=True)
class Hyperparameters:
    """Of the field and its observations; all positive."""

    tension: float = 0.04  # t, per dB²
    shrinking: float = 0.01  # κ
    nugget: float = 1.0  # variance of an observation of weight 1, in dB²

    @property
    def logarithms(self) -> Floats:
        """Of all, as an optimiser takes them."""
        return np.log([self.tension, self.shrinking, self.nugget])

    @classmethod
    def of(cls, logarithms: Floats) -> "Hyperparameters":
        """What `logarithms` gave."""
        return cls(*np.exp(logarithms).tolist())

    def at_spacing(self, ratio: float) -> "Hyperparameters":
        """The same field on points ``ratio`` times as far apart: t knows no scale, κ is an area."""
        return replace(self, shrinking=self.shrinking * ratio**2)


_TYPICAL = Hyperparameters()
_SPREAD = 2.0  # of the logarithms around the typical ones


@dataclass(frozen=True, eq=False)
class Observations:
    """Gaussian observations of the residuals f, (S, P), in dB, and their weights.

    Variances are nugget / weight: with a nugget of 1 weights are in dB⁻², else numbers of readings.
    """

    values: Floats
    weights: Floats


@dataclass(frozen=True, eq=False)
class Laws:
    """Where the k coefficients of stations' laws, such as (a_s, b_s), lie before all is seen."""

    means: Floats  # (S, k), in dB and dB per decade
    deviations: Floats  # (S, k)
    columns: Floats  # H, (S, P, k): what they are multiplied by


def lines(x: Floats) -> Floats:
    """H of laws with a level and a slope over ``x``, (S, P), about its mean: (S, P, 2)."""
    return np.stack([np.ones_like(x), x - x.mean(axis=1, keepdims=True)], axis=-1)


@dataclass(frozen=True, eq=False)
class Estimate:
    """What is known of f after all."""

    mean: Floats  # (S, P), in dB
    deviation: Floats  # (S, P), in dB
    laws: Floats  # (S, k)
    hyperparameters: Hyperparameters


@dataclass(frozen=True)
class Lattice:
    """The graph of points: rows × columns, each joined to its neighbours."""

    shape: tuple[int, int]

    @property
    def turned(self) -> bool:
        """Whether columns come first, so that the band is narrow."""
        return self.shape[1] > self.shape[0]

    @property
    def ordered_shape(self) -> tuple[int, int]:
        """Of an image in the order of the band: the longer side first."""
        return self.shape[::-1] if self.turned else self.shape

    def ordered(self, values: Floats) -> Floats:
        """(S, P) with points in the order of the band."""
        return _transposed(values, self.shape) if self.turned else values

    def restored(self, values: Floats) -> Floats:
        """What `ordered` took."""
        return _transposed(values, self.ordered_shape) if self.turned else values

    @cached_property
    def band(self) -> Floats:
        """L in LAPACK's lower banded form, (width + 1, P)."""
        length, width = self.ordered_shape
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
        """Of L, (P,): those of the cosines that `waves` gives, in their order."""
        along = [2 - 2 * np.cos(np.pi * np.arange(n) / n) for n in self.ordered_shape]
        return np.add.outer(*along).ravel()

    def waves(self, values: Floats, *, back: bool = False) -> Floats:
        """(S, P) as amplitudes of cosines, which are the eigenvectors of L; or back again."""
        from scipy.fft import dctn, idctn

        turn = idctn if back else dctn
        images = values.reshape(-1, *self.ordered_shape)
        return np.asarray(turn(images, axes=(1, 2), norm="ortho")).reshape(values.shape)


def _transposed(values: Floats, shape: tuple[int, ...]) -> Floats:
    """Images of this shape, one a row, with rows and columns swapped."""
    return values.reshape(-1, *shape).swapaxes(1, 2).reshape(values.shape)


@dataclass(frozen=True, eq=False)
class Solver:
    """The posterior of all stations, given observations and laws."""

    lattice: Lattice
    spacing: float  # metres between points
    apart: Floats  # (S, S): metres between stations
    seen: Observations  # in the order of the band
    laws: Laws

    @classmethod
    def of(cls, grid: Grid, positions: Floats, seen: Observations, laws: Laws) -> "Solver":
        """For observations of stations at these ``positions``, (S, 3), at the points of a grid."""
        lattice = Lattice(grid.shape)
        ordered = Observations(lattice.ordered(seen.values), lattice.ordered(seen.weights))
        apart = np.linalg.norm(positions[:, None] - positions[None], axis=-1)
        columns = [lattice.ordered(column) for column in np.moveaxis(laws.columns, -1, 0)]
        turned = replace(laws, columns=np.stack(columns, axis=-1))
        return cls(lattice, grid.cell_size, apart, ordered, turned)

    def fitted(
        self, start: Hyperparameters = _TYPICAL, *, nugget_known: bool = True
    ) -> Hyperparameters:
        """Those of largest marginal likelihood, with a weak prior around typical ones."""
        from scipy.optimize import minimize

        told = self.seen.weights.sum(axis=1)
        chosen = np.argsort(-told, kind="stable")[:_STATIONS_FITTED]
        free = slice(0, 2 if nugget_known else 3)
        middle = replace(_TYPICAL, nugget=start.nugget).logarithms

        def moved(logarithms: Floats) -> Hyperparameters:
            return Hyperparameters.of(np.append(logarithms, middle[len(logarithms) :]))

        def unlikely(logarithms: Floats) -> float:
            own = moved(logarithms)
            likelihood = sum(self._station(s, own).likelihood for s in chosen)
            apart = (logarithms - middle[free]) / _SPREAD
            return float(0.5 * apart @ apart - likelihood)

        begin = start.logarithms[free]
        options = {"maxfev": _EVALUATIONS * len(begin), "xatol": 0.05, "fatol": 0.5}
        return moved(minimize(unlikely, begin, method="Nelder-Mead", options=options).x)

    def estimate(self, own: Hyperparameters) -> Estimate:
        """Mean and standard deviation of f at every point.

        The deviation is what a station's own observations leave; what others add to them can only
        lower it.
        """
        alone = self._alone(own)
        mean, laws = self._together(own, alone)
        deviation = np.empty_like(mean)

        def one(s: int) -> None:
            deviation[s] = alone[s].deviation()

        threads.run_all([partial(one, s) for s in range(len(alone))])
        restored = self.lattice.restored
        return Estimate(restored(mean), restored(deviation), laws, own)

    def mean(self, own: Hyperparameters) -> Floats:
        """The mean alone, which takes less time."""
        return self.lattice.restored(self._together(own, self._alone(own))[0])

    def _alone(self, own: Hyperparameters) -> list["_StationPosterior"]:
        return [self._station(s, own) for s in range(len(self.laws.columns))]

    def _together(
        self, own: Hyperparameters, alone: Sequence["_StationPosterior"]
    ) -> tuple[Floats, Floats]:
        """Mean of f and laws of all stations at once, by conjugate gradients.

        With K the prior covariance, W the observations' precision and r = √W:
        f = H m + K r β, where (I + r K r) β = r (values − H m). What every station says by itself
        makes the preconditioner: (I + r K₀ r)⁻¹ = I − r C₀ r, C₀ its posterior covariance.
        """
        from scipy.sparse.linalg import LinearOperator, cg

        laws, shape, waves = self.laws, self.seen.values.shape, _Waves.of(self, own)
        columns = laws.columns
        before = np.einsum("spi,si->sp", columns, laws.means)
        root = np.sqrt(self.seen.weights / own.nugget)

        def by_laws(values: Floats) -> Floats:
            return laws.deviations**2 * np.einsum("spi,sp->si", columns, values)

        def covariance(values: Floats) -> Floats:
            return waves.covariance(values) + np.einsum("spi,si->sp", columns, by_laws(values))

        def matrix(flat: Floats) -> Floats:
            values = flat.reshape(shape)
            return (values + root * covariance(root * values)).ravel()

        def by_themselves(flat: Floats) -> Floats:
            values = root * flat.reshape(shape)
            known = np.array([one.covariance(v) for one, v in zip(alone, values, strict=True)])
            return flat - (root * known).ravel()

        size = root.size
        found, _ = cg(
            LinearOperator((size, size), matrix, dtype=np.float64),
            (root * (self.seen.values - before)).ravel(),
            rtol=_TOLERANCE,
            maxiter=_MOST_ITERATIONS,
            M=LinearOperator((size, size), by_themselves, dtype=np.float64),
        )
        weighted = root * found.reshape(shape)
        return before + covariance(weighted), laws.means + by_laws(weighted)

    def _station(self, s: int, own: Hyperparameters) -> "_StationPosterior":
        """One station's f: (Q + W)⁻¹ for the field, and a k × k problem for the law."""
        from scipy.linalg import cho_solve_banded, cholesky_banded

        precision = self.seen.weights[s] / own.nugget  # W
        matrix = own.tension * self.lattice.band
        matrix[0] += own.tension * own.shrinking + precision
        factor = cholesky_banded(matrix, lower=True, overwrite_ab=True, check_finite=False)
        columns = self.laws.columns[s]  # H
        k = columns.shape[1]
        rest = self.seen.values[s] - columns @ self.laws.means[s]  # e
        weighted = precision[:, None] * np.column_stack([columns, rest])  # W [H e]
        solved = cho_solve_banded((factor, True), weighted, check_finite=False)
        # (W⁻¹ + Q⁻¹)⁻¹ = W − W (Q + W)⁻¹ W, between [H e] and [H e].
        inner = np.column_stack([columns, rest]).T @ weighted - weighted.T @ solved
        around = np.diag(self.laws.deviations[s] ** 2)
        known = np.linalg.inv(around) + inner[:k, :k]
        change = np.linalg.solve(known, inner[:k, k])
        fit = inner[:k, k] @ change - inner[k, k]
        # log det of the observations' precision, that of the prior over that of the posterior.
        volume = np.log(own.tension * (self.lattice.eigenvalues + own.shrinking)).sum()
        volume += np.log(precision[precision > 0]).sum() - 2 * np.log(factor[0]).sum()
        volume -= np.linalg.slogdet(known)[1] + np.linalg.slogdet(around)[1]
        left = columns - solved[:, :k]
        return _StationPosterior(0.5 * float(fit + volume), factor, left, np.linalg.inv(known))


@dataclass(frozen=True, eq=False)
class _StationPosterior:
    """What a station's own observations tell."""

    likelihood: float  # log of the marginal one, but for a constant
    factor: Floats  # Cholesky, of Q + W
    left: Floats  # (P, k): how f follows the law
    law: Floats  # (k, k): covariance of the law

    def covariance(self, values: Floats) -> Floats:
        """The posterior covariance of f times ``values``, (P,)."""
        from scipy.linalg import cho_solve_banded

        field = cho_solve_banded((self.factor, True), values, check_finite=False)
        return np.asarray(field + self.left @ (self.law @ (self.left.T @ values)))

    def deviation(self) -> Floats:
        """Standard deviation of f: of the field given the law, and of the law."""
        variance = np.empty(self.factor.shape[1])
        inverse_diagonal(self.factor, variance)
        law = np.einsum("pi,ij,pj->p", self.left, self.law, self.left)
        return np.sqrt(variance + law)


@dataclass(frozen=True, eq=False)
class _Waves:
    """The prior covariance of the field of all stations, wave by wave."""

    lattice: Lattice
    variances: Floats  # (P,): 1 / t (λ + κ), of every wave at one station
    bins: tuple[Ints, ...]  # waves that are correlated alike
    correlations: Floats  # (bins, S, S)

    @classmethod
    def of(cls, solver: Solver, own: Hyperparameters) -> "_Waves":
        """(1 − α) kd K₁(kd) + α between stations 1.5 d apart, with k² = (λ + κ) / spacing²."""
        from scipy.special import k1

        squared = solver.lattice.eigenvalues + own.shrinking
        octaves = 0.5 * np.log2(squared)
        numbers = np.floor((octaves - octaves.min()) * _BINS_PER_OCTAVE).astype(np.int64)
        bins = tuple(np.flatnonzero(numbers == each) for each in np.unique(numbers))
        scale = _SLOWER * solver.spacing
        wavenumbers = [np.exp2(octaves[each].mean()) / scale for each in bins]
        phase = np.maximum(np.multiply.outer(wavenumbers, solver.apart), 1e-9)
        same = np.eye(len(solver.apart))
        correlations = (1 - _OWN) * phase * k1(phase) + _OWN * same
        return cls(solver.lattice, 1 / (own.tension * squared), bins, correlations)

    def covariance(self, values: Floats) -> Floats:
        """The covariance times ``values``, (S, P)."""
        amplitudes = self.lattice.waves(values) * self.variances
        for own, correlation in zip(self.bins, self.correlations, strict=True):
            amplitudes[:, own] = correlation @ amplitudes[:, own]
        return self.lattice.waves(amplitudes, back=True)
