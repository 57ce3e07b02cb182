"""More laws than two, and offsets of stations and devices: one model, exact gradients."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

import flat
import naive
import veilmap as vm
from refusals import refused
from strategies import rich_maps_and_data
from veilmap._kernels import degrees
from veilmap.errors import ConfigurationError, RunFolderError
from veilmap.model.offsets import Offsets
from veilmap.model.propagation import Law


def plain_losses(radio_map, data):
    """F_i from the equations, link by link."""
    laws = radio_map.propagation
    known = dict(zip([*map(str, radio_map.offsets.stations),
                      *(("device", d) for d in radio_map.offsets.devices)],
                     radio_map.offsets.values, strict=True))  # fmt: skip
    result = []
    for user in np.unique(data.user):
        squares = []
        for j in np.flatnonzero(data.user == user):
            depth = obstruction(radio_map, data.user_xyz[j], data.bs_xyz[j])
            log_d = math.log10(max(1.0, math.dist(data.user_xyz[j], data.bs_xyz[j])))
            passed = math.exp(-depth)
            gain = passed * (laws.los_intercept + laws.los_slope * log_d)
            for law in laws.between:
                share = math.exp(-law.power * depth) - passed
                gain += share * (law.intercept + law.slope * log_d)
                passed += share
            gain += (1 - passed) * (laws.nlos_intercept + laws.nlos_slope * log_d)
            gain += known.get(str(data.bs[j]), 0.0) + known.get(("device", data.device[j]), 0.0)
            squares.append((data.gain_db[j] - gain) ** 2)
        result.append(np.mean(squares))
    return np.array(result)


def obstruction(radio_map, user, bs):
    """−log S as a sum over the cells."""
    return sum(
        np.logaddexp(0.0, radio_map.sharpness * (radio_map.heights.flat[cell] - z))
        for cell, _, z in naive.crossings(radio_map.grid, user, bs)
    )


@settings(max_examples=80, deadline=None)
@given(rich_maps_and_data())
def test_losses_and_predictions_are_those_of_the_equations(case):
    radio_map, data = case
    expected = plain_losses(radio_map, data)
    np.testing.assert_allclose(vm.local_gradients(radio_map, data).loss, expected, rtol=1e-7)
    error = (data.gain_db - radio_map.predict_links(data)) ** 2
    means = [error[data.user == user].mean() for user in np.unique(data.user)]
    np.testing.assert_allclose(means, expected, rtol=1e-7)


@settings(max_examples=40, deadline=None)
@given(rich_maps_and_data())
def test_gradients_equal_central_differences(case):
    radio_map, data = case
    found = vm.local_gradients(radio_map, data)
    assert found.theta_gradient.shape == (len(np.unique(data.user)), len(radio_map.theta))
    heights, theta, width = radio_map.heights, radio_map.theta, 1e-4

    def moved(by_height, by_theta):
        return plain_losses(radio_map.moved_to(heights + by_height, theta + by_theta), data)

    scale = 1e-5 * (1 + np.abs(found.loss).max())
    for entry in range(len(theta)):
        change = np.eye(len(theta))[entry] * width
        slope = (moved(0.0, change) - moved(0.0, -change)) / (2 * width)
        np.testing.assert_allclose(found.theta_gradient[:, entry], slope, rtol=1e-5, atol=scale)
    for cell in range(0, radio_map.grid.cells, 5):
        change = np.zeros(heights.size)
        change[cell] = width
        change = change.reshape(heights.shape)
        slope = (moved(change, 0.0) - moved(-change, 0.0)) / (2 * width)
        np.testing.assert_allclose(found.height_gradient[:, cell], slope, rtol=1e-4, atol=scale)


def test_two_laws_give_the_papers_model_to_rounding():
    scene = vm.Scene.synthetic(1)
    data = scene.measure(users=5, links_per_user=40, seed=0)
    rng = np.random.default_rng(0)
    plain = vm.RadioMap(scene.grid, rng.uniform(-5, 60, scene.grid.shape))
    rich = replace(plain, offsets=Offsets(("nobody",), (), (7.0,)))
    one, other = (vm.local_gradients(radio_map, data) for radio_map in (plain, rich))
    np.testing.assert_allclose(other.height_gradient, one.height_gradient, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(
        other.theta_gradient[:, :4], one.theta_gradient, rtol=1e-9, atol=1e-9
    )
    assert (other.theta_gradient[:, 4] == 0).all()


def test_deep_obstruction_is_followed_and_the_deepest_is_blocked():
    grid = vm.Grid(1.0, (1, 200))
    user, bs = [0.5, 0.5, 1.0], [199.5, 0.5, 1.0]
    for height, deep in ((3.0, True), (20.0, False)):
        radio_map = vm.RadioMap(grid, np.full(200, height), vm.Propagation.of_degrees(4))
        depth = radio_map.obstruction([user], [bs])[0]
        expected = 199 * np.logaddexp(0, height - 1.0) + 0  # both ends' cells are half crossed
        if deep:
            assert depth == pytest.approx(obstruction(radio_map, user, bs), rel=1e-9)
            assert depth == pytest.approx(expected, rel=0.01)
        else:
            assert expected > math.log(degrees.DEEPEST)
            assert np.isinf(depth)
            law = radio_map.propagation
            blocked = law.nlos_intercept + law.nlos_slope * math.log10(199.0)
            assert radio_map.predict([user], [bs])[0] == pytest.approx(blocked)


def test_shares_of_the_laws_add_up_to_one():
    laws = vm.Propagation.of_degrees(4)
    depths = np.concatenate([[0.0, np.inf], np.geomspace(1e-6, 1e4, 50)])
    shares = laws.shares(depths)
    np.testing.assert_allclose(shares.sum(axis=0), 1.0)
    assert (shares >= 0).all()
    assert shares[:, 0].tolist() == [1.0, 0.0, 0.0, 0.0]  # clear
    assert shares[:, 1].tolist() == [0.0, 1.0, 0.0, 0.0]  # blocked


def test_fitted_theta_has_no_gradient_left():
    scene = vm.Scene.synthetic(3)
    data = scene.measure(users=30, links_per_user=40, seed=0)
    data = replace(data, device=np.where(data.user % 2, "phone", "modem"))
    start = vm.RadioMap(
        scene.grid,
        scene.heights,
        vm.Propagation.of_degrees(3),
        offsets=Offsets(np.unique(data.bs).tolist(), ["phone", "modem"]),
    )
    found = vm.local_gradients(start.fit_propagation(data), data)
    total = found.counts @ found.theta_gradient / found.counts.sum()
    assert np.abs(total).max() < 1e-7


def test_offsets_of_stations_and_devices_are_learned_with_theta():
    scene = vm.Scene.synthetic(4, base_stations=12)
    data = scene.measure(users=60, links_per_user=48, places_per_user=4, seed=0)
    rng = np.random.default_rng(1)
    stations = dict(zip(np.unique(data.bs).tolist(), rng.normal(0, 8, 12), strict=True))
    device = np.where(data.user % 3 == 0, "old", "new")
    wrong = np.array([stations[b] for b in data.bs]) + np.where(device == "old", -6.0, 0.0)
    uneven = replace(data, gain_db=data.gain_db + wrong, device=device)
    learned = vm.train(
        uneven, scene.grid, rounds=120, seed=0, model=vm.Model(calibrate=["stations", "devices"])
    )
    offsets = learned.radio_map.offsets
    assert offsets.stations == tuple(stations)
    assert offsets.devices == ("new", "old")
    found = np.array(offsets.values[:12])
    truth = np.array(list(stations.values()))
    assert np.std((found - truth) - np.mean(found - truth)) < 1.0
    new, old = offsets.values[12:]
    assert old - new == pytest.approx(-6.0, abs=1.0)
    blind = vm.train(uneven, scene.grid, rounds=120, seed=0)
    error = {
        name: np.abs(run.radio_map.predict_links(uneven) - uneven.gain_db).mean()
        for name, run in (("learned", learned), ("blind", blind))
    }
    assert error["learned"] < 0.6 * error["blind"]


@pytest.mark.parametrize(
    "mechanism", [vm.GeometryAligned(noise_budget=10), vm.AggregateGaussian(epsilon=8, delta=1e-3)]
)
def test_rich_maps_train_resume_and_load_like_plain_ones(mechanism, tmp_path):
    scene = vm.Scene.synthetic(4, base_stations=5, cell_size=10.0)
    data = scene.measure(users=8, links_per_user=5, seed=0)
    options = {
        "mechanism": mechanism, "rounds": 6, "seed": 1, "calibrate": ["stations"],
        "step": vm.NoiseAwareStep(start_propagation=vm.Propagation.of_degrees(3)),
        "keep_uploads": {2}, "stations": data.stations,
    }  # fmt: skip
    whole = flat.train(data, scene.grid, **options)
    assert len(whole.radio_map.theta) == 6 + 5
    assert whole.radio_map.propagation.powers == (0.03,)

    class StopError(Exception):
        pass

    def stop(row):
        if row.round == 3:
            raise StopError

    with pytest.raises(StopError):
        flat.train(data, scene.grid, out=tmp_path, checkpoint_every=2, on_round=stop, **options)
    run = flat.train(data, scene.grid, out=tmp_path, resume=True, checkpoint_every=2, **options)
    for again in (run, vm.Run.load(tmp_path)):
        np.testing.assert_array_equal(again.radio_map.heights, whole.radio_map.heights)
        np.testing.assert_array_equal(again.radio_map.theta, whole.radio_map.theta)
        assert again.radio_map.offsets == whole.radio_map.offsets
        kept = again.transcript.rounds[2].broadcast.radio_map
        assert kept.offsets.stations == whole.radio_map.offsets.stations
    with refused(RunFolderError, tmp_path, "offset_stations"):
        flat.train(data, scene.grid, out=tmp_path, resume=True, **options | {"calibrate": []})


def test_three_laws_tell_what_two_cannot():
    # A street canyon's world: the deeper a link is blocked, the weaker.
    scene = vm.Scene.synthetic(2)
    data = scene.measure(users=80, links_per_user=60, seed=0)
    truth = vm.RadioMap(
        scene.grid,
        scene.heights,
        vm.Propagation(-35.0, -20.0, -75.0, -32.0, (Law(-50.0, -24.0, 0.03),)),
    )
    noise = np.random.default_rng(0).normal(0, 2, len(data))
    data = replace(data, gain_db=truth.predict_links(data) + noise)
    learn, unseen = data.split_by_user(0.25, seed=0)
    errors = {}
    for count in (2, 3):
        laws = vm.Propagation.of_degrees(count)
        step = vm.NoiseAwareStep(start_propagation=laws, start_theta_rate=2.0)
        run = vm.train(learn, scene.grid, rounds=120, seed=0, model=vm.Model(step=step))
        errors[count] = np.abs(run.radio_map.predict_links(unseen) - unseen.gain_db).mean()
    assert errors[3] < 0.85 * errors[2], errors


def test_wrong_laws_and_offsets_are_refused_in_words():
    with refused(ConfigurationError, 0.01, 1):
        Law(-30, -20, 1.0)
    with refused(ConfigurationError, "between"):
        vm.Propagation(between=(Law(-30, -20, 0.1), Law(-30, -20, 0.2)))
    with refused(ConfigurationError, "degrees", 7):
        vm.Propagation.of_degrees(7)
    with refused(ConfigurationError, "2 offsets"):
        Offsets(("a", "b"), (), (1.0,))
    scene = vm.Scene.synthetic(0, cell_size=10.0)
    data = scene.measure(users=3, links_per_user=5, seed=0)
    with refused(ConfigurationError, "'phones'", parameter="calibrate"):
        vm.train(data, scene.grid, rounds=1, model=vm.Model(calibrate=["phones"]))
