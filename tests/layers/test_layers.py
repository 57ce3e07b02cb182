from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

import veilmap as vm
from refusals import refused
from strategies import maps_and_data
from veilmap import layers
from veilmap.errors import ConfigurationError
from veilmap.layers import uncertainty

GRID = vm.Grid(3.0, (8, 10), (100.0, -20.0))
BS = np.array([104.0, -3.0, 18.0])


def a_map(seed=0):
    heights = np.random.default_rng(seed).uniform(-5, 25, GRID.shape)
    return vm.RadioMap(GRID, heights)


def some_data(users=4, links=12, seed=0):
    rng = np.random.default_rng(seed)
    user_xyz, bs_xyz = rng.uniform([100, -20, 1], [130, 4, 2], (2, links, 3))
    bs_xyz[:, 2] += 20
    return vm.Measurements(np.arange(links) % users, user_xyz, bs_xyz, rng.normal(-70, 8, links))


def centres(altitude):
    return np.column_stack([GRID.centres, np.full(GRID.cells, altitude)])


def test_gain_and_line_of_sight_are_what_the_map_says_at_the_centres():
    radio_map = a_map()
    gain = layers.gain(radio_map, BS, altitude=2.0)
    los = layers.los_probability(radio_map, BS, altitude=2.0)
    np.testing.assert_array_equal(gain.values.ravel(), radio_map.predict(centres(2.0), BS))
    np.testing.assert_array_equal(los.values.ravel(), radio_map.los_weight(centres(2.0), BS))
    assert (gain.unit, gain.details) == ("dB", {"altitude_m": 2.0, "base_station_m": BS.tolist()})
    assert los.unit == "1"
    assert los.values.min() >= 0
    assert los.values.max() <= 1


def test_obstacle_heights_are_the_maps():
    layer = layers.obstacle_heights(a_map())
    np.testing.assert_array_equal(layer.values, a_map().heights)
    assert (layer.unit, layer.altitude) == ("m", None)


def test_the_best_server_is_the_argmax_of_all_gains():
    radio_map = a_map()
    stations = np.random.default_rng(1).uniform([100, -20, 5], [130, 4, 30], (5, 3))
    stations = np.vstack([stations, stations])  # of equal stations the first
    server, best = layers.best_server(radio_map, stations, altitude=1.0)
    areas = np.array([radio_map.predict_area(bs, altitude=1.0) for bs in stations])
    np.testing.assert_array_equal(server.values, areas.argmax(axis=0))
    np.testing.assert_array_equal(best.values, areas.max(axis=0))
    assert len(np.unique(server.values)) > 1
    points = np.array([[103.2, -11.0, 4.0], [128.0, 2.0, 4.0]])
    gains = np.array([radio_map.predict(points, bs) for bs in stations])
    np.testing.assert_array_equal(server.at(points), gains.argmax(axis=0))
    np.testing.assert_array_equal(best.at(points), gains.max(axis=0))


def test_points_have_the_exact_value_or_their_cells_and_none_off_the_grid():
    radio_map = a_map()
    layer = layers.gain(radio_map, BS, altitude=2.0)
    points = np.array([[101.0, -19.5], [99.0, 0.0], [117.3, 1.1]])
    found = layer.at(points)
    inside = np.column_stack([points[[0, 2]], [2.0, 2.0]])
    np.testing.assert_array_equal(found[[0, 2]], radio_map.predict(inside, BS))
    assert np.isnan(found[1])
    higher = layer.at(np.array([[101.0, -19.5, 30.0]]))
    np.testing.assert_array_equal(higher, radio_map.predict([[101.0, -19.5, 30.0]], BS))
    heights = layers.obstacle_heights(radio_map).at(points)
    assert heights[0] == radio_map.heights[0, 0]
    assert heights[2] == radio_map.heights[7, 5]
    assert np.isnan(layer.at([[0.0, 0.0]])).all()
    assert layer.at(np.empty((0, 2))).shape == (0,)


@given(maps_and_data())
def test_coverage_equals_counting_the_cells_of_every_link(case):
    radio_map, data = case
    grid = radio_map.grid
    expected = np.zeros(grid.cells)
    for user, bs in zip(data.user_xyz, data.bs_xyz, strict=True):
        for cell in vm.trace(grid, user, bs).cells:
            expected[cell] += 1
    found = layers.link_coverage(grid, data)
    np.testing.assert_array_equal(found.values.ravel(), expected)


def test_coverage_does_not_depend_on_blocks(monkeypatch):
    data = some_data(links=50)
    whole = layers.link_coverage(GRID, data).values
    monkeypatch.setattr(uncertainty, "_LINKS_PER_BLOCK", 7)
    np.testing.assert_array_equal(layers.link_coverage(GRID, data).values, whole)
    assert whole.max() > 1


def test_spread_is_the_standard_deviation_over_maps():
    maps = [a_map(seed) for seed in range(4)]
    layer = layers.spread(maps, BS, altitude=1.0)
    areas = [radio_map.predict_area(BS, altitude=1.0) for radio_map in maps]
    np.testing.assert_array_equal(layer.values, np.std(areas, axis=0))
    assert layer.values.max() > 1
    assert layer.details["replicas"] == 4
    point = np.array([[111.0, -7.0, 1.5]])
    assert layer.at(point) == np.std([radio_map.predict(point, BS) for radio_map in maps])


def test_resampling_draws_whole_users_under_new_ids():
    data = some_data(users=5, links=23)
    drawn = layers.resampled(data, np.random.default_rng(0))
    assert drawn.users.tolist() == [0, 1, 2, 3, 4]
    originals = {user: data.of_user(user) for user in data.users.tolist()}
    sources = []
    for user in drawn.users.tolist():
        own = drawn.of_user(user)
        matching = [
            name
            for name, one in originals.items()
            if np.array_equal(one.user_xyz, own.user_xyz)
            and np.array_equal(one.gain_db, own.gain_db)
        ]
        sources += matching
    assert len(sources) == 5  # everyone drawn is somebody, with all rows
    assert len(set(sources)) < 5  # and with this seed someone was drawn twice


def test_bootstrap_trains_on_resampled_users_and_repeats_with_a_seed():
    data, done = some_data(), []
    maps = layers.bootstrap(data, GRID, 3, seed=1, rounds=2, on_replica=done.append)
    again = layers.bootstrap(data, GRID, 3, seed=1, rounds=2)
    assert done == [1, 2, 3]
    for one, two in zip(maps, again, strict=True):
        np.testing.assert_array_equal(one.heights, two.heights)
    assert not np.array_equal(maps[0].heights, maps[1].heights)
    assert len(layers.bootstrap(data, GRID, 1, rounds=1)) == 1


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (lambda: layers.gain(a_map(), [[1, 2, 3], [4, 5, 6]]), ["bs_xyz", "(2, 3)"]),
        (lambda: layers.gain(a_map(), BS, altitude=np.nan), ["altitude", "nan"]),
        (lambda: layers.best_server(a_map(), np.empty((0, 3))), ["stations", "(0, 3)"]),
        (lambda: layers.spread([a_map()], BS), ["two maps", 1]),
        (
            lambda: layers.spread([a_map(), vm.RadioMap(vm.Grid(1.0, (2, 2)), np.zeros(4))], BS),
            ["map 1", "map 0"],
        ),
        (
            lambda: layers.link_coverage(
                vm.Grid(crs="EPSG:32632"), replace(some_data(), crs="EPSG:32633")
            ),
            ["EPSG:32632", "EPSG:32633"],
        ),
        (lambda: layers.bootstrap(some_data(), GRID, 0), ["n", 0]),
        (
            lambda: layers.bootstrap(some_data(), GRID, 1, recording=vm.Recording()),
            ["bootstrap records"],
        ),
        (lambda: layers.Layer("a", np.zeros((2, 2)), "m", "a", GRID), ["(2, 2)", "(8, 10)"]),
        (lambda: layers.obstacle_heights(a_map()).at([[1, 2, 3, 4]]), ["points", "(1, 4)"]),
    ],
)
def test_wrong_use_is_one_clear_line(wrong, named):
    with refused(ConfigurationError, *named):
        wrong()
