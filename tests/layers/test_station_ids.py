"""Base stations by their ids: in run folders, predictions, layers and the export command."""

import json
from dataclasses import replace

import numpy as np
import pytest
import xarray

import veilmap as vm
from commands import run as command
from refusals import refused
from veilmap import layers
from veilmap.data.antennas import Antennas
from veilmap.errors import ConfigurationError, DataError, RunFolderError
from veilmap.federation.config import FORMAT
from veilmap.federation.run_folder import RunFolder
from veilmap.model.field import Field
from veilmap.model.offsets import Offsets

GRID = vm.Grid(10.0, (9, 12), (100.0, -20.0))
MASTS = {"7": [130.0, 10.0, 25.0], "a,b": [130.0, 10.0, 25.0], "south": [200.0, 0.0, 30.0]}
PHONES = ["old", "new"]


def some_links(users=8, per_user=12, seed=0):
    """Two base stations share a mast; one id would break a careless CSV."""
    rng = np.random.default_rng(seed)
    links = users * per_user
    bs = rng.choice(list(MASTS), links)
    user_xyz = rng.uniform([100, -20, 1], [220, 70, 2], (links, 3))
    gain_db = rng.normal(-80, 6, links)
    return vm.Measurements(
        np.arange(links) % users, user_xyz, np.array([MASTS[one] for one in bs]), gain_db, bs,
        rng.choice(PHONES, links), antennas=Antennas(("7", "south"), (90.0, 200.0), (65.0, 40.0)),
    )  # fmt: skip


def a_map(seed=0):
    """A map that knows something of every kind about its base stations."""
    rng = np.random.default_rng(seed)
    coarse = vm.Grid(40.0, (3, 3), (100.0, -20.0))
    values = rng.normal(0, 3, (len(MASTS), *coarse.shape))
    return vm.RadioMap(
        GRID,
        rng.uniform(-5, 25, GRID.shape),
        offsets=Offsets((7, "a,b", "south"), ("old", "new"), (-7.0, 2.5, 4.0, 30.0, 50.0)),
        field=Field(coarse, np.array([*MASTS.values()]), values, tuple(MASTS)),
        antennas=some_links().antennas,
    )


def by_hand(radio_map, station, places):
    """What is read at places, part by part."""
    mast, ids = MASTS[station], np.full(len(places), station)
    laws = replace(radio_map, field=None, offsets=Offsets(), antennas=None)
    offset = dict(zip(map(str, radio_map.offsets.stations), radio_map.offsets.values, strict=False))
    pattern = radio_map.antennas.of(ids, places, mast)
    masts = np.tile(mast, (len(places), 1))
    return (
        laws.predict(places, mast)
        + offset[station]
        + pattern
        + radio_map.field.at(places, masts, ids)
    )


def places(altitude=1.5):
    return np.column_stack([GRID.centres, np.full(GRID.cells, altitude)])


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run that learned offsets and fields, one that knows nothing of stations, and a map."""
    folder = tmp_path_factory.mktemp("ids")
    data = some_links()
    vm.train(
        data,
        GRID,
        rounds=4,
        seed=0,
        server_sees="sums",
        model=vm.Model(calibrate=["stations", "devices"], residual=40.0),
        recording=vm.Recording(out=folder / "run"),
    )
    data.save(folder / "links.parquet")
    moved = data.bs_xyz + (np.arange(len(data)) % 2 * (data.bs == "south"))[:, None]
    plain = replace(data, bs_xyz=moved, antennas=None)
    vm.train(plain, GRID, rounds=1, seed=0, recording=vm.Recording(out=folder / "plain"))
    vm.train(
        data.select(data.bs == "south"),
        GRID,
        rounds=1,
        seed=0,
        model=vm.Model(calibrate=["stations"]),
        recording=vm.Recording(out=folder / "one"),
    )
    RunFolder(folder / "run").finish(a_map())  # more to see than after four rounds
    a_map().save(folder / "map.nc")
    replace(a_map(), field=None).save(folder / "bare.nc")
    return folder


# Run folders


def test_a_run_keeps_its_stations_with_their_ids(runs):
    stations, ids = RunFolder(runs / "run").base_stations()
    assert dict(zip(ids, stations.tolist(), strict=True)) == MASTS
    again = vm.Run.load(runs / "run").transcript
    np.testing.assert_array_equal(again.base_stations, stations)
    assert again.bs.tolist() == list(ids)
    plain = vm.Run.load(runs / "plain").transcript  # knows them by place: a mast counts once
    assert (len(RunFolder(runs / "plain").base_stations()[0]), len(plain.base_stations)) == (4, 3)
    assert plain.bs is None


def test_places_come_back_to_the_bit_and_no_station_is_none(tmp_path):
    folder, stations = RunFolder(tmp_path), np.random.default_rng(0).normal(size=(4, 3)) * 1e6
    ids = (3, 'quo"te', "new\nline", "ünï")
    folder.save_stations((stations, ids))
    found, names = folder.base_stations()
    np.testing.assert_array_equal(found, stations)
    assert names == tuple(map(str, ids))
    folder.save_stations((np.zeros((0, 3)), ()))
    assert (folder.base_stations()[0].shape, folder.base_stations()[1]) == ((0, 3), ())


@pytest.mark.parametrize(
    "text",
    ["", "x,y,z\n1,2,3\n", "bs,x,y,z\nA,1,2\n", "bs,x,y,z\nA,1,2,high\n", "bs,x,y,z\nA,1,2,nan\n",
     'bs,x,y,z\n"A,1,2,3\n', "bs,x,y,z\nA,1,2,3\nB,1\n"],
)  # fmt: skip
def test_damaged_stations_are_refused(tmp_path, text):
    (tmp_path / "base_stations.csv").write_text(text)
    with refused(DataError, tmp_path / "base_stations.csv", "bs,x,y,z"):
        RunFolder(tmp_path).base_stations()


def test_a_folder_of_another_format_is_refused(capsys, tmp_path):
    data = some_links()
    vm.train(data, GRID, rounds=1, seed=0, recording=vm.Recording(out=tmp_path / "run"))
    file = tmp_path / "run" / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"format": FORMAT - 1}))
    code, _, err = command(capsys, "export", str(tmp_path / "run"), str(tmp_path / "a.nc"))
    assert (code, err.count("\n")) == (2, 1)
    assert "another version" in err
    with refused(RunFolderError, tmp_path / "run", "version"):
        vm.train(
            data, GRID, rounds=1, seed=0, recording=vm.Recording(out=tmp_path / "run", resume=True)
        )


# Predictions and layers


@pytest.mark.parametrize("station", list(MASTS))
def test_a_station_is_read_with_its_offset_pattern_and_field(station):
    radio_map = a_map()
    expected = by_hand(radio_map, station, places(2.0))
    found = radio_map.predict(places(2.0), MASTS[station], station=station)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    layer = layers.gain(radio_map, MASTS[station], 2.0, station=station)
    np.testing.assert_array_equal(layer.values.ravel(), found)
    np.testing.assert_array_equal(layer.at(places(2.0)[:5]), found[:5])
    plain = radio_map.predict(places(2.0), MASTS[station])
    assert np.abs(found - plain).min() > 0
    np.testing.assert_array_equal(layers.gain(radio_map, MASTS[station], 2.0).values.ravel(), plain)


def test_links_of_a_device_without_an_offset_read_the_same():
    radio_map, data = a_map(), some_links()
    calibrated = replace(data, device=np.full(len(data), "lab"))
    read = radio_map.predict_links(calibrated)
    for station, mast in MASTS.items():
        own = data.bs == station
        found = radio_map.predict(data.user_xyz[own], mast, station=station)
        np.testing.assert_allclose(found, read[own], rtol=1e-12)


def test_a_layer_names_its_station():
    layer = layers.gain(a_map(), MASTS["7"], station=7)  # ids are the same as text
    assert layer.long_name == "gain from base station 7"
    details = {"base_station": "7", "offset_db": -7.0, "azimuth_deg": 90.0, "beam_width_deg": 65.0}
    assert layer.attributes == {"base_station_m": MASTS["7"]} | details
    assert layers.gain(a_map(), MASTS["a,b"], station="a,b").attributes.keys() == {
        "base_station_m",
        "base_station",
        "offset_db",
    }
    los = layers.los_probability(a_map(), MASTS["7"], station="7")
    assert los.attributes["base_station"] == "7"
    assert los.long_name == "probability of line of sight to base station 7"
    np.testing.assert_array_equal(los.values, layers.los_probability(a_map(), MASTS["7"]).values)


def test_the_best_of_stations_by_id_tells_those_of_one_mast_apart():
    radio_map, ids = a_map(), list(MASTS)
    server, best = layers.best_server(radio_map, list(MASTS.values()), ids=ids)
    gains = np.array([by_hand(radio_map, station, places()) for station in ids])
    np.testing.assert_array_equal(server.values.ravel(), gains.argmax(axis=0))
    np.testing.assert_allclose(best.values.ravel(), gains.max(axis=0), rtol=1e-12)
    np.testing.assert_array_equal(server.at(places()), gains.argmax(axis=0))
    assert server.attributes["base_stations"] == "7, a,b, south"


def test_the_spread_of_a_station_has_its_offsets_in_it():
    known = a_map()
    louder = replace(known, offsets=known.offsets.moved_to([-1.0, 2.5, 4.0, 0.0, 0.0]))
    layer = layers.spread([known, louder], MASTS["7"], station="7")
    np.testing.assert_allclose(layer.values, 3.0)  # half of 6 dB
    assert layer.attributes["base_station"] == "7"
    np.testing.assert_array_equal(layers.spread([known, louder], MASTS["7"]).values, 0.0)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (lambda: layers.gain(a_map(), MASTS["7"], station="8"), ["station 8", "7, a,b, south"]),
        (lambda: layers.los_probability(a_map(), MASTS["7"], station="8"), ["station 8"]),
        (lambda: layers.spread([a_map()] * 2, MASTS["7"], station="8"), ["station 8"]),
        (lambda: layers.gain(a_map(), MASTS["7"], station="7", azimuth=3), ["id", "antenna"]),
        (lambda: layers.best_server(a_map(), [MASTS["7"]], ids=["8"]), ["station 8"]),
        (lambda: layers.best_server(a_map(), [MASTS["7"]], ids=["7", "7"]), ["2 ids"]),
        (
            lambda: layers.best_server(a_map(), [MASTS["7"]], ids=["7"], azimuths=[1]),
            ["ids", "antennas"],
        ),
    ],
)
def test_wrong_use_is_one_clear_line(wrong, named):
    with refused(ConfigurationError, *named):
        wrong()


def test_a_map_without_a_list_of_stations_takes_any_id():
    bare = replace(a_map(), offsets=Offsets(), field=None)
    found = layers.gain(bare, MASTS["7"], station="another").values
    np.testing.assert_array_equal(found, bare.predict_area(MASTS["7"]))


# The command


def exported(capsys, *arguments):
    """What was said, and the layer that was written."""
    code, out, err = command(capsys, "export", *map(str, arguments))
    assert (code, err) == (0, "")
    with xarray.open_dataset(arguments[1], engine="scipy") as dataset:
        (name,) = dataset.data_vars
        return " ".join(out.split()), dataset[name].load()


@pytest.mark.parametrize("station", list(MASTS))
def test_the_command_takes_a_station_by_its_id(capsys, runs, tmp_path, station):
    said, found = exported(capsys, runs / "run", tmp_path / "a.nc", "--station", station)
    np.testing.assert_allclose(found.values.ravel(), by_hand(a_map(), station, places()))
    assert f"gain from base station {station} (dB)" in said
    assert "isotropic" not in said
    assert found.attrs["base_station"] == station
    np.testing.assert_array_equal(found.attrs["base_station_m"], MASTS[station])


def test_a_place_has_no_offset_even_if_a_station_is_there(capsys, runs, tmp_path):
    place = ",".join(map(str, MASTS["south"]))
    said, found = exported(capsys, runs / "run", tmp_path / "a.nc", "--bs", place)
    np.testing.assert_array_equal(found, a_map().predict_area(MASTS["south"]))
    assert "Antennas are taken to be isotropic" in said
    assert "base_station" not in found.attrs


def test_the_best_server_of_a_run_is_by_ids(capsys, runs, tmp_path):
    options = ["--layer", "best-server"]
    said, found = exported(capsys, runs / "run", tmp_path / "own.nc", *options)
    _, ids = RunFolder(runs / "run").base_stations()
    gains = np.array([by_hand(a_map(), station, places()) for station in ids])
    np.testing.assert_array_equal(found.values.ravel(), gains.argmax(axis=0))
    assert f"3 base stations, numbered from 0 in this order: {', '.join(ids)}" in said
    options += ["--station", "south", "--station", "7"]
    said, found = exported(capsys, runs / "run", tmp_path / "two.nc", *options)
    chosen = gains[[ids.index("south"), ids.index("7")]]
    np.testing.assert_array_equal(found.values.ravel(), chosen.argmax(axis=0))
    assert found.attrs["base_stations"] == "south, 7"
    assert "numbered from 0 in this order: south, 7" in said


def test_a_runs_only_station_is_taken_by_its_id(capsys, runs, tmp_path):
    radio_map = vm.RadioMap.load(runs / "one" / "radio_map.nc")
    _, found = exported(capsys, runs / "one", tmp_path / "a.nc")
    expected = layers.gain(radio_map, MASTS["south"], station="south")
    np.testing.assert_array_equal(found, expected.values)
    assert found.attrs["azimuth_deg"] == 200.0


def test_line_of_sight_and_uncertainty_by_id(capsys, runs, tmp_path):
    _, found = exported(capsys, runs / "run", tmp_path / "a.nc", "--layer", "los", "--station", 7)
    np.testing.assert_array_equal(found, layers.los_probability(a_map(), MASTS["7"]).values)
    _, found = exported(
        capsys, runs / "run", tmp_path / "b.nc", "--layer", "uncertainty", "--station", "a,b",
        "--bootstrap", 2, "--seed", 1, "--data", runs / "links.parquet",
    )  # fmt: skip
    maps = layers.bootstrap(
        some_links(), GRID, 2, seed=1, rounds=4, server_sees="sums",
        model=vm.Model(calibrate=["stations", "devices"], residual=40.0),
    )  # fmt: skip
    expected = layers.spread(maps, MASTS["a,b"], station="a,b").values
    np.testing.assert_array_equal(found, expected)
    assert not np.array_equal(expected, layers.spread(maps, MASTS["a,b"]).values)


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        ("run", ["--station", "9"], "'9'; there are 7, a,b, south"),
        ("run", ["--station", "7", "--station", "south"], "one base station"),
        ("run", [], "the run has 3, such as 7"),
        ("run", ["--station", "7", "--bs", "1,2,3"], "by id, or all by place"),
        ("run", ["--station", "7", "--azimuth", "3"], "1 times for 0 base stations"),
        ("one", ["--azimuth", "3"], "1 times for 0 base stations"),
        ("run", ["--layer", "heights", "--station", "7"], "layer heights"),
        ("plain", ["--station", "south"], "'south' of"),
        ("plain", ["--station", "south"], "200,0,30"),
        ("bare.nc", ["--station", "7"], "--bs x,y,z"),
    ],
)
def test_mistakes_are_one_line_and_write_nothing(capsys, runs, tmp_path, source, options, message):
    code, said, err = command(
        capsys, "export", str(runs / source), str(tmp_path / "a.nc"), *options
    )
    assert (code, said, err.count("\n")) == (2, "", 1)
    assert message in err
    assert list(tmp_path.iterdir()) == []


def test_many_stations_are_named_in_part(capsys, tmp_path):
    scene = vm.Scene.synthetic(5, size=60.0, buildings=3, base_stations=12)
    data = scene.measure(users=6, links_per_user=10, seed=0)
    vm.train(data, scene.grid, rounds=1, seed=0, recording=vm.Recording(out=tmp_path / "run"))
    _, _, err = command(
        capsys, "export", str(tmp_path / "run"), str(tmp_path / "a.nc"), "--station", "x"
    )
    assert "and 7 more" in err


def test_a_run_that_was_told_no_stations(capsys, tmp_path):
    vm.train(some_links(), GRID, rounds=1, seed=0, recording=vm.Recording(out=tmp_path / "run"))
    (tmp_path / "run" / "base_stations.csv").write_text("bs,x,y,z\n")  # as on real hosts
    _, _, err = command(
        capsys, "export", str(tmp_path / "run"), str(tmp_path / "a.nc"), "--station", "7"
    )
    assert "--bs" in err
