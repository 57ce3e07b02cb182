"""The train command as a user types it."""

import json

import numpy as np
import pytest

import veilmap as vm
from commands import run
from veilmap.federation import history
from veilmap.federation.config import RunConfig
from veilmap.federation.run_folder import RunFolder


@pytest.fixture
def files(tmp_path):
    scene = vm.Scene.synthetic(5, size=90.0, buildings=4, base_stations=40)
    scene.measure(users=8, links_per_user=20, seed=0).save(tmp_path / "links.csv")
    scene.measure(users=8, links_per_user=20, seed=1).save(tmp_path / "test.parquet")
    return tmp_path


def arguments(files, *more):
    return ["train", str(files / "links.csv"), "--rounds", "6", "--out", str(files / "run"), *more]


def test_train_writes_a_run(capsys, files):
    code, out, _ = run(
        capsys, *arguments(files, "--seed", "1", "--budget", "5", "--keep-uploads", "1,6",
                           "--test", str(files / "test.parquet"), "--dropout", "0.1"),
    )  # fmt: skip
    assert code == 0
    assert "map MAE" in out
    names = {path.name for path in (files / "run").iterdir()}
    assert names == {
        "config.json", "base_stations.csv", "history.csv", "checkpoints",
        "transcript", "radio_map.nc",
    }  # fmt: skip
    assert len(history.load(files / "run" / "history.csv")) == 6
    assert RunConfig.load(files / "run").mechanism == vm.GeometryAligned(noise_budget=5.0)
    kept = sorted(path.stem for path in (files / "run" / "transcript").iterdir())
    assert kept == ["round-000000", "round-000005"]


def test_only_some_users_uploads_may_be_kept(capsys, files):
    options = ["--seed", "1", "--keep-uploads", "2", "--keep-users", "3, 5"]
    assert run(capsys, *arguments(files, *options))[0] == 0
    with np.load(files / "run" / "transcript" / "round-000001.npz") as kept:
        assert json.loads(str(kept["clients"])) == [3, 5]
        assert len(kept["uploads"]) == 2


def test_a_finished_run_is_resumed_to_itself(capsys, files):
    code, out, _ = run(capsys, *arguments(files, "--seed", "1"))
    assert code == 0
    assert "nan" not in out  # no test data, no claim about the map's error
    before = vm.RadioMap.load(files / "run" / "radio_map.nc").heights
    assert run(capsys, *arguments(files, "--seed", "1", "--resume"))[0] == 0
    np.testing.assert_array_equal(vm.RadioMap.load(files / "run" / "radio_map.nc").heights, before)


def test_a_synthetic_city_needs_no_file(capsys, tmp_path):
    out = str(tmp_path / "run")
    code, text, _ = run(capsys, "train", "--rounds", "1", "--mechanism", "none", "--out", out)
    assert code == 0
    assert "map MAE" in text


def test_area_and_stations_are_used_whatever_the_mechanism(capsys, files):
    (files / "masts.csv").write_text("bs,x,y,z\nA,10,20,30\n")
    given = ["--area=-30,0,60,90", "--stations", str(files / "masts.csv"), "--cell-size", "5"]
    for name in ("none", "aggregate"):
        options = ["--mechanism", name, *(["--delta", "1e-3"] if name == "aggregate" else [])]
        place = [part.replace("/run", f"/{name}") for part in arguments(files, *options, *given)]
        assert run(capsys, *place)[0] == 0
        grid = vm.RadioMap.load(files / name / "radio_map.nc").grid
        assert grid.extent == (-30.0, 60.0, 0.0, 90.0)
        assert (files / name / "base_stations.csv").read_text() == "bs,x,y,z\nA,10.0,20.0,30.0\n"
    for folder, known in (("none", True), ("aggregate.study", True), ("aggregate", False)):
        file = "study.json" if folder.endswith("study") else "config.json"
        assert (RunConfig.load(files / folder, file).source is not None) == known
    code, _, err = run(capsys, "train", "--area", "0,0,9,9", "--out", str(files / "city"))
    assert code == 2
    assert "of its own" in err


@pytest.mark.parametrize("seed", [[], ["--seed", "3"]])
def test_a_synthetic_city_names_its_own_stations_and_a_seed_ends_the_promise(
    capsys, tmp_path, seed
):
    place = tmp_path / "run"
    code, out, _ = run(
        capsys, "train", "--rounds", "1", "--users", "5", "--cell-size", "15", "--mechanism",
        "aggregate", "--delta", "1e-3", "--out", str(place), *seed,
    )  # fmt: skip
    assert code == 0
    scene = vm.Scene.synthetic(0, cell_size=15.0)
    found, ids = RunFolder(place).base_stations()
    np.testing.assert_array_equal(found, scene.base_stations)
    assert ids == tuple(str(n) for n in range(len(found)))
    assert ("(ε, δ) = " in out) == (not seed)
    assert ("computable from the seed" in out) == bool(seed)
    (row,) = history.load(place / "history.csv")
    assert np.isnan(row.epsilon) == bool(seed)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--mechanism", "magic"], "'magic'; there are none, uniform, aligned"),
        (["--budget", "-3"], "--budget"),
        (["--share", "0"], "--share"),
        (["--keep-uploads", "soon"], "rounds such as 1,50"),
        (["--keep-uploads", "7"], "1 to 6"),
        (["--keep-users", "99"], "user 99"),
        (["--cell-size", "0"], "--cell-size"),
        (["--test", "none.csv"], "none.csv"),
        (["--resume"], "config.json"),
        (["--mechanism", "aggregate"], "--area WEST,SOUTH,EAST,NORTH and --stations"),
        (["--mechanism", "aggregate", "--stations", "masts.csv"], "--area"),
        (["--mechanism", "aggregate", "--area", "0,0,9,9"], "--stations FILE"),
        (["--area", "0,0,90"], "4 numbers"),
        (["--area", "90,0,0,90"], "WEST,SOUTH,EAST,NORTH"),
        (["--stations", "masts.csv"], "masts.csv"),
        (["--stations", "{links}"], "bs,x,y,z"),
    ],
)
def test_mistakes_are_one_line_and_write_nothing(capsys, files, more, message):
    more = [part.format(links=files / "links.csv") for part in more]
    code, out, err = run(capsys, *arguments(files, *more))
    assert code == 2
    assert out.strip() == ""
    assert err.count("\n") == 1
    assert message in err
    assert not (files / "run").exists()
