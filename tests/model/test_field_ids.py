"""Base stations on one mast: each has its own field, found by its id."""

from dataclasses import replace

import numpy as np
import pytest

import veilmap as vm
from refusals import refused
from veilmap.errors import ConfigurationError, RunFolderError
from veilmap.federation.config import Fingerprint
from veilmap.model.field import Field
from veilmap.model.radio_map import log_distance

GRID = vm.Grid(20.0, (4, 5), (-10.0, 30.0))
MAST, OTHER = [0.0, 40.0, 30.0], [55.0, 90.0, 25.0]
STATIONS = np.array([MAST, OTHER, MAST, MAST])
IDS = ("north", "far", "south", "west")


@pytest.fixture
def field():
    return Field(GRID, STATIONS, np.random.default_rng(0).normal(size=(4, 4, 5)), IDS)


@pytest.fixture
def users():
    return np.random.default_rng(1).uniform([-30, 10, 1], [110, 130, 2], (25, 3))


def alone(field, number):
    """The field of one station only, known by its place."""
    return Field(field.grid, field.stations[[number]], field.values[[number]])


def test_stations_on_one_mast_have_fields_of_their_own(field, users):
    for number, name in enumerate(IDS):
        mast = STATIONS[number]
        np.testing.assert_allclose(
            field.at(users, mast, np.full(25, name)), alone(field, number).at(users, mast)
        )
    mixed = np.array(IDS)[np.arange(25) % 4]
    expected = [alone(field, row % 4).at(users[row], STATIONS[row % 4])[0] for row in range(25)]
    np.testing.assert_allclose(field.at(users, STATIONS[np.arange(25) % 4], mixed), expected)


def test_without_ids_a_mast_has_the_mean_of_its_fields(field, users):
    on_mast = [alone(field, number).at(users, MAST) for number in (0, 2, 3)]
    np.testing.assert_allclose(field.at(users, MAST), np.mean(on_mast, axis=0))
    np.testing.assert_allclose(field.at(users, OTHER), alone(field, 1).at(users, OTHER))
    assert (field.at(users, [1.0, 2.0, 3.0]) == 0).all()
    assert len(field.by_place.stations) == 2
    assert field.by_place.ids == ()


def test_unknown_ids_and_ids_at_another_place_have_no_field(field, users):
    for name, mast in (("east", MAST), ("north", OTHER), ("far", MAST)):
        assert (field.at(users, mast, np.full(25, name)) == 0).all()
    _, shares = field.shares(users, MAST, np.full(25, "east"))
    assert (shares == 0).all()


def test_ids_are_compared_as_text(users):
    values = np.random.default_rng(2).normal(size=(3, 4, 5))
    numbered = Field(GRID, np.array([MAST] * 3), values, (10, 9, 2))
    for number, name in enumerate((10, 9, 2)):
        expected = alone(numbered, number).at(users, MAST)
        for ids in (np.full(25, name), np.full(25, str(name))):
            np.testing.assert_allclose(numbered.at(users, MAST, ids), expected)


def test_a_field_without_ids_goes_by_place(field, users):
    plain = Field(GRID, STATIONS[:2], field.values[:2])
    np.testing.assert_array_equal(
        plain.at(users, MAST, np.full(25, "whoever")), plain.at(users, MAST)
    )


def test_there_are_as_many_ids_as_stations():
    with refused(ConfigurationError, "4 base stations", "2 ids"):
        Field(GRID, STATIONS, ids=("a", "b"))


@pytest.mark.parametrize("ids", [IDS, (4, 1, 3, 2), ()])
def test_ids_survive_files_and_messages(field, tmp_path, ids):
    ground = vm.Grid(10.0, (8, 10), (-10.0, 30.0))
    radio_map = vm.RadioMap(ground, np.full(80, -5.0), field=replace(field, ids=ids))
    radio_map.save(tmp_path / "map.nc")
    again = vm.RadioMap.from_arrays(ground, radio_map.as_arrays())
    for copy in (again, vm.RadioMap.load(tmp_path / "map.nc")):
        assert copy.field.ids == ids
        np.testing.assert_array_equal(copy.field.stations, STATIONS)
        np.testing.assert_array_equal(copy.field.values, field.values)


def two_receivers(seed=0, links=1200):
    """Two receivers on one mast: the first hears the west 8 dB better, the second the east."""
    rng = np.random.default_rng(seed)
    user_xyz = rng.uniform([-10, 30, 1.5], [90, 110, 1.5], (links, 3))
    bs = np.array(["first", "second"])[rng.integers(0, 2, links)]
    east = np.where(user_xyz[:, 0] > 40, 4.0, -4.0)
    law = -30.0 - 22.0 * log_distance(user_xyz, MAST)
    gain = law + np.where(bs == "first", -east, east) + rng.normal(0, 1, links)
    return vm.Measurements(np.arange(links) % 60, user_xyz, np.tile(MAST, (links, 1)), gain, bs=bs)


def test_a_run_learns_a_field_for_each_receiver_on_a_mast():
    data, unseen = two_receivers(), two_receivers(1)
    run = vm.train(
        data,
        vm.Grid(10.0, (8, 10), (-10.0, 30.0)),
        rounds=40,
        seed=0,
        server_sees="sums",
        mechanism=vm.NoNoise(clip=1e9),
        model=vm.Model(residual=20.0),
    )
    found = run.radio_map.field
    assert sorted(found.ids) == ["first", "second"]
    np.testing.assert_array_equal(found.stations, [MAST, MAST])
    ends = [[10, 70, 1.5], [70, 70, 1.5]]
    first, second = (found.at(ends, MAST, np.full(2, name)) for name in ("first", "second"))
    west, east = second - first
    assert west < -4  # they are 8 dB apart; stiffness takes some of it
    assert east > 4
    # Whoever does not know the receiver misses by 4 dB.
    without = run.radio_map.predict(unseen.user_xyz, unseen.bs_xyz)
    assert np.abs(without - unseen.gain_db).mean() > 3.5
    assert vm.baselines.mean_absolute_error(run.radio_map, unseen) < 2.5


def test_stations_are_told_apart_by_place_and_id():
    data = vm.Measurements(
        np.arange(6),
        np.random.default_rng(0).uniform(0, 9, (6, 3)),
        np.array([MAST, MAST, OTHER, MAST, OTHER, MAST]),
        np.full(6, -80.0),
        bs=np.array(["b", "a", "b", "b", "b", "a"]),
    )
    masts, ids = data.stations
    assert sorted(zip(map(tuple, masts.tolist()), ids, strict=True)) == [
        ((0.0, 40.0, 30.0), "a"),
        ((0.0, 40.0, 30.0), "b"),
        ((55.0, 90.0, 25.0), "b"),
    ]


def test_the_fingerprint_tells_ids_of_stations_and_devices(tmp_path):
    data = two_receivers(links=40)
    other_bs = replace(data, bs=np.where(np.arange(40) == 7, "third", data.bs))
    swapped = replace(data, bs=np.where(data.bs == "first", "second", "first"))
    other_device = replace(data, device=np.arange(40) % 2)
    renamed = replace(other_device, device=np.arange(40) % 2 + 1)
    all_of_them = [data, other_bs, swapped, other_device, renamed]
    assert len({Fingerprint.of(one).sha256 for one in all_of_them}) == 5
    assert Fingerprint.of(replace(data)) == Fingerprint.of(data)
    data.save(tmp_path / "links.csv")
    assert Fingerprint.of(vm.Measurements.load(tmp_path / "links.csv")) == Fingerprint.of(data)


def test_a_run_is_not_resumed_with_other_receivers(tmp_path):
    data, grid = two_receivers(links=60), vm.Grid(20.0, (4, 5), (-10.0, 30.0))
    vm.train(data, grid, rounds=2, seed=0, recording=vm.Recording(out=tmp_path))
    swapped = replace(data, bs=np.where(data.bs == "first", "second", "first"))
    with refused(RunFolderError, tmp_path, "data.sha256"):
        vm.train(swapped, grid, rounds=2, seed=0, recording=vm.Recording(out=tmp_path, resume=True))
