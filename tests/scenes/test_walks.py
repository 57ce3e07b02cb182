"""People who walk through a city: outdoors, between home and work, the same every day."""

import numpy as np
import pytest
import shapely
from shapely import box

import veilmap as vm
from refusals import refused
from veilmap.data.whereabouts import Whereabouts
from veilmap.errors import ConfigurationError
from veilmap.scenes import walks


@pytest.fixture(scope="module")
def scene():
    return vm.Scene.synthetic(3)


@pytest.fixture(scope="module")
def data(scene):
    return scene.measure_walks(users=30, places=20, links_per_place=10, seed=4)


def test_walks_stay_outdoors_and_in_the_area(scene, data):
    assert scene.grid.contains(data.user_xyz[:, :2]).all()
    x, y, _ = data.user_xyz.T
    for building in scene.buildings:
        assert not shapely.contains_xy(building.footprint, x, y).any()


def test_ways_lead_around_buildings(scene):
    for way in walks.routes(scene, 20, 1.5, np.random.default_rng(0)):
        assert len(way) > 1
        assert scene.line_of_sight(way[:-1], way[1:]).all()


def test_a_wall_is_walked_around():
    wall = vm.Building(box(28, 0, 32, 50), 20.0)
    scene = vm.Scene(vm.Grid(2.0, (30, 30)), [wall], np.array([[5.0, 55.0, 50.0]]))
    streets = walks.Streets.of(scene, np.random.default_rng(0), 1.5)
    start, end = (
        int(np.linalg.norm(streets.points[:, :2] - corner, axis=1).argmin())
        for corner in ((10, 5), (50, 5))
    )
    way = streets.way(start, end)
    np.testing.assert_array_equal(way[[0, -1]], streets.points[[start, end]])
    assert scene.line_of_sight(way[:-1], way[1:]).all()
    assert way[:, 1].max() > 50
    length = np.linalg.norm(np.diff(way, axis=0), axis=1).sum()
    around = 2 * np.hypot(18, 45) + 4  # from corner to corner of the wall, in straight lines
    # Steps in eight directions are up to 8 % longer than straight ones, between random points more.
    assert 0.95 * around < length < 1.25 * around


def test_home_has_most_links_and_work_the_next(data):
    where = Whereabouts.of(data)
    first, second = where.most_visited(0), where.most_visited(1)
    for user in data.users:
        own = data.of_user(user)
        places, counts = np.unique(own.user_xyz[:, :2], axis=0, return_counts=True)
        assert sorted(counts)[-2:] == [50, 80]
        assert set(counts) - {50, 80} <= {3, 4}
        np.testing.assert_array_equal(places[counts.argmax()], first[user])
        np.testing.assert_array_equal(places[counts == 50][0], second[user])
        np.testing.assert_array_equal(own.user_xyz[0, :2], first[user])
        pairs = np.column_stack([own.user_xyz, own.bs])
        assert len(np.unique(pairs, axis=0)) == len(own) == 200


@pytest.mark.parametrize("places", [2, 3, 4, 7, 50])
@pytest.mark.parametrize("average", [3, 10])
def test_every_place_has_links_fewest_on_the_way(places, average):
    counts = walks.links_at(places, places * average)
    assert counts.sum() == places * average
    home, work, *others = counts
    assert home > work > max(others, default=0)
    assert min(others, default=1) >= 1


def test_another_day_has_the_same_homes_and_other_readings(scene, data):
    again = scene.measure_walks(users=30, seed=4)
    later = scene.measure_walks(users=30, seed=4, day=1)
    others = scene.measure_walks(users=30, seed=5)
    np.testing.assert_array_equal(again.gain_db, data.gain_db)
    np.testing.assert_array_equal(again.user_xyz, data.user_xyz)
    one, two, three = (Whereabouts.of(each) for each in (data, later, others))
    for rank in (0, 1):
        np.testing.assert_array_equal(one.most_visited(rank), two.most_visited(rank))
        assert (one.most_visited(rank) != three.most_visited(rank)).all()
    assert not np.isin(one.most_visited(2)[:, 0], two.xy[:, 0]).any()
    assert np.abs(later.gain_db - data.gain_db).min() > 0


def test_neighbours_are_those_of_a_plain_loop():
    shape = (3, 4)
    plain = {
        frozenset([r * 4 + c, (r + i) * 4 + c + j])
        for r in range(3) for c in range(4) for i in (-1, 0, 1) for j in (-1, 0, 1)
        if (i or j) and 0 <= r + i < 3 and 0 <= c + j < 4
    }  # fmt: skip
    first, second = walks._neighbours(shape)
    pairs = [frozenset(pair) for pair in zip(first.tolist(), second.tolist(), strict=True)]
    assert set(pairs) == plain
    assert len(pairs) == len(plain)


@pytest.mark.parametrize(
    ("options", "parameter"),
    [
        ({"places": 1}, "places"),
        ({"links_per_place": 2}, "links_per_place"),
        ({"links_per_place": 30}, "links_per_place"),
        ({"day": -1}, "day"),
        ({"users": 0}, "users"),
    ],
)
def test_what_cannot_be_walked_is_refused(scene, options, parameter):
    with refused(ConfigurationError, parameter=parameter):
        scene.measure_walks(**({"users": 2, "seed": 0} | options))


def test_ground_without_a_street_is_refused():
    grid = vm.Grid(10.0, (2, 2))
    roof = vm.Building(box(0, 0, 20, 20), 20.0)
    scene = vm.Scene(grid, [roof], np.array([[5.0, 5.0, 50.0]]))
    with refused(ConfigurationError):
        scene.measure_walks(users=1, places=2, links_per_place=3, seed=0)
