import numpy as np
import pytest

import veilmap as vm
from algorithm1 import Problem
from veilmap.attacks import WeightedCentroid
from veilmap.errors import ConfigurationError
from veilmap.paper import theory

GRID = vm.Grid(3.0, (30, 30))


def centroids(uploads, grid):
    return WeightedCentroid(2).positions(uploads, vm.Transcript(grid, {}, np.zeros((0, 3))))


def peaked_gradient(grid, seed=0):
    rng = np.random.default_rng(seed)
    user = np.array([31.0, 52.0])
    away = np.linalg.norm(grid.centres - user, axis=1)
    gradient = rng.normal(size=grid.cells) * np.exp(-away / 10)
    return 0.8 * gradient / np.linalg.norm(gradient), user


def uploads(gradient, variances, count, seed=1):
    normals = np.random.default_rng(seed).standard_normal((count, len(gradient)))
    return gradient + np.sqrt(variances) * normals


@pytest.mark.parametrize(
    "mechanism", [vm.GeometryAligned(noise_budget=5), vm.UniformNoise(noise_budget=5)]
)
def test_attacker_error_and_spatial_variance_equal_monte_carlo(mechanism):
    gradient, user = peaked_gradient(GRID)
    variances = mechanism.variances(gradient, GRID, user)
    sent = uploads(gradient, variances, 20_000)
    squared = np.sum((centroids(sent, GRID) - user) ** 2, axis=1)
    tolerance = 5 * squared.std() / np.sqrt(len(squared))
    # Third-order terms of P remain; they are below a thousandth here.
    predicted = theory.attacker_error(gradient, variances, GRID, user)
    assert abs(predicted - squared.mean()) < tolerance + 1e-3 * predicted
    sample = (sent**2).var(axis=1)
    tolerance = 5 * sample.std() / np.sqrt(len(sample))
    assert abs(theory.spatial_variance(gradient, variances) - sample.mean()) < tolerance


@pytest.mark.parametrize(
    "mechanism", [vm.GeometryAligned(noise_budget=5), vm.UniformNoise(noise_budget=5)]
)
def test_the_correction_for_few_cells_is_right(mechanism):
    grid = vm.Grid(90 / 8, (8, 8))
    gradient, user = peaked_gradient(grid)
    variances = mechanism.variances(gradient, grid, user)
    mean, away = gradient**2 + variances, grid.centres - user
    limit_error = mean @ away / mean.sum()
    energy = uploads(gradient, variances, 100_000) ** 2
    found = energy @ away / energy.sum(axis=1, keepdims=True)
    # What is linear in the noise has mean 0: taking it away leaves the correction.
    linear = (energy - mean) @ (away - limit_error) @ limit_error / mean.sum()
    limit = limit_error @ limit_error
    sample = np.sum(found**2, axis=1) - limit - 2 * linear
    correction = theory.attacker_error(gradient, variances, grid, user) - limit
    noise = 5 * sample.std() / np.sqrt(len(sample))
    # Third-order terms remain, with 64 cells about a thousandth of P.
    assert abs(correction - sample.mean()) < noise + 2e-3 * limit + 0.03 * abs(correction)


def test_the_allocators_objective_is_error_against_spatial_variance():
    gradient, user = peaked_gradient(GRID)
    mechanism = vm.GeometryAligned(noise_budget=5, tradeoff=30)
    flat = vm.UniformNoise(noise_budget=5).variances(gradient, GRID, user)
    aligned = mechanism.variances(gradient, GRID, user)
    price = (1 / 36) * (1 + 30 / 22)  # κ₁ of docs/allocation.md
    energy = (1 + 5) * (gradient @ gradient) / GRID.cells

    def paper(variances):
        limit = theory.localization_limit(gradient, variances, GRID, user).limit
        return limit / 90**2 - price * theory.spatial_variance(gradient, variances) / energy**2

    problem = Problem(gradient, GRID, user, 5, mechanism.variance_weight(GRID.cells))
    ours = problem.objective_of_variances(aligned) - problem.objective_of_variances(flat)
    assert paper(aligned) - paper(flat) == pytest.approx(ours, rel=1e-9)


def test_uniform_noise_keeps_a_spatial_variance():
    sigma = np.full(400, 0.3)
    assert theory.spatial_variance(np.zeros(400), sigma) == pytest.approx(
        2 * 0.3**2 * (1 - 1 / 400)
    )


def test_the_decomposition_adds_up():
    gradient, user = peaked_gradient(GRID)
    mechanism = vm.GeometryAligned(noise_budget=7)
    variances = mechanism.variances(gradient, GRID, user)
    parts = theory.localization_limit(gradient, variances, GRID, user)
    energy = gradient**2
    np.testing.assert_allclose(parts.bias, energy @ GRID.centres / energy.sum() - user)
    np.testing.assert_allclose(parts.noise, variances @ GRID.centres / variances.sum() - user)
    total = energy + variances
    error = total @ GRID.centres / total.sum() - user
    assert parts.limit == pytest.approx(error @ error)
    silent = theory.localization_limit(gradient, np.zeros(GRID.cells), GRID, user)
    assert silent.limit == pytest.approx(parts.bias @ parts.bias)


def test_the_limit_is_approached_as_cells_shrink():
    gaps = []
    for cells in (10, 40, 160):
        grid = vm.Grid(90 / cells, (cells, cells))
        gradient, user = peaked_gradient(grid)
        variances = vm.GeometryAligned(noise_budget=10).variances(gradient, grid, user)
        sent = uploads(gradient, variances, 400)
        squared = np.sum((centroids(sent, grid) - user) ** 2, axis=1)
        limit = theory.localization_limit(gradient, variances, grid, user).limit
        gaps.append(np.sqrt(np.mean((squared - limit) ** 2)) / limit)
    assert gaps[0] > 2 * gaps[1] > 4 * gaps[2]


def test_noise_aligned_with_the_bias_misleads_most():
    gradient, user = peaked_gradient(GRID)
    aligned = vm.GeometryAligned(noise_budget=10).variances(gradient, GRID, user)
    flat = vm.UniformNoise(noise_budget=10).variances(gradient, GRID, user)
    mirrored = aligned.reshape(30, 30)[::-1, ::-1].ravel()
    errors = [theory.attacker_error(gradient, v, GRID, user) for v in (aligned, flat, mirrored)]
    assert errors[0] > 1.5 * errors[1]
    assert errors[0] > errors[2]


def test_wrong_input_is_refused():
    for parameter, gradient, variances in (
        ("gradient", np.ones(3), np.ones(3)),
        ("variances", np.ones(900), -np.ones(900)),
        ("gradient", np.zeros(900), np.zeros(900)),
    ):
        for theorem in (theory.attacker_error, theory.localization_limit):
            with pytest.raises(ConfigurationError) as raised:
                theorem(gradient, variances, GRID, [0, 0])
            assert raised.value.parameter == parameter
