import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import veilmap as vm
from refusals import refused
from veilmap.data.folders import parts_of
from veilmap.data.measurements import BadRowsError
from veilmap.errors import ConfigurationError, DataError


def columns(rows=6):
    rng = np.random.default_rng(0)
    return {
        "user": np.array([2, 0, 2, 1, 0, 2])[:rows],
        "user_xyz": rng.uniform(0, 100, (rows, 3)),
        "bs_xyz": np.array([[5.0, 5.0, 30.0], [9.0, 5.0, 30.0]])[np.arange(rows) % 2],
        "gain_db": rng.normal(-80, 5, rows),
    }


def test_links_are_grouped_by_user_in_order():
    data = vm.Measurements(**columns())
    links = data.links
    assert data.users.tolist() == [0, 1, 2]
    assert links.counts.tolist() == [2, 1, 3]
    np.testing.assert_array_equal(links.gain_db, data.gain_db[[1, 4, 3, 0, 2, 5]])
    np.testing.assert_array_equal(links.user_xyz, data.user_xyz[[1, 4, 3, 0, 2, 5]])


def test_station_ids_come_from_positions_when_not_given():
    assert vm.Measurements(**columns()).bs.tolist() == [0, 1, 0, 1, 0, 1]


def test_user_ids_may_be_text():
    data = vm.Measurements(**columns() | {"user": list("baabcb")})
    assert data.users.tolist() == ["a", "b", "c"]
    assert len(data.of_user("b")) == 3
    with refused(DataError, "user 'z'"):
        data.of_user("z")


def test_mean_positions_average_a_users_places():
    data = vm.Measurements(**columns())
    expected = [data.user_xyz[data.user == user, :2].mean(axis=0) for user in data.users]
    np.testing.assert_allclose(data.mean_positions(), expected)


@pytest.mark.parametrize(
    ("column", "value", "named"),
    [
        ("gain_db", np.nan, "gain_db"),
        ("gain_db", np.inf, "gain_db"),
        ("gain_db", 4000.0, "-400 … 60 dB"),
        ("user_xyz", np.nan, "position"),
        ("bs_xyz", 1e9, "1e+08 m"),
        ("user", np.nan, "id"),
    ],
)
def test_bad_rows_are_named_and_refused_or_dropped(column, value, named):
    table = columns()
    table[column] = table[column].astype(float)
    table[column][3] = value
    with refused(BadRowsError, "1 of 6", named, "row 3"):
        vm.Measurements(**table)
    data = vm.Measurements(**table, on_bad="drop")
    assert len(data) == 5
    (problem,) = data.dropped
    assert named in problem.reason
    assert problem.rows.tolist() == [3]


def test_a_height_beyond_the_atmosphere_is_refused():
    table = columns()
    table["user_xyz"][2, 2] = 2e5
    with refused(BadRowsError, "height", "row 2"):
        vm.Measurements(**table)


def test_duplicates_are_rows_equal_in_every_column():
    table = {name: np.concatenate([values, values[[1, 1]]]) for name, values in columns().items()}
    with refused(BadRowsError, "2 of 8", "row 6, 7"):
        vm.Measurements(**table)
    assert len(vm.Measurements(**table, on_bad="drop")) == 6
    table["gain_db"] = table["gain_db"] + np.arange(8)  # read again, heard differently
    assert len(vm.Measurements(**table)) == 8


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b"]),
            st.sampled_from([0.0, -0.0, 1.0]),
            st.sampled_from([-80.0, -90.0]),
        ),
        min_size=1,
        max_size=30,
    )
)
def test_duplicates_are_those_a_plain_search_finds(rows):
    seen, again = set(), []
    for number, row in enumerate(rows):
        again += [number] * (row in seen)
        seen.add(row)
    user, place, gain = zip(*rows, strict=True)
    data = vm.Measurements(
        user, np.outer(place, [1, 1, 1]), np.ones((len(rows), 3)), gain, on_bad="drop"
    )
    assert [number for problem in data.dropped for number in problem.rows] == again


def test_many_bad_rows_are_counted_not_listed():
    table = columns()
    table["gain_db"][:] = np.nan
    with refused(BadRowsError, "6 of 6", "row 0, 1, 2, 3, 4 and 1 more"):
        vm.Measurements(**table)
    with refused(DataError) as nothing:
        vm.Measurements(**table, on_bad="drop")
    assert not isinstance(nothing.value, BadRowsError)


def test_shapes_that_do_not_match_are_refused():
    with refused(DataError, "user_xyz", "(6, 2)"):
        vm.Measurements(**columns() | {"user_xyz": np.zeros((6, 2))})
    with refused(DataError, "user", "(5,)"):
        vm.Measurements(**columns() | {"user": np.zeros(5)})
    with refused(ConfigurationError, parameter="gain_db"):
        vm.Measurements(**columns() | {"gain_db": list("abcdef")})
    with refused(DataError, "on_bad", "'ignore'"):
        vm.Measurements(**columns(), on_bad="ignore")


def test_split_by_user_shares_no_user():
    data = vm.Scene.synthetic(0, base_stations=5).measure(users=20, links_per_user=5, seed=0)
    train, test = data.split_by_user(0.25, seed=1)
    assert not set(train.users) & set(test.users)
    assert len(test.users) == 5
    assert len(train) + len(test) == len(data)
    with refused(DataError, 0.001, "20 users"):
        data.split_by_user(0.001)


def test_split_by_place_shares_no_ground():
    data = vm.Scene.synthetic(0, base_stations=5).measure(users=60, links_per_user=5, seed=0)
    train, test = data.split_by_place(0.3, block=40.0, seed=1)
    squares = [set(map(tuple, (part.user_xyz[:, :2] // 40).astype(int))) for part in (train, test)]
    assert not squares[0] & squares[1]
    assert len(train) + len(test) == len(data)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_files_bring_every_value_back(tmp_path, ending):
    data = vm.Measurements(**columns(), bs=["b0", "b1", "b0", "b1", "b0", "b1"])
    path = tmp_path / f"links.{ending}"
    data.save(path)
    loaded = vm.Measurements.load(path)
    for name in ("user", "user_xyz", "bs", "bs_xyz", "gain_db"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(data, name))


HEADER = "user,user_x,user_y,user_z,bs_x,bs_y,bs_z,gain_db\n"
GOOD = "a,1,2,1.5,10,20,50,-80.5\n"


def load_csv(tmp_path, text, **options):
    path = tmp_path / "links.csv"
    path.write_text(text)
    return vm.Measurements.load(path, **options)


def test_csv_without_station_ids_is_enough(tmp_path):
    data = load_csv(tmp_path, HEADER + GOOD + "b,1,2,1.5,11,20,50,-81\n")
    assert data.bs.tolist() == [0, 1]
    assert data.user.tolist() == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "kind", "named"),
    [
        ("", DataError, ["csv"]),
        (HEADER, DataError, []),
        (HEADER.replace("gain_db", "rsrp") + GOOD, DataError, ["gain_db", "rsrp"]),
        (HEADER + GOOD + "b,1,2,1.5,10,20,50,loud\n", DataError, ["line 3", "gain_db", "'loud'"]),
        (HEADER + GOOD + "b,1,2,1.5,10,20,50,\n", BadRowsError, ["gain_db", "line 3"]),
        (HEADER + GOOD + GOOD, BadRowsError, ["1 of 2", "line 3"]),
        (HEADER + GOOD + "b,1,2\n", DataError, ["csv"]),
    ],
)
def test_broken_csv_files_are_refused_by_line(tmp_path, text, kind, named):
    with refused(kind, "links.csv", *named):
        load_csv(tmp_path, text)


def test_dropping_bad_lines_of_a_file_says_which(tmp_path):
    data = load_csv(tmp_path, HEADER + GOOD + "b,1,2,1.5,10,20,50,\n", on_bad="drop")
    assert len(data) == 1
    assert data.dropped[0].rows.tolist() == [1]


def test_other_files_are_refused(tmp_path):
    (tmp_path / "links.txt").write_text("hello")
    with refused(DataError, "links.txt", ".csv", ".parquet"):
        vm.Measurements.load(tmp_path / "links.txt")
    (tmp_path / "links.parquet").write_bytes(b"not parquet")
    with refused(DataError, "links.parquet"):
        vm.Measurements.load(tmp_path / "links.parquet")
    with refused(DataError, "none.csv"):
        vm.Measurements.load(tmp_path / "none.csv")


def test_devices_and_the_coordinate_system_survive_files_and_selections(tmp_path):
    kinds = np.array(["phone", "modem", "phone", "phone"])
    table = vm.Measurements(
        user=[1, 1, 2, 2], user_xyz=np.arange(12.0).reshape(4, 3), bs_xyz=np.ones((4, 3)),
        gain_db=[-70.0, -71, -72, -73], device=kinds, crs="EPSG:32633",
    )  # fmt: skip
    table.save(tmp_path / "links.parquet")
    again = vm.Measurements.load(tmp_path / "links.parquet")
    assert again.crs == "EPSG:32633"
    np.testing.assert_array_equal(again.device, kinds)
    part = again.select([1, 2])
    assert (part.crs, part.device.tolist()) == ("EPSG:32633", ["modem", "phone"])
    table.save(tmp_path / "links.csv")  # no place for the coordinate system there
    np.testing.assert_array_equal(vm.Measurements.load(tmp_path / "links.csv").device, kinds)


def test_errors_of_estimated_positions_stay_with_their_rows(tmp_path):
    place = np.arange(12.0).reshape(4, 3)
    error = np.array([200.0, np.nan, 200.0, np.nan])
    data = vm.Measurements(
        [1, 1, 2, 3], place, np.zeros((4, 3)), [-80.0, np.nan, -82, -83], bs=["a", "b", "a", "b"],
        bs_error_m=error, on_bad="drop",
    )  # fmt: skip
    np.testing.assert_array_equal(data.bs_error_m, [200.0, 200.0, np.nan])
    assert data.station_errors == {"a": 200.0}
    assert data.select([2]).station_errors == {}
    assert data.select(data.bs == "a").station_errors == {"a": 200.0}
    for ending in ("csv", "parquet"):
        data.save(tmp_path / f"links.{ending}")
        again = vm.Measurements.load(tmp_path / f"links.{ending}")
        np.testing.assert_array_equal(again.bs_error_m, data.bs_error_m)
    for number, part in enumerate(parts_of(data, 1)):
        part.save(tmp_path / f"part-{number}.parquet")
    (tmp_path / "links.parquet").unlink()
    folder = vm.MeasurementFolder(tmp_path)
    assert folder.station_errors == {"a": 200.0}
    np.testing.assert_array_equal(folder.load().bs_error_m, data.bs_error_m)


@pytest.mark.parametrize("error", [[1.0], [-1.0, 2.0], [np.inf, 2.0]])
def test_errors_that_are_none_are_refused(error):
    with refused(DataError, "bs_error_m"):
        vm.Measurements([1, 1], np.ones((2, 3)), np.zeros((2, 3)), [-80.0, -81], bs_error_m=error)
