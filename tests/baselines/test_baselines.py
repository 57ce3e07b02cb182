import sys
from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone

import veilmap as vm
from veilmap.baselines import (
    GradientBoosting,
    LogDistance,
    NearestNeighbours,
    OrdinaryKriging,
    RegressionKriging,
    TrueMap,
    mean_absolute_error,
)
from veilmap.baselines.base import KnownStations
from veilmap.errors import ConfigurationError, MissingExtraError
from veilmap.model.radio_map import log_distance

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def city():
    scene = vm.Scene.synthetic(0, base_stations=12)
    return scene, scene.measure(users=60, links_per_user=12, seed=0)


def test_log_distance_recovers_a_straight_line(city):
    scene, data = city
    gain = -31.0 - 25.0 * log_distance(data.user_xyz, data.bs_xyz)
    line = LogDistance().fit(vm.Measurements(data.user, data.user_xyz, data.bs_xyz, gain))
    assert line.intercept_ == pytest.approx(-31)
    assert line.slope_ == pytest.approx(-25)


def test_neighbours_repeat_what_they_saw(city):
    _, data = city
    np.testing.assert_allclose(
        NearestNeighbours(3).fit(data).predict(data.user_xyz, data.bs_xyz), data.gain_db, atol=1e-3
    )


def test_neighbours_equal_a_plain_search(city):
    scene, data = city
    test = scene.measure(users=5, links_per_user=4, seed=9)
    found = NearestNeighbours(4).fit(data).predict(test.user_xyz, test.bs_xyz)
    known = np.hstack([data.user_xyz[:, :2], data.bs_xyz[:, :2]])
    for row, value in enumerate(found):
        asked = np.concatenate([test.user_xyz[row, :2], test.bs_xyz[row, :2]])
        apart = np.linalg.norm(known - asked, axis=1)
        nearest = np.argsort(apart)[:4]
        assert value == pytest.approx(np.average(data.gain_db[nearest], weights=1 / apart[nearest]))


def test_kriging_repeats_what_it_saw_and_knows_each_station(city):
    _, data = city
    kriging = OrdinaryKriging().fit(data)
    np.testing.assert_allclose(kriging.predict(data.user_xyz, data.bs_xyz), data.gain_db, atol=1e-6)


def test_kriging_copes_with_few_repeated_or_equal_measurements(city):
    scene, data = city
    few = data.select(np.arange(len(data)) < 30)
    assert np.isfinite(OrdinaryKriging().fit(few).predict(data.user_xyz, data.bs_xyz)).all()
    flat = vm.Measurements(data.user, data.user_xyz, data.bs_xyz, np.full(len(data), -80.0))
    np.testing.assert_allclose(
        OrdinaryKriging().fit(flat).predict(data.user_xyz, data.bs_xyz), -80.0
    )
    again = vm.Measurements(
        np.tile(data.user, 2),
        np.tile(data.user_xyz, (2, 1)),
        np.tile(data.bs_xyz, (2, 1)),
        np.concatenate([data.gain_db, data.gain_db + 1]),
    )
    assert np.isfinite(OrdinaryKriging().fit(again).predict(data.user_xyz, data.bs_xyz)).all()


def test_the_true_map_comes_near_the_noise(city):
    scene, data = city
    test = scene.measure(users=100, links_per_user=12, seed=1)
    error = mean_absolute_error(TrueMap(scene).fit(data), test)
    assert error < mean_absolute_error(NearestNeighbours().fit(data), test) - 1
    assert error > 2.2  # 3 dB of noise alone leave 2.39 dB


@pytest.mark.parametrize(
    "make",
    [
        LogDistance, NearestNeighbours, lambda: NearestNeighbours(same_station=True),
        OrdinaryKriging, RegressionKriging, GradientBoosting,
        lambda: TrueMap(vm.Scene.synthetic(0)),
    ],
)  # fmt: skip
def test_predicting_before_fitting_is_refused(make, city):
    with pytest.raises(ConfigurationError):
        make().predict([0, 0, 0], [1, 1, 1])
    with pytest.raises(ConfigurationError):
        make().predict_links(city[1])


@pytest.mark.parametrize(
    ("estimator", "module", "extra"),
    [
        (OrdinaryKriging(), "pykrige", "baselines"),
        (RegressionKriging(), "pykrige", "baselines"),
        (GradientBoosting(), "sklearn", "learn"),
    ],
)
def test_a_missing_library_is_an_error_of_its_extra(estimator, module, extra, city, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError) as raised:
        estimator.fit(city[1])
    assert raised.value.extra == extra


# Estimators in scikit-learn's style


def test_parameters_are_those_of_the_constructor():
    estimator = RegressionKriging(OrdinaryKriging("linear", neighbours=7))
    assert estimator.get_params(deep=False) == {"kriging": estimator.kriging}
    inner = {"kriging__variogram": "linear", "kriging__neighbours": 7}
    assert estimator.get_params() == {"kriging": estimator.kriging, **inner}
    assert NearestNeighbours().set_params(neighbours=9).neighbours == 9
    assert estimator.set_params(kriging__neighbours=3) is estimator
    assert estimator.kriging.neighbours == 3
    with pytest.raises(ConfigurationError) as raised:
        estimator.set_params(neighbours=3)
    assert raised.value.parameter == "neighbours"


@pytest.mark.parametrize("copied", [lambda one: one.clone(), clone], ids=["ours", "sklearn"])
def test_a_clone_has_the_parameters_and_is_not_fitted(copied):
    fitted = RegressionKriging(OrdinaryKriging(neighbours=7)).fit(town(60))
    again = copied(fitted)
    assert again.kriging == OrdinaryKriging(neighbours=7)
    assert again.kriging is not fitted.kriging
    with pytest.raises(ConfigurationError):
        again.predict_links(town(5))
    expected = fitted.predict_links(town(20, seed=1))
    np.testing.assert_array_equal(again.fit(town(60)).predict_links(town(20, seed=1)), expected)


def test_fitting_leaves_parameters_as_they_are():
    inner = OrdinaryKriging()
    RegressionKriging(inner).fit(town(60))
    with pytest.raises(ConfigurationError):
        inner.predict_links(town(5))


def test_a_clone_takes_changes():
    assert NearestNeighbours(3, same_station=True).clone(neighbours=4) == NearestNeighbours(4, True)


# Base stations by their ids

MASTS = np.array([[50.0, 60.0, 25.0], [50.0, 60.0, 25.0], [260.0, 240.0, 30.0]])
NAMES = np.array(["p", "q", "far"])
OFFSETS = np.array([-6.0, 5.0, 1.0])  # mean 0


def town(links=900, seed=0, noise_db=0.5, hills_db=0.0):
    """Two receivers on one mast and a third elsewhere, each beside the truth by its offset."""
    rng = np.random.default_rng(seed)
    user_xyz = rng.uniform([0, 0, 1.5], [300, 300, 1.5], (links, 3))
    number = rng.integers(0, 3, links)
    x, y = user_xyz[:, :2].T
    hills = hills_db * np.sin(x / 40.0 + number) * np.cos(y / 40.0)
    gain = -30.0 - 25.0 * log_distance(user_xyz, MASTS[number]) + hills + OFFSETS[number]
    return vm.Measurements(
        np.arange(links),
        user_xyz,
        MASTS[number],
        gain + rng.normal(0, noise_db, links),
        bs=NAMES[number],
    )


ALL = {
    "log-distance": lambda: LogDistance(calibrate=True),
    "k-nn": lambda: NearestNeighbours(same_station=True),
    "kriging": OrdinaryKriging,
    "regression-kriging": RegressionKriging,
    "gradient-boosting": lambda: GradientBoosting(iterations=40),
}
every_baseline = pytest.mark.parametrize("make", ALL.values(), ids=ALL)


@every_baseline
def test_receivers_on_one_mast_are_told_apart(make):
    fitted, unseen = make().fit(town()), town(seed=1)
    # Whoever takes one for the other is wrong by 11 dB.
    for name in NAMES:
        own = unseen.select(unseen.bs == name)
        assert mean_absolute_error(fitted, own) < 3, name
    swapped = replace(unseen, bs=np.where(unseen.bs == "p", "q", "p"))
    assert mean_absolute_error(fitted, swapped.select(unseen.bs != "far")) > 8


@every_baseline
def test_unknown_stations_are_answered_by_the_nearest(make):
    fitted, unseen = make().fit(town()), town(60, seed=1)
    near_far = MASTS[2] + [3.0, -4.0, 0.0]
    asked = replace(unseen, bs=np.full(60, "new"), bs_xyz=np.tile(near_far, (60, 1)))
    known = replace(asked, bs=np.full(60, "far"))
    np.testing.assert_array_equal(fitted.predict_links(asked), fitted.predict_links(known))


@pytest.mark.parametrize("name", [name for name in ALL if name != "log-distance"])
def test_by_place_and_by_id_agree_where_a_mast_has_one_station(name):
    """All but a line, which answers for calibrated receivers where it knows only the place."""
    data = town()
    alone = data.select(data.bs != "q")
    fitted = ALL[name]().fit(alone)
    np.testing.assert_array_equal(
        fitted.predict(alone.user_xyz, alone.bs_xyz), fitted.predict_links(alone)
    )


def test_stations_are_numbered_by_id_or_else_by_place():
    stations = KnownStations.of(town(50))
    assert sorted(stations.ids) == sorted(NAMES)
    xyz = dict(zip(stations.ids.tolist(), stations.xyz.tolist(), strict=True))
    assert xyz == dict(zip(NAMES.tolist(), MASTS.tolist(), strict=True))
    asked = np.array(["q", "far", "p", "nobody", "nobody"])
    places = np.array([MASTS[2], MASTS[0], MASTS[2], [255.0, 235.0, 30.0], [60.0, 60.0, 0.0]])
    numbers = stations.numbers(asked, places)
    assert stations.ids[numbers[:4]].tolist() == ["q", "far", "p", "far"]
    assert stations.ids[numbers[4]] in ("p", "q")
    assert stations.ids[stations.numbers(None, places)[[0, 2, 3]]].tolist() == ["far"] * 3


def test_calibrated_log_distance_recovers_offsets():
    line = LogDistance(calibrate=True).fit(town(noise_db=0.0))
    assert line.slope_ == pytest.approx(-25.0)
    np.testing.assert_allclose(line.offsets_, OFFSETS[[2, 0, 1]])  # in the order of ids
    assert line.intercept_ == pytest.approx(-30.0)  # calibrated receivers: the mean offset is 0
    data, unseen = town(noise_db=2.0), town(seed=1, noise_db=2.0)
    # 300 links of a station give its level to 2/√300 dB.
    noisy = LogDistance(calibrate=True).fit(data)
    at_100_m = noisy.intercept_ + noisy.offsets_ + 2 * noisy.slope_
    np.testing.assert_allclose(at_100_m, -80.0 + OFFSETS[[2, 0, 1]], atol=4 * 2 / np.sqrt(300))
    plain = LogDistance().fit(data)
    assert plain.offsets_ is None
    assert mean_absolute_error(noisy, unseen) < mean_absolute_error(plain, unseen) - 2


def test_neighbours_by_station_equal_a_plain_search():
    data, test = town(300), town(40, seed=1)
    found = NearestNeighbours(4, same_station=True).fit(data).predict_links(test)
    for row, value in enumerate(found):
        own = data.select(data.bs == test.bs[row])
        apart = np.linalg.norm(own.user_xyz[:, :2] - test.user_xyz[row, :2], axis=1)
        nearest = np.argsort(apart)[:4]
        assert value == pytest.approx(np.average(own.gain_db[nearest], weights=1 / apart[nearest]))


def test_a_station_with_few_links_is_answered_by_those_it_has():
    data = town(300)
    keep = (data.bs != "q") | (np.cumsum(data.bs == "q") <= 2)
    few = data.select(keep)
    own = few.gain_db[few.bs == "q"]
    assert len(own) == 2
    asked = town(100, seed=1)
    asked = asked.select(asked.bs == "q")
    found = NearestNeighbours(5, same_station=True).fit(few).predict_links(asked)
    assert ((found >= own.min()) & (found <= own.max())).all()
    assert np.ptp(found) > 0.01 * np.ptp(own)
    # Kriging needs five places, and takes the mean of fewer.
    np.testing.assert_allclose(OrdinaryKriging().fit(few).predict_links(asked), own.mean())


def test_regression_kriging_is_better_than_its_parts():
    data, unseen = town(150, hills_db=2.0), town(450, seed=1, hills_db=2.0)
    parts = [LogDistance(calibrate=True), OrdinaryKriging()]
    both = mean_absolute_error(RegressionKriging().fit(data), unseen)
    alone = [mean_absolute_error(part.fit(data), unseen) for part in parts]
    assert both < min(alone) - 0.2, (both, alone)


def test_an_outlier_far_from_the_line_is_kriged_with_the_others():
    data = town(90)
    wild = replace(data, gain_db=np.where(np.arange(90) == 3, 20.0, data.gain_db))
    fitted = RegressionKriging().fit(wild)
    np.testing.assert_allclose(fitted.predict_links(wild), wild.gain_db, atol=1e-6)


def test_kriging_asks_two_neighbours_at_least():
    with pytest.raises(ConfigurationError) as raised:
        OrdinaryKriging(neighbours=1).fit(town(30))
    assert raised.value.parameter == "neighbours"


def test_kriging_of_many_places_asks_the_nearest_and_answers_the_same(monkeypatch):
    data, asked = town(1600, hills_db=6.0, noise_db=1.0), town(90, seed=1)
    one, asked = (own.select(own.bs == "far") for own in (data, asked))
    assert len(one) >= 500
    kriging = OrdinaryKriging().fit(one)
    calls = []
    execute = type(kriging._fields[0]).execute

    def counted(self, *arguments, **options):
        calls.append(options.get("n_closest_points"))
        return execute(self, *arguments, **options)

    monkeypatch.setattr(type(kriging._fields[0]), "execute", counted)
    near = kriging.predict_links(asked)
    kriging.neighbours = len(one) + 1
    every = kriging.predict_links(asked)
    assert calls == [32, None]
    # The noise is 1 dB; what the far ones add is a small part of it.
    np.testing.assert_allclose(near, every, atol=0.3)
    assert np.abs(near - every).mean() < 0.05
    few = OrdinaryKriging().fit(one.select(np.arange(499)))
    few.predict_links(asked)
    assert calls[2:] == [None]


def test_boosting_learns_what_stations_and_places_tell():
    data, unseen = town(1500, hills_db=6.0), town(600, seed=1, hills_db=6.0)
    boosted = mean_absolute_error(GradientBoosting(100).fit(data), unseen)
    assert boosted < mean_absolute_error(LogDistance(calibrate=True).fit(data), unseen) - 0.5
    again = [GradientBoosting(20).fit(data).predict_links(unseen) for _ in range(2)]
    np.testing.assert_array_equal(*again)


@pytest.mark.parametrize("stations", [255, 256, 300])
def test_boosting_takes_more_stations_than_categories(stations):
    rng = np.random.default_rng(0)
    ends = rng.uniform(0, 100, (2, 2 * stations, 3))
    data = vm.Measurements(
        np.arange(2 * stations),
        *ends,
        rng.normal(-80, 5, 2 * stations),
        bs=np.arange(2 * stations) % stations,
    )
    assert np.isfinite(GradientBoosting(3).fit(data).predict_links(data)).all()
