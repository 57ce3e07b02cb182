"""Uploads that are private by themselves, with names and shuffled: against sums term by term."""

import math

import numpy as np
import pytest
from scipy.stats import binom, norm

import naive
import veilmap as vm
from refusals import refused
from veilmap._kernels import caps
from veilmap.errors import ConfigurationError, PrivacyError
from veilmap.federation.participation import Participation
from veilmap.federation.privacy import settled
from veilmap.privacy import accounting, amplification, noise
from veilmap.privacy.mechanisms import Contribution, PrivateUploads, PrivUnit
from veilmap.privacy.mechanisms.privunit import signal

DELTA = 1e-6
GRID = vm.Grid(3.0, (4, 6))


def delta_of(guarantee, epsilon):
    """Both directions, outcome by outcome."""
    gamma, cap, factor = guarantee.blanket, guarantee.cap, math.exp(epsilon)
    n = guarantee.among or 1
    with_data = without = 0.0
    for k in range(n):
        for inside in range(k + 2):
            chance = binom.pmf(k, n - 1, gamma) * binom.pmf(inside, k + 1, cap)
            ratio = gamma + (1 - gamma) * inside / ((k + 1) * cap)
            with_data += chance * max(ratio - factor, 0)
            without += chance * max(1 - factor * ratio, 0)
    return max(with_data, without)


@pytest.mark.parametrize(
    "guarantee",
    [
        PrivateUploads(0.3, 0.2),
        PrivateUploads(0.02, 0.01),
        PrivateUploads(0.3, 0.2, 40),
        PrivateUploads(0.05, 0.02, 150),
    ],
)
def test_epsilon_is_that_of_all_outcomes(guarantee):
    for delta in (1e-3, DELTA):
        found = accounting._epsilon(guarantee, 1, delta)
        assert delta_of(guarantee, found) <= delta  # never less
        assert delta_of(guarantee, 0.98 * found - 0.001) > delta  # hardly more


def test_several_uploads_compose_as_independent_ones():
    guarantee, rounds = PrivateUploads(0.4, 0.3), 3
    found = accounting._epsilon(guarantee, rounds, 1e-3)
    inside = np.arange(rounds + 1)
    chance = binom.pmf(inside, rounds, 0.3)
    ratio = (0.4 + 0.6 / 0.3) ** inside * 0.4 ** (rounds - inside)

    def delta(epsilon):
        above = chance @ np.maximum(ratio - math.exp(epsilon), 0)
        return max(above, chance @ np.maximum(1 - math.exp(epsilon) * ratio, 0))

    assert delta(found) <= 1e-3 < delta(found - 0.02)


@pytest.mark.parametrize(("epsilon", "among"), [(0.5, None), (8.0, None), (8.0, 200), (1.0, 3000)])
def test_calibration_spends_epsilon_and_no_more(epsilon, among):
    mechanism = accounting.calibrated(PrivUnit(epsilon=epsilon, delta=DELTA, among=among), 1)
    spent = accounting.epsilon(mechanism, 1, DELTA)
    assert 0.98 * epsilon < spent <= epsilon


def test_alone_the_best_cap_is_the_known_one():
    """Both likelihood ratios are at their bounds: γ = e^−ε and γ + (1 − γ)/s = e^ε."""
    chosen = amplification.best(2.0, 1e-12, 1, None)
    assert chosen.blanket == pytest.approx(math.exp(-2), rel=1e-4)
    assert chosen.cap == pytest.approx((1 - math.exp(-2)) / (math.exp(2) - math.exp(-2)), rel=2e-3)


def test_shuffling_helps_and_the_more_the_more_are_shuffled():
    signals = [signal(amplification.best(1.0, DELTA, 1, n)) for n in (None, 100, 1000, 10**5)]
    assert all(np.diff(signals) > 0)


@pytest.mark.parametrize("among", [10**4, 10**6])
def test_shuffling_costs_less_than_the_bound_for_any_randomizer(among):
    """Feldman, McMillan and Talwar (FOCS 2021), Theorem 3.1, for data replaced by other data."""
    guarantee = PrivateUploads(0.2, 0.15, among)
    local = math.log(1 + (1 - guarantee.blanket) / (guarantee.blanket * guarantee.cap))
    assert local <= math.log(among / (16 * math.log(2 / DELTA)))
    grown = math.exp(local)
    bound = 8 * math.sqrt(grown * math.log(4 / DELTA) / among) + 8 * grown / among
    bound = math.log1p((grown - 1) / (grown + 1) * bound)
    assert accounting._epsilon(guarantee, 1, DELTA) < bound


def test_what_cannot_be_kept_is_refused():
    with refused(PrivacyError, "0.0001"):
        accounting.calibrated(PrivUnit(epsilon=1e-4, delta=1e-12), 30)
    with refused(PrivacyError, "dp-accounting"):
        accounting.event_of(accounting.calibrated(PrivUnit(), 1), 1)


def test_training_settles_the_noise_for_whom_it_can_count_on():
    turns = Participation(share=1 / 10, in_turns=True)
    seen, sees = settled(PrivUnit(epsilon=4), None, turns, 5005, 10)
    assert (seen.among, sees) == (None, "uploads")
    shuffled, _ = settled(PrivUnit(epsilon=4), "shuffled", turns, 5005, 10)
    assert shuffled.among == 450  # of groups of 500 a tenth may be missing
    assert accounting.epsilon(shuffled, 1, 1e-6) <= 4
    assert shuffled.deviation_of_mean(1, 4, 500) < seen.deviation_of_mean(1, 4, 500)
    with refused(PrivacyError, "NoNoise", "shuffled"):
        settled(vm.NoNoise(), "shuffled", turns, 5005, 10)
    with refused(PrivacyError, "among"):
        settled(shuffled, "uploads", turns, 5005, 10)


# The mechanism.


def sent_by(mechanism, gradient, users, seed=1):
    heights = np.tile(gradient, (users, 1))
    raw = Contribution(heights, np.zeros((users, 4)), np.full(users, 9), np.zeros((users, 2)))
    draws = [noise.draw(seed, user, 0) for user in range(users)]
    return mechanism.answer(raw, GRID, draws, users)


@pytest.mark.parametrize("seed", [1, None])
def test_uploads_lie_in_the_cap_as_often_as_is_accounted_for(seed):
    mechanism, users = PrivUnit(blanket=0.3, cap=0.1), 4000
    gradient = np.random.default_rng(0).normal(size=GRID.cells)
    towards = gradient / np.linalg.norm(gradient)
    # θ's gradient is 0: a contribution is a little shorter than C, and sometimes turned round. In
    # the cap of its direction lie those that are not, and a tenth of what is noise alone.
    turned = (1 - math.sqrt(1 - mechanism.theta_share**2)) / 2
    for own, expected in ((gradient, 0.3 * 0.1 + 0.7 * (1 - turned)), (0 * gradient, 0.1)):
        share = np.mean(sent_by(mechanism, own, users, seed).uploads / 4 @ towards >= norm.isf(0.1))
        # Rounding to steps moves some over the edge: 0.1 deviations at the most.
        edge = 0.05 * norm.pdf(norm.isf(0.1))
        assert abs(share - expected) < 5 * math.sqrt(expected * (1 - expected) / users) + edge


def test_the_mean_of_uploads_is_the_clipped_gradient():
    mechanism, users = PrivUnit(blanket=0.1, cap=0.05, clip=0.5), 6000
    gradient = np.random.default_rng(0).normal(size=GRID.cells)
    for scale in (10.0, 0.5):  # clipped, and shorter than the clip
        own = scale * 0.5 * gradient / np.linalg.norm(gradient)
        sent = sent_by(mechanism, own, users)
        sums = sent.uploads.sum(axis=0), sent.theta_gradient.sum(axis=0)
        found, _ = mechanism.read(*map(np.float64, sums), users)
        expected = own * min(1, 1 / scale) * math.sqrt(1 - 0.2**2)
        deviation = 0.5 * mechanism.deviation_of_mean(GRID.cells, 4, users)
        # Entries scatter a little more along the gradient: within 1 of variance.
        assert np.abs(found - expected).max() < 5 * 1.5 * deviation
        assert np.std(found - expected) == pytest.approx(deviation, rel=0.4)


def test_entries_are_bytes_and_honest_uploads_are_never_refused():
    mechanism = PrivUnit(blanket=1e-6, cap=1e-9)
    sent = sent_by(mechanism, np.eye(1, GRID.cells)[0], 500)
    assert np.abs(sent.uploads).max() <= 32
    lengths = np.linalg.norm(sent.uploads, axis=1)
    assert lengths.max() <= mechanism.largest_upload(GRID.cells)
    assert set(sent.weights.tolist()) == {1}
    assert mechanism.upload_bytes(GRID.cells, 4) == GRID.cells + 4


def test_points_are_moved_as_in_the_plain_computation():
    rng = np.random.default_rng(3)
    point, contribution = rng.normal(size=(2, 500))
    length, along = float(np.linalg.norm(contribution)), 3.5
    expected = naive.moved_into_cap(point, contribution, length, along)
    caps.moved_into_cap(point=point, contribution=contribution, length=length, along=along)
    np.testing.assert_allclose(point, expected, rtol=0, atol=1e-13)
    assert point @ contribution / length == pytest.approx(3.5, abs=1e-12)


def test_the_systems_normals_are_normal_far_out_too():
    found = noise.system_normals(200_000)
    assert abs(found.mean()) < 5 / math.sqrt(len(found))
    for threshold in (-2.5, -1.0, 0.0, 1.5, 3.0):
        share = norm.cdf(threshold)
        slack = 5 * math.sqrt(share * (1 - share) / len(found))
        assert abs(np.mean(found < threshold) - share) < slack


def test_noise_that_is_not_fixed_is_asked_for():
    with refused(ConfigurationError, "PrivUnit"):
        _ = PrivUnit().guarantee
