import numpy as np
import pytest

import veilmap as vm
from veilmap.attacks import ATTACKS, WeightedCentroid

GRID = vm.Grid(2.0, (10, 20))


def test_centroids_are_what_the_formula_says():
    upload = np.zeros((2, 200))
    upload[0, [5, 8]] = [1.0, -2.0]
    upload[1] = np.random.default_rng(0).normal(size=200)
    for power in (1, 2, 5, 10):
        weights = np.abs(upload) ** power
        expected = weights @ GRID.centres / weights.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(WeightedCentroid(power).positions(upload, GRID), expected)
    largest = WeightedCentroid(float("inf")).positions(upload, GRID)
    np.testing.assert_array_equal(largest[0], GRID.centres[8])


def test_an_upload_of_zeros_is_placed_in_the_middle():
    for power in (2, float("inf")):
        found = WeightedCentroid(power).positions(np.zeros((1, 200)), GRID)
        np.testing.assert_allclose(found[0], GRID.centres.mean(axis=0))


def test_huge_powers_do_not_overflow():
    upload = np.full((1, 200), 1e-200)
    upload[0, 3] = 1e200
    np.testing.assert_allclose(WeightedCentroid(10).positions(upload, GRID)[0], GRID.centres[3])


def test_without_noise_the_first_round_gives_users_away():
    scene = vm.Scene.synthetic(0)
    data = scene.measure(users=40, seed=0)
    run = vm.train(data, scene.grid, rounds=1, keep_uploads="all")
    positions = dict(zip(data.users.tolist(), data.mean_positions(), strict=True))
    errors = WeightedCentroid(2).locate(run.transcript).errors(positions)[0]
    assert np.sqrt(np.mean(errors**2)) < 2 * scene.grid.cell_size


def test_aligned_noise_misleads_the_centroid_more_than_uniform_noise():
    scene = vm.Scene.synthetic(0)
    data = scene.measure(users=40, seed=0)
    positions = dict(zip(data.users.tolist(), data.mean_positions(), strict=True))
    rms = {}
    for mechanism in (vm.UniformNoise(noise_budget=50), vm.GeometryAligned(noise_budget=50)):
        run = vm.train(data, scene.grid, mechanism=mechanism, rounds=1, seed=0, keep_uploads="all")
        errors = WeightedCentroid(2).locate(run.transcript).errors(positions)[0]
        rms[mechanism.name] = np.sqrt(np.mean(errors**2))
    assert rms["uniform"] > 90
    assert rms["aligned"] > 180


def test_wrong_use_is_refused():
    with pytest.raises(vm.VeilmapError, match="greater than 0"):
        WeightedCentroid(0)
    scene = vm.Scene.synthetic(0, size=60.0, buildings=2)
    run = vm.train(scene.measure(users=3, seed=0), scene.grid, rounds=1)
    for attack in ATTACKS.values():
        with pytest.raises(vm.VeilmapError, match="keep_uploads"):
            attack().locate(run.transcript)
