"""Areas divided into tiles, against the whole."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flat
import veilmap as vm
from veilmap.errors import ConfigurationError
from veilmap.federation.client import Clients
from veilmap.federation.config import RunConfig
from veilmap.federation.messages import Broadcast
from veilmap.geometry.tiling import Tiles, Tiling
from veilmap.model.gradients import gradients_of
from veilmap.privacy.mechanisms import Contribution
from veilmap.privacy.mechanisms.sums import RunningSum
from veilmap.privacy.noise import draw

PROMISED = vm.AggregateGaussian(noise_multiplier=4.0, delta=1e-3, clip=0.3, epsilon=1e6)


@pytest.fixture(scope="module")
def scene():
    return vm.Scene.synthetic(3, size=120.0, buildings=4, base_stations=12)


@pytest.fixture(scope="module")
def data(scene):
    return scene.measure(users=40, links_per_user=9, seed=1)


@given(
    st.integers(1, 30),
    st.integers(1, 30),
    st.integers(1, 40),
    st.integers(0, 12),
    st.integers(0, 2**32 - 1),
)
def test_every_place_is_in_one_tile_and_that_tile_s_window_holds_it(
    rows, columns, side, margin, seed
):
    grid = vm.Grid(2.5, (rows, columns), (100.0, -50.0))
    tiles = Tiling(2.5 * side, 2.5 * margin).over(grid)
    west, east, south, north = grid.extent
    places = np.random.default_rng(seed).uniform((west, south), (east, north), (30, 2))
    tile = tiles.of(places)
    assert ((tile >= 0) & (tile < len(tiles))).all()
    column, row = np.floor((places - grid.origin) / 2.5).astype(int).T
    r0, r1, c0, c1 = tiles.windows[tile].T
    assert ((r0 <= row) & (row < r1) & (c0 <= column) & (column < c1)).all()
    # Neighbours within the margin are in the window as well.
    assert ((r0 <= np.maximum(row - margin, 0)) & (np.minimum(row + margin, rows - 1) < r1)).all()
    covered = np.zeros(grid.shape)
    for number, cells in enumerate(tiles.cells):
        tiles.add_window(number, np.ones(cells), covered)
    assert covered.min() >= 1
    if margin == 0:
        assert covered.max() == 1


def added_up(data, mechanism, radio_map, tiles, cohorts):
    total = RunningSum.empty(
        tiles.cells.tolist(), len(radio_map.theta), whole=mechanism.whole_numbers
    )
    clients = Clients(data.users.tolist(), data.links, mechanism, 5)
    clients.add_up(Broadcast(1, radio_map, len(data.users)), tiles, cohorts, total)
    return total


@pytest.mark.parametrize("mechanism", [vm.NoNoise(clip=0.2), PROMISED])
def test_a_tile_s_sum_is_that_of_its_users_cut_to_its_window(scene, data, mechanism):
    heights = np.random.default_rng(0).uniform(0, 12, scene.grid.shape)
    radio_map, tiles = vm.RadioMap(scene.grid, heights), Tiling(50, 12).over(scene.grid)
    places = data.mean_positions()
    tile_of = tiles.of(places)
    cohorts = np.bincount(tile_of, minlength=len(tiles)) + 3
    total = added_up(data, mechanism, radio_map, tiles, cohorts)
    local = gradients_of(radio_map, data.links)
    assert len(np.unique(tile_of)) > 3
    for tile in np.unique(tile_of):
        own = tile_of == tile
        r0, r1, c0, c1 = tiles.windows[tile]
        cut = local.height_gradient.reshape(-1, *scene.grid.shape)[own, r0:r1, c0:c1]
        raw = Contribution(
            cut.reshape(own.sum(), -1), local.theta_gradient[own], local.counts[own], places[own]
        )
        window = vm.Grid(scene.grid.cell_size, (r1 - r0, c1 - c0))
        draws = [draw(5, client, 1) for client in data.users[own].tolist()]
        sent = mechanism.answer(raw, window, draws, int(cohorts[tile]))
        by_cells, by_theta = total.total(tile)
        tolerance = 0 if mechanism.whole_numbers else 1e-12
        np.testing.assert_allclose(by_cells, sent.weights @ sent.uploads, rtol=0, atol=tolerance)
        np.testing.assert_allclose(by_theta, sent.weights @ sent.theta_gradient, rtol=1e-12)
        assert total.weights[tile] == sent.weights.sum()


def test_one_tile_for_all_is_no_division(scene, data):
    options = {"rounds": 3, "seed": 1, "mechanism": vm.NoNoise(clip=0.3)}
    whole = flat.train(data, scene.grid, **options)
    tiled = flat.train(data, scene.grid, tiling=Tiling(1000.0, 0.0), **options)
    np.testing.assert_array_equal(whole.radio_map.heights, tiled.radio_map.heights)
    np.testing.assert_array_equal(whole.radio_map.theta, tiled.radio_map.theta)
    assert whole.history[0].upload_bytes == tiled.history[0].upload_bytes


def test_tiles_learn_one_map_and_send_less(scene, data):
    unseen = scene.measure(users=60, links_per_user=9, seed=2)
    options = {"rounds": 40, "seed": 1, "mechanism": vm.NoNoise(clip=0.3), "test": unseen}
    whole = flat.train(data, scene.grid, **options)
    tiled = flat.train(data, scene.grid, tiling=Tiling(60, 30), **options)
    assert tiled.history[-1].upload_bytes < 0.7 * whole.history[-1].upload_bytes
    # The same users and links; what lies beyond a window is learned by others.
    assert tiled.history[-1].mae_db < whole.history[-1].mae_db + 0.5
    assert tiled.history[-1].mae_db < tiled.history[9].mae_db


def test_a_tile_with_too_few_users_stays_shut(scene, data):
    run = vm.train(
        data, scene.grid, mechanism=PROMISED, rounds=1, seed=1, tiling=Tiling(25, 6),
        server_sees="sums",
    )  # fmt: skip
    tiles = Tiling(25, 6).over(scene.grid)
    count = np.bincount(tiles.of(data.mean_positions()), minlength=len(tiles))
    row = run.history[0]
    alone = np.flatnonzero(count == 1)
    assert len(alone) > 0
    assert row.clients == 40 - len(alone)
    for tile in alone:
        assert f"tile {tile} stays shut: 1 of the 2 answers it needs came" in row.notes


def test_everybody_in_an_open_tile_pays_once(scene, data, tmp_path):
    mechanism = vm.AggregateGaussian(epsilon=50.0, delta=1e-3, clip=0.3)
    run = vm.train(
        data,
        scene.grid,
        mechanism=mechanism,
        rounds=3,
        seed=1,
        tiling=Tiling(60, 12),
        server_sees="sums",
        recording=vm.Recording(out=tmp_path / "run"),
    )
    import json

    ledger = json.loads((tmp_path / "run" / "ledger.json").read_text())
    assert {count for _, count in ledger["spent"]} == {3}
    assert len(ledger["spent"]) == run.history[0].clients
    assert run.history[-1].epsilon == pytest.approx(50.0, rel=1e-3)
    again = RunConfig.load(tmp_path / "run").settings()
    assert again["tiling"] == Tiling(60, 12)


class Undivided(vm.InProcess):
    """An engine that divides no areas."""

    divides = False


@pytest.mark.parametrize(
    "options",
    [
        {"mechanism": vm.UniformNoise()},
        {"calibrate": ["stations"]},
        {"keep_uploads": [0]},
        {"engine": Undivided()},
        {"tiling": Tiling(1.0)},
    ],
)
def test_what_tiles_cannot_do_is_refused(scene, data, options):
    settings = {"tiling": Tiling(60), "rounds": 1, "mechanism": vm.NoNoise()}
    flat.train(data, scene.grid, **settings)
    with pytest.raises(ConfigurationError):
        flat.train(data, scene.grid, **settings | options)


def test_single_covers_the_grid():
    tiles = Tiles.single(vm.Grid(3.0, (7, 4)))
    assert tiles.windows.tolist() == [[0, 7, 0, 4]]
