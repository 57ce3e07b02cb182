"""The posterior of a field, against the same in dense matrices."""

import numpy as np
import pytest
from scipy.linalg import block_diag, cholesky_banded
from scipy.special import kv
from scipy.stats import multivariate_normal

from veilmap._kernels.banded import inverse_diagonal
from veilmap.geometry.grid import Grid
from veilmap.model import field_prior
from veilmap.model.field_prior import Hyperparameters, Lattice, Laws, Observations, Solver

OWN = Hyperparameters(tension=0.05, shrinking=0.1)


def laplacian(rows, columns):
    """Plain: every point less its neighbours."""
    size = rows * columns
    matrix = np.zeros((size, size))
    for row in range(rows):
        for column in range(columns):
            here = row * columns + column
            for other, exists in (
                (here + 1, column + 1 < columns),
                (here + columns, row + 1 < rows),
            ):
                if exists:
                    matrix[[here, other], [here, other]] += 1
                    matrix[[here, other], [other, here]] -= 1
    return matrix


def problem(shape, stations=2, seed=0):
    generator = np.random.default_rng(seed)
    size = (stations, shape[0] * shape[1])
    seen = Observations(generator.normal(0, 10, size), generator.uniform(0.01, 1, size))
    x = generator.normal(0, 0.3, size)
    known = np.tile([3.0, -2.0], (stations, 1)), np.tile([15.0, 12.0], (stations, 1))
    return seen, Laws(*known, np.stack([np.ones_like(x), x], axis=-1))


def solver_of(shape, seen, laws, apart=1e9):
    """With stations on a line, so many metres from each other, and points 10 m apart."""
    positions = np.arange(len(seen.values))[:, None] * [apart, 0.0, 0.0]
    return Solver.of(Grid(10.0, shape), positions, seen, laws)


def dense_posterior(prior, seen, laws, own=OWN):
    """Means and deviations, (S, P), of stations whose fields have this covariance, (S P, S P)."""
    design = block_diag(*laws.columns)
    covariance = prior + design @ np.diag(laws.deviations.ravel() ** 2) @ design.T
    noise = np.diag(own.nugget / seen.weights.ravel())
    gain = covariance @ np.linalg.inv(covariance + noise)
    mean = design @ laws.means.ravel()
    mean = mean + gain @ (seen.values.ravel() - mean)
    spread = np.sqrt(np.diag(covariance - gain @ covariance))
    return mean.reshape(seen.values.shape), spread.reshape(seen.values.shape)


@pytest.mark.parametrize("shape", [(4, 6), (6, 4), (1, 5), (5, 1), (1, 1), (3, 3)])
@pytest.mark.parametrize("nugget", [1.0, 7.0])
def test_far_apart_stations_are_those_of_dense_matrices(shape, nugget):
    seen, laws = problem(shape)
    own = Hyperparameters(OWN.tension, OWN.shrinking, nugget)
    found = solver_of(shape, seen, laws).estimate(own)
    size = seen.values.shape[1]
    prior = np.linalg.inv(own.tension * (laplacian(*shape) + own.shrinking * np.eye(size)))
    mean, spread = dense_posterior(block_diag(prior, prior), seen, laws, own)
    # Far apart stations still share a little in no wave at all.
    np.testing.assert_allclose(found.mean, mean, atol=2e-3)
    np.testing.assert_allclose(found.deviation, spread, rtol=1e-8)


def coupled_prior(shape, apart, share_of_its_own, slower):
    """Plain: every eigenvector of L by itself, between stations on a line."""
    values, vectors = np.linalg.eigh(laplacian(*shape))
    prior = 0.0
    for value, vector in zip(values, vectors.T, strict=True):
        squared = max(value, 0.0) + OWN.shrinking
        phase = np.sqrt(squared) / (10.0 * slower) * apart
        between = np.where(phase > 0, phase * kv(1, np.maximum(phase, 1e-12)), 1.0)
        between = (1 - share_of_its_own) * between + share_of_its_own * np.eye(len(apart))
        prior = prior + np.kron(between, np.outer(vector, vector)) / (OWN.tension * squared)
    return prior


@pytest.mark.parametrize("shape", [(4, 6), (6, 4), (5, 5)])
@pytest.mark.parametrize("metres", [0.0, 15.0, 60.0])
def test_near_stations_share_waves_as_in_dense_matrices(shape, metres, monkeypatch):
    monkeypatch.setattr(field_prior, "_BINS_PER_OCTAVE", 10_000)  # every wave by itself
    monkeypatch.setattr(field_prior, "_TOLERANCE", 1e-9)
    seen, laws = problem(shape, stations=3)
    found = solver_of(shape, seen, laws, metres).estimate(OWN)
    apart = metres * np.abs(np.subtract.outer(np.arange(3), np.arange(3)))
    prior = coupled_prior(shape, apart, field_prior._OWN, field_prior._SLOWER)
    mean, spread = dense_posterior(prior, seen, laws)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-6, atol=1e-6)
    assert (found.deviation > spread - 1e-9).all()  # others can only tell more
    by_itself = solver_of(shape, seen, laws).estimate(OWN).mean
    assert np.abs(by_itself - mean).max() > 0.03


def test_waves_that_are_binned_hardly_change_the_mean(monkeypatch):
    seen, laws = problem((12, 9), stations=4)
    binned = solver_of((12, 9), seen, laws, 40.0).mean(OWN)
    monkeypatch.setattr(field_prior, "_BINS_PER_OCTAVE", 10_000)
    exact = solver_of((12, 9), seen, laws, 40.0).mean(OWN)
    assert np.abs(binned - exact).max() < 0.03 * np.std(exact)


def test_likelihoods_differ_as_those_of_dense_matrices():
    shape = (4, 5)
    seen, laws = problem(shape, stations=1)
    columns = laws.columns[0]

    def dense(own):
        precision = own.tension * (laplacian(*shape) + own.shrinking * np.eye(20))
        covariance = np.linalg.inv(precision) + np.diag(own.nugget / seen.weights[0])
        covariance += columns @ np.diag(laws.deviations[0] ** 2) @ columns.T
        return multivariate_normal(columns @ laws.means[0], covariance).logpdf(seen.values[0])

    solver = solver_of(shape, seen, laws)
    others = Hyperparameters(0.2, 0.01), Hyperparameters(0.01, 1.0), Hyperparameters(0.1, 0.1, 5)
    for own in others:
        apart = solver._station(0, own).likelihood - solver._station(0, OWN).likelihood
        assert apart == pytest.approx(dense(own) - dense(OWN), rel=1e-8)


def test_the_inverse_of_a_banded_matrix_is_that_of_the_whole():
    band = Lattice((5, 7)).band.copy()
    band[0] += np.random.default_rng(0).uniform(0.1, 2, 35)
    factor = cholesky_banded(band, lower=True)
    dense = np.zeros((35, 35))
    for k, diagonal in enumerate(band):
        dense += np.diag(diagonal[: 35 - k], -k) + (np.diag(diagonal[: 35 - k], k) if k else 0)
    found = np.empty(35)
    inverse_diagonal(factor, found)
    np.testing.assert_allclose(found, np.diag(np.linalg.inv(dense)), rtol=1e-10)


def test_hyperparameters_of_a_drawn_field_are_found():
    shape, own = (30, 30), Hyperparameters(0.1, 0.05)
    generator = np.random.default_rng(3)
    precision = own.tension * (laplacian(*shape) + own.shrinking * np.eye(900))
    factor = np.linalg.cholesky(precision)
    drawn = np.linalg.solve(factor.T, generator.normal(size=(900, 6))).T
    values = drawn + generator.normal(size=drawn.shape)
    x = generator.normal(0, 0.1, drawn.shape)
    laws = Laws(np.zeros((6, 2)), np.ones((6, 2)), np.stack([np.ones_like(x), x], axis=-1))
    seen = Observations(values, np.ones_like(values))
    found = solver_of(shape, seen, laws).fitted()
    # 5,400 points: the logarithm of the tension is known to a few hundredths.
    assert found.tension == pytest.approx(own.tension, rel=0.2)
    assert found.shrinking == pytest.approx(own.shrinking, rel=0.7)
