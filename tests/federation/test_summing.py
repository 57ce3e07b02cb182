"""Users added up where they are, against their uploads added up one by one."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import veilmap as vm
from refusals import refused
from veilmap.errors import ConfigurationError
from veilmap.federation.client import Clients, can_add_up
from veilmap.federation.engine import LocalExchange
from veilmap.federation.messages import Broadcast
from veilmap.federation.participation import Participation
from veilmap.federation.server import RoundSum
from veilmap.geometry.tiling import Tiles
from veilmap.model.gradients import gradients_of
from veilmap.privacy.mechanisms import fitting
from veilmap.privacy.mechanisms.lattice import DiscreteGaussian
from veilmap.privacy.mechanisms.sums import LANES, RunningSum

PROMISED = vm.AggregateGaussian(noise_multiplier=4.0, delta=1e-3, clip=0.3, levels=200, bits=24)
MECHANISMS = [
    vm.NoNoise(clip=0.3),
    PROMISED,
    replace(PROMISED, contribute=0.5),
    vm.UniformNoise(noise_budget=7.0, clip=0.3),
    vm.UniformNoise(noise_budget=0.0, clip=0.3),
    vm.GeometryAligned(noise_budget=7.0, tradeoff=30.0, clip=0.3),
]


def assert_same(one, other):
    """To the last bit."""
    assert (one.sum.weight, one.clients) == (other.sum.weight, other.clients)
    np.testing.assert_array_equal(one.sum.height_gradient, other.sum.height_gradient)
    np.testing.assert_array_equal(one.sum.theta_gradient, other.sum.theta_gradient)


@pytest.fixture(scope="module")
def town():
    scene = vm.Scene.synthetic(3, size=90.0, buildings=3, base_stations=12)
    return scene, scene.measure(users=23, links_per_user=9, seed=1)


def broadcast_of(scene, seed=0, cohort=23):
    heights = np.random.default_rng(seed).uniform(0, 12, scene.grid.shape)
    return Broadcast(2, vm.RadioMap(scene.grid, heights), cohort, filter_width=1.3)


def one_by_one(data, mechanism, broadcast):
    total = RoundSum(broadcast, math.inf)
    total.add(Clients(data.users.tolist(), data.links, mechanism, 7).answer(broadcast)[0])
    return total


def added_up(data, mechanism, broadcast, share=1.0):
    total = RoundSum(broadcast, math.inf)
    turnout = Participation(share).draw(5, 2, data.users.tolist())
    LocalExchange(data, mechanism, 7).collect(total, turnout)
    return total


def test_every_mechanism_is_tried_here():
    kinds = vm.mechanisms.MECHANISMS.items()
    in_place = {name for name, kind in kinds if kind.sums_in_place}
    assert {mechanism.name for mechanism in MECHANISMS} == in_place


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_sum_is_that_of_the_uploads(town, mechanism):
    scene, data = town
    broadcast = broadcast_of(scene)
    assert can_add_up(mechanism, broadcast.radio_map, seed=7)
    assert_same(added_up(data, mechanism, broadcast), one_by_one(data, mechanism, broadcast))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_users_know_the_same_of_their_answers_either_way(town, mechanism):
    scene, data = town
    broadcast, tiles = broadcast_of(scene), Tiles.single(scene.grid)
    clients = Clients(data.users.tolist(), data.links, mechanism, 7)
    total = RunningSum.empty(tiles.cells.tolist(), 4, whole=mechanism.whole_numbers)
    together = clients.add_up(broadcast, tiles, np.array([23]), total)
    _, apart = clients.answer(broadcast)
    np.testing.assert_array_equal(together.loss, apart.loss)
    np.testing.assert_array_equal(together.norm, apart.norm)
    np.testing.assert_array_equal(together.noise_energy, apart.noise_energy)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kept_uploads_do_not_change_the_map(town, mechanism):
    scene, data = town
    runs = [
        vm.train(data, scene.grid, mechanism=mechanism, rounds=3, seed=4, server_sees="sums",
                 recording=vm.Recording(keep_uploads=kept))
        for kept in ((), "all")
    ]  # fmt: skip
    if not mechanism.needs_sums:
        kept = vm.train(
            data,
            scene.grid,
            mechanism=mechanism,
            rounds=3,
            seed=4,
            recording=vm.Recording(keep_uploads="all"),
        )
        runs.append(kept)
    for run in runs[1:]:
        np.testing.assert_array_equal(run.radio_map.heights, runs[0].radio_map.heights)
        assert run.radio_map.propagation == runs[0].radio_map.propagation


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_blocks_and_threads_do_not_change_the_sum(town, mechanism, monkeypatch):
    scene, data = town
    broadcast = broadcast_of(scene)
    whole = added_up(data, mechanism, broadcast)
    monkeypatch.setenv("VEILMAP_THREADS", "1")
    assert_same(added_up(data, mechanism, broadcast), whole)
    monkeypatch.setattr("veilmap.federation.engine._USERS_PER_BLOCK", 5)
    assert_same(added_up(data, mechanism, broadcast), whole)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_only_those_who_turn_out_are_in_the_sum(town, mechanism, monkeypatch):
    monkeypatch.setattr("veilmap.federation.engine._USERS_PER_BLOCK", 6)
    scene, data = town
    broadcast = broadcast_of(scene)
    some = added_up(data, mechanism, broadcast, share=0.5)
    assert 0 < len(some.clients) < 23
    there = data.select(np.isin(data.user, some.clients))
    assert_same(some, one_by_one(there, mechanism, broadcast))


@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1), st.floats(0.05, 3.0))
def test_the_kernel_lists_what_the_dense_pass_finds(seed, sharpness):
    rng = np.random.default_rng(seed)
    grid = vm.Grid(float(rng.uniform(1, 9)), tuple(rng.integers(1, 40, 2)))
    radio_map = vm.RadioMap(grid, rng.uniform(-3, 20, grid.shape), sharpness=sharpness)
    west, east, south, north = grid.extent
    ends = rng.uniform((west, south, 0), (east, north, 30), (2, 40, 3))
    data = vm.Measurements(rng.integers(0, 7, 40), *ends, rng.normal(-80, 10, 40))
    dense = gradients_of(radio_map, data.links)
    mechanism = vm.NoNoise(clip=float(rng.uniform(0.01, 2)))
    total = RunningSum.empty([grid.cells], 4, whole=False)
    clients = Clients(data.users.tolist(), data.links, mechanism, 0)
    insight = clients.add_up(Broadcast(0, radio_map), Tiles.single(grid), np.array([7]), total)
    norms = np.linalg.norm(dense.height_gradient, axis=1)
    weights = dense.counts * np.minimum(1, mechanism.clip / np.maximum(norms, 1e-300))
    scale = np.abs(weights @ np.abs(dense.height_gradient)).max() + 1e-300
    np.testing.assert_allclose(
        total.total()[0], weights @ dense.height_gradient, rtol=0, atol=1e-12 * scale
    )
    np.testing.assert_array_equal(insight.loss, dense.loss)
    np.testing.assert_allclose(insight.norm, norms, rtol=1e-12)


def test_noise_of_the_system_is_never_made_from_a_seed(town):
    scene, data = town
    tiles = Tiles.single(scene.grid)
    total = RunningSum.empty(tiles.cells.tolist(), 4, whole=False)
    unseeded = Clients(data.users.tolist(), data.links, vm.UniformNoise())
    with pytest.raises(ValueError, match="seed"):
        unseeded.add_up(broadcast_of(scene), tiles, np.array([23]), total)
    silent = Clients(data.users.tolist(), data.links, vm.UniformNoise(noise_budget=0))
    silent.add_up(broadcast_of(scene), tiles, np.array([23]), total)


def test_rich_maps_are_answered_one_by_one(town):
    scene, _ = town
    plain = broadcast_of(scene).radio_map
    assert can_add_up(MECHANISMS[0], plain)
    assert can_add_up(vm.UniformNoise(), plain, seed=0)
    assert not can_add_up(vm.UniformNoise(), plain, seed=None)
    several = vm.RadioMap(scene.grid, plain.heights, vm.Propagation.of_degrees(3))
    assert not can_add_up(MECHANISMS[0], several)
    assert not can_add_up(vm.mechanisms.PrivUnit(blanket=0.1, cap=0.1), plain, seed=0)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_gradient_that_is_not_finite_is_refused(town, mechanism):
    scene, data = town
    wild = replace(broadcast_of(scene).radio_map, propagation=vm.Propagation(1e308, 1e308, 0, 0))
    with refused(ConfigurationError, "gradient"):
        added_up(data, mechanism, Broadcast(2, wild, 23))


@given(st.integers(2, 200_000), st.floats(0.3, 200), st.sampled_from([0.0, 0.3]))
def test_the_range_holds_the_noise_and_what_users_have_in_common(cohort, z, dropout):
    mechanism = vm.AggregateGaussian(noise_multiplier=z, dropout=dropout)
    chosen = fitting.fitted(mechanism, cohort)
    deviation = chosen.share_deviation(10**6, 4, cohort)
    reach = 6 * deviation / 1.01 * math.sqrt(chosen.least_answers(cohort))
    reach += fitting.LARGEST_MEAN * chosen.levels * cohort
    assert reach <= 2 ** (chosen.bits - 1)
    assert chosen.bits in (16, 24, 32)
    assert deviation >= 2.1
    # What a sum of shares lacks to a discrete Gaussian is less than what is charged for it.
    k = np.arange(1, cohort)
    lacking = 4 * np.sum(np.exp(-2 * (math.pi * deviation) ** 2 * k / (k + 1)))
    assert 2 * (10**6 + 4) * lacking <= chosen.guarantee.uneven
    assert fitting.fitted(chosen, cohort) == chosen


def test_bits_that_cannot_do_are_refused():
    with refused(ConfigurationError, "8 bits", "1000 users"):
        fitting.fitted(vm.AggregateGaussian(noise_multiplier=5.0, bits=8), 1000)
    few = fitting.fitted(vm.AggregateGaussian(noise_multiplier=5.0, levels=100), 1000)
    assert few.bits == 16
    assert few.upload_bytes(10_000, 4) == 20_000 + 20


def test_a_sum_has_the_same_number_of_lanes_everywhere():
    assert RunningSum.empty([3, 5], 1, whole=True).lanes.shape == (LANES, 10)


def test_one_secret_coin_decides_over_heights_and_theta(town, monkeypatch):
    """Also without a seed, where a second toss would fall otherwise."""
    scene, data = town
    monkeypatch.setattr(DiscreteGaussian, "add_to", lambda self, total, draw: None)
    broadcast, tiles = broadcast_of(scene), Tiles.single(scene.grid)
    one = data.select(data.user == data.users[0])
    mechanism, tossed = replace(PROMISED, contribute=0.5), set()
    for _ in range(40):  # all alike once in 10¹², unless the coin is stuck
        total = RunningSum.empty(tiles.cells.tolist(), 4, whole=True)
        Clients([0], one.links, mechanism).add_up(broadcast, tiles, np.array([23]), total)
        heights, theta = total.total()
        assert heights.any() == theta.any()
        tossed.add(heights.any())
    assert tossed == {True, False}
