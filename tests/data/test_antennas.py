"""Antenna patterns: what they are, and that all on the way to a map and back knows them."""

import json
import math
from dataclasses import replace

import numpy as np
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flat
import veilmap as vm
from commands import run as command
from refusals import refused
from strategies import maps_and_data
from tablefiles import walk, write
from veilmap import layers
from veilmap.attacks.candidates import expected_gradients
from veilmap.data.antennas import Antennas
from veilmap.errors import ConfigurationError, DataError, RunFolderError
from veilmap.ingest import check, read_measurements
from veilmap.model.field import Field
from veilmap.model.offsets import Offsets

SECTORS = Antennas(("a", "7", "zz"), (350.0, 90.0, 0.0), (65.0, 120.0, 30.0))


def plain_pattern(azimuth, width, user, bs, most=30.0):
    """The pattern of one link, from the angle between two arrows on the ground."""
    east, north = user[0] - bs[0], user[1] - bs[1]
    away = math.hypot(east, north)
    if away < 1.0:
        return 0.0
    look = math.radians(azimuth)
    along = (east * math.sin(look) + north * math.cos(look)) / away
    across = (east * math.cos(look) - north * math.sin(look)) / away
    beside = math.degrees(math.atan2(across, along))
    return -min(12 * (beside / width) ** 2, most)


def at(bearing, away=100.0, bs=(0.0, 0.0, 20.0)):
    """A user in some direction, in degrees clockwise from north."""
    angle = math.radians(bearing)
    return np.array([bs[0] + away * math.sin(angle), bs[1] + away * math.cos(angle), 1.5])


def one(azimuth, width, **options):
    return lambda user, bs=(0.0, 0.0, 20.0): Antennas(("s",), (azimuth,), (width,), **options).of(
        np.array(["s"]), user, bs
    )[0]


degrees = st.floats(-720, 720)
widths = st.floats(5, 360)


@given(degrees, widths, st.tuples(*[st.floats(-500, 500)] * 4), st.floats(1, 60))
def test_the_pattern_is_that_of_the_equation(azimuth, width, ends, most):
    user, bs = np.array([*ends[:2], 1.5]), np.array([*ends[2:], 30.0])
    found = one(azimuth, width, front_to_back_db=most)(user, bs)
    expected = plain_pattern(azimuth, width, user, bs, most)
    assert found == pytest.approx(expected, abs=1e-6 * (1 + 1e4 / width**2))
    assert -most <= found <= 0


@given(degrees, widths, st.floats(0, 180), st.floats(1.1, 5000))
def test_a_beam_is_symmetric_and_three_decibels_down_at_half_its_width(
    azimuth, width, beside, away
):
    pattern = one(azimuth, width)
    left, right = (pattern(at(azimuth + side * beside, away)) for side in (-1, 1))
    assert left == pytest.approx(right, abs=1e-6)
    assert pattern(at(azimuth, away)) == pytest.approx(0, abs=1e-9)
    assert pattern(at(azimuth + width / 2, away)) == pytest.approx(-3.0, abs=1e-5)


def test_directions_are_clockwise_from_north_and_wrap_there():
    eastward = one(90.0, 65.0)
    assert eastward([100.0, 0.0, 1.5]) == 0.0
    assert eastward([-100.0, 0.0, 1.5]) == -30.0
    northward = one(350.0, 60.0)
    assert northward(at(10.0)) == pytest.approx(-12 * (20 / 60) ** 2)
    assert northward(at(330.0)) == pytest.approx(northward(at(10.0)))
    assert one(-10.0, 60.0)(at(10.0)) == pytest.approx(northward(at(10.0)))


def test_users_at_the_mast_are_in_the_beam_and_others_stations_are_isotropic():
    behind = one(0.0, 65.0)
    assert behind([0.0, 0.0, 1.5]) == 0.0
    assert behind([0.0, -0.5, 1.5]) == 0.0
    assert behind([0.0, -1.5, 1.5]) == -30.0
    # Ids are compared as text: 7 is known, 8 is nobody.
    found = SECTORS.of(np.array([7, 8]), [at(270.0), at(270.0)], np.array([0.0, 0.0, 20.0]))
    assert found.tolist() == [-27.0, 0.0]
    assert SECTORS.known(np.array([7, 8])).tolist() == [True, False]


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: Antennas(("a",), (math.nan,)), ["1 antennas", "azimuths"]),
        (lambda: Antennas(("a",), ()), ["1 antennas", "azimuths"]),
        (lambda: Antennas(("a", "b"), (1, 2), (65,)), ["2 antennas", "beam widths"]),
        (lambda: Antennas(("a", "b"), (1, 2), (65, 0)), ["0°", "base station b"]),
        (lambda: Antennas(("a",), (1,), (361,)), ["361°", "base station a"]),
        (lambda: Antennas((3, "3"), (1, 2)), ["base station 3"]),
        (lambda: Antennas.from_text("[1]"), ["antennas"]),
        (lambda: Antennas.where_known(["a"], [1, 2]), ["1 base stations", "2 and 1"]),
        (lambda: town(antennas=[120]), ["antennas", "[120]"]),
    ],
)
def test_wrong_antennas_are_refused_in_words(make, named):
    with refused(DataError, *named):
        make()


def test_numbers_of_antennas_are_checked():
    with refused(ConfigurationError, parameter="azimuths"):
        Antennas(("a",), ("north",))
    with refused(ConfigurationError, parameter="front_to_back_db"):
        Antennas(front_to_back_db=0)


def test_unknown_widths_are_65_degrees_and_unknown_azimuths_isotropic():
    assert Antennas((1, 2), (10, 20), (math.nan, 90)).beam_widths == (65.0, 90.0)
    assert Antennas((1, 2), (10, 20)).beam_widths == (65.0, 65.0)
    known = Antennas.where_known([4, 5, 6], [math.nan, 120, 0])
    assert known == Antennas(("5", "6"), (120.0, 0.0), (65.0, 65.0))
    assert Antennas.where_known([4], [math.nan]) is None


# The model


def town(antennas=SECTORS):
    rng = np.random.default_rng(3)
    user_xyz, bs_xyz = rng.uniform([0, 0, 1], [60, 60, 30], (2, 40, 3))
    bs = np.array(["a", "7", "other"])[np.arange(40) % 3]
    gain = rng.normal(-80, 6, 40)
    return vm.Measurements(np.arange(40) % 5, user_xyz, bs_xyz, gain, bs, antennas=antennas)


@st.composite
def maps_with_antennas(draw):
    """A random map with antennas, perhaps more laws and offsets, and measurements."""
    plain, data = draw(maps_and_data())
    data = replace(data, bs=np.array(["a", "7", "b"])[np.arange(len(data)) % 3])
    laws = draw(st.sampled_from([plain.propagation, vm.Propagation.of_degrees(3)]))
    offsets = draw(st.sampled_from([Offsets(), Offsets(("7", "b"), (), (3.0, -5.0))]))
    return replace(plain, propagation=laws, offsets=offsets, antennas=SECTORS), data


def losses(radio_map, data):
    """F_i from predictions without a pattern, and the pattern link by link."""
    known = dict(
        zip(SECTORS.stations, zip(SECTORS.azimuths, SECTORS.beam_widths, strict=True), strict=True)
    )
    pattern = [
        plain_pattern(*known[bs], user, mast) if bs in known else 0.0
        for bs, user, mast in zip(data.bs, data.user_xyz, data.bs_xyz, strict=True)
    ]
    gains = replace(radio_map, antennas=None).predict_links(data) + pattern
    return np.array([np.mean((data.gain_db - gains)[data.user == u] ** 2) for u in data.users])


@settings(max_examples=40, deadline=None)
@given(maps_with_antennas())
def test_gradients_with_antennas_equal_central_differences(case):
    radio_map, data = case
    found = vm.local_gradients(radio_map, data)
    np.testing.assert_allclose(found.loss, losses(radio_map, data), rtol=1e-7)
    total = found.counts @ found.loss / found.counts.sum()
    assert radio_map.loss(data) == pytest.approx(total, rel=1e-9)
    heights, theta, width = radio_map.heights, radio_map.theta, 1e-4

    def slope(by_height, by_theta):
        up, down = (
            losses(radio_map.moved_to(heights + sign * by_height, theta + sign * by_theta), data)
            for sign in (1, -1)
        )
        return (up - down) / (2 * width)

    scale = 1e-5 * (1 + np.abs(found.loss).max())
    for entry in range(len(theta)):
        expected = slope(0.0, np.eye(len(theta))[entry] * width)
        np.testing.assert_allclose(found.theta_gradient[:, entry], expected, rtol=1e-5, atol=scale)
    for cell in range(0, heights.size, 7):
        change = (np.arange(heights.size) == cell).reshape(heights.shape) * width
        expected = slope(change, 0.0)
        np.testing.assert_allclose(found.height_gradient[:, cell], expected, rtol=1e-4, atol=scale)


@settings(max_examples=30, deadline=None)
@given(maps_and_data())
def test_antennas_of_others_change_no_bit(case):
    radio_map, data = case
    one, other = (
        vm.local_gradients(replace(radio_map, antennas=antennas), data)
        for antennas in (None, Antennas(("nobody",), (12.0,)))
    )
    for name in ("loss", "height_gradient", "theta_gradient"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    known = replace(radio_map, antennas=Antennas(("nobody",), (12.0,)))
    np.testing.assert_array_equal(known.predict_links(data), radio_map.predict_links(data))
    assert "antennas" not in radio_map.as_arrays()
    assert radio_map.without_patterns(data.links) is data.links


def test_predictions_by_place_are_isotropic_and_those_of_links_are_not():
    data = town()
    flat = vm.RadioMap(vm.Grid(3.0, (20, 20)), np.zeros(400))
    known = replace(flat, antennas=SECTORS)
    user, bs = data.user_xyz, data.bs_xyz
    np.testing.assert_array_equal(known.predict(user, bs), flat.predict(user, bs))
    apart = known.predict_links(data) - flat.predict_links(data)
    np.testing.assert_allclose(apart, SECTORS.of(data.bs, user, bs), atol=1e-12)
    assert (apart[data.bs == "other"] == 0).all()
    assert (apart[data.bs == "a"] < 0).all()


def test_fitted_laws_leave_no_gradient_with_antennas():
    data = town()
    start = vm.RadioMap(vm.Grid(3.0, (20, 20)), np.full(400, 8.0), antennas=SECTORS)
    found = vm.local_gradients(start.fit_propagation(data), data)
    assert np.abs(found.counts @ found.theta_gradient / found.counts.sum()).max() < 1e-8


def test_a_residual_field_is_learned_beside_the_pattern():
    data = town()
    grid = vm.Grid(30.0, (2, 2))
    stations = np.unique(data.bs_xyz, axis=0)
    flat = vm.RadioMap(vm.Grid(3.0, (20, 20)), np.zeros(400), field=Field(grid, stations))
    less = replace(data, gain_db=data.gain_db - SECTORS.of(data.bs, data.user_xyz, data.bs_xyz))
    expected = vm.local_gradients(flat, less)
    found = vm.local_gradients(replace(flat, antennas=SECTORS), data)
    np.testing.assert_allclose(
        found.height_gradient, expected.height_gradient, rtol=1e-9, atol=1e-12
    )
    np.testing.assert_allclose(found.loss, expected.loss, rtol=1e-12)


def test_attackers_who_take_antennas_to_be_isotropic_expect_the_right_gradients():
    # Clients take the known pattern off what they measure: it is in no upload.
    scene = vm.Scene.synthetic(2, size=90.0, base_stations=6)
    place = np.array([[40.0, 55.0, 1.5]])
    rng = np.random.default_rng(0)
    antennas = Antennas(range(6), rng.uniform(0, 360, 6))
    city = vm.RadioMap(scene.grid, scene.heights, antennas=antennas)
    at_place = vm.Measurements(
        np.zeros(6),
        np.repeat(place, 6, axis=0),
        scene.base_stations,
        np.full(6, -80.0),
        np.arange(6),
    )
    heard = replace(at_place, gain_db=city.predict_links(at_place))
    believed = vm.RadioMap(scene.grid, np.full(scene.grid.cells, 4.0), antennas=antennas)
    sent = vm.local_gradients(believed, heard).height_gradient
    gains = city.predict(place.repeat(6, axis=0), scene.base_stations)[None]
    expected = expected_gradients(believed, place, scene.base_stations, gains).expected
    assert np.abs(sent).max() > 0.01
    np.testing.assert_allclose(expected, sent, rtol=1e-4, atol=1e-5)


# Training


def sectorised(users=60):
    """A city whose base stations look in three directions each, and measurements there."""
    scene = vm.Scene.synthetic(4, base_stations=12)
    data = scene.measure(users=users, links_per_user=48, places_per_user=4, seed=0)
    stations = np.unique(data.bs)
    antennas = Antennas(stations, np.random.default_rng(1).uniform(0, 360, len(stations)))
    pattern = antennas.of(data.bs, data.user_xyz, data.bs_xyz)
    return scene, replace(data, gain_db=data.gain_db + pattern, antennas=antennas)


def test_training_that_knows_the_antennas_is_clearly_better():
    scene, data = sectorised()
    learn, unseen = data.split_by_user(0.25, seed=0)
    errors = {}
    for name, known in (("known", learn), ("isotropic", replace(learn, antennas=None))):
        run = vm.train(known, scene.grid, rounds=80, seed=0)
        errors[name] = np.abs(run.radio_map.predict_links(unseen) - unseen.gain_db).mean()
    assert errors["known"] < 5.0
    assert errors["known"] < 0.6 * errors["isotropic"], errors


@pytest.mark.parametrize("step", [vm.NoiseAwareStep(), vm.PlainDescent()])
def test_runs_keep_their_antennas_and_go_on_with_no_others(step, tmp_path):
    scene = vm.Scene.synthetic(4, base_stations=5, cell_size=10.0)
    data = scene.measure(users=8, links_per_user=5, seed=0)
    data = replace(data, antennas=Antennas(np.unique(data.bs), range(0, 350, 70)))
    options = {"rounds": 6, "seed": 1, "step": step, "checkpoint_every": 2}
    options |= {"mechanism": vm.GeometryAligned(noise_budget=10), "keep_uploads": {2}}
    whole = flat.train(data, scene.grid, **options)
    assert whole.radio_map.antennas == data.antennas

    def stop(row):
        if row.round == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        flat.train(data, scene.grid, out=tmp_path, on_round=stop, **options)
    for other in (None, replace(data.antennas, front_to_back_db=25.0)):
        with refused(RunFolderError, tmp_path, "antennas"):
            flat.train(
                replace(data, antennas=other), scene.grid, out=tmp_path, resume=True, **options
            )
    resumed = flat.train(data, scene.grid, out=tmp_path, resume=True, **options)
    for again in (resumed, vm.Run.load(tmp_path)):
        np.testing.assert_array_equal(again.radio_map.heights, whole.radio_map.heights)
        np.testing.assert_array_equal(again.radio_map.theta, whole.radio_map.theta)
        assert again.radio_map.antennas == data.antennas
        assert again.transcript.rounds[2].broadcast.radio_map.antennas == data.antennas


def test_a_broadcast_takes_its_antennas_along():
    pytest.importorskip("flwr", reason="the Flower engine is an optional extra")
    from veilmap.federation.messages import Broadcast
    from veilmap.flower import records

    sent = vm.RadioMap(vm.Grid(3.0, (4, 5)), np.zeros(20), antennas=SECTORS)
    read = records.read_question(records.question(Broadcast(3, sent, 9), ["me"]))
    assert read.broadcast.radio_map.antennas == SECTORS
    bare = records.question(Broadcast(3, replace(sent, antennas=None), 9), ["me"])
    assert records.read_question(bare).broadcast.radio_map.antennas is None


# Files


def test_files_and_selections_keep_antennas(tmp_path):
    data = town()
    data.save(tmp_path / "links.parquet")
    data.save(tmp_path / "links.csv")
    assert vm.Measurements.load(tmp_path / "links.parquet").antennas == SECTORS
    assert vm.Measurements.load(tmp_path / "links.csv").antennas is None
    halves = (*data.split_by_user(0.4, seed=0), *data.split_by_place(0.4, block=20, seed=0))
    drawn = layers.resampled(data, np.random.default_rng(0))
    assert all(part.antennas == SECTORS for part in (*halves, data.of_user(1), drawn))
    again = read_measurements(tmp_path / "links.parquet").measurements
    assert again.antennas == SECTORS
    radio_map = vm.RadioMap(vm.Grid(3.0, (4, 5)), np.zeros(20), antennas=SECTORS)
    radio_map.save(tmp_path / "map.nc")
    assert vm.RadioMap.load(tmp_path / "map.nc").antennas == SECTORS


def test_a_damaged_note_of_antennas_is_named_with_its_file(tmp_path):
    path = tmp_path / "links.parquet"
    town().save(path)
    table = pyarrow.parquet.read_table(path)
    pyarrow.parquet.write_table(table.replace_schema_metadata({"veilmap_antennas": "{"}), path)
    for read in (vm.Measurements.load, read_measurements):
        with refused(DataError, path, "antennas"):
            read(path)


WALK = {"gain": "rsrp", "bs": "cell"}
SITES = "cell,bs_latitude,bs_longitude,bs_z,azimuth,beam_width\n"
NORTH, SOUTH = "north,48.141,11.575,30,120,\n", "south,48.131,11.580,25,,90\n"


def test_azimuths_of_a_file_of_stations_reach_a_trained_map(capsys, tmp_path):
    table = write(tmp_path / "walk.csv", walk(60))
    (tmp_path / "sites.csv").write_text(SITES + NORTH + SOUTH)
    options = {"columns": WALK, "stations": tmp_path / "sites.csv", "split_gap": 60}
    reading = read_measurements(table, **options)
    assert reading.measurements.antennas == Antennas(("north",), (120.0,), (65.0,))
    assert "1 antennas are taken to have beams of 65°: no column says" in reading.notes
    figures = check(reading)
    assert figures.azimuths == 1
    assert ("base stations", "2, 1 with an azimuth") in figures.lines()

    told = [part for name, column in WALK.items() for part in ("--column", f"{name}={column}")]
    told += ["--stations", tmp_path / "sites.csv", "--split-gap", 60]
    told = [str(part) for part in told]
    links = tmp_path / "links.parquet"
    assert command(capsys, "data", "convert", str(table), str(links), *told)[0] == 0
    lost = command(capsys, "data", "convert", str(table), str(tmp_path / "links.csv"), *told)[1]
    assert "A .csv has no place for antennas" in lost
    train = ["train", str(links), "--cell-size", "50", "--rounds", "2", "--seed", "0"]
    assert command(capsys, *train, "--out", str(tmp_path / "run"))[0] == 0
    assert vm.Run.load(tmp_path / "run").radio_map.antennas == reading.measurements.antennas
    assert command(capsys, *train, "--no-antennas", "--out", str(tmp_path / "plain"))[0] == 0
    assert vm.Run.load(tmp_path / "plain").radio_map.antennas is None
    code, _, err = command(
        capsys, *train, "--no-antennas", "--resume", "--out", str(tmp_path / "run")
    )
    assert (code, err.count("\n")) == (2, 1)
    assert "antennas was" in err
    export = ["export", str(tmp_path / "run"), str(tmp_path / "server.nc")]
    said = command(capsys, *export, "--layer", "best-server")[1]
    assert "isotropic" not in said  # by their ids
    said = command(capsys, *export, "--layer", "best-server", "--bs-latlon", "48.141,11.575,30")[1]
    assert "Antennas are taken to be isotropic" in " ".join(said.split())


def test_replicas_know_the_antennas_that_the_run_knew(capsys, tmp_path, monkeypatch):
    data = town()
    # A copy of the measurements that cannot say which antennas there are.
    data.save(tmp_path / "links.csv")
    vm.train(
        data, vm.Grid(6.0, (10, 10)), rounds=2, seed=0, recording=vm.Recording(out=tmp_path / "run")
    )
    trained_on, really = [], layers.bootstrap
    monkeypatch.setattr(
        layers,
        "bootstrap",
        lambda links, *rest, **options: trained_on.append(links) or really(links, *rest, **options),
    )
    code, _, err = command(
        capsys, "export", str(tmp_path / "run"), str(tmp_path / "a.nc"), "--layer", "uncertainty",
        "--data", str(tmp_path / "links.csv"), "--bs", "30,30,20", "--bootstrap", "2",
    )  # fmt: skip
    assert (code, err) == (0, "")
    assert trained_on[0].antennas == SECTORS


@pytest.mark.parametrize(
    ("rows", "line", "column"),
    [
        (NORTH + SOUTH.replace("90", "0"), 3, "beam_width"),
        (NORTH.replace("120,", "120,400"), 2, "beam_width"),
        (NORTH.replace("120", "N"), 2, "azimuth"),
    ],
)
def test_wrong_antennas_of_a_file_are_named_by_line(tmp_path, rows, line, column):
    table = write(tmp_path / "walk.csv", walk())
    (tmp_path / "sites.csv").write_text(SITES + rows)
    with refused(DataError, "sites.csv", f"line {line}", column):
        read_measurements(table, columns=WALK, stations=tmp_path / "sites.csv", split_gap=60)


# Layers


def a_map():
    heights = np.random.default_rng(0).uniform(-5, 25, (8, 10))
    return vm.RadioMap(vm.Grid(30.0, (8, 10), (100.0, -20.0)), heights)


def test_layers_show_the_antennas_they_are_given():
    radio_map, bs = a_map(), np.array([250.0, 100.0, 30.0])
    plain, looking = layers.gain(radio_map, bs), layers.gain(radio_map, bs, azimuth=200.0)
    np.testing.assert_array_equal(plain.values, radio_map.predict_area(bs))
    apart = (looking.values - plain.values).ravel()
    expected = [plain_pattern(200.0, 65.0, centre, bs) for centre in radio_map.grid.centres]
    np.testing.assert_allclose(apart, expected, atol=1e-9)
    assert looking.attributes["azimuth_deg"] == 200.0
    assert looking.attributes["beam_width_deg"] == 65.0
    assert "azimuth_deg" not in plain.attributes
    wide = layers.gain(radio_map, bs, azimuth=200.0, beam_width=120.0)
    point = np.array([[130.0, 40.0, 1.5]])
    lost = plain_pattern(200.0, 120.0, point[0], bs)
    assert wide.at(point)[0] == pytest.approx(radio_map.predict(point, bs)[0] + lost)
    with refused(ConfigurationError, "azimuth"):
        layers.gain(radio_map, bs, beam_width=65.0)


def test_two_sectors_of_one_mast_share_the_ground():
    radio_map, mast = a_map(), np.array([250.0, 100.0, 30.0])
    server, best = layers.best_server(radio_map, [mast, mast, mast], azimuths=[0.0, 180.0, 180.0],
                                      beam_widths=[np.nan, 65.0, 65.0])  # fmt: skip
    north = radio_map.grid.centres[:, 1] > mast[1]
    np.testing.assert_array_equal(server.values.ravel(), np.where(north, 0, 1))
    assert (best.values <= radio_map.predict_area(mast)).all()
    alone, gains = layers.best_server(radio_map, [mast, mast], azimuths=[0.0, np.nan])
    assert (alone.values == 1).all()  # no cell's centre is straight north
    np.testing.assert_array_equal(gains.values, radio_map.predict_area(mast))
    with refused(DataError, "2 base stations", "1 and 2"):
        layers.best_server(radio_map, [mast, mast], azimuths=[0.0])
    with refused(ConfigurationError, "azimuths"):
        layers.best_server(radio_map, [mast], beam_widths=[60.0])


def test_the_export_command_takes_an_azimuth_for_each_station(capsys, tmp_path):
    radio_map = replace(a_map(), antennas=SECTORS)
    radio_map.save(tmp_path / "map.nc")
    (tmp_path / "places.csv").write_text("x,y\n250,200\n250,0\n")

    def export(*options):
        code, out, err = command(capsys, "export", str(tmp_path / "map.nc"),
                                 str(tmp_path / "out.csv"), "--points",
                                 str(tmp_path / "places.csv"), *options)  # fmt: skip
        values = (tmp_path / "out.csv").read_text().splitlines()[1:] if code == 0 else []
        return [float(line.split(",")[-1]) for line in values], " ".join(out.split()), err

    bs = ["--bs", "250,100,30"]
    places = np.array([[250.0, 200.0, 1.5], [250.0, 0.0, 1.5]])
    isotropic = radio_map.predict(places, [250.0, 100.0, 30.0])
    found, said, _ = export(*bs)
    np.testing.assert_allclose(found, isotropic)
    assert "Antennas are taken to be isotropic" in said
    found, said, _ = export(*bs, "--azimuth", "45", "--beam-width", "90")
    np.testing.assert_allclose(found, isotropic - [3.0, 27.0])
    assert "isotropic" not in said
    sectors = ["--layer", "best-server", *bs, *bs, "--azimuth", "180", "--azimuth", "0"]
    assert export(*sectors)[0] == [1.0, 0.0]
    for options, message in (
        (
            [*bs, "--azimuth", "1", "--azimuth", "2"],
            "2 times for 1 base stations",
        ),
        ([*bs, "--beam-width", "65"], "--beam-width"),
        ([*bs, "--azimuth", "nan"], "not nan"),
        (["--layer", "los", *bs, "--azimuth", "1"], "layer los"),
        (["--layer", "best-server", *bs, *bs, "--azimuth", "1"], "1 times for 2 base stations"),
    ):
        err = export(*options)[2]
        assert err.count("\n") == 1
        assert message in err


def test_the_text_of_antennas_is_plain_json():
    assert json.loads(SECTORS.as_text())["azimuths"] == [350.0, 90.0, 0.0]
    assert Antennas.from_text(SECTORS.as_text()) == SECTORS
