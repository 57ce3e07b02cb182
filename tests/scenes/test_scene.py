import numpy as np
import pytest
import shapely

import veilmap as vm
from refusals import refused
from veilmap import cli, compare
from veilmap.data.folders import open_crowd
from veilmap.errors import ConfigurationError, DataError

GRID = vm.Grid(1.0, (40, 40))
TOWER = vm.Building(shapely.box(10, 10, 20, 20), 30.0)
STATION = np.array([[35.0, 15.0, 20.0]])


def one_tower(**options):
    return vm.Scene(GRID, [TOWER], STATION, **options)


@pytest.mark.parametrize(
    ("user", "bs", "clear"),
    [
        ([5, 15, 1.5], [35, 15, 20], False),  # straight through
        ([5, 15, 1.5], [35, 15, 100], True),  # enters the footprint at 18 m and… see below
        ([5, 5, 1.5], [35, 5, 1.5], True),  # past it
        ([5, 15, 31], [35, 15, 31], True),  # over the roof
        ([5, 15, 29.9], [35, 15, 29.9], False),  # just below the roof
        ([15, 15, 31], [15, 15, 100], True),  # from the roof upwards
        ([5, 15, 1.5], [15, 15, 200], True),  # rises above the roof before the wall
        ([35, 15, 20], [5, 15, 1.5], False),  # either way round
    ],
)
def test_line_of_sight_on_a_box(user, bs, clear):
    if bs == [35, 15, 100]:  # at x = 10 the link is 1.5 + 98.5 / 6 = 17.9 m high: blocked
        clear = False
    assert one_tower().line_of_sight(user, bs)[0] == clear


def test_line_of_sight_agrees_with_points_along_the_link():
    scene = vm.Scene.synthetic(3)
    rng = np.random.default_rng(0)
    data = scene.measure(users=20, links_per_user=50, seed=1)
    t = rng.uniform(0, 1, (400, 1, 1))
    points = data.user_xyz + t * (data.bs_xyz - data.user_xyz)
    inside = np.zeros(points.shape[:2], dtype=bool)
    for building in scene.buildings:
        over = shapely.contains_xy(building.footprint, points[..., 0], points[..., 1])
        inside |= over & (points[..., 2] < building.height)
    clear = scene.line_of_sight(data.user_xyz, data.bs_xyz)
    hit = inside.any(axis=0)
    assert not (clear & hit).any()  # a sampled point inside a building always blocks
    assert (clear == ~hit).mean() > 0.97  # and samples miss only short cuts through corners


def plainly_clear(scene, user, bs):
    """Every link beside every building."""
    clear = np.ones(len(user), dtype=bool)
    for building in scene.buildings:
        for j, ends in enumerate(zip(user, bs, strict=True)):
            low, high = sorted(ends, key=lambda end: end[2])
            if low[2] > building.height:
                continue
            rise = high[2] - low[2]
            share = min(1.0, (building.height - low[2]) / rise) if rise > 0 else 1.0
            end = low[:2] + share * (high - low)[:2]
            clear[j] &= not building.footprint.intersects(shapely.LineString([low[:2], end]))
    return clear


@pytest.mark.parametrize("seed", [0, 4])
def test_line_of_sight_is_that_of_every_building_beside_every_link(seed):
    scene = vm.Scene.synthetic(seed, size=600, buildings=40, base_stations=30)
    rng = np.random.default_rng(seed)
    user = np.column_stack([rng.uniform(0, 600, (400, 2)), rng.uniform(0, 140, 400)])
    bs = scene.base_stations[rng.integers(30, size=400)]
    bs[:20] = user[:20] + np.array([0, 0, 30])  # straight up
    clear = scene.line_of_sight(user, bs)
    np.testing.assert_array_equal(clear, plainly_clear(scene, user, bs))
    assert 0.2 < clear.mean() < 0.9


def test_heights_are_those_of_the_buildings_over_each_centre():
    scene = vm.Scene.synthetic(2, cell_size=7.5)
    for grid in (scene.grid, vm.Grid(20.0, (11, 23), (-40.0, 90.0))):
        heights = scene.heights_on(grid).ravel()
        for height, (x, y) in zip(heights, grid.centres, strict=True):
            over = [b.height for b in scene.buildings if shapely.intersects_xy(b.footprint, x, y)]
            assert height == max(over, default=0.0)


def test_the_default_city_is_the_papers():
    shares = []
    for seed in range(5):
        scene = vm.Scene.synthetic(seed)
        assert scene.grid.shape == (100, 100)
        assert scene.grid.extent == (0, 300, 0, 300)
        assert scene.base_stations.shape == (200, 3)
        assert (scene.base_stations[:, 2] == 50).all()
        heights = [building.height for building in scene.buildings]
        assert min(heights) >= 10
        assert max(heights) <= 130
        data = scene.measure(users=50, seed=seed)
        shares.append(scene.line_of_sight(data.user_xyz, data.bs_xyz).mean())
    assert 0.40 < np.mean(shares) < 0.50


def test_nothing_stands_inside_a_building():
    scene = vm.Scene.synthetic(1)
    data = scene.measure(users=300, links_per_user=1, seed=0)
    for building in scene.buildings:
        assert not shapely.contains_xy(building.footprint, *data.user_xyz[:, :2].T).any()
        over = shapely.contains_xy(building.footprint, *scene.base_stations[:, :2].T)
        assert (scene.base_stations[over, 2] > building.height).all()
    assert (data.user_xyz[:, 2] == 1.5).all()


def test_the_same_seed_gives_the_same_city_and_measurements():
    one, other = vm.Scene.synthetic(7), vm.Scene.synthetic(7)
    np.testing.assert_array_equal(one.heights, other.heights)
    np.testing.assert_array_equal(one.measure(seed=3).gain_db, other.measure(seed=3).gain_db)
    assert not np.array_equal(one.heights, vm.Scene.synthetic(8).heights)
    assert not np.array_equal(one.measure(users=2).gain_db, one.measure(users=2).gain_db)


@pytest.mark.parametrize("city", range(6))
def test_users_do_not_stand_where_base_stations_are(city):
    # As many users as stations, so that a shared stream would pair x and y alike. Independent
    # ones meet within a millimetre once in 700,000 drawings.
    scene = vm.Scene.synthetic(city)
    options = {"users": len(scene.base_stations), "links_per_user": 1}
    for seed in range(21):
        (first_part,) = scene.measure_in_parts(seed=seed, **options)
        for data in (scene.measure(seed=seed, **options), first_part):
            places = data.user_xyz[:, None, :2]
            apart = np.linalg.norm(places - scene.base_stations[None, :, :2], axis=2)
            assert apart.min() > 1e-3


class OpenField:
    """Meshes of nothing, whose links have a gain."""

    def covered(self, xyz):
        return np.zeros(len(xyz), dtype=bool)

    def clear(self, user, bs):
        return np.ones(len(user), dtype=bool)

    def gains(self, places, stations, **options):
        return np.full((len(places), len(stations)), -80.0)


def every_purpose(seed):
    """Whatever draws from a stream of this seed."""
    city = vm.Scene.synthetic(seed, size=60.0, buildings=1, base_stations=3)
    field = vm.Scene(city.grid, (), city.base_stations, seed=seed, meshes=OpenField())
    field.trace(2, seed=seed)
    data = city.measure(8, 3, seed=seed, shadowing_db=4.0)
    list(city.measure_in_parts(3, users_per_part=1, links_per_user=1, seed=seed))
    for number in range(4):
        vm.Participation().draw(seed, number, range(8))
    vm.Participation(share=0.5, in_turns=True).draw(seed, 4, range(8))
    list(compare.few_links(data, 10, 2, seed=seed))


def test_no_two_purposes_share_a_stream(monkeypatch):
    begun, real = [], np.random.default_rng

    def watched(*arguments):
        rng = real(*arguments)
        begun.append(rng.bit_generator.state["state"]["state"])
        return rng

    monkeypatch.setattr(np.random, "default_rng", watched)
    seeds = (*range(6), 2**32, 2**32 + 1, 2**64)
    for seed in seeds:
        every_purpose(seed)
    # The city (which folds of the same seed share), a trace, users, 3 stations, 3 parts, 5
    # rounds and their turns, rows of 2 folds.
    assert len(begun) == len(seeds) * 18
    assert len(set(begun)) == len(seeds) * 17


def test_density_is_the_share_of_ground_under_buildings():
    scene = vm.Scene.synthetic(0, density=0.15)
    area = sum(building.footprint.area for building in scene.buildings)
    assert area / 300**2 == pytest.approx(0.15)
    # Cells by their centres: the error is at most the cells on footprints' outlines.
    assert (scene.heights > 0).mean() == pytest.approx(0.15, abs=0.02)


def test_measured_gain_is_the_true_gain_plus_noise():
    scene = vm.Scene.synthetic(0)
    exact = scene.measure(users=5, noise_db=0.0, seed=0)
    np.testing.assert_array_equal(exact.gain_db, scene.gain(exact.user_xyz, exact.bs_xyz))
    noisy = scene.measure(users=100, noise_db=3.0, seed=0)
    noise = noisy.gain_db - scene.gain(noisy.user_xyz, noisy.bs_xyz)
    deviation_of_estimate = 3 / np.sqrt(2 * len(noise))
    assert abs(noise.std() - 3) < 5 * deviation_of_estimate
    assert abs(noise.mean()) < 5 * 3 / np.sqrt(len(noise))


def test_users_may_have_few_links_or_many_places():
    scene = vm.Scene.synthetic(0, base_stations=10)
    few = scene.measure(users=30, links_per_user=1, seed=0)
    assert few.links.counts.tolist() == [1] * 30
    many = scene.measure(users=3, links_per_user=25, places_per_user=4, seed=0)
    for user in many.users:
        own = many.of_user(user)
        places = np.unique(own.user_xyz, axis=0)
        assert len(places) == 4
        for place in places:
            stations = own.bs[(own.user_xyz == place).all(axis=1)]
            assert len(stations) == len(set(stations.tolist()))


def test_links_go_no_further_than_their_reach():
    scene = vm.Scene.synthetic(0, size=900, buildings=20, base_stations=300)
    options = {"users": 40, "links_per_user": 12, "places_per_user": 2, "seed": 3}
    near, anywhere = scene.measure(reach=250.0, **options), scene.measure(**options)
    apart = np.linalg.norm((near.user_xyz - near.bs_xyz)[:, :2], axis=1)
    assert 200 < apart.max() <= 250
    np.testing.assert_array_equal(near.user_xyz, anywhere.user_xyz)
    pairs = np.column_stack([near.user_xyz[:, :2], near.bs])
    assert len(np.unique(pairs, axis=0)) == len(pairs)  # each place has different stations
    np.testing.assert_array_equal(near.gain_db, scene.measure(reach=250.0, **options).gain_db)
    # Stations that are all in reach are as likely as each other.
    all_of_them = scene.measure(users=400, links_per_user=30, reach=2000.0, seed=1)
    counts = np.bincount(all_of_them.bs, minlength=300)
    assert abs(counts - 40).max() < 6 * np.sqrt(40)


def test_measurements_without_a_reach_stay_what_they_were():
    data = vm.Scene.synthetic(0).measure(users=3, links_per_user=4, seed=0)
    assert data.bs.tolist() == [144, 54, 119, 50, 161, 27, 61, 77, 4, 137, 176, 125]
    expected = [
        -72.5623321624818,
        -100.68053813000952,
        -73.70500760411743,
        -105.66724953925225,
        -82.04763805057632,
        -71.69051943013432,
        -107.04088400057174,
        -98.81226499969564,
        -104.13207135674864,
        -87.52953478254256,
        -92.87387825178536,
        -96.32529095369217,
    ]
    np.testing.assert_allclose(data.gain_db, expected, rtol=0, atol=1e-9)


def test_too_few_stations_in_reach_are_refused():
    scene = vm.Scene.synthetic(0)
    with refused(ConfigurationError, "5 of 5", "20 links"):
        scene.measure(users=5, links_per_user=20, reach=0.5, seed=0)
    with refused(ConfigurationError, parameter="reach"):
        scene.measure(users=5, reach=0.0)


def test_shadowing_has_its_deviation_and_its_reach():
    scene = vm.Scene(vm.Grid(50.0, (40, 40)), [], np.array([[i, 0.0, 50.0] for i in range(60)]))
    rng = np.random.default_rng(0)
    first = np.column_stack([rng.uniform(0, 2000, (200, 2)), np.full(200, 1.5)])
    angle = rng.uniform(0, 2 * np.pi, 200)
    reach, deviation = 20.0, 6.0
    stations = np.arange(60)

    def field(places):
        user, bs = np.repeat(places, 60, axis=0), np.tile(stations, len(places))
        return scene._shadowing(user, bs, deviation, reach)

    base = field(first)
    assert base.std() == pytest.approx(deviation, rel=0.05)
    for distance in (10.0, 20.0, 60.0):
        moved = first + distance * np.column_stack([np.cos(angle), np.sin(angle), 0 * angle])
        correlation = np.mean(base * field(moved)) / deviation**2
        # 60 fields × about 200 independent places: the estimate's deviation is below 0.02.
        assert correlation == pytest.approx(np.exp(-distance / reach), abs=0.06)


def test_shadowing_belongs_to_the_place():
    scene = vm.Scene.synthetic(0, base_stations=4)
    options = {"users": 5, "links_per_user": 4, "noise_db": 0.0, "seed": 1}
    plain, shadowed = scene.measure(**options), scene.measure(**options, shadowing_db=5.0)
    again = scene.measure(**options, shadowing_db=5.0)
    assert np.abs(shadowed.gain_db - plain.gain_db).max() > 1
    np.testing.assert_array_equal(shadowed.gain_db, again.gain_db)


@pytest.mark.parametrize(
    ("options", "value"),
    [
        ({"size": -300}, -300),
        ({"buildings": -1}, -1),
        ({"density": 1.2}, 1.2),
        ({"density": 0.9}, "building"),
        ({"heights": (50, 10)}, "(50, 10)"),
        ({"heights": (-5, 10)}, -5),
        ({"base_stations": 0}, 0),
        ({"bs_altitude": 0}, 0),
        ({"seed": -1}, -1),
    ],
)
def test_impossible_cities_are_refused_in_words(options, value):
    with refused(ConfigurationError, *options, value):
        vm.Scene.synthetic(**options)


def test_a_city_with_no_room_for_users_is_refused():
    full = vm.Building(shapely.box(0, 0, 40, 40), 30.0)
    scene = vm.Scene(GRID, [full], np.array([[1.0, 1.0, 50.0]]))
    with refused(ConfigurationError, "10 points", "1.5 m", "density"):
        scene.measure(users=10, links_per_user=1)


def test_overlapping_buildings_are_refused_and_touching_ones_are_not():
    with refused(ConfigurationError, "buildings 0 and 1"):
        vm.Scene(GRID, [TOWER, vm.Building(shapely.box(19, 10, 25, 20), 10.0)], STATION)
    vm.Scene(GRID, [TOWER, vm.Building(shapely.box(20, 10, 25, 20), 10.0)], STATION)


def test_a_station_inside_a_building_is_refused():
    with refused(ConfigurationError, "base station 0"):
        vm.Scene(GRID, [TOWER], np.array([[15.0, 15.0, 20.0]]))
    vm.Scene(GRID, [TOWER], np.array([[15.0, 15.0, 31.0]]))


def test_wrong_buildings_are_refused():
    with refused(ConfigurationError, "height", -3):
        vm.Building(shapely.box(0, 0, 1, 1), -3.0)
    with refused(DataError, "footprint"):
        vm.Building(shapely.Polygon([(0, 0), (1, 1), (0, 1), (1, 0)]), 3.0)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"users": 0}, ["users", 0]),
        ({"links_per_user": 201}, ["201 links", "200 base stations"]),
        ({"links_per_user": 2, "places_per_user": 3}, ["3 places", "links", 2]),
        ({"noise_db": -1}, ["noise_db", -1]),
    ],
)
def test_impossible_measurements_are_refused(options, named):
    with refused(ConfigurationError, *named):
        vm.Scene.synthetic(0).measure(**options)


def test_a_crowd_can_have_a_reach(tmp_path, capsys):
    options = ["--users", "6", "--links", "5", "--size", "900", "--stations", "300"]

    def make(folder, reach):
        with pytest.raises(SystemExit) as end:
            cli.main(["data", "make", str(tmp_path / folder), *options, "--reach", reach])
        return end.value.code

    assert make("near", "200") == 0
    crowd = open_crowd(tmp_path / "near").load()
    assert np.linalg.norm((crowd.user_xyz - crowd.bs_xyz)[:, :2], axis=1).max() <= 200
    capsys.readouterr()
    assert make("lonely", "1") != 0
    said = capsys.readouterr().err.strip()
    assert "too few base stations in reach" in said
    assert "\n" not in said
