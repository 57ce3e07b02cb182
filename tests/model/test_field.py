"""What obstacles leave over: a field for every base station, learned from one sum."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flat
import veilmap as vm
from refusals import refused
from veilmap.errors import ConfigurationError
from veilmap.federation.public import Public
from veilmap.federation.residual import ThenField
from veilmap.model.field import Field
from veilmap.privacy.mechanisms.base import norms_of

GRID = vm.Grid(20.0, (4, 5), (-10.0, 30.0))
STATIONS = np.array([[0.0, 40.0, 30.0], [55.0, 90.0, 25.0]])


def plain_value(field, user, bs):
    """Bilinear interpolation between the four centres around a point, from the definition."""
    number = next((b for b, s in enumerate(field.stations) if np.allclose(s, bs)), None)
    if number is None:
        return 0.0
    x = np.clip(user[0], field.grid.x[0], field.grid.x[-1])
    y = np.clip(user[1], field.grid.y[0], field.grid.y[-1])
    value = 0.0
    for row, centre_y in enumerate(field.grid.y):
        for column, centre_x in enumerate(field.grid.x):
            near_x = max(0.0, 1 - abs(x - centre_x) / field.grid.cell_size)
            near_y = max(0.0, 1 - abs(y - centre_y) / field.grid.cell_size)
            value += near_x * near_y * field.values[number, row, column]
    return value


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), shape=st.sampled_from([(4, 5), (1, 5), (4, 1), (1, 1), (2, 2)]))
def test_the_field_is_linear_between_its_points(seed, shape):
    rng = np.random.default_rng(seed)
    field = Field(replace(GRID, shape=shape), STATIONS, rng.normal(size=(2, *shape)))
    user = rng.uniform([-40, 0, 0], [130, 150, 10], (12, 3))
    bs = np.vstack([STATIONS, [[1.0, 2.0, 3.0]]])[rng.integers(0, 3, 12)]
    expected = [plain_value(field, u, b) for u, b in zip(user, bs, strict=True)]
    np.testing.assert_allclose(field.at(user, bs), expected, atol=1e-12)
    _, shares = field.shares(user, bs)
    known = np.array([(b == STATIONS).all(axis=1).any() for b in bs])
    np.testing.assert_allclose(shares.sum(axis=1), known)


def street(seed=0, users=6):
    """A map with a field, and measurements of some users."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 6, users)
    user = np.repeat(np.arange(users), counts)
    data = vm.Measurements(
        user,
        rng.uniform([-10, 30, 1], [90, 110, 2], (len(user), 3)),
        STATIONS[rng.integers(0, 2, len(user))],
        rng.normal(-80, 8, len(user)),
    )
    field = Field(GRID, STATIONS, rng.normal(size=(2, 4, 5)))
    ground = vm.Grid(10.0, (8, 10), (-10.0, 30.0))
    return vm.RadioMap(ground, np.full(80, -5.0), field=field), data


def test_gradients_of_a_field_are_slopes_at_zero_and_curvatures():
    radio_map, data = street()
    found = vm.local_gradients(radio_map, data)
    size = radio_map.field.values.size
    assert found.height_gradient.shape == (6, radio_map.trained_cells) == (6, 2 * size)
    assert (found.theta_gradient == 0).all()
    np.testing.assert_allclose(
        found.counts @ found.loss / found.counts.sum(), radio_map.loss(data), rtol=1e-12
    )

    def loss_of(user, values):
        moved = replace(radio_map, field=radio_map.field.moved_to(values))
        return moved.loss(data.of_user(user))

    zero, width = np.zeros(size), 1e-3
    for user in (0, 3):
        for entry in range(0, size, 3):
            step = np.eye(size)[entry] * width
            up, down = loss_of(user, step), loss_of(user, -step)
            slope = (up - down) / (2 * width)
            assert found.height_gradient[user, entry] == pytest.approx(slope, abs=1e-6)
    # Lumped: a row of the second derivative added up, which is what a shift of all would feel.
    up, down, here = (loss_of(0, zero + d) for d in (width, -width, 0.0))
    whole = (up - 2 * here + down) / width**2
    assert found.height_gradient[0, size:].sum() == pytest.approx(whole, rel=1e-4)


def test_sums_that_tell_nothing_give_no_field():
    rule = ThenField(20.0)
    state = rule.start(vm.Grid(10.0, (8, 10), (-10.0, 30.0)), Public(STATIONS))
    state = rule(state, np.zeros(80), np.zeros(4), 2)
    state = rule(state, np.zeros(state.radio_map.trained_cells), np.zeros(4), 2)
    assert (state.radio_map.field.values == 0).all()


@pytest.fixture(scope="module")
def shadowed():
    scene = vm.Scene.synthetic(1, base_stations=10)
    options = {"links_per_user": 10, "shadowing_db": 8.0, "shadowing_distance": 60.0}
    return (
        scene,
        scene.measure(users=250, seed=0, **options),
        scene.measure(users=150, seed=1, **options),
    )


def test_a_field_learns_what_obstacles_cannot(shadowed):
    scene, data, unseen = shadowed
    errors = {}
    for name, spacing in (("obstacles", None), ("and field", 25.0)):
        run = vm.train(
            data,
            scene.grid,
            rounds=81,
            seed=0,
            server_sees="sums",
            model=vm.Model(residual=spacing),
            recording=vm.Recording(test=unseen),
        )
        errors[name] = vm.baselines.mean_absolute_error(run.radio_map, unseen)
        assert run.history[-1].mae_db == pytest.approx(errors[name])
    # Six drawings of users in cities 1 to 3 gave 1.3 to 1.9 dB.
    assert errors["and field"] < errors["obstacles"] - 1.0, errors


def test_under_noise_more_rounds_average_the_field():
    radio_map, data = street(users=40)
    found = vm.local_gradients(radio_map, data)
    exact = found.counts @ found.height_gradient / found.counts.sum()
    rng = np.random.default_rng(0)

    def learned(rounds, noise):
        rule = ThenField(20.0, vm.NoiseAwareStep(), rounds=rounds)
        state = rule.start(radio_map.grid, Public(STATIONS))
        state = rule(state, np.zeros(80), np.zeros(4), rounds + 1)
        assert state.radio_map.field is not None
        for _ in range(rounds):
            seen = exact + noise * rng.normal(size=exact.size)
            state = rule(state, seen, np.zeros(4), rounds + 1)
        assert state.round == rounds + 1
        return state.radio_map.field.values

    truth = learned(1, 0.0)
    apart = {count: np.abs(learned(count, 0.2) - truth).mean() for count in (1, 100)}
    assert apart[100] < 0.3 * apart[1], apart


def test_sums_with_noise_learn_a_field_within_their_promise(shadowed):
    scene, data, _ = shadowed
    run = vm.train(
        data,
        scene.grid,
        rounds=10,
        seed=0,
        mechanism=vm.AggregateGaussian(epsilon=8, delta=1e-3),
        model=vm.Model(step=ThenField(50.0, rounds=4), stations=data.stations),
    )
    assert run.radio_map.field is not None
    assert run.history[-1].epsilon <= 8


def test_a_run_with_a_field_resumes_loads_and_predicts_an_area(shadowed, tmp_path):
    scene, data, _ = shadowed
    options = {"rounds": 6, "seed": 0, "server_sees": "sums", "checkpoint_every": 1,
               "step": ThenField(30.0, rounds=3), "keep_uploads": {5}}  # fmt: skip
    whole = flat.train(data, scene.grid, **options)

    class StopError(Exception):
        pass

    def stop(row):
        if row.round == 4:
            raise StopError

    with pytest.raises(StopError):
        flat.train(data, scene.grid, out=tmp_path, on_round=stop, **options)
    run = flat.train(data, scene.grid, out=tmp_path, resume=True, **options)
    loaded = vm.Run.load(tmp_path)
    for again in (run, loaded):
        np.testing.assert_array_equal(again.radio_map.field.values, whole.radio_map.field.values)
        np.testing.assert_array_equal(again.radio_map.heights, whole.radio_map.heights)
        assert again.transcript.rounds[5].broadcast.radio_map.field is not None
    station = scene.base_stations[3]
    area = loaded.radio_map.predict_area(station)
    bare = replace(loaded.radio_map, field=None).predict_area(station)
    assert np.abs(area - bare).max() > 0.1
    elsewhere = np.add(station, [1.0, 0.0, 0.0])  # a station that nobody has measured
    np.testing.assert_array_equal(
        loaded.radio_map.predict_area(elsewhere),
        replace(loaded.radio_map, field=None).predict_area(elsewhere),
    )


@pytest.mark.parametrize(
    "mechanism", [vm.UniformNoise(noise_budget=4), vm.GeometryAligned(noise_budget=4)]
)
def test_noise_over_layers_keeps_the_budget_and_is_alike_in_all(mechanism):
    rng = np.random.default_rng(0)
    gradients = rng.normal(size=(3, 6 * GRID.cells)) * 0.01
    places = rng.uniform([0, 40], [80, 100], (3, 2))
    variances = mechanism.variances(gradients, GRID, places)
    np.testing.assert_allclose(variances.sum(axis=1), 4 * norms_of(gradients) ** 2, rtol=1e-9)
    layers = variances.reshape(3, 6, GRID.cells)
    np.testing.assert_array_equal(layers, np.repeat(layers[:, :1], 6, axis=1))
    one = mechanism.variances(np.sqrt((gradients.reshape(3, 6, -1) ** 2).sum(axis=1)), GRID, places)
    np.testing.assert_allclose(layers.sum(axis=1), one, rtol=1e-9)


def test_wrong_use_is_refused_in_words(shadowed, tmp_path):
    scene, data, _ = shadowed
    with refused(ConfigurationError, "server_sees='sums'"):
        vm.train(data, scene.grid, rounds=3, model=vm.Model(residual=30.0))
    with refused(ConfigurationError, -1, parameter="spacing"):
        vm.train(data, scene.grid, rounds=3, server_sees="sums", model=vm.Model(residual=-1.0))
    with refused(ConfigurationError, "1 rounds"):
        vm.train(data, scene.grid, rounds=1, server_sees="sums", model=vm.Model(residual=30.0))
    with refused(ConfigurationError, "(2, 4, 5)"):
        Field(GRID, STATIONS, np.zeros(3))
    run = vm.train(
        data,
        scene.grid,
        rounds=3,
        server_sees="sums",
        seed=0,
        model=vm.Model(residual=30.0),
        recording=vm.Recording(keep_uploads="all"),
    )
    with refused(ConfigurationError, "round 3", parameter="rounds"):
        vm.audit(run, data, rounds=[1, 2])
