import math
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import veilmap as vm
from refusals import refused
from tablefiles import CITY, STATIONS, links, walk, write, write_points, write_stations
from veilmap.data.measurements import BadRowsError
from veilmap.errors import ConfigurationError, DataError, MissingExtraError
from veilmap.ingest import check, read_measurements, read_stations

WALK = {"gain": "rsrp", "bs": "cell"}


def read_walk(tmp_path, columns=None, **options):
    stations = write_stations(tmp_path / "stations.csv")
    path = write(tmp_path / "walk.csv", walk() if columns is None else columns)
    settings = {"columns": WALK, "quantity": "rsrp", "stations": stations, "split_gap": 60}
    return read_measurements(path, **settings | options)


def left_out(reading):
    return {one.reason: one.rows.tolist() for one in reading.left_out}


def assert_all_accounted(reading):
    out = sum(len(one.rows) for one in reading.left_out)
    assert reading.rows == len(reading.measurements) + out


def assert_read_or_refused(path):
    """All rows accounted for, or one line that says why not."""
    complaint = ""
    try:
        assert_all_accounted(read_measurements(path, on_bad="drop"))
    except vm.VeilmapError as error:
        complaint = str(error)
    assert "\n" not in complaint


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_table_with_our_names_needs_no_options(tmp_path, ending):
    table = links()
    reading = read_measurements(write(tmp_path / f"links.{ending}", table))
    data = reading.measurements
    np.testing.assert_array_equal(data.user, table["user"])
    np.testing.assert_array_equal(data.bs, table["bs"])
    np.testing.assert_array_equal(data.gain_db, table["gain"])
    np.testing.assert_array_equal(data.bs_xyz[:, 2], table["bs_z"])
    assert data.crs is None
    assert reading.left_out == ()
    assert reading.rows == 40


def test_what_measurements_save_can_be_read(tmp_path):
    data = vm.Measurements(
        list("aabb"), np.arange(12.0).reshape(4, 3), np.zeros((4, 3)), [-80.0, -81, -82, -83],
        device=[0, 1, 0, 1], crs="EPSG:32632",
    )  # fmt: skip
    data.save(tmp_path / "links.parquet")
    again = read_measurements(tmp_path / "links.parquet").measurements
    assert again.crs == "EPSG:32632"
    for name in ("user", "user_xyz", "bs_xyz", "gain_db", "device"):
        np.testing.assert_array_equal(getattr(again, name), getattr(data, name))


def test_degrees_become_metres_of_their_utm_zone(tmp_path):
    from pyproj import Transformer

    reading = read_walk(tmp_path)
    table = walk()
    utm = Transformer.from_crs("EPSG:4326", "EPSG:32632", always_xy=True)
    x, y = utm.transform(table["longitude"], table["latitude"])
    data = reading.measurements
    assert data.crs == "EPSG:32632"
    np.testing.assert_allclose(data.user_xyz, np.column_stack([x, y, np.full(40, 1.5)]), atol=1e-6)
    bs_x, bs_y = utm.transform(*reversed(STATIONS["south"]))
    np.testing.assert_allclose(data.bs_xyz[1], [bs_x, bs_y, 30.0], atol=1e-6)
    # A grid cell is found at its place on the ground.
    grid = vm.Grid.covering(data.user_xyz[:, :2], 5.0, margin=20.0, crs=data.crs)
    back = Transformer.from_crs(grid.crs, "EPSG:4326", always_xy=True)
    longitude, latitude = back.transform(*grid.centres[grid.cell_of(data.user_xyz[7, :2])])
    metres = np.array([longitude - table["longitude"][7], latitude - table["latitude"][7]])
    assert (np.abs(metres * [111_320 * np.cos(np.radians(CITY[0])), 111_200]) < 5.0).all()


@settings(max_examples=25)
@given(latitude=st.floats(-79, 83), longitude=st.floats(-180, 179.99))
def test_utm_zones_are_those_of_pyproj(tmp_path_factory, latitude, longitude):
    from pyproj import CRS, Transformer

    if latitude == 0 and longitude == 0:
        return
    table = {"latitude": [latitude], "longitude": [longitude], "user": [1], "gain": [-80.0],
             "bs_latitude": [latitude], "bs_longitude": [longitude]}  # fmt: skip
    path = write(tmp_path_factory.mktemp("utm") / "one.parquet", table)
    data = read_measurements(path, bs_height=20).measurements
    zone = int((longitude + 180) // 6) + 1
    utm = CRS.from_dict({"proj": "utm", "zone": zone, "south": latitude < 0})
    x, y = Transformer.from_crs("EPSG:4326", utm, always_xy=True).transform(longitude, latitude)
    np.testing.assert_allclose(data.user_xyz[0, :2], [x, y], atol=1e-3)


def test_a_named_system_is_taken_and_a_wrong_one_refused(tmp_path):
    assert read_walk(tmp_path, crs="EPSG:25832").measurements.crs == "EPSG:25832"
    with refused(ConfigurationError, parameter="crs"):
        read_walk(tmp_path, crs="EPSG:4326")
    with refused(ConfigurationError, parameter="crs"):
        read_walk(tmp_path, crs="EPSG:nonsense")
    with refused(ConfigurationError, parameter="crs"):
        read_walk(tmp_path, crs="EPSG:2263")
    path = write(tmp_path / "links.csv", links())
    assert read_measurements(path, crs="EPSG:25832").measurements.crs == "EPSG:25832"


@pytest.mark.parametrize(
    ("quantity", "sign", "offset"), [("gain", 1, 0), ("rss", 1, -23), ("path-loss", -1, 0)]
)
def test_quantities_become_gains(tmp_path, quantity, sign, offset):
    table = links()
    table["gain"] = sign * table["gain"]
    path = write(tmp_path / "links.csv", table)
    data = read_measurements(path, quantity=quantity, tx_power_dbm=23).measurements
    np.testing.assert_allclose(data.gain_db, links()["gain"] + offset)


def test_values_for_missing_are_left_out_and_counted(tmp_path):
    table = links()
    table["gain"][[3, 8]] = -101
    reading = read_measurements(write(tmp_path / "links.csv", table), missing=[-101])
    assert left_out(reading) == {"gain is -101, the missing-value sentinel": [5, 10]}
    assert_all_accounted(reading)


def test_links_longer_than_asked_for_are_left_out_and_counted(tmp_path):
    table = links()
    table["user_x"][:4], table["user_y"][:4] = (
        [100.0, 700.0, 100.0, 705.0],
        [250.0, 850.0, 251.0, 850.0],
    )
    table["bs_z"][:] = 500.0  # the ground counts, not the height of a mast
    table["gain"][3] = np.nan  # this one has another reason already
    path = write(tmp_path / "links.csv", table)
    with refused(BadRowsError, "1 of 40", "line 5"):
        read_measurements(path, max_distance=200)
    reading = read_measurements(path, max_distance=200, on_bad="drop")
    apart = np.hypot(table["user_x"] - table["bs_x"], table["user_y"] - table["bs_y"])
    assert apart[0] == 200.0  # as long as allowed
    far = 2 + np.flatnonzero((apart > 200) & np.isfinite(table["gain"]))
    assert {3, 4} <= set(far.tolist())
    said = left_out(reading)
    assert said.pop("the base station is more than 200 m away") == far.tolist()
    assert list(said.values()) == [[5]]
    assert_all_accounted(reading)
    every = read_measurements(path, on_bad="drop").measurements
    near = np.hypot(*(every.user_xyz - every.bs_xyz)[:, :2].T) <= 200
    np.testing.assert_array_equal(reading.measurements.gain_db, every.gain_db[near])


def test_the_longest_link_counts_in_metres_where_the_file_has_degrees(tmp_path):
    whole = read_walk(tmp_path)
    data = whole.measurements
    length = np.hypot(*(data.user_xyz - data.bs_xyz)[:, :2].T)
    reading = read_walk(tmp_path, max_distance=800)
    assert left_out(reading) == {
        "the base station is more than 800 m away": (2 + np.flatnonzero(length > 800)).tolist()
    }
    assert 0 < len(reading.measurements) < len(data)


def test_no_link_is_short_enough(tmp_path):
    path = write(tmp_path / "links.csv", links())
    with refused(DataError, path, "40 rows", "0.5 m"):
        read_measurements(path, max_distance=0.5)


def test_bad_rows_are_refused_with_their_lines_or_dropped(tmp_path):
    table = links()
    path = write(tmp_path / "links.csv", table)
    lines = path.read_text().splitlines()
    lines[3] = lines[3].rpartition(",")[0] + ",loud"
    lines[5] = lines[5].rpartition(",")[0] + ","
    lines[7] = lines[7].rpartition(",")[0]
    lines.append(lines[10])
    lines.insert(12, "")
    path.write_text("\n".join(lines))
    lines = [f"(line {number})" for number in (4, 6, 8, 13, 43)]
    with refused(BadRowsError, path, "5 of 42", "gain", *lines, parameter="on_bad"):
        read_measurements(path)
    reading = read_measurements(path, on_bad="drop")
    assert_all_accounted(reading)
    assert left_out(reading)["the same as an earlier row"] == [43]
    assert len(reading.measurements) == 37


@pytest.mark.parametrize("separator", [";", "\t"])
@pytest.mark.parametrize("decimal", [".", ","])
def test_separators_and_decimal_commas(tmp_path, separator, decimal):
    table = links()
    rows = [separator.join(table)]
    rows += [
        separator.join(str(value).replace(".", decimal) for value in row)
        for row in zip(*table.values(), strict=True)
    ]
    path = tmp_path / "links.csv"
    path.write_text("\n".join(rows), encoding="utf-8-sig")
    data = read_measurements(path).measurements
    np.testing.assert_allclose(data.gain_db, table["gain"])
    # One word among the numbers makes Arrow read a column of text.
    path.write_text("\n".join(rows).replace(rows[1].split(separator)[-1], "none at all"))
    reading = read_measurements(path, on_bad="drop")
    np.testing.assert_allclose(reading.measurements.gain_db, table["gain"][1:])


def test_ambiguous_text_is_refused(tmp_path):
    path = tmp_path / "links.csv"
    path.write_text("user;gain\n1;1,234\n2;5,678\n")
    with refused(DataError, path, "1,234"):
        read_measurements(path)
    path.write_text("user;gain\n1;1,2\n2;5.678\n")
    with refused(DataError, path, "1,2", "5.678"):
        read_measurements(path)
    path.write_text("user,x;gain\n1,5;1\n2,5;1\n")
    with refused(DataError, path, "line 1", "','", "';'"):
        read_measurements(path)


def test_latin_1_is_named_with_its_line(tmp_path):
    path = tmp_path / "links.csv"
    table = links()
    table["bs"] = np.array(["Süd", "Nord"])[table["bs"]]
    write(path, table)
    path.write_bytes(path.read_text().encode("latin-1"))
    with refused(ConfigurationError, "line 2", parameter="encoding"):
        read_measurements(path, encoding="utf-8")
    for encoding in ("latin-1", None):
        reading = read_measurements(path, encoding=encoding)
        assert set(reading.measurements.bs) == {"Süd", "Nord"}
        assert any(note.startswith("text is read as") for note in reading.notes)


def test_ids_stay_as_they_are_written(tmp_path):
    table = links(4)
    table["user"] = ["007", "7", "1e3", " 7"]
    data = read_measurements(write(tmp_path / "links.csv", table)).measurements
    assert data.user.tolist() == ["007", "7", "1e3", " 7"]
    for ids in (["007", "7", "07", "1"], ["-0", "0", "00", "1"], ["9" * 19, "1", "2", "3"]):
        path = write(tmp_path / "links.csv", table | {"user": ids})
        assert read_measurements(path).measurements.user.tolist() == ids
    table["user"] = ["007", "7", "", "x" * 300]
    reading = read_measurements(write(tmp_path / "links.csv", table), on_bad="drop")
    assert left_out(reading) == {"user is missing, or longer than any id": [4, 5]}


def test_wide_tables_are_unpivoted(tmp_path):
    track = walk(10)
    table = {name: track[name] for name in ("time", "latitude", "longitude")}
    table["north"] = np.arange(10) - 100.0
    table["south"] = np.where(np.arange(10) % 5 == 0, -101, np.arange(10) - 80.0)
    path = write(tmp_path / "wide.csv", table)
    stations = write_stations(tmp_path / "stations.csv")
    for wide in (["north", "south"], "*[oh]*th"):
        reading = read_measurements(
            path, wide=wide, stations=stations, missing=[-101], split_gap=60
        )
        data = reading.measurements
        assert reading.rows == 20
        assert len(data) == 18
        assert_all_accounted(reading)
        assert left_out(reading)["a base station's value is -101, the missing-value sentinel"] == [
            2,
            7,
        ]
        assert data.gain_db[data.bs == "north"].tolist() == table["north"].tolist()
        np.testing.assert_array_equal(data.user_xyz[data.bs == "south"][0], data.user_xyz[2])
    with refused(ConfigurationError, parameter="wide"):
        read_measurements(path, wide=["east"], stations=stations, split_gap=60)
    with refused(ConfigurationError, parameter="stations"):
        read_measurements(path, wide="*th", split_gap=60)


def test_tracks_are_split_at_gaps_whatever_their_order(tmp_path):
    table = walk(9)
    table["time"] = np.array([0, 10, 20, 200, 210, 400, 401, 402, 30]) + 1_700_000_000
    users = [0, 0, 0, 1, 1, 2, 2, 2, 0]
    assert read_walk(tmp_path, table).measurements.user.tolist() == users
    iso = np.datetime_as_string(table["time"].astype("datetime64[s]"))
    for text in (
        [f"{moment}Z" for moment in iso],
        [f"{moment}.25" for moment in iso],
        [f"{moment}+02:00".replace("T", " ") for moment in iso],
        (table["time"] * 1000).tolist(),
    ):
        reading = read_walk(tmp_path, table | {"time": text})
        assert reading.measurements.user.tolist() == users
    assert read_walk(tmp_path, table | {"time": [f"{t}+02:00" for t in iso]}).time_range == (
        "2023-11-14T20:13:20Z",
        "2023-11-14T20:20:02Z",
    )
    table["device"] = ["a", "b"] * 4 + ["a"]
    assert len(read_walk(tmp_path, table).measurements.users) == 6


def test_times_that_never_were_are_bad_rows(tmp_path):
    text = [f"2023-11-14T22:13:{second:02}" for second in range(6)]
    text[2], text[4] = "2023-13-14T22:13:02", "soon"
    with refused(BadRowsError, "time", "line 4, 6"):
        read_walk(tmp_path, walk(6) | {"time": text})
    endless = np.array([1.7e9, 1.7e9, np.inf, 1e300, 1.7e9, np.nan])
    reading = read_walk(tmp_path, walk(6) | {"time": endless}, on_bad="drop")
    assert left_out(reading) == {"time is not a time": [4, 5], "time is empty": [7]}


def test_zones_and_parts_of_seconds_count_also_among_bad_times(tmp_path):
    text = ["2023-11-14T22:13:20Z", "2023-11-15 00:13:21.5+02:00", "2023-11-14T20:43:22,25-0130",
            "2023-11-14T22:13:23", "soon", ""]  # fmt: skip
    reading = read_walk(tmp_path, walk(6) | {"time": text}, on_bad="drop")
    np.testing.assert_allclose(reading.time - 1_700_000_000, [0, 1.5, 2.25, 3])
    moments = pa.array([1_700_000_000_500] * 6, pa.timestamp("ms", tz="Europe/Berlin"))
    path = write(tmp_path / "walk.parquet", walk(6) | {"time": moments})
    stations = tmp_path / "stations.csv"
    reading = read_measurements(path, columns=WALK, stations=stations, split_gap=60)
    assert set(reading.time) == {1_700_000_000.5}


@given(st.lists(st.integers(0, 10_000), min_size=2, max_size=40), st.integers(1, 300))
def test_gaps_part_users_and_nothing_else_does(times, gap):
    from veilmap.ingest.readers import _by_gaps as by_gaps

    moments = np.array(times, dtype=float)
    users = by_gaps(moments, gap, np.zeros(len(times), dtype=np.int64))
    order = np.argsort(moments, kind="stable")
    parted = np.diff(users[order]) != 0
    np.testing.assert_array_equal(parted, np.diff(moments[order]) > gap)


def test_users_may_be_rows_or_positions(tmp_path):
    table = walk(6)
    for name in ("latitude", "longitude"):
        table[name][3] = table[name][0]
    by_row = read_walk(tmp_path, table, split_gap=None, user_per="row").measurements
    assert by_row.user.tolist() == [2, 3, 4, 5, 6, 7]
    by_place = read_walk(tmp_path, table, split_gap=None, user_per="position").measurements
    assert by_place.user.tolist() == [0, 1, 2, 0, 3, 4]  # as they come, not as they lie
    with refused(ConfigurationError, parameter="columns"):
        read_walk(tmp_path, table, split_gap=None)
    del table["time"]
    with refused(ConfigurationError, parameter="columns"):
        read_walk(tmp_path, table)


def test_stations_keep_their_antennas_and_are_checked(tmp_path):
    stations = tmp_path / "sites.csv"
    head = "cell,lat,lon,height,azimuth,beam_width\n"
    rows = "north,48.141,11.575,30,120,65\nsouth,48.131,11.580,25,,65\n"
    stations.write_text(head + rows)
    columns = WALK | {"bs_latitude": "lat", "bs_longitude": "lon", "bs_z": "height"}
    path = write(tmp_path / "walk.csv", walk())
    options = {"columns": columns, "stations": stations, "split_gap": 60}
    reading = read_measurements(path, **options)
    found = reading.stations
    assert found.bs.tolist() == ["north", "south"]
    np.testing.assert_array_equal(found.azimuth_deg, [120, np.nan])
    np.testing.assert_array_equal(found.xyz[:, 2], [30, 25])
    for text, *named in (
        (head + rows + "north,48,11,30,0,0\n", "line 4", "base station north"),
        (head + rows.replace("48.141", "high"), "line 2", "lat"),
        (head + rows.replace("48.141", ""), "line 2", "position"),
        (head + rows.replace("48.141", "148"), "line 2", "90°"),
        (head, "base station"),
    ):
        stations.write_text(text)
        with refused(DataError, stations, *named):
            read_measurements(path, **options)
    for text, *named in (
        ("name,lat,lon\na,1,2\n", "'height'", "bs_z", "name, lat, lon"),
        ("colour,lat,lon,height\na,1,2,3\n", "bs", "colour, lat, lon, height"),
    ):
        stations.write_text(text)
        with refused(ConfigurationError, stations, *named, parameter="columns"):
            read_measurements(path, **options)


def test_heights_of_stations_must_be_known(tmp_path):
    stations = write_stations(tmp_path / "flat.csv", height=None)
    with refused(ConfigurationError, parameter="bs_height"):
        read_walk(tmp_path, stations=stations)
    data = read_walk(tmp_path, stations=stations, bs_height=25, user_height=2).measurements
    assert set(data.bs_xyz[:, 2]) == {25}
    assert set(data.user_xyz[:, 2]) == {2}


def test_unknown_stations_are_bad_rows(tmp_path):
    table = walk()
    table["cell"] = table["cell"].copy()
    table["cell"][5] = "east"
    with refused(BadRowsError, "1 of 40", "base station", "line 7"):
        read_walk(tmp_path, table)


def test_geopackages_of_points(tmp_path):
    from pyproj import Transformer

    table = walk()
    points = np.column_stack([table["longitude"], table["latitude"], np.full(40, 1.7)])
    fields = {name: table[name] for name in ("time", "cell", "rsrp")}
    fields["cell"] = fields["cell"].astype(object)
    path = write_points(tmp_path / "walk.gpkg", fields, points, "EPSG:4326")
    sites = np.array([STATIONS[name][::-1] for name in STATIONS])
    x, y = Transformer.from_crs("EPSG:4326", "EPSG:25832", always_xy=True).transform(*sites.T)
    stations = write_points(
        tmp_path / "sites.gpkg",
        {"bs": np.array(list(STATIONS), dtype=object)},
        np.column_stack([x, y]),
        "EPSG:25832",
    )
    options = {"columns": WALK, "stations": stations, "bs_height": 30, "split_gap": 60}
    data = read_measurements(path, **options).measurements
    assert data.crs == "EPSG:25832"
    expected = read_walk(tmp_path, crs="EPSG:25832").measurements
    np.testing.assert_allclose(data.user_xyz[:, :2], expected.user_xyz[:, :2], atol=1e-6)
    np.testing.assert_allclose(data.bs_xyz, expected.bs_xyz, atol=1e-3)
    assert set(data.user_xyz[:, 2]) == {1.7}
    write_points(path, fields, points, "EPSG:4326", layer="again", append=True)
    with refused(ConfigurationError, parameter="layer"):
        read_measurements(path, **options)
    assert len(read_measurements(path, **options, layer="again").measurements) == 40
    with refused(ConfigurationError, parameter="layer"):
        read_measurements(path, **options, layer="other")


@pytest.mark.parametrize(
    ("columns", "named"),
    [
        ({"power": "rsrp"}, ["'power'"]),
        ({"gain": "rsrq"}, ["'rsrq'", "'rsrp'"]),
        ({"gain": "colour"}, ["time, latitude, longitude, cell, rsrp"]),
    ],
)
def test_columns_that_are_not_there_are_named(tmp_path, columns, named):
    stations = write_stations(tmp_path / "stations.csv")
    path = write(tmp_path / "walk.csv", walk())
    with refused(ConfigurationError, *named, parameter="columns"):
        read_measurements(path, columns=columns, stations=stations, split_gap=60)


def test_two_kinds_of_positions_must_be_chosen_from(tmp_path):
    table = links() | {"latitude": np.full(40, 48.0), "longitude": np.full(40, 11.0)}
    path = write(tmp_path / "links.csv", table)
    with refused(ConfigurationError, parameter="columns"):
        read_measurements(path)
    assert read_measurements(path, columns={"user_x": "user_x"}).measurements.crs is None
    with refused(ConfigurationError, parameter="crs"):
        read_measurements(path, columns={"latitude": "latitude"})


@pytest.mark.parametrize(
    ("options", "parameter"),
    [
        ({"columns": {"power": "rsrp"}}, "columns"),
        ({"quantity": "loss"}, "quantity"),
        ({"on_bad": "keep"}, "on_bad"),
        ({"split_gap": 5, "user_per": "row"}, "user_per"),
        ({"split_gap": -1}, "split_gap"),
        ({"missing": ["x"]}, "missing"),
        ({"max_distance": 0}, "max_distance"),
        ({"max_distance": np.nan}, "max_distance"),
        ({"columns": {"azimuth": "a"}}, "stations"),
        ({"wide": "site-*", "columns": {"gain": "gain_db"}}, "wide"),
    ],
)
def test_wrong_options_are_refused(tmp_path, options, parameter):
    with refused(ConfigurationError, parameter=parameter):
        read_measurements(write(tmp_path / "links.csv", links()), **options)


def test_path_loss_given_as_gain_is_recognised(tmp_path):
    table = links()
    table["gain"] = -table["gain"]
    with refused(DataError, "quantity='path-loss'"):
        read_measurements(write(tmp_path / "links.csv", table))


def doubts_of(tmp_path, changes, **options):
    path = write(tmp_path / "links.csv", links() | changes)
    return " ".join(check(read_measurements(path, **options)).doubts)


def test_good_measurements_raise_no_doubts(tmp_path):
    assert doubts_of(tmp_path, {}) == ""


@pytest.mark.parametrize(
    ("changes", "options", "doubt"),
    [
        ({"gain": np.linspace(5, 20, 40)}, {"quantity": "rss"}, "40 RSS values"),
        ({"gain": np.linspace(-50, -40, 40)}, {"quantity": "path-loss"}, "path losses"),
        ({"gain": np.full(40, -80.0)}, {}, "-80 dB"),
        ({"bs_x": np.full(40, 3e6)}, {}, "200 km"),
        ({"user_z": np.full(40, 520.0)}, {}, "sea"),
        ({"user_x": np.zeros(40), "user_y": np.zeros(40)}, {}, "one place"),
        ({"user_x": np.r_[0, links()["user_x"][1:] + 4e5], "bs_x": np.full(40, 4e5),
          "user_y": np.r_[0, links()["user_y"][1:]]}, {}, "(0, 0)"),
        ({"time": np.r_[np.arange(39) + 1.7e9, 1.6e9]}, {}, "time"),
    ],
)  # fmt: skip
def test_what_looks_wrong_is_said(tmp_path, changes, options, doubt):
    assert doubt in doubts_of(tmp_path, changes, **options)


def test_gains_given_as_path_losses_are_recognised(tmp_path):
    path = write(tmp_path / "links.csv", links() | {"gain": np.linspace(-90, -70, 40)})
    with refused(DataError, "40 rows", "quantity='gain'"):
        read_measurements(path, quantity="path-loss", on_bad="drop")


def test_two_sites_with_one_id_are_noticed(tmp_path):
    table = links(rows=80)
    far = table["bs"] * (np.arange(80) < 30) == 1  # 15 of 40 links of base station 1
    moved = {"user_x": table["user_x"] + 3000 * far}
    gain = np.where(far, -80.0, -90.0) + np.linspace(0, 1, 80)
    doubt = doubts_of(tmp_path, table | moved | {"gain": gain})
    assert "15 links of base station 1 are 2," in doubt
    assert "base station 0" not in doubt
    # Weak links across a gap are what distance does, and a few strong ones are chance.
    assert doubts_of(tmp_path, table | moved | {"gain": np.where(far, -120.0, gain)}) == ""
    few = far & (np.arange(80) < 10)
    moved = {"user_x": table["user_x"] + 3000 * few}
    assert doubts_of(tmp_path, table | moved | {"gain": gain}) == ""


def test_swapped_degrees_are_noticed(tmp_path):
    table = walk()
    swapped = table | {"latitude": table["longitude"], "longitude": table["latitude"]}
    found = check(read_walk(tmp_path, swapped, crs="EPSG:3857"))
    assert "swapped to each other" in " ".join(found.doubts)
    far = table | {"latitude": table["longitude"] - 130, "longitude": table["latitude"]}
    with refused(DataError, "40 rows", "90°", "180°"):
        read_walk(tmp_path, far)
    none = table | {
        "latitude": np.where(np.arange(40) == 4, 0, table["latitude"]),
        "longitude": np.where(np.arange(40) == 4, 0, table["longitude"]),
    }
    with refused(BadRowsError, "1 of 40", "0° north, 0° east", "line 6"):
        read_walk(tmp_path, none)


def test_positions_that_a_zone_cannot_hold_are_bad_rows(tmp_path):
    table = walk()
    table["latitude"][6], table["longitude"][6] = 0.0, 99.0
    table["latitude"][9], table["longitude"][9] = 48.0, 60.0  # far, but on the plane
    reading = read_walk(tmp_path, table, on_bad="drop")
    assert left_out(reading) == {"a position is too far off for EPSG:32632": [8]}
    assert "1 of 39 links are longer than 200 km" in " ".join(check(reading).doubts)


def test_a_check_counts_everything(tmp_path):
    table = links()
    table["gain"][4] = -300.0
    found = check(read_measurements(write(tmp_path / "links.csv", table), missing=[-300]))
    assert (found.rows, found.used, found.users, len(found.stations)) == (40, 39, 10, 2)
    assert found.left_out[0].first == (6,)
    of_first = np.flatnonzero(np.arange(40) % 2 == 0)
    of_first = of_first[of_first != 4]
    distance = np.hypot(table["user_x"] - 100, table["user_y"] - 50)[of_first]
    assert found.stations[0].rows == 19
    assert found.stations[0].farthest_m == pytest.approx(distance.max())
    assert found.stations[0].gain_median_db == pytest.approx(np.median(table["gain"][of_first]))
    assert found.gain_db[-1] == table["gain"].max()


def test_one_in_a_hundred_rows_broken(tmp_path):
    table = links(100_000)
    path = write(tmp_path / "links.csv", table)
    lines = path.read_text().split("\n")
    rng = np.random.default_rng(1)
    harm = {
        "cut": lambda line: line[: len(line) // 2],
        "word": lambda line: line.rpartition(",")[0] + ",weak",
        "none": lambda line: line.rpartition(",")[0] + ",",
        "more": lambda line: line + ",1",
    }
    for row in rng.choice(np.arange(1, 100_001), 1000, replace=False):
        lines[row] = harm[list(harm)[row % 4]](lines[row])
    path.write_text("\n".join(lines))
    reading = read_measurements(path, on_bad="drop")
    assert reading.rows == 100_000
    assert_all_accounted(reading)
    assert len(reading.measurements) == 99_000
    named = sorted(row for rows in left_out(reading).values() for row in rows)
    intact = pa.csv.read_csv(
        path, parse_options=pa.csv.ParseOptions(invalid_row_handler=lambda row: "skip")
    )
    assert len(named) == 1000
    assert intact.num_rows + sum(len(lines[n - 1].split(",")) != 9 for n in named) == 100_000
    kept = np.setdiff1d(np.arange(100_000), np.array(named) - 2)
    np.testing.assert_array_equal(reading.measurements.gain_db, table["gain"][kept])


@pytest.mark.parametrize("ending", ["csv", "parquet", "gpkg"])
@pytest.mark.parametrize("content", [b"", b"\n\n", b"\0\1\2" * 50, bytes(range(256)) * 20, b"PAR1"])
def test_rubbish_is_one_line(tmp_path, ending, content):
    path = tmp_path / f"rubbish.{ending}"
    path.write_bytes(content)
    with refused(vm.VeilmapError, path):
        read_measurements(path)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_files_cut_short(tmp_path, ending):
    path = write(tmp_path / f"links.{ending}", links())
    whole = path.read_bytes()
    for length in range(0, len(whole), 97):
        path.write_bytes(whole[:length])
        assert_read_or_refused(path)


@settings(max_examples=60)
@given(st.data())
def test_text_of_any_kind_is_read_or_refused_in_one_line(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("fuzz") / "links.csv"
    text = bytearray(write(path, links(5)).read_bytes())
    for _ in range(data.draw(st.integers(1, 6))):
        spot = data.draw(st.integers(0, len(text) - 1))
        text[spot : spot + data.draw(st.integers(0, 3))] = data.draw(
            st.sampled_from([b",", b";", b"\n", b'"', b"\r", b"\t", b"x", b"\xff", b"-", b"1e999"])
        )
    path.write_bytes(bytes(text))
    assert_read_or_refused(path)


def test_files_that_are_no_tables(tmp_path):
    (tmp_path / "folder.csv").mkdir()
    for name in ("folder.csv", "none.csv"):
        with refused(DataError, tmp_path / name):
            read_measurements(tmp_path / name)
    (tmp_path / "table.xlsx").write_text("x")
    with refused(DataError, tmp_path / "table.xlsx", ".csv", ".parquet", ".gpkg"):
        read_measurements(tmp_path / "table.xlsx")
    header = tmp_path / "header.csv"
    header.write_text(",".join(links()) + "\n")
    with refused(DataError, header, "rows"):
        read_measurements(header)
    header.write_text("user,gain,gain\n1,2,3\n")
    with refused(DataError, header, "2 columns", "'gain'"):
        read_measurements(header)


def test_parquet_columns_of_other_types(tmp_path):
    table = pa.table(links())
    odd = table.set_column(8, "gain", pa.array([[1.0]] * 40))
    pa.parquet.write_table(odd, tmp_path / "odd.parquet")
    with refused(DataError, tmp_path / "odd.parquet", "list", "gain"):
        read_measurements(tmp_path / "odd.parquet")
    text = table.set_column(0, "user", pa.array(["a", "b"] * 20).dictionary_encode())
    text = text.set_column(8, "gain", text.column("gain").cast(pa.float32()))
    pa.parquet.write_table(text, tmp_path / "text.parquet")
    assert set(read_measurements(tmp_path / "text.parquet").measurements.users) == {"a", "b"}


@pytest.mark.parametrize(("module", "ending"), [("pyproj", "csv"), ("pyogrio", "gpkg")])
def test_without_the_extra_one_line_says_what_to_install(tmp_path, monkeypatch, module, ending):
    monkeypatch.setitem(sys.modules, module, None)
    (tmp_path / "walk.gpkg").write_bytes(b"x")
    with refused(MissingExtraError, module, extra="geo"):
        if ending == "csv":
            read_walk(tmp_path)
        else:
            read_measurements(tmp_path / "walk.gpkg")


def test_stations_are_read_by_themselves(tmp_path):
    sites = tmp_path / "sites.csv"
    sites.write_text("bs,x,y,z,azimuth_deg,beam_width,level\nA,10,20,30,90,,-60\n7,40,50,25,,,\n")
    found = read_stations(sites)
    assert found.bs.tolist() == ["A", "7"]
    np.testing.assert_array_equal(found.xyz, [[10, 20, 30], [40, 50, 25]])
    np.testing.assert_array_equal(found.level_db, [-60, np.nan])
    assert found.antennas.stations == ("A",)
    assert found.antennas.azimuths == (90.0,)
    for text, *named in (
        ("bs,x,y\nA,1,2\n", "z"),
        ("bs,x,y,z\nA,1,2,3\nA,1,2,3\n", "line 3", "A"),
        ("bs,x,y,z,level\nA,1,2,3,inf\n", "line 2", "level"),
        ("bs,x,y,z,beam_width\nA,1,2,3,400\n", "line 2", "beam_width"),
    ):
        sites.write_text(text)
        with refused(DataError, sites, *named):
            read_stations(sites)


def test_stations_in_degrees_are_read_in_a_named_system(tmp_path):
    path = write_stations(tmp_path / "sites.csv")
    with refused(ConfigurationError, path, parameter="crs"):
        read_stations(path)
    xyz = read_stations(path, "EPSG:32632").xyz
    # 0.01° of latitude are 1,112 m, and 0.005° of longitude 371 m at 48° north.
    assert np.hypot(*(xyz[0] - xyz[1])[:2]) == pytest.approx(math.hypot(1112, 371), rel=2e-3)
