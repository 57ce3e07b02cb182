import numpy as np
import pytest

import naive
import veilmap as vm
from refusals import refused
from veilmap._kernels import images
from veilmap.baselines import mean_absolute_error
from veilmap.errors import ConfigurationError
from veilmap.federation import FlatPieces, OpenGround


@pytest.mark.parametrize("weight", [0.1, 1.0, 5.0])
def test_the_prior_finds_the_minimum_of_its_objective(weight):
    rng = np.random.default_rng(0)
    image = rng.normal(size=(9, 11)) * 3

    def objective(x):
        return 0.5 * np.sum((x - image) ** 2) + weight * naive.total_variation(x)

    found = images.total_variation_prox(image, weight, 3000)
    # The objective is 1-strongly convex: at its minimum every other point costs ½‖Δ‖² more.
    for size in (1e-2, 0.3, 3.0):
        for _ in range(20):
            other = found + size * rng.normal(size=image.shape)
            gain = 0.5 * np.sum((other - found) ** 2)
            assert objective(other) >= objective(found) + 0.9 * gain - 1e-4
    assert objective(found) < objective(images.total_variation_prox(image, weight, 3)) + 1e-9


def test_the_prior_keeps_flat_maps_and_the_mean():
    flat = np.full((5, 7), 3.25)
    np.testing.assert_allclose(images.total_variation_prox(flat, 2.0, 30), flat)
    image = np.random.default_rng(1).normal(size=(5, 7))
    smoothed = images.total_variation_prox(image, 2.0, 30)
    assert smoothed.mean() == pytest.approx(image.mean())
    np.testing.assert_array_equal(images.total_variation_prox(image, 0.0, 30), image)


def test_training_learns_a_map_and_repeats_itself():
    scene = vm.Scene.synthetic(20)
    data, test = scene.measure(seed=0), scene.measure(users=100, seed=1)
    run = vm.train(data, scene.grid, rounds=60)
    assert run.history[-1].loss < 0.5 * run.history[0].loss
    assert mean_absolute_error(run.radio_map, test) < mean_absolute_error(
        vm.baselines.NearestNeighbours().fit(data), test
    )
    again = vm.train(data, scene.grid, rounds=60)
    np.testing.assert_array_equal(again.radio_map.heights, run.radio_map.heights)
    assert again.radio_map.propagation == run.radio_map.propagation


def test_a_step_has_its_length_and_the_ground_sinks():
    grid = vm.Grid(3.0, (20, 20))
    step = vm.NoiseAwareStep(priors=(OpenGround(0.25),), floor=-100.0, step=2.0, last_step=0.0)
    state = step.start(grid)
    still = step(state, np.zeros(400), np.zeros(4), rounds=10)
    np.testing.assert_allclose(still.radio_map.heights, 4.0 - 0.25 * 2.0)
    gradient = np.random.default_rng(0).normal(size=400)
    moved = step(state, gradient, np.zeros(4), rounds=10).radio_map.heights - (4.0 - 0.5)
    assert np.sqrt(np.mean(moved**2)) == pytest.approx(2.0)
    assert np.corrcoef(moved.ravel(), gradient)[0, 1] < 0  # downhill


def test_the_model_hardens_over_the_first_half():
    step = vm.NoiseAwareStep(start_sharpness=0.25, sharpness=1.0, soft_share=0.5)
    state = step.start(vm.Grid(3.0, (5, 5)))
    seen = [state.radio_map.sharpness]
    for _ in range(4):
        state = step(state, np.zeros(25), np.zeros(4), rounds=4)
        seen.append(state.radio_map.sharpness)
    np.testing.assert_allclose(seen, [0.25, 0.5, 1.0, 1.0, 1.0])


def test_heights_stay_within_their_bounds():
    scene = vm.Scene.synthetic(20, size=90.0, buildings=4)
    step = vm.NoiseAwareStep(floor=-2.0, ceiling=6.0)
    run = vm.train(
        scene.measure(users=20, seed=0), scene.grid, rounds=20, model=vm.Model(step=step)
    )
    assert run.radio_map.heights.min() >= -2
    assert run.radio_map.heights.max() <= 6


@pytest.mark.parametrize(
    "options",
    [{"step": -1}, {"velocity_memory": 1.0}, {"start_height": 200.0}, {"smoothing": -1}],
)
def test_wrong_steps_are_refused(options):
    with refused(ConfigurationError, *options):
        vm.NoiseAwareStep(**options)


def test_wrong_priors_are_refused():
    with refused(ConfigurationError, parameter="iterations"):
        FlatPieces(iterations=0)
    with refused(ConfigurationError, parameter="share"):
        OpenGround(-1)
