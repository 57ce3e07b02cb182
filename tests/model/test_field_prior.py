"""The posterior of a field, against the same in dense matrices."""

import numpy as np
import pytest
from scipy.linalg import cholesky_banded
from scipy.stats import multivariate_normal

from veilmap._kernels.banded import inverse_diagonal
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
    return seen, Laws(np.tile([3.0, -2.0], (stations, 1)), np.tile([15.0, 12.0], (stations, 1)), x)


@pytest.mark.parametrize("shape", [(4, 6), (6, 4), (1, 5), (5, 1), (1, 1), (3, 3)])
def test_mean_and_deviation_are_those_of_dense_matrices(shape):
    seen, laws = problem(shape)
    found = Solver.of(shape, seen, laws).estimate(OWN)
    prior = np.linalg.inv(
        OWN.tension * (laplacian(*shape) + OWN.shrinking * np.eye(seen.values.shape[1]))
    )
    for s in range(len(seen.values)):
        columns = np.column_stack([np.ones_like(laws.x[s]), laws.x[s]])
        covariance = prior + columns @ np.diag(laws.deviations[s] ** 2) @ columns.T
        gain = covariance @ np.linalg.inv(covariance + np.diag(1 / seen.precision[s]))
        mean = columns @ laws.means[s]
        mean = mean + gain @ (seen.values[s] - mean)
        spread = np.sqrt(np.diag(covariance - gain @ covariance))
        np.testing.assert_allclose(found.mean[s], mean, rtol=1e-8)
        np.testing.assert_allclose(found.deviation[s], spread, rtol=1e-8)


def test_likelihoods_differ_as_those_of_dense_matrices():
    shape = (4, 5)
    seen, laws = problem(shape, stations=1)
    columns = np.column_stack([np.ones_like(laws.x[0]), laws.x[0]])

    def dense(own):
        precision = own.tension * (laplacian(*shape) + own.shrinking * np.eye(20))
        covariance = np.linalg.inv(precision) + np.diag(1 / seen.precision[0])
        covariance += columns @ np.diag(laws.deviations[0] ** 2) @ columns.T
        return multivariate_normal(columns @ laws.means[0], covariance).logpdf(seen.values[0])

    solver = Solver.of(shape, seen, laws)
    others = Hyperparameters(0.2, 0.01), Hyperparameters(0.01, 1.0)
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
    laws = Laws(np.zeros((6, 2)), np.ones((6, 2)), generator.normal(0, 0.1, drawn.shape))
    found = Solver.of(shape, Observations(values, np.ones_like(values)), laws).fitted()
    # 5,400 points: the logarithm of the tension is known to a few hundredths.
    assert found.tension == pytest.approx(own.tension, rel=0.2)
    assert found.shrinking == pytest.approx(own.shrinking, rel=0.7)
