"""What a map is made of, and the choice of it on validation data."""

from dataclasses import replace

import numpy as np
import pytest

import flat
import veilmap as vm
from refusals import refused
from veilmap.baselines import LogDistance
from veilmap.errors import ConfigurationError
from veilmap.federation.selection import ModelChoice, ModelTrial, choose, preferred, with_field
from veilmap.model.field_fit import with_fitted_laws
from veilmap.model.radio_map import log_distance

MASTS = np.array([[20.0, 20.0, 25.0], [180.0, 40.0, 30.0], [90.0, 170.0, 20.0]])
GRID = vm.Grid(10.0, (20, 20))


def open_ground(links=600, seed=0, noise_db=1.0, hills_db=0.0, offsets=(0.0, 0.0, 0.0)):
    """Gains that follow one line over log-distance, with smooth hills on top."""
    rng = np.random.default_rng(seed)
    user_xyz = rng.uniform([0, 0, 1], [200, 200, 3], (links, 3))
    bs = rng.integers(0, 3, links)
    x, y = user_xyz[:, :2].T
    hills = hills_db * np.sin(x / 25.0 + bs) * np.cos(y / 25.0 - bs)
    gain = -30.0 - 25.0 * log_distance(user_xyz, MASTS[bs]) + hills + np.asarray(offsets)[bs]
    return vm.Measurements(
        np.arange(links) % 40, user_xyz, MASTS[bs], gain + rng.normal(0, noise_db, links), bs=bs
    )


def blocky(links=600, seed=0):
    """A city's links, of 90 users with unequal numbers."""
    scene = vm.Scene.synthetic(2, base_stations=8, cell_size=6.0)
    data = scene.measure(users=90, links_per_user=8, seed=seed)
    rng = np.random.default_rng(seed)
    return scene, data.select(np.sort(rng.permutation(len(data))[:links]))


@pytest.fixture(scope="module")
def city():
    return blocky()


@pytest.mark.parametrize("kind", ["bare", "offsets and degrees"])
def test_the_pooled_field_is_the_federated_one(city, kind):
    scene, data = city
    options = {}
    if kind != "bare":
        options = {"calibrate": ("stations",), "step": ModelChoice(degrees=3).step}
    run = flat.train(
        data, scene.grid, rounds=8, server_sees="sums", mechanism=vm.NoNoise(clip=1e9),
        residual=20.0, **options,
    )  # fmt: skip
    assert np.ptp(data.links.counts) > 0
    pooled = with_field(replace(run.radio_map, field=None), data, 20.0)
    np.testing.assert_allclose(pooled.field.values, run.radio_map.field.values, atol=1e-8)
    np.testing.assert_array_equal(pooled.field.stations, run.radio_map.field.stations)
    assert np.abs(pooled.field.values).max() > 0.5
    assert pooled.field.grid == run.radio_map.field.grid
    # A field that is there already is learned anew, not on top of itself.
    again = with_field(pooled, data, 20.0)
    np.testing.assert_allclose(again.field.values, pooled.field.values, atol=1e-12)


def test_a_pooled_fit_does_not_ask_who_measured(city):
    scene, data = city
    model = ModelChoice(residual=30.0, calibrate=("stations",))
    users = [data.user, np.zeros(len(data), dtype=int), np.arange(len(data))]
    maps = [model.fit(replace(data, user=user), scene.grid, rounds=6) for user in users]
    for other in maps[1:]:
        np.testing.assert_allclose(other.heights, maps[0].heights, atol=1e-8)
        np.testing.assert_allclose(other.theta, maps[0].theta, atol=1e-8)
        np.testing.assert_allclose(other.field.values, maps[0].field.values, atol=1e-8)


@pytest.mark.parametrize("twins", [2, 40])
def test_users_who_measured_the_same_are_pooled_too(twins):
    """At one place and with gains in whole decibels rows of different users are often equal."""
    data, rows = open_ground(32), np.tile(np.arange(32), twins)
    columns = {name: getattr(data, name)[rows] for name in ("user_xyz", "bs_xyz", "gain_db", "bs")}
    many = vm.Measurements(user=np.arange(32 * twins), **columns)
    once, often = (ModelChoice().fit(own, GRID, rounds=4) for own in (data, many))
    np.testing.assert_allclose(often.heights, once.heights, atol=1e-8)
    np.testing.assert_allclose(often.predict_links(data), once.predict_links(data), atol=1e-6)


def test_theta_of_a_pooled_fit_is_the_best_for_its_obstacles(city):
    scene, data = city
    fitted = ModelChoice(degrees=3).fit(data, scene.grid, rounds=6)
    least = fitted.loss(data)
    rng = np.random.default_rng(0)
    for _ in range(20):
        other = fitted.theta + 0.05 * rng.normal(size=len(fitted.theta))
        assert fitted.moved_to(fitted.heights, other).loss(data) > least
    assert fitted.propagation.laws == 3


def test_a_pooled_fit_has_the_parts_of_its_model(city):
    scene, data = city
    bare = ModelChoice().fit(data, scene.grid, rounds=4)
    assert bare.field is None
    assert len(bare.offsets) == 0
    assert np.ptp(bare.heights) > 1
    rich = ModelChoice(degrees=4, residual=25.0, calibrate=("stations", "devices")).fit(
        data, scene.grid, rounds=4
    )
    assert rich.propagation.laws == 4
    assert rich.field.grid.cell_size == 25.0
    assert len(rich.offsets.stations) == len(np.unique(data.bs))
    assert rich.offsets.devices == (0,)


def test_federated_training_keeps_its_trust_model(city):
    scene, data = city
    run = ModelChoice(residual=25.0).train(data, scene.grid, rounds=3, seed=0)
    assert run.radio_map.field is not None
    assert run.transcript.server_sees == "sums"
    bare = ModelChoice().train(data, scene.grid, rounds=3, seed=0)
    assert bare.radio_map.field is None
    assert bare.transcript.server_sees == "uploads"


def test_without_obstacles_there_is_one_law():
    data, unseen = open_ground(), open_ground(seed=1)
    fitted = ModelChoice(obstacles=False).fit(data, GRID, rounds=10)
    floor = vm.NoiseAwareStep().floor
    np.testing.assert_array_equal(fitted.heights, np.full(GRID.shape, floor))
    line = LogDistance().fit(data)
    assert fitted.propagation.los_slope == pytest.approx(line.slope_, abs=0.02)
    for altitude in (0.0, 1.5, 30.0):
        places = unseen.user_xyz * [1, 1, 0] + [0, 0, altitude]
        expected = line.predict(places, unseen.bs_xyz)
        np.testing.assert_allclose(fitted.predict(places, unseen.bs_xyz), expected, atol=0.05)


def test_public_buildings_stand_as_they_are_where_no_obstacles_are_learned(city):
    scene, data = city
    public = np.where(scene.heights > 2, scene.heights, 0.0)
    pooled = ModelChoice(obstacles=False).fit(data, scene.grid, buildings=public)
    run = ModelChoice(obstacles=False).train(data, scene.grid, rounds=3, buildings=public)
    for radio_map in (pooled, run.radio_map):
        np.testing.assert_array_equal(radio_map.heights[public > 0], public[public > 0])
        assert (radio_map.heights[public == 0] == vm.NoiseAwareStep().floor).all()
    # Two laws by lines of sight on the true buildings explain the city; one law does not.
    blind = ModelChoice(obstacles=False).fit(data, scene.grid)
    assert pooled.loss(data) < 0.5 * blind.loss(data)


def test_laws_are_solved_with_the_field_on_top(city):
    """Both are linear: of laws and field together no other θ leaves less."""
    scene, data = city
    public = np.where(scene.heights > 2, scene.heights, 0.0)
    model = ModelChoice(obstacles=False, residual=20.0)
    together = model.fit(data, scene.grid, buildings=public)
    one_by_one = with_field(replace(model, residual=None).fit(data, scene.grid, buildings=public),
                            data, 20.0)  # fmt: skip
    again = with_fitted_laws(together, together.field, data.links)
    # Starting from the solution finds it again, up to the field's own hyperparameters.
    np.testing.assert_allclose(again.theta, together.theta, atol=0.5)
    assert np.abs(one_by_one.theta - together.theta).max() > 0.5


@pytest.mark.parametrize("obstacles", [True, False])
def test_offsets_do_not_take_what_belongs_to_all(obstacles):
    """Calibrated receivers read what the laws say: the mean offset is 0."""
    data = open_ground(offsets=(-4.0, 1.0, 3.0))
    model = ModelChoice(obstacles=obstacles, calibrate=("stations",))
    fitted = model.fit(data, GRID, rounds=30)
    assert fitted.offsets.stations == (0, 1, 2)
    np.testing.assert_allclose(fitted.offsets.values, [-4.0, 1.0, 3.0], atol=0.6)
    assert np.mean(fitted.offsets.values) == pytest.approx(0, abs=1e-9)
    calibrated = data.gain_db - np.array([-4.0, 1.0, 3.0])[data.bs]
    assert np.abs(fitted.predict(data.user_xyz, data.bs_xyz) - calibrated).mean() < 0.9
    found = fitted.predict_links(data) - data.gain_db
    assert np.abs(found).mean() < 0.9  # 1 dB of noise leaves 0.8 dB


def test_public_buildings_are_where_obstacles_start(city):
    scene, data = city
    inside = scene.heights.reshape(scene.grid.shape) > 10
    known = (
        ModelChoice().fit(data, scene.grid, rounds=2, buildings=np.where(inside, 40.0, 0.0)).heights
    )
    assert known[inside].mean() > 30
    assert known[~inside].mean() < 0


def test_models_say_what_they_are():
    assert str(ModelChoice()) == "obstacles of 2 degrees"
    assert str(ModelChoice(degrees=3, residual=12.5)) == "obstacles of 3 degrees, field of 12.5 m"
    assert str(ModelChoice(obstacles=False)) == "no obstacles"
    assert str(ModelChoice(obstacles=False, residual=30.0)) == "no obstacles, field of 30 m"
    kinds = [ModelChoice(obstacles=False, degrees=4), ModelChoice(), ModelChoice(degrees=3)]
    assert [kind.complexity for kind in kinds] == [0, 2, 3]


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: ModelChoice(residual=0), "residual"),
        (lambda: ModelChoice(residual="wide"), "residual"),
        (lambda: ModelChoice(degrees=5), "degrees"),
        (lambda: ModelChoice(degrees=1), "degrees"),
        (lambda: ModelChoice(calibrate=("masts",)).fit(open_ground(20), GRID), "calibrate"),
        (lambda: choose(open_ground(20), open_ground(20), GRID, residuals=[]), "residuals"),
        (lambda: choose(open_ground(20), open_ground(20), GRID, degrees=[7]), "degrees"),
        (lambda: with_field(vm.RadioMap(GRID, np.zeros(400)), open_ground(20), -3), "spacing"),
    ],
)
def test_wrong_models_are_refused(make, named):
    with refused(ConfigurationError, named):
        make()


# The choice


def trial(model, *by_group):
    """A trial of a model whose groups have these errors, each of one link."""
    return ModelTrial(model, float(np.mean(by_group)), np.array(by_group) / len(by_group))


NONE, TWO, THREE = ModelChoice(obstacles=False), ModelChoice(), ModelChoice(degrees=3)


def test_the_simpler_model_is_taken_within_a_standard_error():
    # The differences are 1, −1, 1, −1, 1.5: their mean is 0.3, its standard error 0.54.
    simple, best = trial(NONE, 5, 3, 5, 3, 4.5), trial(TWO, 4, 4, 4, 4, 3)
    assert simple.as_good_as(best)
    assert best.as_good_as(simple)
    assert preferred([best, simple]) is simple
    assert preferred([simple, best]) is simple


def test_a_clearly_better_model_is_taken_though_it_is_richer():
    # The differences are 0.2, 0.3, 0.4, 0.3, 0.3: always worse, if only by little.
    simple, best = trial(NONE, 4.2, 4.3, 4.4, 4.3, 4.3), trial(TWO, 4, 4, 4, 4, 4)
    assert not simple.as_good_as(best)
    assert best.as_good_as(simple)
    assert preferred([simple, best]) is best
    rich = trial(THREE, 4, 4, 4, 4, 3.9)
    assert preferred([simple, rich, best]) is best


@pytest.mark.parametrize(("mean", "good"), [(0.9, True), (1.1, False)])
def test_the_bound_is_one_standard_error_of_the_difference(mean, good):
    apart = np.array([3.0, -3.0, 1.0, -1.0, 2.0, -2.0])
    apart *= np.sqrt(6) / apart.std(ddof=1)  # the mean of six has a standard error of 1
    simple, best = trial(NONE, *(8 + apart + mean)), trial(TWO, *np.full(6, 8.0))
    assert simple.as_good_as(best) == good
    assert preferred([simple, best]) is (simple if good else best)


def test_a_kind_is_judged_by_its_best_field():
    poor, good = trial(NONE, 9, 9, 9), trial(replace(NONE, residual=10.0), 4, 4.2, 3.9)
    best = trial(replace(TWO, residual=20.0), 4, 4.0, 4.0)
    assert preferred([poor, best, good]) is good
    # A field is no burden of its own: between fields the better one wins.
    close = trial(replace(NONE, residual=20.0), 4.01, 4.2, 3.9)
    assert preferred([close, good]) is good


def test_with_one_group_the_best_is_taken():
    simple, best = trial(NONE, 4.1), trial(TWO, 4.0)
    assert preferred([simple, best]) is best
    assert preferred([trial(TWO, 4.0), trial(NONE, 4.0)]).model == NONE


def test_in_a_city_obstacles_are_chosen():
    scene = vm.Scene.synthetic(0)
    data, more = (scene.measure(users=60, links_per_user=80, seed=seed) for seed in (0, 1))
    trials = choose(data, more, scene.grid, degrees=[2], residuals=[None, 24.0], rounds=60)
    taken = preferred(trials)
    assert taken.model.obstacles
    without = min(trial.mae_db for trial in trials if not trial.model.obstacles)
    assert without > taken.mae_db + 1


def test_on_open_ground_a_field_is_chosen_and_no_obstacles():
    data, more = open_ground(2500, hills_db=6.0), open_ground(800, seed=1, hills_db=6.0)
    seen = []
    trials = choose(
        data, more, GRID, degrees=[2], residuals=[None, 20.0, 80.0], rounds=10, on_trial=seen.append
    )
    assert preferred(trials).model == ModelChoice(obstacles=False, residual=20.0)
    assert [str(one.model) for one in seen] == [
        f"{kind}{field}"
        for kind in ("no obstacles", "obstacles of 2 degrees", "wide obstacles of 2 degrees")
        for field in ("", ", field of 20 m", ", field of 80 m")
    ]
    assert trials == sorted(seen, key=lambda one: one.mae_db)


def test_trials_are_fits_and_errors_by_group():
    data, more = open_ground(200, hills_db=3.0), open_ground(150, seed=1, hills_db=3.0)
    blocks = np.array(["west", "east", "centre"])[np.arange(150) % 3]
    found = choose(
        data, more, GRID, degrees=[3], residuals=[None, 50.0], rounds=3, groups=blocks,
        calibrate=["stations"],
    )  # fmt: skip
    assert len(found) == 6
    for one in found:
        assert one.model.calibrate == ("stations",)
        wrong = np.abs(one.model.fit(data, GRID, rounds=3).predict_links(more) - more.gain_db)
        assert one.mae_db == pytest.approx(wrong.mean(), rel=1e-9)
        expected = [wrong[blocks == name].sum() / 150 for name in ("centre", "east", "west")]
        np.testing.assert_allclose(one.by_group, expected)
        assert one.by_group.sum() == pytest.approx(one.mae_db)
    by_user = choose(data, more, GRID, degrees=[], residuals=[None], rounds=2)
    assert [len(one.by_group) for one in by_user] == [len(more.users)]


def test_the_field_to_try_has_more_points_than_there_are_places():
    found = choose(open_ground(60), open_ground(60, seed=1), GRID, degrees=[], rounds=2)
    (spacing,) = {one.model.residual for one in found} - {None}
    assert 60 < (200 / spacing) ** 2 < 600
    assert not any(one.model.obstacles for one in found)
