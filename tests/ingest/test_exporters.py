"""Files of known apps and databases: read without an option, row by row as they were written."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

import logs
import veilmap as vm
from refusals import refused
from veilmap import ingest
from veilmap.errors import ConfigurationError, DataError
from veilmap.ingest import check, exporters, read_measurements

# A folder with a file of a real walk, which is not part of the project.
SAMPLE = Path(os.environ.get("VEILMAP_SAMPLES", "")) / "opencellid_meas_uottawa.csv"
FORMATS = list(logs.FORMATS)


def gaps_of(reading):
    return sorted(row for one in reading.left_out for row in one.rows.tolist())


@pytest.mark.parametrize("name", FORMATS)
def test_every_row_is_read_as_it_was_written(tmp_path, name):
    way = logs.drive()
    path, gaps = logs.write(tmp_path, name, way)
    towers = logs.write_towers(tmp_path)
    reading = read_measurements(path, stations=towers)
    data = reading.measurements
    assert f"the file is recognised as {name}" in reading.notes
    assert gaps_of(reading) == gaps
    assert all(one.expected for one in reading.left_out)
    assert reading.rows == len(way) + len(gaps)
    assert data.bs.tolist() == way.ids
    assert data.crs == logs.CRS
    np.testing.assert_array_equal(data.gain_db, way.dbm)
    np.testing.assert_allclose(data.user_xyz[:, :2], way.xy(), atol=1e-3)
    np.testing.assert_array_equal(data.user_xyz[:, 2], 1.5)
    np.testing.assert_allclose(data.bs_xyz[:, :2], logs.site_xy()[way.cell], atol=1e-3)
    np.testing.assert_array_equal(data.bs_xyz[:, 2], 30.0)
    assert data.station_errors == {}
    people = 4 if name.startswith("RTR") else 1
    assert len(data.users) == people
    if name == "CellMapper":
        assert reading.time is None
    else:
        exact = np.array([when.timestamp() for when in way.times])
        written = exact - exact % 60 if name.startswith("RTR") else exact
        np.testing.assert_array_equal(reading.time, written)
    assert check(reading).doubts == ()


@pytest.mark.parametrize("name", FORMATS)
def test_unknown_sites_are_estimated_and_marked_wherever_they_go(tmp_path, name):
    way = logs.drive()
    path, _ = logs.write(tmp_path, name, way)
    reading = read_measurements(path)
    data = reading.measurements
    assert set(data.station_errors) == set(way.ids)
    off = np.hypot(*(data.bs_xyz[:, :2] - logs.site_xy()[way.cell]).T)
    assert (off < 2 * data.bs_error_m).all()
    # Sectors of one base station share a place.
    assert len(np.unique(data.bs_xyz, axis=0)) == 2
    for ending in ("csv", "parquet"):
        data.save(tmp_path / f"links.{ending}")
        again = vm.Measurements.load(tmp_path / f"links.{ending}")
        np.testing.assert_array_equal(again.bs_error_m, data.bs_error_m)
        raw = read_measurements(tmp_path / f"links.{ending}", crs=logs.CRS).measurements
        assert raw.station_errors == data.station_errors
    figures = check(reading).as_dict()
    assert all(one["position_error_m"] > 0 for one in figures["stations"])


@pytest.mark.parametrize("name", FORMATS)
def test_only_one_exporter_claims_a_file(tmp_path, name):
    path, _ = logs.write(tmp_path, name, logs.drive(12))
    file = ingest.readers.opened(path)
    assert [one.name for one in exporters.EXPORTERS if one.wrote(file.names)] == [name]


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("header", [True, False])
def test_tables_of_cells_are_packed_or_not_and_may_lack_a_header(tmp_path, packed, header):
    way = logs.drive(60)
    path, _ = logs.write(tmp_path, "Tower Collector", way)
    towers = logs.write_towers(tmp_path, packed=packed, header=header)
    data = read_measurements(path, stations=towers).measurements
    np.testing.assert_allclose(data.bs_xyz[:, :2], logs.site_xy()[way.cell], atol=1e-3)


def test_cells_that_a_table_lacks_are_one_problem_with_its_solution(tmp_path):
    way = logs.drive(60)
    path, _ = logs.write(tmp_path, "OpenCelliD measurements", way)
    towers = logs.write_towers(tmp_path, cells=logs.CELLS[:2], sites=logs.SITES[:2])
    with refused(DataError, "20 of 60", "not in the list of stations") as caught:
        read_measurements(path, stations=towers)
    assert caught.value.remedy.options.on_bad == "drop"
    assert len(read_measurements(path, stations=towers, on_bad="drop").measurements) == 40
    none = logs.write_towers(tmp_path, cells=[77], sites=[(48, 11)])
    with refused(DataError, none, "none of the cells"):
        read_measurements(path, stations=none)


def test_a_table_of_cells_has_no_measurements(tmp_path):
    towers = logs.write_towers(tmp_path, packed=False)
    with refused(ConfigurationError, towers, "stations", parameter="stations"):
        read_measurements(towers)


def test_cellmapper_without_a_header(tmp_path):
    way = logs.drive(60)
    content, _ = logs.cellmapper(way)
    path = tmp_path / "cells.csv"
    path.write_bytes(content.split(b"\n", 1)[1])
    reading = read_measurements(path)
    np.testing.assert_array_equal(reading.measurements.gain_db, way.dbm)
    path.write_bytes(path.read_bytes() + b"48.1\n")
    with refused(DataError, "line 61"):  # lines count from the first, which is data
        read_measurements(path)


def test_older_layouts_are_known_too(tmp_path):
    way = logs.drive(60)
    content, _ = logs.opencellid(way)
    first, rest = content.split(b"\n", 1)
    path = tmp_path / "measurements.csv"
    path.write_bytes(
        first.replace(b"mnc", b"net").replace(b"measured_at", b"measured").replace(b"act", b"radio")
        + b"\n" + rest
    )  # fmt: skip
    assert read_measurements(path).measurements.bs.tolist() == way.ids
    towers = tmp_path / "mls.csv"
    old = logs.cell_towers().replace(b"net,area,cell,unit", b"mnc,lac,cid,psc")
    towers.write_bytes(old)
    assert len(read_measurements(path, stations=towers).measurements) == 60


def test_logs_join_sites_of_ones_own_by_whatever_both_have(tmp_path):
    way = logs.drive(60)
    path, _ = logs.write(tmp_path, "Tower Collector", way)
    sites = tmp_path / "sites.csv"
    rows = [
        f"{cell},{lat},{lon},25" for cell, (lat, lon) in zip(logs.CELLS, logs.SITES, strict=True)
    ]
    sites.write_text("\n".join(["Cell ID,Latitude,Longitude,Height (m)", *rows]))
    data = read_measurements(path, stations=sites).measurements
    assert sorted(set(data.bs.tolist())) == sorted(logs.CELLS)
    np.testing.assert_allclose(data.bs_xyz[:, :2], logs.site_xy()[way.cell], atol=1e-3)
    np.testing.assert_array_equal(data.bs_xyz[:, 2], 25.0)
    sites.write_text(sites.read_text().replace("Cell ID", "No."))
    named = read_measurements(
        path, columns={"bs": "cell_id"}, stations=sites, station_columns={"bs": "No."}
    )
    np.testing.assert_array_equal(named.measurements.bs_xyz, data.bs_xyz)
    whole = [f"{one},{row.split(',', 1)[1]}" for one, row in zip(way.ids[:3], rows, strict=True)]
    sites.write_text("\n".join(["bs,Latitude,Longitude,z", *whole]))
    assert read_measurements(path, stations=sites).measurements.bs.tolist() == way.ids


def test_rows_are_filtered_and_values_that_are_not_there_are_named(tmp_path):
    way = logs.drive(60)
    content, _ = logs.tower_collector(way)
    lines = content.decode().splitlines()
    lines[20:30] = [line.replace("LTE", "GSM") for line in lines[20:30]]
    path = tmp_path / "log.csv"
    path.write_text("\n".join(lines))
    reading = read_measurements(path, where={"net_type": "GSM"}, estimate_stations=True)
    out = {one.reason: one for one in reading.left_out}
    assert out["net_type is not GSM"].expected
    kept = {*range(21, 31)} - {row for one in reading.left_out for row in one.rows.tolist()}
    assert len(reading.measurements) == len(kept)
    both = read_measurements(path, where={"net_type": "GSM|LTE"})
    assert "net_type is not GSM|LTE" not in {one.reason for one in both.left_out}
    with refused(DataError, "net_type", "NR", "LTE, GSM"):
        read_measurements(path, where={"net_type": "NR"})
    with refused(ConfigurationError, "'network'", parameter="columns"):
        read_measurements(path, where={"network": "LTE"})


def test_broken_values_of_a_log_are_refused_and_its_gaps_are_not(tmp_path):
    way = logs.drive(60)
    content, gaps = logs.tower_collector(way)
    lines = content.decode().splitlines()
    lines[40] = lines[40].replace(f",{lines[40].split(',')[8]},", ",loud,", 1)
    path = tmp_path / "log.csv"
    path.write_text("\n".join(lines))
    with refused(DataError, "1 of 62", "dbm", "line 41") as caught:
        read_measurements(path)
    reading = read_measurements(path, on_bad="drop")
    assert gaps_of(reading) == [*gaps, 41]
    assert caught.value.remedy.change == {"on_bad": "drop"}


@pytest.mark.parametrize("text", [b"{", b"[]", b'{"items": 3}', b'{"items": [1]}', b"\xff\xfe"])
def test_json_that_is_no_report_is_refused_in_one_line(tmp_path, text):
    path = tmp_path / "reports.json"
    path.write_bytes(text)
    with refused(DataError, path):
        read_measurements(path)


def test_reports_with_anything_in_them_are_read_or_refused(tmp_path):
    content = json.loads(logs.geosubmit(logs.drive(20))[0])
    for damage in (
        lambda item: item.pop("position"),
        lambda item: item.update(position=[1, 2]),
        lambda item: item.update(cellTowers={"a": 1}),
        lambda item: item["cellTowers"].append(7),
        lambda item: item["position"].update(latitude="north"),
        lambda item: item["cellTowers"][0].update(cellId=[1]),
    ):
        again = json.loads(json.dumps(content))
        damage(again["items"][1])
        path = tmp_path / "reports.json"
        path.write_text(json.dumps(again))
        reading = read_measurements(path, on_bad="drop")
        out = sum(len(one.rows) for one in reading.left_out)
        assert reading.rows == len(reading.measurements) + out


def test_archives_that_are_damaged_or_hold_several_tables(tmp_path):
    path, _ = logs.write(tmp_path, "NeoStumbler", logs.drive(20))
    whole = path.read_bytes()
    path.write_bytes(whole[:-30])
    with refused(DataError, path):
        read_measurements(path)
    import zipfile

    with zipfile.ZipFile(path, "w") as archive:
        for name in ("a.csv", "b.csv"):
            archive.writestr(name, logs.netmonitor(logs.drive(40))[0])
        archive.writestr("readme.pdf", b"\0")
    with refused(ConfigurationError, "a.csv", "b.csv", parameter="layer") as caught:
        read_measurements(path)
    assert caught.value.remedy.change == {"layer": "a.csv"}
    assert len(read_measurements(path, layer="b.csv").measurements) == 40
    with refused(ConfigurationError, "c.csv", parameter="layer"):
        read_measurements(path, layer="c.csv")
    packed = tmp_path / "log.csv.gz"
    packed.write_bytes(b"not gzip")
    with refused(DataError, packed):
        read_measurements(packed)


@pytest.mark.skipif(not SAMPLE.exists(), reason="the sample of a walk is not here")
def test_a_real_walk_goes_from_raw_to_parquet(tmp_path):
    path = shutil.copy(SAMPLE, tmp_path / "walk.csv")
    reading = read_measurements(path)
    assert reading.rows == 121
    data = reading.measurements
    assert len(data) == 120
    assert data.crs == "EPSG:32618"
    assert data.bs[0] == "302-720-29100-9567049"
    assert data.gain_db[:3].tolist() == [-89.0, -93.0, -106.0]
    assert reading.time_range == ("2021-01-09T16:32:12Z", "2021-01-09T16:47:13Z")
    data.save(tmp_path / "links.parquet")
    assert len(vm.Measurements.load(tmp_path / "links.parquet").station_errors) == 16
