"""Audits of noisy sums by who knows everybody else: within what is allowed, above it without."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

import veilmap as vm
from refusals import refused
from veilmap.auditing.measured import Z
from veilmap.auditing.opened_sums import EXPECTED, OTHERS, _Sums, audit_sums
from veilmap.errors import ConfigurationError
from veilmap.federation.client import Clients
from veilmap.privacy import accounting, noise
from veilmap.privacy.mechanisms.fitting import fitted
from veilmap.privacy.mechanisms.lattice import discrete_gaussian

USERS, ROUNDS, EPSILON = 120, 4, 2.0


@pytest.fixture(scope="module")
def scene():
    return vm.Scene.synthetic(1, cell_size=10.0)


@pytest.fixture(scope="module")
def data(scene):
    return scene.measure(USERS, 25, seed=2)


@pytest.fixture(scope="module")
def claimed():
    asked = vm.AggregateGaussian(epsilon=EPSILON, delta=1e-6, dropout=0.0)
    return fitted(accounting.calibrated(asked, ROUNDS), USERS)


def trained(data, scene, mechanism, **options):
    recording = vm.Recording(keep_uploads="all")
    settings = {"rounds": ROUNDS, "seed": 0, "recording": recording} | options
    return vm.train(data, scene.grid, mechanism=mechanism, **settings)


def trained_with(share, data, scene, claimed, seed):
    """A run that claims its mechanism, with only a share of the noise in its sums."""
    # With less noise than claimed the run would stop early: its own account is switched off.
    less = replace(claimed, noise_multiplier=share * claimed.noise_on_sum, epsilon=1e9)
    run = trained(data, scene, less, seed=seed)
    return replace(run, transcript=replace(run.transcript, mechanism=claimed))


@pytest.fixture(scope="module")
def run(data, scene, claimed):
    return trained(data, scene, claimed)


@pytest.fixture(scope="module")
def found(run, data):
    return vm.audit(run, data).sums


def known(run, data):
    return run.transcript.knowing(*data.stations)


def test_an_audit_of_noisy_sums_has_who_knows_everybody_else(found, run, data):
    assert found.rounds == tuple(range(ROUNDS))
    assert found.epsilon == pytest.approx(EPSILON)
    assert found.distance_allowed == pytest.approx(
        accounting.guarantee_of(run.transcript.mechanism).distance * math.sqrt(ROUNDS)
    )
    assert found.membership.users == USERS
    assert [one.users for one in found.location] == 3 * [USERS]
    assert {one.knows for one in found.location[1:]} == {OTHERS}
    content = json.loads(json.dumps(vm.audit(run, data).as_dict(), allow_nan=False))
    assert content["sums"]["rounds"] == [1, 2, 3, 4]
    assert content["sums"]["least_rmse_over_prior"] == found.closest_rmse


def test_nobodys_contribution_is_longer_than_the_noise_is_made_for(found):
    assert 0.8 * found.distance_allowed < found.distance_largest <= found.distance_allowed


def test_power_is_within_what_epsilon_allows_and_near_what_the_noise_allows(run, data, scene):
    count, told = 6, None
    distances, aucs, shares = np.empty((3, count))
    for seed in range(count):
        found = vm.audit(trained(data, scene, run.transcript.mechanism, seed=seed), data).sums
        told = found.membership
        aucs[seed], shares[seed] = told.auc.value, told.found_at_5_percent.value
        distances[seed] = math.sqrt(2) * normal_quantile(told.auc.value)
    less = math.sqrt(count)
    assert aucs.mean() + 2 * deviation_of(told.auc) / less < told.auc_allowed
    found_deviation = deviation_of(told.found_at_5_percent) / less
    assert shares.mean() + 2 * found_deviation < told.found_at_5_percent_allowed
    # The error of the difference of two means of 60 scores each.
    error = math.sqrt(2 / (USERS / 2)) / less
    assert distances.mean() == pytest.approx(0.9 * found.distance_allowed, abs=4 * error)


def deviation_of(measured):
    return (measured.high - measured.low) / (2 * Z)


def normal_quantile(share):
    from scipy.special import ndtri

    return float(ndtri(share))


def test_with_an_eighth_of_the_noise_more_is_found_than_is_allowed(data, scene, claimed):
    less = trained_with(0.125, data, scene, claimed, seed=3)
    told = vm.audit(less, data).sums.membership
    assert told.auc.low > told.auc_of_noise
    assert told.auc.low > told.auc_allowed
    assert told.found_at_5_percent.low > told.found_at_5_percent_of_noise


def test_almost_without_noise_users_are_placed_and_with_it_they_are_not(
    found, data, scene, claimed
):
    loud = trained_with(0.01, data, scene, claimed, seed=3)
    placed = audit_sums(known(loud, data), data, 3)
    likeliest = next(one for one in placed.location if "likeliest" in one.attack)
    assert likeliest.median.value < 2 * scene.grid.cell_size
    # Guessing's RMSE over 120 users has a relative deviation of about 4 %.
    assert found.closest_rmse > 0.85


def test_what_is_left_without_noise_is_the_contribution_itself(run, data, claimed):
    sums = _Sums.of(known(run, data), data, 0)
    for number, seen in run.transcript.rounds.items():
        one = sums.left_of(number)
        map_of = seen.broadcast.radio_map
        share = claimed.share_deviation(map_of.trained_cells, len(map_of.theta), USERS)
        made = sum(
            discrete_gaussian(share).sample(len(one.rest), noise.draw(0, user, number))
            for user in data.users.tolist()
        )
        np.testing.assert_allclose(one.rest, made / (share * math.sqrt(USERS)), atol=1e-5)
        assert one.present.all()
        clients = Clients(data.users.tolist(), data.links, claimed, 0)
        updates, _ = clients.answer(seen.broadcast)
        own = clients.contributions(seen.broadcast)
        for row, user in enumerate(data.users.tolist()):
            sent = np.append(updates[row].height_gradient, updates[row].theta_gradient)
            drawn = discrete_gaussian(share).sample(len(sent), noise.draw(0, user, number))
            np.testing.assert_array_equal(sent - drawn, own[row])
            assert (own[row] ** 2).sum() <= claimed.sensitivity(map_of.grid.cells, 4) ** 2


def test_a_round_counts_only_for_those_who_took_part_in_it(data, scene, claimed):
    some = trained(
        data, scene, replace(claimed, dropout=0.5), participation=vm.Participation(dropout=0.2)
    )
    sums = _Sums.of(known(some, data), data, 0)
    for number, seen in some.transcript.rounds.items():
        one = sums.left_of(number)
        absent = [client not in seen.clients for client in sums.targets]
        assert 0 < sum(absent) < USERS / 2
        assert not one.own[absent].any()
        assert (one.present != absent).all()
        assert len(one.left().heights) == one.present.sum()
    told = audit_sums(known(some, data), data, 0)
    assert told.distance_largest <= told.distance_allowed


def test_without_a_seed_roundings_are_taken_as_their_mean(run, data, scene, claimed):
    unseeded = trained(data, scene, claimed, seed=None)
    told = vm.audit(unseeded, data).sums
    assert {one.knows for one in told.location[1:]} == {EXPECTED}
    assert told.distance_largest <= told.distance_allowed
    broadcast = run.transcript.rounds[1].broadcast
    mean = Clients(data.users.tolist(), data.links, claimed).contributions(broadcast)
    count = 40
    rounded = np.array([
        Clients(data.users.tolist(), data.links, claimed, seed).contributions(broadcast)
        for seed in range(count)
    ])  # fmt: skip
    # The mean of 40 against that of 8: of numbers that are rounded up or down, and of all numbers
    # of a user who is at the bound and is made a tenth shorter, or not.
    off, spread = np.abs(rounded.mean(axis=0) - mean), rounded.std(axis=0)
    largest = 0.5 + 0.1 * np.abs(mean)
    assert (spread < largest).all()
    assert (off < 6 * largest * math.sqrt(1 / count + 1 / 8)).all()
    assert np.mean(off) < 0.25


def louder(data):
    columns = {name: getattr(data, name) for name in ("user", "user_xyz", "bs_xyz", "bs")}
    return vm.Measurements(**columns, gain_db=data.gain_db + 20)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda data, scene: louder(data),
        lambda data, scene: data.select(data.user < USERS - 1),
    ],
    ids=["other gains", "one missing"],
)
def test_data_that_were_not_trained_on_are_refused(run, data, scene, wrong):
    with refused(ConfigurationError, parameter="truth"):
        vm.audit(run, wrong(data, scene))


def test_places_alone_chosen_attacks_or_secret_coins_leave_that_adversary_out(
    run, data, scene, claimed
):
    places = dict(zip(data.users.tolist(), data.mean_positions(), strict=True))
    told = replace(run, transcript=known(run, data))
    assert vm.audit(told, places).sums is None
    assert vm.audit(told, places).as_dict()["sums"] is None
    assert vm.audit(run, data, attacks=[vm.attacks.PriorOnly()], battery=False).sums is None
    secret = trained(data, scene, replace(claimed, contribute=0.5))
    assert vm.audit(secret, data).sums is None


def test_few_users_are_attacked_and_all_others_count(run, data):
    told = vm.audit(run, data, users=10).sums
    assert told.membership.users == told.location[0].users == 10
    assert vm.audit(run, data, users=3).sums is None


def test_chosen_rounds_are_charged_alone(run, data, claimed):
    told = vm.audit(run, data, rounds=[0, 2]).sums
    assert told.rounds == (0, 2)
    assert told.epsilon == accounting.epsilon(claimed, 2, claimed.delta) < EPSILON
    assert told.distance_largest <= told.distance_allowed
