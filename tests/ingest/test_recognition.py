"""Files of no known exporter: usual names, ids of several columns, times, all problems at once."""

import numpy as np
import pyarrow as pa
import pytest

import logs
from refusals import refused
from tablefiles import links, walk, write, write_stations
from veilmap.errors import ConfigurationError, DataError
from veilmap.ingest import Options, check, parsing, read, read_measurements, usual
from veilmap.ingest.problems import TableError


def doubts(reading):
    return " ".join(check(reading).doubts)


def test_usual_names_need_no_option(tmp_path):
    table = walk()
    named = {"Timestamp": table["time"], "Lat": table["latitude"], "LON": table["longitude"],
             "RSRP (dBm)": table["rsrp"], "User ID": np.arange(40) // 20,
             "Site": table["cell"]}  # fmt: skip
    stations = tmp_path / "sites.csv"
    stations.write_text(
        "Site ID;Latitude;Longitude;Height [m];Azimuth\nnorth;48,141;11,575;30;10\n"
        "south;48,131;11,58;30;20\n"
    )
    reading = read_measurements(write(tmp_path / "walk.csv", named), stations=stations)
    data = reading.measurements
    np.testing.assert_array_equal(data.gain_db, table["rsrp"])
    assert data.bs.tolist() == table["cell"].tolist()
    assert data.user.tolist() == named["User ID"].tolist()
    assert data.antennas.stations == ("north", "south")
    assert reading.options.quantity == "rsrp"
    np.testing.assert_array_equal(reading.time, table["time"])
    plain = read_measurements(
        write(tmp_path / "plain.csv", table), columns={"gain": "rsrp", "bs": "cell"},
        stations=write_stations(tmp_path / "stations.csv"), split_gap=60,
    ).measurements  # fmt: skip
    np.testing.assert_array_equal(plain.user_xyz, data.user_xyz)
    np.testing.assert_allclose(plain.bs_xyz, data.bs_xyz)


def test_own_names_come_before_usual_ones(tmp_path):
    table = links() | {"lat": np.full(40, 48.0), "lon": np.full(40, 11.0), "rsrp": np.zeros(40)}
    data = read_measurements(write(tmp_path / "links.csv", table)).measurements
    np.testing.assert_array_equal(data.gain_db, table["gain"])
    np.testing.assert_array_equal(data.user_xyz[:, 0], table["user_x"])
    assert data.crs is None


def test_ids_of_several_columns(tmp_path):
    table = links() | {"mcc": ["262"] * 40, "net": ["02", "2"] * 20}
    table["cell"] = table.pop("bs")
    path = write(tmp_path / "links.csv", table)
    data = read_measurements(path, columns={"bs": "mcc+net+cell"}).measurements
    assert data.bs.tolist() == [f"262-2-{one}" for one in table["cell"]]
    with refused(ConfigurationError, "'mnc'", parameter="columns"):
        read_measurements(path, columns={"bs": "mcc+mnc+cell"})
    with refused(ConfigurationError, "gain", parameter="columns"):
        read_measurements(path, columns={"gain": "gain+mcc"})
    # A column whose name has a + is one column.
    table["a+b"] = table["cell"]
    data = read_measurements(write(path, table), columns={"bs": "a+b"}).measurements
    assert data.bs.tolist() == table["cell"].tolist()


def test_cells_of_several_bands_and_operators_are_kept_apart(tmp_path):
    table = links()
    table["PCI"] = table.pop("bs")
    table["EARFCN"] = np.where(np.arange(40) % 4 < 2, 1300, 6300)
    table["mcc"], table["mnc"] = np.full(40, 262), np.where(np.arange(40) < 20, 1, 2)
    path = write(tmp_path / "links.csv", table)
    reading = read_measurements(path)
    assert len(reading.measurements.stations[1]) == 8
    assert reading.measurements.bs[0] == "262-1-1300-0"
    assert doubts(reading) == ""
    mixed = read_measurements(path, columns={"bs": "PCI"})
    assert len(mixed.measurements.stations[1]) == 2
    assert {*mixed.mixed} == {"EARFCN", "mnc"}
    assert "bs=PCI+EARFCN" in doubts(mixed)
    apart = read_measurements(path, columns={"bs": "PCI+EARFCN+mnc"})
    assert len(apart.measurements.stations[1]) == 8
    assert doubts(apart) == ""


@pytest.mark.parametrize("name", ["Tower Collector", "NetMonitor"])
def test_one_person_at_two_places_at_once_is_a_doubt(tmp_path, name):
    way = logs.drive(60)
    path, _ = logs.write(tmp_path, name, way)
    assert "two places" not in doubts(read_measurements(path))
    elsewhere = logs.Drive(way.latitude + 0.02, way.longitude, way.cell, way.dbm, way.seconds)
    other, _ = logs.write(tmp_path, name, elsewhere)
    first, second = logs.FORMATS[name][1](way)[0], other.read_bytes().split(b"\n", 1)[1]
    path.write_bytes(first + second)
    reading = read_measurements(path)
    assert len(reading.measurements.users) == 1
    assert "1 of 1 users are at two places at once" in doubts(reading)


def test_two_people_by_name_are_at_two_places(tmp_path):
    way = logs.drive(60)
    north = logs.Drive(way.latitude + 0.02, way.longitude, way.cell, way.dbm, way.seconds)
    table = {"user": ["a"] * 60 + ["b"] * 60, "time": [*way.seconds, *north.seconds],
             "lat": [*way.latitude, *north.latitude], "lon": [*way.longitude, *north.longitude],
             "rsrp": [*way.dbm, *north.dbm], "cell": [*way.cell, *north.cell]}  # fmt: skip
    reading = read_measurements(write(tmp_path / "two.csv", table), estimate_stations=True)
    assert len(reading.measurements.users) == 2
    assert "two places" not in doubts(reading)


MOMENT = 1_511_345_223.0  # 2017-11-22 10:07:03 UTC


@pytest.mark.parametrize(
    ("text", "seconds", "note"),
    [
        ("2017-11-22T10:07:03Z", MOMENT, ""),
        ("2017-11-22 10:07:03.25", MOMENT + 0.25, ""),
        ("2017-11-22 10:07", MOMENT - 3, ""),
        ("2017-11-22T12:07:03+02:00", MOMENT, ""),
        ("2017.11.22_10.07.03", MOMENT, "YYYY.MM.DD_hh.mm.ss"),
        ("20171122100703", MOMENT, "YYYYMMDDhhmmss"),
        ("22.11.2017 10:07:03", MOMENT, "day.month.year"),
        ("22/11/2017 10:07:03", MOMENT, "day/month/year"),
        ("11/22/2017 10:07:03", MOMENT, "month/day/year"),
        ("2017/11/22 10:07:03", MOMENT, "year/month/day"),
    ],
)
def test_times_are_found_out_and_said(text, seconds, note):
    column = pa.chunked_array([["", text, "soon", text]])
    (values, empty, unreadable), said = parsing.times(column)
    np.testing.assert_array_equal(values, [np.nan, seconds, np.nan, seconds])
    assert empty.tolist() == [True, False, False, False]
    assert unreadable.tolist() == [False, False, True, False]
    assert said.endswith(note)
    assert bool(said) == bool(note)


def test_compact_times_may_be_numbers():
    (values, *_), said = parsing.times(pa.chunked_array([[20171122100703, None]]))
    assert values[0] == MOMENT
    assert np.isnan(values[1])
    assert "YYYYMMDDhhmmss" in said


def test_dates_that_may_be_either_are_asked_about(tmp_path):
    table = links() | {"time": ["01/02/2026 10:00:00"] * 40}
    path = write(tmp_path / "links.csv", table)
    with refused(ConfigurationError, "01/02/2026 10:00:00", parameter="dates") as caught:
        read_measurements(path)
    assert caught.value.remedy.change == {"dates": "day-first"}
    first, second = (read_measurements(path, dates=order).time_range[0] for order in
                     ("day-first", "month-first"))  # fmt: skip
    assert (first, second) == ("2026-02-01T10:00:00Z", "2026-01-02T10:00:00Z")


def test_times_that_nobody_needs_may_be_anything(tmp_path):
    table = links() | {"timestamp": ["early"] * 40}
    path = write(tmp_path / "links.csv", table)
    reading = read_measurements(path)
    assert reading.time is None
    assert any("timestamp" in note for note in reading.notes)
    with refused(DataError, "timestamp"):
        read_measurements(path, split_gap=60)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252", "latin-1"])
def test_encodings_are_found_out_and_said(tmp_path, encoding):
    table = links()
    table["bs"] = np.array(["Süd", "Größe"])[table["bs"]]
    path = write(tmp_path / "links.csv", table)
    path.write_bytes(path.read_text().encode(encoding))
    reading = read_measurements(path)
    assert set(reading.measurements.bs) == {"Süd", "Größe"}
    said = [note for note in reading.notes if note.startswith("text is read as")]
    assert bool(said) == (not encoding.startswith("utf-8"))


def broken(tmp_path):
    """A table with five problems, of which none hides behind the options of another."""
    path = tmp_path / "measured.csv"
    rng = np.random.default_rng(0)
    lines = ["lat,Latitude,lon,rsrp,cell_id,timestamp"]
    for row in range(40):
        lat, lon = 48.1 + rng.uniform(0, 0.01), 11.5 + rng.uniform(0, 0.01)
        lines.append(
            f"{lat:.6f},{lat:.6f},{lon:.6f},{-80 - row % 20},{row % 2},01/02/2026 10:{row:02}"
        )
    lines[5] = lines[5].replace(",-8", ",x", 1)
    path.write_text("\n".join(lines))
    return path


def test_all_problems_are_one_report_with_options_that_were_tried(tmp_path):
    path = broken(tmp_path)
    with refused(DataError, path, "'lat' and 'Latitude'", "who measured", "dates", "base stations",
                 "1 of 40", "line 6") as caught:  # fmt: skip
        read_measurements(path)
    error = caught.value
    assert isinstance(error, TableError)
    assert len(error.problems) == 5
    assert error.remedy.change == {
        "columns": {"latitude": "lat"}, "user_per": "file", "estimate_stations": True,
        "dates": "day-first", "on_bad": "drop",
    }  # fmt: skip
    assert len(read(path, error.remedy.options).measurements) == 39


def test_a_problem_that_no_option_solves_ends_the_report(tmp_path):
    path = tmp_path / "measured.csv"
    path.write_text("lat,Lat,lon,power\n48,48,11,-80\n")
    with refused(DataError, "'lat' and 'Lat'", "'gain'") as caught:
        read_measurements(path)
    assert caught.value.remedy is None
    assert len(caught.value.problems) == 2


def test_one_problem_keeps_its_own_error(tmp_path):
    table = {name: column for name, column in links().items() if name != "user"}
    with refused(ConfigurationError, "user", parameter="columns") as caught:
        read_measurements(write(tmp_path / "links.csv", table))
    assert caught.value.remedy.change == {"user_per": "file"}


def test_options_that_exclude_each_other():
    with refused(ConfigurationError, parameter="estimate_stations"):
        Options(stations="sites.csv", estimate_stations=True)
    with refused(ConfigurationError, parameter="stations"):
        Options(station_columns={"bs": "id"})
    with refused(ConfigurationError, parameter="dates"):
        Options(dates="year-first")


def test_usual_names_are_simplified_before_they_are_compared():
    for name in ("Lat", "LAT", "GPS_Lat", "Latitude (deg)", " latitude [°] "):
        assert usual.of_readings([name, "lon"])["latitude"] == name
    assert usual.of_readings(["lat"]) == {}  # half a position is none
    assert usual.of_readings(["lon"], {"latitude": "north"}) == {"longitude": "lon"}
    assert usual.of_readings(["lat", "lon", "x", "y"]) == {"latitude": "lat", "longitude": "lon"}
    assert usual.of_readings(["lat", "lon", "y"], {"user_x": "east"}) == {"user_y": "y"}
    assert usual.quantity("SS-RSRP (dBm)") == "rsrp"
    assert usual.quantity("Path loss") == "path-loss"
    assert usual.quantity("loudness") == "gain"
