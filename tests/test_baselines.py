import numpy as np
import pytest

import veilmap as vm
from veilmap.baselines import (
    LogDistance,
    NearestNeighbours,
    OrdinaryKriging,
    TrueMap,
    mean_absolute_error,
)
from veilmap.radiomap import log_distance


@pytest.fixture(scope="module")
def city():
    scene = vm.Scene.synthetic(0, base_stations=12)
    return scene, scene.measure(users=60, links_per_user=12, seed=0)


def test_log_distance_recovers_a_straight_line(city):
    scene, data = city
    gain = -31.0 - 25.0 * log_distance(data.user_xyz, data.bs_xyz)
    line = LogDistance().fit(vm.Measurements(data.user, data.user_xyz, data.bs_xyz, gain))
    assert line.intercept == pytest.approx(-31)
    assert line.slope == pytest.approx(-25)


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
        np.tile(data.user, 2), np.tile(data.user_xyz, (2, 1)), np.tile(data.bs_xyz, (2, 1)),
        np.concatenate([data.gain_db, data.gain_db + 1]),
    )  # fmt: skip
    assert np.isfinite(OrdinaryKriging().fit(again).predict(data.user_xyz, data.bs_xyz)).all()


def test_the_true_map_comes_near_the_noise(city):
    scene, data = city
    test = scene.measure(users=100, links_per_user=12, seed=1)
    error = mean_absolute_error(TrueMap(scene).fit(data), test)
    assert error < mean_absolute_error(NearestNeighbours().fit(data), test) - 1
    assert error > 2.2  # 3 dB of noise alone leave 2.39 dB


@pytest.mark.parametrize("baseline", [NearestNeighbours(), OrdinaryKriging()])
def test_predicting_before_fitting_is_refused(baseline):
    with pytest.raises(vm.VeilmapError, match="fit the baseline"):
        baseline.predict([0, 0, 0], [1, 1, 1])


def test_without_pykrige_the_message_says_what_to_install(city, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pykrige.ok", None)
    with pytest.raises(vm.VeilmapError, match=r"pip install 'veilmap\[baselines\]'"):
        OrdinaryKriging().fit(city[1])
