"""The export command as a user types it."""

import csv
import json
from dataclasses import dataclass

import numpy as np
import pyproj
import pytest
import rasterio
import xarray

import flat
import veilmap as vm
from commands import run
from refusals import refused
from veilmap import layers
from veilmap.errors import ConfigurationError
from veilmap.federation.run_folder import RunFolder

UTM = "EPSG:32633"
BS = np.array([500_020.0, 5_400_015.0, 20.0])


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run whose measurements are in a file, and a map on real ground without a run."""
    folder = tmp_path_factory.mktemp("export")
    scene = vm.Scene.synthetic(5, size=60.0, buildings=3, base_stations=12)
    scene.measure(users=6, links_per_user=10, seed=0).save(folder / "links.csv")
    with pytest.raises(SystemExit):
        vm_cli("train", folder / "links.csv", "--rounds", 3, "--out", folder / "run",
               "--budget", 5, "--share", 0.9, "--seed", 1)  # fmt: skip
    grid = vm.Grid(3.0, (8, 10), (500_000.0, 5_400_000.0), UTM)
    heights = np.random.default_rng(0).uniform(-5, 25, grid.shape)
    vm.RadioMap(grid, heights).save(folder / "utm.nc")
    return folder


def vm_cli(*arguments):
    from veilmap import cli

    cli.main([str(argument) for argument in arguments])


def export(capsys, *arguments):
    """What was said, in one line, once it has worked."""
    code, out, err = run(capsys, "export", *map(str, arguments))
    assert (code, err) == (0, "")
    return " ".join(out.split())


def test_a_map_becomes_a_geotiff_on_its_ground(capsys, made, tmp_path):
    text = export(capsys, made / "utm.nc", tmp_path / "gain.tif", "--bs", "500020,5400015,20")
    assert "gain from the base station (dB), 8 × 10 cells of 3 m" in text
    radio_map = vm.RadioMap.load(made / "utm.nc")
    with rasterio.open(tmp_path / "gain.tif") as raster:
        assert raster.crs.to_epsg() == 32633
        np.testing.assert_allclose(np.flipud(raster.read(1)), radio_map.predict_area(BS), rtol=1e-6)


def test_a_base_station_may_be_given_by_latitude_and_longitude(capsys, made, tmp_path):
    longitude, latitude = pyproj.Transformer.from_crs(UTM, "EPSG:4326", always_xy=True).transform(
        *BS[:2]
    )
    export(capsys, made / "utm.nc", tmp_path / "los.nc", "--layer", "los", "--altitude", 2,
           "--bs-latlon", f"{latitude:.9f},{longitude:.9f},20")  # fmt: skip
    with xarray.open_dataset(tmp_path / "los.nc", engine="scipy") as dataset:
        station = dataset["los"].attrs["base_station_m"]
        np.testing.assert_allclose(station, BS, atol=0.001)
        expected = layers.los_probability(vm.RadioMap.load(made / "utm.nc"), station, 2.0)
        np.testing.assert_array_equal(dataset["los"], expected.values)
        assert dataset["los"].attrs["altitude_m"] == 2.0


def test_contours_at_chosen_levels(capsys, made, tmp_path):
    export(capsys, made / "utm.nc", tmp_path / "a.geojson", "--bs", "500020,5400015,20",
           "--levels", "-75,-70")  # fmt: skip
    features = json.loads((tmp_path / "a.geojson").read_text())["features"]
    assert [feature["properties"]["level"] for feature in features] == [-75, -70]


def test_points_off_the_map_are_counted(capsys, made, tmp_path):
    (tmp_path / "points.csv").write_text("x,y\n500001,5400001\n1,1\n2,2\n")
    text = export(capsys, made / "utm.nc", tmp_path / "at.csv", "--bs", "500020,5400015,20",
                  "--points", tmp_path / "points.csv")  # fmt: skip
    assert "2 of 3 points are off the map and have no value" in text
    with (tmp_path / "at.csv").open() as file:
        values = [row["gain_db"] for row in csv.DictReader(file)]
    expected = vm.RadioMap.load(made / "utm.nc").predict([[500_001, 5_400_001, 1.5]], BS)
    assert [float(values[0]), *values[1:]] == [expected[0], "", ""]


def test_the_best_server_of_a_run_has_its_gain_beside_it(capsys, made, tmp_path):
    text = export(capsys, made / "run", tmp_path / "server.nc", "--layer", "best-server")
    assert "12 base stations, numbered from 0 as in" in text
    radio_map = vm.RadioMap.load(made / "run" / "radio_map.nc")
    stations, _ = RunFolder(made / "run").base_stations()
    areas = np.array([radio_map.predict_area(bs) for bs in stations])
    with xarray.open_dataset(tmp_path / "server.nc", engine="scipy") as dataset:
        np.testing.assert_array_equal(dataset["best_server"], areas.argmax(axis=0))
    with xarray.open_dataset(tmp_path / "server-gain.nc", engine="scipy") as dataset:
        np.testing.assert_array_equal(dataset["best_gain"], areas.max(axis=0))


def test_the_best_of_named_servers(capsys, made, tmp_path):
    export(capsys, made / "utm.nc", tmp_path / "server.png", "--layer", "best-server",
           "--bs", "500001,5400001,30", "--bs", "500028,5400020,30")  # fmt: skip
    assert {path.name for path in tmp_path.iterdir()} == {
        f"server{part}" for part in (
            ".png", ".pgw", ".png.aux.xml", "-legend.png",
            "-gain.png", "-gain.pgw", "-gain.png.aux.xml", "-gain-legend.png",
        )
    }  # fmt: skip


def test_heights_and_coverage_need_no_base_station(capsys, made, tmp_path):
    export(capsys, made / "run", tmp_path / "heights.nc", "--layer", "heights")
    text = export(capsys, made / "run", tmp_path / "coverage.nc", "--layer", "coverage")
    assert "It shows where users measured" in text
    radio_map = vm.RadioMap.load(made / "run" / "radio_map.nc")
    with xarray.open_dataset(tmp_path / "heights.nc", engine="scipy") as dataset:
        np.testing.assert_array_equal(dataset["heights"], radio_map.heights)
    links = vm.Measurements.load(made / "links.csv")
    with xarray.open_dataset(tmp_path / "coverage.nc", engine="scipy") as dataset:
        expected = layers.link_coverage(radio_map.grid, links).values
        np.testing.assert_array_equal(dataset["coverage"], expected)
        assert expected.max() > 0
    again = [made / "run" / "radio_map.nc", tmp_path / "again.nc", "--layer", "coverage"]
    export(capsys, *again, "--data", made / "links.csv")
    with xarray.open_dataset(tmp_path / "again.nc", engine="scipy") as dataset:
        np.testing.assert_array_equal(dataset["coverage"], expected)


def test_uncertainty_trains_replicas_as_the_run_was_trained(capsys, made, tmp_path):
    text = export(capsys, made / "run", tmp_path / "u.nc", "--layer", "uncertainty",
                  "--bs", "30,30,20", "--bootstrap", 3, "--seed", 4)  # fmt: skip
    assert "beyond what the run promised" in text
    radio_map = vm.RadioMap.load(made / "run" / "radio_map.nc")
    maps = layers.bootstrap(
        vm.Measurements.load(made / "links.csv"), radio_map.grid, 3, seed=4, rounds=3,
        mechanism=vm.GeometryAligned(noise_budget=5), participation=vm.Participation(share=0.9),
        model=vm.Model(step=vm.NoiseAwareStep(start_theta_rate=2.0)),  # as files are trained
    )  # fmt: skip
    with xarray.open_dataset(tmp_path / "u.nc", engine="scipy") as dataset:
        np.testing.assert_array_equal(
            dataset["uncertainty"], layers.spread(maps, [30, 30, 20]).values
        )
        assert dataset["uncertainty"].attrs["replicas"] == 3


@pytest.mark.parametrize(
    ("mechanism", "trust"),
    [(vm.NoNoise(), "sums"), (vm.AggregateGaussian(epsilon=8, delta=1e-3), None)],
)
def test_a_runs_settings_train_again(tmp_path, mechanism, trust):
    scene = vm.Scene.synthetic(5, size=60.0, buildings=3, base_stations=12)
    data = scene.measure(users=6, links_per_user=5, seed=0)
    step = vm.NoiseAwareStep(step=2.0, start_propagation=vm.Propagation.of_degrees(3))
    vm.train(
        data,
        scene.grid,
        mechanism=mechanism,
        server_sees=trust,
        rounds=2,
        seed=0,
        model=vm.Model(step=step, calibrate=["stations"], residual=20.0, stations=data.stations),
        recording=vm.Recording(out=tmp_path / "one"),
    )
    config = RunFolder(tmp_path / "one").config()
    flat.train(
        data,
        scene.grid,
        seed=0,
        stations=data.stations,
        out=tmp_path / "two",
        **config.settings(),
    )
    assert RunFolder(tmp_path / "two").config() == config


@dataclass(frozen=True)
class Own(vm.PlainDescent):
    """A rule that veilmap does not know."""


def test_a_step_rule_of_its_own_cannot_be_read_back(tmp_path):
    scene = vm.Scene.synthetic(5, size=60.0, buildings=3, base_stations=12)
    data = scene.measure(users=2, links_per_user=5, seed=0)
    vm.train(
        data,
        scene.grid,
        rounds=1,
        model=vm.Model(step=Own()),
        recording=vm.Recording(out=tmp_path / "run"),
    )
    with refused(ConfigurationError, "step rule"):
        RunFolder(tmp_path / "run").config().settings()


def test_a_run_that_started_from_buildings_cannot_be_read_back(tmp_path):
    scene = vm.Scene.synthetic(5, size=60.0, buildings=3, base_stations=12)
    data = scene.measure(users=2, links_per_user=5, seed=0)
    vm.train(
        data,
        scene.grid,
        rounds=1,
        model=vm.Model(buildings=scene.heights),
        recording=vm.Recording(out=tmp_path / "run"),
    )
    with refused(ConfigurationError, "buildings"):
        RunFolder(tmp_path / "run").config().settings()


def test_a_run_with_one_station_needs_no_name_for_it(capsys, made, tmp_path):
    links = vm.Measurements.load(made / "links.csv")
    one = links.select(links.bs == links.bs[0])
    vm.train(one, vm.Grid(6.0, (10, 10)), rounds=1, recording=vm.Recording(out=tmp_path / "run"))
    assert "Wrote" in export(capsys, tmp_path / "run", tmp_path / "gain.nc")


@pytest.mark.parametrize(
    ("source", "out", "more", "message"),
    [
        ("utm.nc", "a.tif", [], "--bs x,y,z"),
        ("run", "a.tif", [], "the run has 12"),
        ("utm.nc", "a.tif", ["--bs", "1,2,3", "--bs", "4,5,6"], "--bs x,y,z"),
        ("utm.nc", "a.tif", ["--bs", "1,2"], "not '1,2'"),
        ("utm.nc", "a.tif", ["--bs", "1,2,nan"], "not '1,2,nan'"),
        ("run", "a.tif", ["--bs-latlon", "48,15,20"], "--bs-latlon"),
        ("utm.nc", "a.tif", ["--bs-latlon", "98,15,20"], "±90"),
        ("utm.nc", "a.tif", ["--layer", "wind"], "'wind'; there are gain, los"),
        ("utm.nc", "a.tif", ["--layer", "heights", "--bs", "1,2,3"], "heights"),
        ("utm.nc", "a.bmp", ["--layer", "heights"], "a.bmp"),
        ("utm.nc", "a.csv", ["--layer", "heights"], "(points)"),
        ("utm.nc", "a.tif", ["--layer", "heights", "--levels", "1"], ".geojson"),
        ("utm.nc", "a.geojson", ["--bs", "1,2,3", "--levels", "low"], "--levels"),
        ("utm.nc", "a.nc", ["--layer", "best-server"], "--bs x,y,z"),
        ("utm.nc", "a.nc", ["--layer", "coverage"], "--data"),
        ("utm.nc", "a.nc", ["--layer", "uncertainty", "--bs", "1,2,3"], "run's folder"),
        ("none.nc", "a.nc", [], "none.nc"),
        ("links.csv", "a.nc", [], "netCDF"),
        (".", "a.nc", [], "config.json"),
    ],
)
def test_mistakes_are_one_line_and_write_nothing(
    capsys, made, tmp_path, source, out, more, message
):
    code, said, err = run(capsys, "export", str(made / source), str(tmp_path / out), *more)
    assert code == 2
    assert said == ""
    assert err.count("\n") == 1
    assert err.startswith("veilmap: ")
    assert message in err
    assert list(tmp_path.iterdir()) == []


def test_what_a_layer_is_made_from_is_never_written_over(capsys, made):
    own = made / "utm.nc", made / "run" / "radio_map.nc", made / "links.csv"
    before = [path.read_bytes() for path in own]
    for arguments in (
        (own[0], own[0], "--layer", "heights"),
        (made / "run", own[1], "--layer", "heights"),
        (own[0], own[2], "--layer", "coverage", "--data", own[2]),
    ):
        code, _, err = run(capsys, "export", *map(str, arguments))
        assert code == 2
        assert "is what the layer is made from; name another file" in err
    assert [path.read_bytes() for path in own] == before


def test_a_run_that_does_not_say_where_its_data_are(capsys, made, tmp_path):
    links = vm.Measurements.load(made / "links.csv")
    vm.train(links, vm.Grid(6.0, (10, 10)), rounds=1, recording=vm.Recording(out=tmp_path / "run"))
    coverage = ["export", str(tmp_path / "run"), str(tmp_path / "a.nc"), "--layer", "coverage"]
    code, _, err = run(capsys, *coverage)
    assert code == 2
    assert "does not say where its measurements are" in err
    assert run(capsys, *coverage, "--data", str(made / "links.csv"))[0] == 0
    links.select(np.arange(5)).save(tmp_path / "other.csv")
    code, _, err = run(capsys, *coverage, "--data", str(tmp_path / "other.csv"))
    assert code == 2
    assert "was trained on other measurements" in err


def test_help_has_examples(capsys):
    code, out, _ = run(capsys, "export", "--help")
    assert code == 0
    assert "veilmap export run gain.tif" in " ".join(out.split())
