"""Maps with more cells than the page shows."""

import io

import numpy as np
import pytest
import rasterio

import veilmap as vm
from veilmap.federation.run_folder import RunFolder
from veilmap.geometry.grid import Grid
from veilmap.model.offsets import Offsets
from veilmap.scenes.scene import Scene
from veilmap.web.downsampling import MIDDLE, Downsampled
from webs import client_of, service_of, strict, trained, unpacked

HERE = {"x": 100.0, "y": 120.0, "z": 30.0}
STATION = (100.0, 120.0, 30.0)
SHOWN = Grid(1.2, (250, 250))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Runs on 500 × 500 cells: one sends uploads, one sums over more users than can be tried."""
    place = tmp_path_factory.mktemp("runs")
    few = Scene.synthetic(3).measure(users=3, links_per_user=20, seed=7)
    few.save(place / "test.parquet")
    many = Scene.synthetic(3).measure(users=100, links_per_user=5, seed=8)
    many.save(place / "many.parquet")
    options = ["--cell-size", "0.6", "--test", str(place / "test.parquet"), "--keep-uploads", "1"]
    trained(place / "uploads", *options, "--mechanism", "aligned", "--budget", "20")
    sums = ["--mechanism", "none", "--server-sees", "sums"]
    trained(place / "sums", str(place / "many.parquet"), *options, *sums)
    return place


@pytest.fixture(scope="module")
def client(place, tmp_path_factory):
    return client_of(service_of([place], tmp_path_factory.mktemp("work")))


@pytest.fixture(scope="module")
def radio_map(place):
    return vm.RadioMap.load(place / "uploads" / "radio_map.nc")


def shown(client, run="uploads", what="layer", **wanted):
    answer = client.get(f"/api/runs/{run}/{what}", params=wanted)
    assert answer.status_code == 200, answer.content
    assert len(answer.content) < 2_000_000
    return unpacked(answer.content)


def test_predictions_are_those_at_the_middle_of_each_square(client, radio_map):
    assert radio_map.grid.shape == (500, 500)
    header, arrays = shown(client, layer="gain", **HERE)
    expected = vm.layers.gain(radio_map, STATION, grid=SHOWN)
    np.testing.assert_array_equal(arrays["values"], expected.values.astype(np.float32))
    assert (header["grid"]["rows"], header["grid"]["cell_size"]) == (250, 1.2)
    assert header["how"] == "middle of 1.2 m × 1.2 m"
    assert "500 × 500 cells of 0.6 m" in header["notes"][0]
    _, arrays = shown(client, layer="los", **HERE)
    expected = vm.layers.los_probability(radio_map, STATION, grid=SHOWN)
    np.testing.assert_array_equal(arrays["values"], expected.values.astype(np.float32))


def test_heights_are_the_highest_of_each_square(client, radio_map):
    header, arrays = shown(client, layer="heights")
    highest = radio_map.heights.reshape(250, 2, 250, 2).max(axis=(1, 3))
    np.testing.assert_array_equal(arrays["values"], highest.astype(np.float32))
    assert header["how"] == "highest of 1.2 m × 1.2 m"


@pytest.mark.parametrize("wanted", [{"layer": "gain", **HERE}, {"layer": "heights"}])
def test_errors_are_what_is_between_the_panes(client, wanted):
    learned, true, error = (
        shown(client, of=of, **wanted)[1]["values"] for of in ("learned", "true", "error")
    )
    np.testing.assert_allclose(error, learned - true, atol=1e-4)
    if wanted["layer"] == "gain":
        inside = Scene.synthetic(3).heights_on(SHOWN) > 0
        np.testing.assert_array_equal(np.isnan(true), inside)


def test_files_have_every_cell(client, radio_map):
    answer = client.get("/api/runs/uploads/layer.tif", params=HERE)
    with rasterio.open(io.BytesIO(answer.content)) as raster:
        values = np.flipud(raster.read(1))
    expected = vm.layers.gain(radio_map, STATION).values
    np.testing.assert_array_equal(values, expected.astype(np.float32))
    detail = strict(client.get("/api/runs/uploads"))
    assert (detail["grid"]["rows"], detail["grid"]["cell_size"]) == (500, 0.6)


def test_uploads_keep_their_peaks(client, place, radio_map):
    header, arrays = shown(client, what="seen", user="2", round=1)
    seen = RunFolder(place / "uploads").load_round(0, radio_map.grid)
    sent = seen.uploads[seen.clients.index(2)].reshape(500, 500)
    assert np.abs(arrays["sent"]).max() == np.abs(sent).max()
    corner = sent[:2, :2].ravel()
    assert arrays["sent"][0, 0] == corner[np.argmax(np.abs(corner))]
    assert header["how"] == "strongest of 1.2 m × 1.2 m"


def test_attacks_that_would_fill_the_memory_are_left_out_with_a_word(client):
    header, _ = shown(client, what="seen", user="2", round=1)
    assert header["pending"] == []
    assert any("not tried: matched filter, gradient inversion" in note for note in header["notes"])
    attacks = {one["attack"] for one in header["schemes"][0]["estimates"]}
    assert "plane subtraction" in attacks


def test_of_a_sum_over_very_many_only_what_was_sent_is_shown(client):
    header, arrays = shown(client, "sums", "seen", user="5", round=1, sum=True)
    assert [scheme["name"] for scheme in header["schemes"]] == ["sent"]
    assert {*arrays} == {"sent"}
    assert any("A sum over 100 users" in note for note in header["notes"])


def test_squares_at_the_edge_may_be_smaller():
    whole = Grid(2.0, (401, 7), (10.0, 20.0))
    few = Downsampled(whole)
    assert few.grid == Grid(4.0, (201, 4), (10.0, 20.0))
    values = np.random.default_rng(0).normal(size=whole.shape)
    assert few.highest(values)[200, 3] == few.strongest(values)[200, 3] == values[400, 6]
    assert few.highest(values)[0, 3] == values[:2, 6].max()
    four = values[2:4, 2:4].ravel()
    assert few.strongest(values)[1, 1] == four[np.argmax(np.abs(four))]


def test_a_map_that_fits_is_shown_as_it_is():
    whole = Grid(2.0, (400, 10))
    fits = Downsampled(whole)
    values = np.zeros(whole.shape)
    assert fits.grid is whole
    assert fits.highest(values) is fits.strongest(values) is values
    assert (fits.how(MIDDLE), fits.notes(MIDDLE)) == ("", [])


@pytest.mark.parametrize("offsets", [False, True])
@pytest.mark.parametrize("falling", [True, False])
def test_the_best_server_is_the_best_of_all(offsets, falling):
    """Stations that are too far away are not asked, and must not have been better."""
    rng = np.random.default_rng(5)
    scene = Scene.synthetic(1, cell_size=10.0, base_stations=80)
    stations, ids = scene.base_stations.copy(), [f"s{number}" for number in range(80)]
    stations[40] = stations[7]  # of equal ones the first
    laws = vm.Propagation() if falling else vm.Propagation(los_slope=1.0)
    known = Offsets(tuple(ids), (), tuple(rng.normal(0, 5, 80)))
    radio_map = vm.RadioMap(
        scene.grid, scene.heights, laws, **({"offsets": known} if offsets else {})
    )
    server, best = vm.layers.best_server(radio_map, stations, ids=ids)
    gains = [
        vm.layers.gain(radio_map, xyz, station=name).values
        for xyz, name in zip(stations, ids, strict=True)
    ]
    np.testing.assert_array_equal(server.values, np.argmax(gains, axis=0))
    np.testing.assert_array_equal(best.values, np.max(gains, axis=0))
