"""Templates where maps have more laws than two, or offsets: exact, or an audit says too little."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flat
import veilmap as vm
from commands import run as command
from refusals import refused
from strategies import rich_maps_and_data
from veilmap._kernels import candidates as kernels
from veilmap._kernels.arguments import Sites
from veilmap._kernels.links import walk_room
from veilmap.attacks import GradientInversion, MatchedFilter
from veilmap.attacks.candidates import Candidates, expected_gradients
from veilmap.errors import DataError
from veilmap.federation import NoiseAwareStep, Run
from veilmap.model.offsets import Offsets


def user_at(place, stations, bs, gains=-80.0, device="of no known kind"):
    """Measurements of one user who hears every station from one place."""
    rows = len(stations)
    return vm.Measurements(
        np.zeros(rows, dtype=int), np.tile(place, (rows, 1)), stations,
        np.broadcast_to(gains, rows).astype(float), np.asarray(bs), np.full(rows, device),
    )  # fmt: skip


def in_double_precision(broadcast, place, stations, gains):
    """g = 2/J Σ r_b a_b from the links that the likelihood is made of."""
    model, sites = broadcast.kernel_model, Sites(place[None], stations, gains[None])
    links = kernels._links_room(len(stations), len(walk_room(model.frame).cells))
    kernels._list_links(0, sites, model, links)
    first, cells, shares, residuals = links
    used = first[-1]
    each = 2 / len(stations) * np.repeat(residuals, np.diff(first)) * shares[:used]
    return np.bincount(cells[:used], each, broadcast.grid.cells)


@given(rich_maps_and_data())
@settings(max_examples=80)
def test_templates_are_what_a_user_there_would_upload(case):
    broadcast, data = case
    stations, bs = np.ascontiguousarray(data.bs_xyz), data.bs
    place = data.user_xyz[0]
    heard = user_at(place, stations, bs, data.gain_db)
    candidates = Candidates(broadcast.grid, place[2], stations, broadcast, bs)
    gains = candidates.less_offsets(heard.gain_db[None], broadcast)
    true = vm.local_gradients(broadcast, heard).height_gradient[0]
    size = np.abs(true).max() + 1e-20  # S below 1e-30 is 0 with two laws, and only there
    found = in_double_precision(broadcast, place, stations, gains[0])
    np.testing.assert_allclose(found, true, rtol=1e-9, atol=1e-9 * size)
    single = expected_gradients(broadcast, place[None], stations, gains).expected[0]
    np.testing.assert_allclose(single, true, rtol=1e-5, atol=1e-5 * size)


@given(rich_maps_and_data(), st.integers(0, 2**32 - 1))
@settings(max_examples=40)
def test_templates_follow_the_best_map_and_its_offsets(case, seed):
    best, data = case
    rng = np.random.default_rng(seed)
    theta = best.theta + rng.normal(0, 2, len(best.theta))
    broadcast = best.moved_to(best.heights + rng.normal(0, 2, best.grid.shape), theta, 0.5)
    stations, bs = np.ascontiguousarray(data.bs_xyz), data.bs
    candidates = Candidates(best.grid, 1.5, stations, best, bs)
    made = np.vstack([part.expected.copy() for part in candidates.templates(broadcast)])
    for cell in rng.integers(0, best.grid.cells, 3):
        place = np.append(best.grid.centres[cell], 1.5)
        there = user_at(place, stations, bs)
        heard = replace(there, gain_db=best.predict_links(there))
        true = vm.local_gradients(broadcast, heard).height_gradient[0]
        # Residuals are small differences of gains.
        np.testing.assert_allclose(made[cell], true, rtol=1e-5, atol=1e-5 * np.abs(true).max())


def test_the_device_is_what_the_second_template_is_for():
    # An attacker does not know it; its offset is the same on every link of its user.
    scene = vm.Scene.synthetic(2, size=90.0, base_stations=6)
    offsets = Offsets(range(6), ("old",), (1.0, -2.0, 3.0, 0.0, 2.0, -4.0, 5.0))
    laws = vm.Propagation.of_degrees(3)
    broadcast = vm.RadioMap(scene.grid, np.full(scene.grid.cells, 4.0), laws, offsets=offsets)
    place, bs = np.array([40.0, 55.0, 1.5]), np.arange(6)
    heard = user_at(place, scene.base_stations, bs, device="old")
    candidates = Candidates(scene.grid, 1.5, scene.base_stations, broadcast, bs)
    gains = candidates.less_offsets(heard.gain_db[None], broadcast)
    made = expected_gradients(broadcast, place[None], scene.base_stations, gains)
    true = vm.local_gradients(broadcast, heard).height_gradient[0]
    np.testing.assert_allclose(made.expected[0] - 5.0 * made.shifted[0], true, rtol=1e-4, atol=1e-5)
    assert np.abs(made.shifted[0]).max() > 0.001


# Runs.


def calibrated(data, grid, rounds=4, **settings):
    step = NoiseAwareStep(start_propagation=vm.Propagation.of_degrees(3))
    return flat.train(
        data, grid, rounds=rounds, seed=0, step=step, calibrate=["stations"], **settings
    )


@pytest.fixture(scope="module")
def sectors():
    """A town with two cells on every mast, which read differently."""
    scene = vm.Scene.synthetic(5, size=90.0, buildings=4, base_stations=20)
    data = scene.measure(users=12, links_per_user=20, seed=0)
    bs = np.array([f"{mast}, {cell}" for mast, cell in zip(data.bs, data.user % 2, strict=True)])
    return scene, replace(data, bs=bs, gain_db=data.gain_db + np.where(data.user % 2, 6.0, 0.0))


def test_every_id_on_a_mast_has_a_row_in_the_transcript(sectors, tmp_path):
    scene, data = sectors
    run = calibrated(data, scene.grid, rounds=2, keep_uploads="all", out=tmp_path / "run")
    masts, bs = run.transcript.base_stations, run.transcript.bs
    rows = {(*xyz, one) for xyz, one in zip(data.bs_xyz.tolist(), data.bs.tolist(), strict=True)}
    assert {(*xyz, one) for xyz, one in zip(masts.tolist(), bs.tolist(), strict=True)} == rows
    assert len(masts) == len(rows) > len(np.unique(masts, axis=0))
    loaded = Run.load(tmp_path / "run").transcript
    np.testing.assert_array_equal(loaded.base_stations, masts)
    assert loaded.bs.tolist() == bs.tolist()
    candidates = Candidates.of(loaded, 1.5)
    own = candidates.less_offsets(np.zeros((1, len(bs))), run.radio_map)
    values = dict(zip(run.radio_map.offsets.stations, run.radio_map.offsets.values, strict=True))
    np.testing.assert_array_equal(own[0], [-values[one] for one in bs])
    assert np.abs(own).max() > 0.1


def test_without_offsets_the_transcript_lists_places_only(sectors, tmp_path):
    scene, data = sectors
    run = vm.train(
        data,
        scene.grid,
        rounds=1,
        seed=0,
        recording=vm.Recording(out=tmp_path / "run", keep_uploads="all"),
    )
    for transcript in (run.transcript, Run.load(tmp_path / "run").transcript):
        assert transcript.bs is None
        np.testing.assert_array_equal(transcript.base_stations, np.unique(data.bs_xyz, axis=0))


@pytest.mark.parametrize("content", ["", "x,y,z\n1,2,3\n", "bs,x,y,z\nA,1,2\n"])
def test_a_damaged_list_of_base_stations_is_named(sectors, tmp_path, content):
    scene, data = sectors
    calibrated(data, scene.grid, rounds=1, out=tmp_path / "run")
    (tmp_path / "run" / "base_stations.csv").write_text(content)
    with refused(DataError, tmp_path / "run" / "base_stations.csv", "bs,x,y,z"):
        Run.load(tmp_path / "run")


def test_one_mast_with_several_ids_needs_a_name_where_they_differ(capsys, sectors, tmp_path):
    scene, data = sectors
    one = data.select((data.bs_xyz == data.bs_xyz[0]).all(axis=1))
    assert len(np.unique(one.bs)) == 2
    calibrated(one, scene.grid, rounds=1, out=tmp_path / "run")
    export = ["export", str(tmp_path / "run"), str(tmp_path / "out.nc")]
    code, _, err = command(capsys, *export)
    assert (code, err.count("\n")) == (2, 1)
    assert f"the run has 2, such as {min(one.bs.tolist())}" in err
    assert command(capsys, *export, "--station", one.bs[0])[0] == 0
    assert command(capsys, *export, "--layer", "los")[0] == 0


def with_two_laws_only(transcript):
    """The transcript as somebody reads it who knows the paper's model only."""
    rounds = {}
    for number, seen in transcript.rounds.items():
        told = seen.broadcast.radio_map
        plain = replace(told, propagation=replace(told.propagation, between=()))
        rounds[number] = replace(seen, broadcast=replace(seen.broadcast, radio_map=plain))
    return replace(transcript, rounds=rounds, bs=None)


def test_who_knows_the_whole_model_finds_users_better():
    scene = vm.Scene.synthetic(0, size=120.0, buildings=6, base_stations=60)
    data = scene.measure(users=25, links_per_user=50, seed=0)
    apart = np.random.default_rng(7).normal(0, 4, len(scene.base_stations))
    data = replace(data, gain_db=data.gain_db + apart[data.bs])
    run = calibrated(
        data,
        scene.grid,
        rounds=30,
        mechanism=vm.GeometryAligned(noise_budget=20),
        keep_uploads={9, 29},
    )
    truth = dict(zip(data.users.tolist(), data.mean_positions(), strict=True))
    medians = []
    for transcript in (run.transcript, with_two_laws_only(run.transcript)):
        filtered = MatchedFilter().locate(transcript)
        found = GradientInversion().locate(transcript, filtered)
        medians.append(np.median(found.errors(truth)["all"]))
    assert medians[0] < 0.3  # metres
    assert medians[0] < 0.6 * medians[1]
