import json

import numpy as np
import pytest

import veilmap as vm
from tablefiles import links, walk, write, write_stations
from veilmap import cli


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch):
    monkeypatch.setattr("veilmap.cli.data.console.width", 200)


def run(capsys, *arguments):
    """Exit code, standard output and standard error of a command."""
    with pytest.raises(SystemExit) as stop:
        cli.main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return stop.value.code, captured.out, captured.err


def walk_arguments(tmp_path, columns=None):
    path = write(tmp_path / "walk.csv", columns or walk())
    stations = write_stations(tmp_path / "stations.csv")
    return [
        path, "--column", "gain=rsrp", "--column", "bs=cell", "--quantity", "rsrp",
        "--stations", stations, "--split-gap", 60,
    ]  # fmt: skip


@pytest.mark.parametrize("command", ["check", "convert"])
def test_help_has_an_example_and_the_options(capsys, command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    code, out, _ = run(capsys, "data", command, "--help")
    assert code == 0
    assert f"veilmap data {command} walk.csv" in out
    for option in ("--column", "--crs", "--quantity", "--missing", "--stations", "--wide",
                   "--split-gap", "--max-distance", "--drop-bad"):  # fmt: skip
        assert option in out


def test_check_shows_counts_coverage_and_doubts(capsys, tmp_path):
    table = walk()
    table["time"][-1] = 0
    picture, figures = tmp_path / "out" / "walk.png", tmp_path / "out" / "walk.json"
    code, out, err = run(
        capsys, "data", "check", *walk_arguments(tmp_path, table), "--picture", picture,
        "--json", figures,
    )  # fmt: skip
    assert (code, err) == (0, "")
    for text in ("EPSG:32632", "north", "south", "gain = rsrp", "not in order of time",
                 "users are taken to be 1.5 m up"):  # fmt: skip
        assert text in out
    assert picture.read_bytes().startswith(b"\x89PNG")
    written = json.loads(figures.read_text())
    assert written["rows"] == written["used"] == 40
    assert written["users"] == 2
    assert {one["bs"] for one in written["stations"]} == {"north", "south"}


def test_check_reports_bad_rows_that_convert_refuses(capsys, tmp_path):
    table = walk()
    table["rsrp"] = [str(value) for value in table["rsrp"]]
    table["rsrp"][3] = "weak"
    arguments = walk_arguments(tmp_path, table)
    code, out, _ = run(capsys, "data", "check", *arguments)
    assert code == 0
    assert "rsrp is not a number (line 5)" in out
    assert "1 rows cannot be used; convert drops them with --drop-bad" in out
    target = tmp_path / "links.parquet"
    code, out, err = run(capsys, "data", "convert", arguments[0], target, *arguments[1:])
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert "line 5" in err
    assert not target.exists()
    code, out, _ = run(
        capsys, "data", "convert", arguments[0], target, *arguments[1:], "--drop-bad"
    )
    assert code == 0
    assert "Left out 1 rows: rsrp is not a number" in out
    assert "Wrote 39 of 40 rows" in out
    data = vm.Measurements.load(target)
    assert len(data) == 39
    assert data.crs == "EPSG:32632"


def test_links_longer_than_asked_for_need_no_drop_bad(capsys, tmp_path):
    arguments = [*walk_arguments(tmp_path), "--max-distance", 800]
    code, out, _ = run(capsys, "data", "check", *arguments)
    assert code == 0
    assert "the base station is more than 800 m away (line " in out
    assert "cannot be used" not in out
    target = tmp_path / "links.parquet"
    code, out, err = run(capsys, "data", "convert", arguments[0], target, *arguments[1:])
    assert (code, err) == (0, "")
    data = vm.Measurements.load(target)
    assert f"Left out {40 - len(data)} rows: the base station is more than 800 m away" in out
    assert np.hypot(*(data.user_xyz - data.bs_xyz)[:, :2].T).max() <= 800


def test_converted_measurements_can_be_trained_on(capsys, tmp_path):
    arguments = walk_arguments(tmp_path)
    target = tmp_path / "links.parquet"
    assert run(capsys, "data", "convert", arguments[0], target, *arguments[1:])[0] == 0
    code, _, err = run(
        capsys, "train", target, "--rounds", 1, "--cell-size", 20, "--mechanism", "none",
        "--out", tmp_path / "run",
    )  # fmt: skip
    assert (code, err) == (0, "")
    assert vm.RadioMap.load(tmp_path / "run" / "radio_map.nc").grid.crs == "EPSG:32632"


def test_wide_tables_and_negative_sentinels(capsys, tmp_path):
    table = {name: walk()[name] for name in ("time", "latitude", "longitude")}
    table["time"] = 1_700_000_000 + np.arange(40) * 30  # nobody is faster than a car
    table["north"] = np.where(np.arange(40) < 5, -101, np.arange(40) - 100.0)
    table["south"] = np.arange(40) - 100.5
    path = write(tmp_path / "wide.csv", table)
    stations = write_stations(tmp_path / "stations.csv")
    code, out, _ = run(
        capsys, "data", "check", path, "--wide", "n*", "--wide", "south", "--stations", stations,
        "--missing", "-101", "--split-gap", 60,
    )  # fmt: skip
    assert code == 0
    assert "left out: 5" in out
    assert "Nothing looks wrong." in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["check", "none.csv"], "none.csv"),
        (["check", "."], "folder"),
        (["check", "links.csv", "--column", "gain"], "NAME=COLUMN"),
        (["check", "links.csv", "--column", "gain=a", "--column", "gain=b"], "gain twice"),
        (["check", "links.csv", "--column", "gain=a"], "'a'"),
        (["check", "links.csv", "--quantity", "loud"], "--quantity"),
        (["check", "links.csv", "--user-per", "day"], "--user-per"),
        (["check", "links.csv", "--missing", "x"], "--missing"),
        (["check", "links.csv", "--max-distance", "-5"], "--max-distance"),
        (["check", "links.csv", "--max-distance", "far"], "--max-distance"),
        (["convert", "links.csv", "a.csv", "--max-distance", "1"], "40 rows"),
        (["check", "links.csv", "--picture", "a.doc"], ".png"),
        (["convert", "links.csv", "links.xlsx"], ".parquet"),
        (["convert", "links.csv", "links.csv"], "is the table itself"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_two(capsys, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "links.csv", links())
    code, out, err = run(capsys, "data", *arguments)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert err.startswith("veilmap: ")
    assert message in err
    assert [path.name for path in tmp_path.iterdir()] == ["links.csv"]
