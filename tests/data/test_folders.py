"""Crowds in folders, against the same measurements as one table."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flat
import veilmap as vm
from refusals import refused
from veilmap.data import table_files
from veilmap.data.folders import (
    MeasurementFolder,
    open_crowd,
    parts_of,
    save_parts,
    without_antennas,
)
from veilmap.errors import ConfigurationError, DataError
from veilmap.federation.config import Fingerprint

FIELDS = ("offsets", "user_xyz", "bs_xyz", "gain_db", "bs", "device")


@pytest.fixture(scope="module")
def scene():
    return vm.Scene.synthetic(1, size=90.0, buildings=3, base_stations=8)


@pytest.fixture(scope="module")
def table(scene):
    return scene.measure(users=23, links_per_user=6, seed=4)


@pytest.fixture
def folder(table, tmp_path):
    list(save_parts(parts_of(table, 5), tmp_path / "crowd"))
    return tmp_path / "crowd"


def assert_same_blocks(one, other, size):
    pairs = list(zip(one.blocks(size), other.blocks(size), strict=True))
    for left, right in pairs:
        for name in FIELDS:
            np.testing.assert_array_equal(getattr(left, name), getattr(right, name))
    assert sum(left.users for left, _ in pairs) == len(one.users)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(1, 12), st.booleans())
def test_blocks_are_those_of_the_table_however_it_is_parted(
    tmp_path_factory, seed, per_file, size, named
):
    rng = np.random.default_rng(seed)
    rows = int(rng.integers(1, 60))
    numbers = rng.integers(0, 20, rows)
    users = np.array([f"user {n:02d}" for n in numbers]) if named else numbers
    ends = rng.uniform(0, 50, (2, rows, 3))
    data = vm.Measurements(users, *ends, rng.normal(-80, 5, rows), rng.integers(0, 4, rows))
    path = tmp_path_factory.mktemp("crowd")
    list(save_parts(parts_of(data, per_file), path))
    crowd = MeasurementFolder(path)
    assert_same_blocks(data, crowd, size)
    np.testing.assert_array_equal(crowd.users, data.users)
    np.testing.assert_array_equal(crowd.corners, data.corners)
    np.testing.assert_array_equal(crowd.stations[0], data.stations[0])
    assert crowd.stations[1] == data.stations[1]
    assert len(crowd) == len(data)
    assert Fingerprint.of(crowd) == Fingerprint.of(data)
    np.testing.assert_array_equal(crowd.mean_positions(), data.mean_positions())


@pytest.mark.parametrize(
    "mechanism",
    [
        vm.NoNoise(),
        vm.AggregateGaussian(epsilon=1e4, delta=1e-3, clip=0.3),
        vm.GeometryAligned(noise_budget=5),
    ],
)
def test_training_reads_a_folder_as_it_reads_the_table(scene, table, folder, mechanism):
    crowd = open_crowd(folder)
    settings = {"mechanism": mechanism, "rounds": 3, "seed": 2}
    one, other = (flat.train(data, scene.grid, **settings) for data in (table, crowd))
    np.testing.assert_array_equal(one.radio_map.heights, other.radio_map.heights)
    np.testing.assert_array_equal(one.radio_map.theta, other.radio_map.theta)
    assert [row.loss for row in one.history] == [row.loss for row in other.history]


def test_a_folder_can_be_audited(scene, table, folder):
    run = vm.train(
        open_crowd(folder),
        scene.grid,
        rounds=2,
        seed=0,
        server_sees="sums",
        recording=vm.Recording(keep_uploads=[0, 1]),
    )
    from_folder, from_table = vm.audit(run, open_crowd(folder)), vm.audit(run, table)
    assert from_folder.scores == from_table.scores


def test_a_folder_loads_as_the_table(table, folder):
    whole = MeasurementFolder(folder).load()
    assert_same_blocks(table, whole, 7)


def test_only_one_file_is_read_at_a_time(folder, monkeypatch):
    crowd, read = MeasurementFolder(folder), []
    real = table_files.read_parquet
    monkeypatch.setattr(
        table_files, "read_parquet", lambda file, names: read.append(file) or real(file, names)
    )
    blocks = crowd.blocks(5)
    next(blocks)
    assert len(read) == 1
    list(blocks)
    assert len(read) == 5


def test_parts_have_seeds_of_their_own(scene):
    options = {"seed": 3, "users_per_part": 4, "links_per_user": 5}
    whole = list(scene.measure_in_parts(10, **options))
    assert [part.users.tolist() for part in whole] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    later = list(scene.measure_in_parts(10, first_part=2, **options))
    np.testing.assert_array_equal(later[0].gain_db, whole[2].gain_db)
    assert not np.array_equal(whole[0].user_xyz, whole[1].user_xyz)


def test_bad_folders_are_refused(table, folder, tmp_path):
    with refused(DataError, tmp_path / "nothing"):
        MeasurementFolder(tmp_path / "nothing")
    (folder / "part-000002.parquet").rename(folder / "part-100000.parquet")
    with refused(DataError, "part-100000.parquet", "user 10", 22):
        MeasurementFolder(folder)


def test_files_that_do_not_belong_together_are_refused(table, folder):
    other = vm.Measurements(
        table.user + 100, table.user_xyz, table.bs_xyz, table.gain_db, table.bs, crs="EPSG:32633"
    )
    other.save(folder / "part-000009.parquet")
    with refused(DataError, "part-000009.parquet", "coordinate system"):
        MeasurementFolder(folder)


def test_a_damaged_file_is_named(folder):
    (folder / "part-000001.parquet").write_bytes(b"nonsense")
    with refused(DataError, "part-000001.parquet"):
        MeasurementFolder(folder)


def test_flower_wants_one_table(scene, folder):
    with refused(ConfigurationError, "Flower"):
        vm.train(open_crowd(folder), scene.grid, rounds=1, engine=vm.flower.Simulation())


def test_antennas_can_be_left_out(table, folder):
    assert without_antennas(MeasurementFolder(folder)).antennas is None
    assert without_antennas(table).antennas is None
