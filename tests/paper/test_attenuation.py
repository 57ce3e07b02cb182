import numpy as np
import pytest

import veilmap as vm
from veilmap.errors import ConfigurationError
from veilmap.paper import theory

GRID = vm.Grid(3.0, (20, 24))
USER = np.array([31.5, 28.5, 1.5])  # the middle of a cell
STATIONS = np.column_stack([np.random.default_rng(0).uniform(0, 60, (30, 2)), np.full(30, 50.0)])


def believed():
    heights = np.random.default_rng(1).uniform(0, 6, GRID.shape)
    return vm.RadioMap(GRID, heights)


def test_expected_energy_equals_the_mean_over_drawn_measurements():
    radio_map = believed()
    gains = radio_map.predict(USER, STATIONS) + np.linspace(-5, 9, len(STATIONS))
    expected = theory.expected_energy(radio_map, gains, USER, STATIONS, noise_db=3.0)
    rng, draws = np.random.default_rng(2), 4000
    # Every draw is a user of its own, at the same place with other noise.
    data = vm.Measurements(
        user=np.repeat(np.arange(draws), len(STATIONS)),
        user_xyz=np.tile(USER, (draws * len(STATIONS), 1)),
        bs_xyz=np.tile(STATIONS, (draws, 1)),
        gain_db=np.tile(gains, draws) + 3.0 * rng.standard_normal(draws * len(STATIONS)),
    )
    squares = vm.local_gradients(radio_map, data).height_gradient ** 2
    tolerance = 5 * squares.std(axis=0) / np.sqrt(draws)
    assert (np.abs(squares.mean(axis=0) - expected) <= tolerance + 1e-15).all()


def test_without_noise_it_is_the_squared_gradient():
    radio_map = believed()
    gains = radio_map.predict(USER, STATIONS) + 4.0
    data = vm.Measurements(
        user=np.zeros(len(STATIONS), int),
        user_xyz=np.tile(USER, (len(STATIONS), 1)),
        bs_xyz=STATIONS,
        gain_db=gains,
    )
    gradient = vm.local_gradients(radio_map, data).height_gradient[0]
    energy = theory.expected_energy(radio_map, gains, USER, STATIONS, 0.0)
    np.testing.assert_allclose(energy, gradient**2, rtol=1e-9, atol=1e-20)


def test_energy_never_rises_under_a_level_map_above_the_truth():
    level = vm.RadioMap(GRID, np.full(GRID.shape, 6.0))
    truth = vm.RadioMap(GRID, np.random.default_rng(3).uniform(0, 5, GRID.shape))
    energy = theory.expected_energy(level, truth.predict(USER, STATIONS), USER, STATIONS, 3.0)
    rays = theory.rays(GRID, USER[:2])
    assert not any(theory.rises(energy[ray]).any() for ray in rays)
    # The same measurements on a map with a wall away from the user do rise.
    wall = np.full(GRID.shape, -5.0)
    wall[:, 14] = 12.0
    uneven = vm.RadioMap(GRID, wall)
    energy = theory.expected_energy(uneven, truth.predict(USER, STATIONS), USER, STATIONS, 3.0)
    assert any(theory.rises(energy[ray], 1e-9 * energy.max()).any() for ray in rays)


def test_rays_leave_in_eight_directions_to_the_edge():
    rays = theory.rays(GRID, USER[:2])
    assert len(rays) == 8
    start = int(GRID.cell_of(USER[:2]))
    row, column = divmod(start, 24)
    for ray in rays:
        assert ray[0] == start
        steps = np.diff(GRID.centres[ray], axis=0)
        assert (steps == steps[0]).all()
        assert np.abs(steps).max() == 3.0
        last_row, last_column = divmod(int(ray[-1]), 24)
        assert last_row in (0, 19) or last_column in (0, 23)
    lengths = sorted(len(ray) - 1 for ray in rays)
    straight = [row, 19 - row, column, 23 - column]
    assert all(length in lengths for length in straight)


def test_rises_compares_neighbours_and_passes_over_what_is_too_small():
    assert theory.rises([4.0, 2.0, 3.0, 1.0]).tolist() == [False, True, False]
    assert theory.rises([4.0, 1e-9, 2e-9], least=1e-6).tolist() == [False, False]


def test_wrong_input_is_refused():
    with pytest.raises(ConfigurationError) as raised:
        theory.expected_energy(believed(), [1.0], USER, STATIONS, 3.0)
    assert raised.value.parameter == "true_gain_db"
    with pytest.raises(ConfigurationError) as raised:
        theory.rays(GRID, [-1.0, 5.0])
    assert raised.value.parameter == "xy"
