"""A mean that few hostile users do not decide."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

import veilmap as vm
from refusals import refused
from veilmap.errors import ConfigurationError
from veilmap.federation.engine import Gathered, LocalExchange
from veilmap.federation.messages import Update
from veilmap.federation.robust import RobustMean
from veilmap.federation.server import IMPOSSIBLE
from veilmap.privacy.accounting import calibrated

SHAPE, CELLS, USERS, LIARS = (30, 30), 900, 60, 6


def updates(seed, lie=0.0, weight=10):
    """Honest uploads are noise around one signal; the first few tell another."""
    rng = np.random.default_rng(seed)
    signal, other = np.sin(np.arange(CELLS) / 9.0), -np.ones(CELLS)
    made = []
    for user in range(USERS):
        told = lie * other if user < LIARS else 0.1 * signal
        noise = rng.normal(size=CELLS)
        made.append(Update(user, seed, weight, told + noise, rng.normal(size=4)))
    return made


def test_liars_are_left_out_in_time_though_noise_hides_each_upload():
    robust, memory, left = RobustMean(), {}, []
    for number in range(25):
        _, left, memory = robust.weighed(updates(number, lie=0.3), SHAPE, 2, memory)
    assert left == list(range(LIARS))


def test_honest_users_are_not_left_out():
    robust, memory = RobustMean(), {}
    for number in range(25):
        added, left, memory = robust.weighed(updates(number), SHAPE, 2, memory)
        # Six users are as many as any seed may take for outliers: one in ten.
        assert len(left) <= USERS // 10
    assert [update.client for update in added] == [u for u in range(USERS) if u not in left]


def test_nobody_counts_for_more_than_twice_the_median_or_is_longer_than_it():
    made = updates(0)
    made[0] = replace(made[0], weight=10**6, theta_gradient=np.full(4, 1e6))
    made[1] = replace(made[1], height_gradient=1000 * made[1].height_gradient)
    added, _, _ = RobustMean(most=0).weighed(made, SHAPE, 2, {})
    assert added[0].weight == 20
    assert {update.weight for update in added[1:]} == {10}
    norms = [np.linalg.norm(update.height_gradient) for update in added]
    assert norms[1] < 1.2 * np.median(norms)
    assert np.linalg.norm(added[0].theta_gradient) < 100


def test_no_more_than_a_share_of_users_is_ever_left_out():
    traces = np.random.default_rng(0).standard_cauchy(size=(50, 40))
    assert (~RobustMean(outlier=0.0).inliers(traces)).sum() == int(0.15 * 50)


@dataclass(frozen=True)
class Lying(LocalExchange):
    """Three users send walls everywhere; sums get so many contributions on top."""

    def collect(self, total, turnout):
        made = [u for c in self._answering(turnout, 99) for u in c.answer(total.broadcast)[0]]
        for number in range(3):
            walls = np.full(total.cells, -total.largest_norm / np.sqrt(total.cells))
            made[number] = replace(made[number], height_gradient=walls)
        total.add(made)
        return Gathered()


@dataclass(frozen=True)
class Playing:
    exchange: type
    divides = True

    def play(self, training, data):
        return training.play(self.exchange(data, training.config.mechanism, training.config.seed))


@pytest.fixture(scope="module")
def town():
    scene = vm.Scene.synthetic(0, cell_size=10.0)
    return scene, scene.measure(users=30, links_per_user=60, seed=0)


def test_a_robust_training_names_those_it_left_out_and_ends_near_an_honest_one(town):
    scene, data = town
    test = scene.measure(users=20, links_per_user=60, seed=9)
    given = {"rounds": 30, "seed": 0, "recording": vm.Recording(test=test, test_every=30)}
    honest, attacked, robust = (
        vm.train(data, scene.grid, engine=engine, robust=on, **given)
        for engine, on in ((None, False), (Playing(Lying), False), (Playing(Lying), True))
    )
    maes = [run.history[-1].mae_db for run in (honest, attacked, robust)]
    assert maes[2] - maes[0] < 0.5 * (maes[1] - maes[0])
    # By name, and more often than four of thirty who are left out at random would be.
    named = [[f"{user} is left out" in row.notes for row in robust.history] for user in range(3)]
    assert np.mean(named) > 0.2
    assert all(row.clients == 30 - row.refused for row in robust.history)


def test_a_robust_run_resumes_to_the_same_bits(town, tmp_path):
    scene, data = town
    given = {"mechanism": vm.GeometryAligned(noise_budget=10), "seed": 3, "robust": True}
    whole = vm.train(data, scene.grid, rounds=6, **given)

    def stop(row):
        if row.round == 3:
            raise KeyboardInterrupt

    kept = {"out": tmp_path / "run", "checkpoint_every": 2}
    with pytest.raises(KeyboardInterrupt):
        vm.train(data, scene.grid, rounds=6, recording=vm.Recording(**kept, on_round=stop), **given)
    again = vm.train(
        data, scene.grid, rounds=6, recording=vm.Recording(**kept, resume=True), **given
    )
    np.testing.assert_array_equal(again.radio_map.heights, whole.radio_map.heights)


def test_what_is_not_seen_cannot_be_screened(town):
    scene, data = town
    with refused(ConfigurationError, "robust"):
        vm.train(data, scene.grid, server_sees="sums", robust=True)


# ---- Sums


@dataclass(frozen=True)
class Adding(LocalExchange):
    """One user adds far more to the sum than any contribution, in the second round."""

    def collect(self, total, turnout):
        gathered = super().collect(total, turnout)
        if total.broadcast.round == 1:
            total._running.lanes[0, : total.cells] -= 100_000
        return gathered


def test_an_opened_sum_of_no_honest_crowd_moves_no_map_and_is_named_and_paid_for(town):
    scene, data = town
    mechanism = calibrated(vm.AggregateGaussian(epsilon=8, delta=1e-3), 3)
    given = {"mechanism": mechanism, "rounds": 3, "seed": 0}
    honest = vm.train(data, scene.grid, recording=vm.Recording(), **given)
    run = vm.train(data, scene.grid, engine=Playing(Adding), **given)
    assert not any(row.notes for row in honest.history)
    assert [IMPOSSIBLE in row.notes for row in run.history] == [False, True, False]
    assert [row.opened for row in run.history] == [1, 1, 1]
    assert [row.epsilon for row in run.history] == [row.epsilon for row in honest.history]


def test_no_honest_upload_is_longer_than_the_server_takes():
    grid = vm.Grid(3.0, (20, 20))
    rng = np.random.default_rng(0)
    gradients = 5 * rng.normal(size=(40, 400))
    places = rng.uniform(0, 60, size=(40, 2))
    for kind in (vm.NoNoise, vm.UniformNoise, vm.GeometryAligned):
        mechanism = kind(clip=0.3)
        draws = [vm.privacy.noise.draw(0, user, 0) for user in range(40)]
        sent = mechanism.protect(gradients, grid, places, draws).uploads
        longest = np.linalg.norm(sent, axis=1).max()
        assert longest <= mechanism.largest_upload(400)
        assert mechanism.largest_upload(400) <= 10 * 0.3 * np.sqrt(11)
    assert vm.NoNoise().largest_upload(400) < 1.001
