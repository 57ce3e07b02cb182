import csv
import json
import shlex

import numpy as np
import pytest
import rasterio

import logs
import veilmap as vm
from commands import run
from tablefiles import links, walk, write, write_stations
from veilmap.runs.opened import OpenRun


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch):
    monkeypatch.setattr("veilmap.cli.data.console.width", 200)


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


@pytest.mark.parametrize("name", list(logs.FORMATS))
def test_logs_of_known_apps_are_converted_without_an_option(capsys, tmp_path, name):
    way = logs.drive()
    path, gaps = logs.write(tmp_path, name, way)
    target = tmp_path / "links.parquet"
    code, out, err = run(capsys, "data", "convert", path, target)
    assert (code, err) == (0, "")
    assert f"recognised as {name}" in out
    assert f"Wrote {len(way)} of {len(way) + len(gaps)} rows" in out
    data = vm.Measurements.load(target)
    assert data.bs.tolist() == way.ids
    assert set(data.station_errors) == set(way.ids)
    code, out, _ = run(capsys, "data", "check", path)
    assert code == 0
    assert "position ± (m)" in out


def test_the_suggested_command_reads_the_file(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "two words.csv"
    lines = ["lat,lon,rsrp,cell_id"]
    lines += [f"{48 + n / 1000},{11 + n % 7 / 1000},{-80 - n},5" for n in range(30)]
    lines[4] = "48.1,11.1,loud,5"
    path.write_text("\n".join(lines))
    code, _, err = run(capsys, "data", "convert", path, "out.parquet")
    assert code == 2
    assert err.count("\n") == 1
    for problem in ("(1)", "(2)", "(3)", "line 5"):
        assert problem in err
    command = shlex.split(err.strip().partition("this command reads it: ")[2])
    assert command[:3] == ["veilmap", "data", "convert"]
    code, out, err = run(capsys, *command[1:])
    assert (code, err) == (0, "")
    assert "Wrote 29 of 30 rows" in out
    assert len(vm.Measurements.load("links.parquet")) == 29


def test_options_survive_in_the_suggested_command(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = walk()
    table["rsrp"] = [str(value) for value in table["rsrp"]]
    table["rsrp"][3] = "weak"
    table["network"] = np.array(["LTE", "NR|5G"])[np.arange(40) // 30]
    arguments = [*walk_arguments(tmp_path, table), "--where", "network=LTE", "--missing", "-999",
                 "--tx-power", 23.5, "--user-height", 2]  # fmt: skip
    code, _, err = run(capsys, "data", "convert", arguments[0], "out.parquet", *arguments[1:])
    assert code == 2
    command = shlex.split(err.strip().partition("this command reads it: ")[2])
    assert run(capsys, *command[1:])[0] == 0
    found = vm.Measurements.load("links.parquet")
    kept = [float(text) for n, text in enumerate(table["rsrp"][:30]) if n != 3]
    np.testing.assert_allclose(found.gain_db, np.array(kept) - 23.5)
    np.testing.assert_array_equal(found.user_xyz[:, 2], 2.0)


def test_doubts_are_said_where_a_file_is_converted(capsys, tmp_path):
    way = logs.drive(60)
    path, _ = logs.write(tmp_path, "OpenCelliD measurements", way)
    far = logs.Drive(way.latitude + 0.1, way.longitude, way.cell, way.dbm, way.seconds)
    path.write_bytes(path.read_bytes() + logs.opencellid(far)[0].split(b"\n", 1)[1])
    code, out, _ = run(capsys, "data", "convert", path, tmp_path / "links.parquet")
    assert code == 0
    assert "two places at once" in out


def test_a_raw_log_is_trained_on_and_its_sites_stay_marked(capsys, tmp_path):
    way = logs.drive(90)
    path, _ = logs.write(tmp_path, "G-NetTrack", way)
    code, out, err = run(
        capsys, "train", path, "--rounds", 1, "--cell-size", 50, "--mechanism", "none", "--out",
        tmp_path / "run",
    )  # fmt: skip
    assert (code, err) == (0, "")
    assert "recognised as G-NetTrack" in out
    with (tmp_path / "run" / "base_stations.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["bs"] for row in rows} == set(way.ids)
    assert all(float(row["error_m"]) >= 100 for row in rows)
    # The page, exports and a later training take the mark from there.
    opened = OpenRun(tmp_path / "run")
    assert set(opened.station_errors) == set(way.ids)
    assert len(opened.crowd[0]) == 90
    tif = tmp_path / "gain.tif"
    assert run(capsys, "export", tmp_path / "run", tif, "--station", way.ids[0])[0] == 0
    with rasterio.open(tif) as raster:
        error = float(raster.tags()["base_station_error_m"])
    assert error == pytest.approx(opened.station_errors[way.ids[0]])
    code, _, err = run(
        capsys, "train", path, "--rounds", 1, "--cell-size", 50, "--mechanism", "none", "--out",
        tmp_path / "again", "--stations", tmp_path / "run" / "base_stations.csv",
    )  # fmt: skip
    assert (code, err) == (0, "")
    assert OpenRun(tmp_path / "again").station_errors == opened.station_errors


def test_known_sites_have_no_mark(capsys, tmp_path):
    way = logs.drive(90)
    path, _ = logs.write(tmp_path, "CellMapper", way)
    towers = logs.write_towers(tmp_path)
    target = tmp_path / "links.parquet"
    assert run(capsys, "data", "convert", path, target, "--stations", towers)[0] == 0
    assert vm.Measurements.load(target).bs_error_m is None
    code, _, err = run(
        capsys, "train", target, "--rounds", 1, "--cell-size", 50, "--mechanism", "none", "--out",
        tmp_path / "run",
    )  # fmt: skip
    assert (code, err) == (0, "")
    first = (tmp_path / "run" / "base_stations.csv").read_text().splitlines()[0]
    assert first == "bs,x,y,z"


def test_a_raw_log_is_surveyed(capsys, tmp_path):
    way = logs.drive(180)
    path = tmp_path / "opendata.csv"
    path.write_bytes(logs.rtr_nettest(way, people=60)[0])
    stations = tmp_path / "stations.csv"
    ids = dict(zip(way.cell.tolist(), way.ids, strict=True))
    rows = [f"{ids[n]},{x},{y},30" for n, (x, y) in enumerate(logs.site_xy().tolist())]
    stations.write_text("\n".join(["bs,x,y,z", *rows]))
    low, high = way.xy().min(axis=0) - 500, way.xy().max(axis=0) + 500
    area = ",".join(f"{one:.0f}" for one in (*low, *high))
    survey = tmp_path / "survey.json"
    code, _, err = run(
        capsys, "survey", "design", "--area", area, "--stations", stations, "--participants", 60,
        "--epsilon", 8, "--delta", 0.01, "--crs", logs.CRS, "--out", survey,
    )  # fmt: skip
    assert (code, err) == (0, "")
    code, out, err = run(
        capsys, "survey", "run", path, "--survey", survey, "--out", tmp_path / "town", "--seed", 1
    )
    assert (code, err) == (0, "")
    assert "recognised as RTR-NetTest or NetMetr" in out
    assert (tmp_path / "town" / "radio_map.nc").exists()
