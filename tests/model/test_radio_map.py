from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

import naive
import veilmap as vm
from refusals import refused
from strategies import maps_and_data
from veilmap._kernels import links as kernels
from veilmap._util import threads
from veilmap.errors import ConfigurationError, DataError
from veilmap.model.radio_map import log_distance

GRID = vm.Grid(cell_size=3.0, shape=(8, 10))


def some_data(links=12, seed=0):
    rng = np.random.default_rng(seed)
    user_xyz = np.column_stack(
        [rng.uniform(0, 30, links), rng.uniform(0, 24, links), np.full(links, 1.5)]
    )
    bs_xyz = np.column_stack(
        [rng.uniform(0, 30, links), rng.uniform(0, 24, links), np.full(links, 20.0)]
    )
    return vm.Measurements(np.arange(links) % 4, user_xyz, bs_xyz, rng.normal(-70, 8, links))


@given(maps_and_data())
@settings(max_examples=100)
def test_gradients_equal_the_naive_reference(case):
    radio_map, data = case
    found = vm.local_gradients(radio_map, data)
    loss, by_heights, by_theta = naive.gradients(radio_map, data)
    # Cells with e < CLEAR are left out: S is off by less than CLEAR a cell, an entry of the
    # gradient by less than 2 |residual| |gap between the laws| sharpness CLEAR.
    left_out = 2 * 100 * 60 * radio_map.sharpness * kernels.CLEAR
    np.testing.assert_allclose(found.loss, loss, rtol=1e-7)
    np.testing.assert_allclose(found.theta_gradient, by_theta, rtol=1e-8, atol=20 * left_out)
    np.testing.assert_allclose(found.height_gradient, by_heights, rtol=1e-8, atol=left_out)


def central_difference(function, point, index, step):
    up, down = point.copy(), point.copy()
    up.flat[index] += step
    down.flat[index] -= step
    return (function(up) - function(down)) / (2 * step)


@given(maps_and_data())
@settings(max_examples=40)
def test_gradients_equal_central_differences(case):
    radio_map, data = case
    found = vm.local_gradients(radio_map, data)

    def losses_at(heights):
        moved = vm.RadioMap(radio_map.grid, heights, radio_map.propagation, radio_map.sharpness)
        return naive.losses(moved, data)

    def losses_with(theta):
        moved = replace(radio_map, propagation=vm.Propagation.from_array(theta))
        return naive.losses(moved, data)

    # Truncation ~ step², rounding ~ 1e-16 · loss / step: both below 1e-6 of the gradient.
    numeric = np.stack(
        [
            central_difference(losses_at, radio_map.heights, m, 2e-4)
            for m in range(radio_map.grid.cells)
        ],
        axis=1,
    )
    error = np.linalg.norm(found.height_gradient - numeric, axis=1)
    assert (error <= 1e-6 * (np.linalg.norm(numeric, axis=1) + 1)).all()
    theta = radio_map.propagation.as_array()
    numeric = np.stack([central_difference(losses_with, theta, k, 1e-3) for k in range(4)], axis=1)
    error = np.linalg.norm(found.theta_gradient - numeric, axis=1)
    assert (error <= 1e-6 * (np.linalg.norm(numeric, axis=1) + 1)).all()


@given(maps_and_data())
@settings(max_examples=100)
def test_los_weight_equals_the_product(case):
    radio_map, data = case
    found = radio_map.los_weight(data.user_xyz, data.bs_xyz)
    expected = [
        naive.los_weight(radio_map, u, b) for u, b in zip(data.user_xyz, data.bs_xyz, strict=True)
    ]
    np.testing.assert_allclose(found, expected, rtol=20 * kernels.CLEAR, atol=1e-25)


@given(maps_and_data())
@settings(max_examples=100)
def test_segmented_model_is_clear_just_where_no_obstacle_reaches_the_link(case):
    radio_map, data = case
    for user, bs, clear in zip(
        data.user_xyz, data.bs_xyz, radio_map.clear(data.user_xyz, data.bs_xyz), strict=True
    ):
        crossed = naive.crossings(radio_map.grid, user, bs)
        assert clear == all(radio_map.heights.flat[cell] < z for cell, _, z in crossed)


def test_predictions_mix_the_two_laws():
    theta = vm.Propagation(-30, -20, -40, -30)
    low = vm.RadioMap(GRID, np.full(80, -50.0), theta)
    high = vm.RadioMap(GRID, np.full(80, 90.0), theta)
    user, bs = [1.0, 1.0, 1.5], [25.0, 20.0, 20.0]
    log_d = float(log_distance(user, bs))
    for smooth in (True, False):
        assert low.predict(user, bs, smooth=smooth)[0] == pytest.approx(-30 - 20 * log_d)
        assert high.predict(user, bs, smooth=smooth)[0] == pytest.approx(-40 - 30 * log_d)


def test_an_obstacle_as_high_as_the_link_blocks_it():
    user, bs = [1.0, 1.0, 5.0], [25.0, 1.0, 5.0]
    assert not vm.RadioMap(GRID, np.full(80, 5.0)).clear(user, bs)[0]
    assert vm.RadioMap(GRID, np.full(80, np.nextafter(5.0, 0))).clear(user, bs)[0]


def test_links_under_a_metre_count_as_a_metre():
    radio_map = vm.RadioMap(GRID, np.full(80, -50.0), vm.Propagation(-30, -20, -40, -30))
    point = [4.0, 4.0, 1.5]
    assert radio_map.predict(point, point)[0] == pytest.approx(-30.0)


def test_links_off_the_grid_are_clear():
    radio_map = vm.RadioMap(GRID, np.full(80, 100.0))
    assert radio_map.los_weight([-10.0, -10.0, 1.5], [-20.0, 50.0, 9.0])[0] == 1.0


def test_area_equals_single_predictions():
    radio_map = vm.RadioMap(GRID, np.random.default_rng(0).uniform(-8, 20, GRID.shape))
    bs = np.array([4.0, 5.0, 30.0])
    area = radio_map.predict_area(bs, altitude=2.0)
    places = np.column_stack([GRID.centres, np.full(80, 2.0)])
    np.testing.assert_array_equal(area.ravel(), radio_map.predict(places, bs))
    assert area.shape == GRID.shape


def test_blocks_of_users_equal_the_whole():
    radio_map, data = vm.RadioMap(GRID, np.full(80, 4.0)), some_data(links=50)
    whole = vm.local_gradients(radio_map, data)
    blocks = list(vm.local_gradient_blocks(radio_map, data, users=3))
    assert [len(block.loss) for block in blocks] == [3, 1]
    for name in ("loss", "height_gradient", "theta_gradient", "counts"):
        joined = np.concatenate([getattr(block, name) for block in blocks])
        np.testing.assert_array_equal(joined, getattr(whole, name))


@pytest.mark.parametrize("count", ["1", "2", "7"])
def test_threads_do_not_change_a_bit(monkeypatch, count):
    radio_map, data = vm.RadioMap(GRID, np.full(80, 4.0)), some_data(links=200)
    expected = vm.local_gradients(radio_map, data).height_gradient
    monkeypatch.setenv("VEILMAP_THREADS", count)
    np.testing.assert_array_equal(vm.local_gradients(radio_map, data).height_gradient, expected)
    np.testing.assert_array_equal(threads.even_groups(data.links.offsets)[[0, -1]], [0, 4])


def test_total_loss_is_the_mean_over_links():
    radio_map, data = vm.RadioMap(GRID, np.full(80, 4.0)), some_data(links=13)
    found = vm.local_gradients(radio_map, data)
    assert radio_map.loss(data) == pytest.approx(found.counts @ found.loss / 13, rel=1e-12)


def test_fitted_propagation_has_no_gradient_left():
    radio_map = vm.RadioMap(GRID, np.random.default_rng(1).uniform(-8, 12, GRID.shape))
    data = some_data(links=300)
    fitted = vm.local_gradients(radio_map.fit_propagation(data), data)
    before = vm.local_gradients(radio_map, data)
    left = fitted.counts @ fitted.theta_gradient
    assert np.abs(left).max() < 1e-8 * np.abs(before.counts @ before.theta_gradient).max()


def test_a_saved_map_comes_back_bit_for_bit(tmp_path):
    grid = vm.Grid(2.5, (4, 6), (-1.25, 1e6 + 0.1), "EPSG:32633")
    radio_map = vm.RadioMap(
        grid, np.random.default_rng(0).normal(size=24), vm.Propagation(-31.1), 0.7
    )
    radio_map.save(tmp_path / "map.nc")
    loaded = vm.RadioMap.load(tmp_path / "map.nc")
    assert loaded.grid == grid
    assert loaded.propagation == radio_map.propagation
    assert loaded.sharpness == 0.7
    np.testing.assert_array_equal(loaded.heights, radio_map.heights)
    assert [path.name for path in tmp_path.iterdir()] == ["map.nc"]


def test_a_saved_map_carries_units_and_coordinates(tmp_path):
    import xarray

    vm.RadioMap(GRID, np.zeros(80)).save(tmp_path / "map.nc")
    with xarray.open_dataset(tmp_path / "map.nc") as dataset:
        assert dataset["obstacle_height"].attrs["units"] == "m"
        assert dataset["los_slope"].attrs["units"] == "dB per decade"
        np.testing.assert_array_equal(dataset["x"], GRID.x)


@pytest.mark.parametrize("content", [b"", b"not a map", b"CDF\x01\x00\x00"])
def test_a_damaged_map_file_is_refused_in_words(tmp_path, content):
    path = tmp_path / "map.nc"
    path.write_bytes(content)
    with refused(DataError, path):
        vm.RadioMap.load(path)
    with refused(DataError, tmp_path / "none.nc"):
        vm.RadioMap.load(tmp_path / "none.nc")
    with refused(DataError, tmp_path):
        vm.RadioMap.load(tmp_path)


def test_a_foreign_netcdf_file_is_refused(tmp_path):
    import xarray

    xarray.Dataset({"a": ("x", [1.0])}).to_netcdf(tmp_path / "other.nc", engine="scipy")
    with refused(DataError, tmp_path / "other.nc", "checksum"):
        vm.RadioMap.load(tmp_path / "other.nc")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"heights": np.zeros(7)}, ["heights", "(7,)", "(8, 10)"]),
        ({"heights": np.full(80, np.nan)}, ["heights"]),
        ({"heights": np.zeros(80), "sharpness": 0}, ["sharpness", 0]),
        ({"heights": np.linspace(0, 130, 80), "sharpness": 50.0}, ["sharpness 50", "130 m"]),
    ],
)
def test_a_wrong_map_is_refused_in_words(arguments, named):
    with refused(ConfigurationError, *named):
        vm.RadioMap(GRID, **arguments)


def test_heights_cannot_be_changed_behind_the_maps_back():
    heights = np.zeros(80)
    radio_map = vm.RadioMap(GRID, heights)
    heights[0] = 99.0
    assert radio_map.heights.max() == 0
    with pytest.raises(ValueError, match="read-only"):
        radio_map.heights[0, 0] = 1.0


def test_steep_and_high_links_stay_finite():
    radio_map = vm.RadioMap(GRID, np.linspace(-8, 130, 80), sharpness=8.0)
    user, bs = [[1.0, 1.0, -50.0], [1.0, 1.0, 1.5]], [[28.0, 22.0, 9000.0], [28.0, 22.0, 900.0]]
    assert np.isfinite(radio_map.los_weight(user, bs)).all()
