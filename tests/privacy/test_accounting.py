import math
from dataclasses import replace

import numpy as np
import pytest
from dp_accounting import pld, rdp
from scipy.stats import beta, norm

import veilmap as vm
from refusals import refused
from veilmap.errors import PrivacyError
from veilmap.privacy import accounting, noise
from veilmap.privacy.accounting import Ledger
from veilmap.privacy.mechanisms import MECHANISMS, Contribution, PrivateSums, PrivateUploads

DELTA = 1e-6


@pytest.mark.parametrize("z", [0.5, 3.0, 20.0])
@pytest.mark.parametrize("rounds", [1, 100])
def test_epsilon_is_that_of_gaussian_mechanisms_in_two_independent_computations(z, rounds):
    mechanism = vm.AggregateGaussian(noise_multiplier=z)
    found = accounting.epsilon(mechanism, rounds, DELTA)
    # Balle and Wang's curve at that ε, by its definition.
    distance = math.sqrt(rounds) / z
    sure = norm.cdf(distance / 2 - found / distance)
    delta = sure - math.exp(found + norm.logcdf(-distance / 2 - found / distance))
    assert delta == pytest.approx(DELTA, rel=1e-6)
    # Privacy loss distributions, which err on the side of more ε; Rényi's orders ask for more yet.
    event = accounting.event_of(mechanism, rounds)
    by_losses = pld.PLDAccountant(value_discretization_interval=1e-3).compose(event)
    assert found <= by_losses.get_epsilon(DELTA) + 1e-6 < found + 0.02 * (1 + found)
    assert found < rdp.RdpAccountant().compose(event).get_epsilon(DELTA)


def test_what_a_sum_is_uneven_by_is_charged_for():
    guarantee = vm.AggregateGaussian(noise_multiplier=3.0).guarantee
    rounds = 10
    plain = accounting._epsilon(replace(guarantee, uneven=0.0), rounds, DELTA)
    charged = accounting._epsilon(replace(guarantee, uneven=1e-4), rounds, DELTA)
    assert charged == pytest.approx(plain + rounds * 1e-4, abs=1e-3)
    assert charged > plain + rounds * 1e-4  # δ is charged too
    assert guarantee.uneven > 0


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
@pytest.mark.parametrize("contribute", [1.0, 0.1])
def test_calibration_spends_all_of_epsilon_and_no_more(epsilon, contribute):
    wanted = vm.AggregateGaussian(epsilon=epsilon, delta=DELTA, contribute=contribute)
    mechanism = accounting.calibrated(wanted, 50)
    spent = accounting.epsilon(mechanism, 50, DELTA)
    assert 0.999 * epsilon < spent <= epsilon
    assert accounting.epsilon(mechanism, 51, DELTA) > epsilon


@pytest.mark.parametrize("epsilon", [0.3, 2.0, 5.0])
def test_calibration_never_exceeds_epsilon_by_a_rounding(epsilon):
    wanted = vm.AggregateGaussian(epsilon=epsilon, delta=DELTA)
    for rounds in range(1, 25):
        noisy = accounting.calibrated(wanted, rounds)
        assert accounting.epsilon(noisy, rounds, DELTA) <= epsilon


def test_secret_sampling_amplifies_but_never_below_what_it_costs():
    z, q, rounds = 4.0, 0.05, 100
    always = vm.AggregateGaussian(noise_multiplier=z)
    sometimes = vm.AggregateGaussian(noise_multiplier=z, contribute=q)
    event = accounting.event_of(sometimes, rounds)
    assert event.event.sampling_probability == q
    assert event.event.event.noise_multiplier == z
    by_losses = pld.PLDAccountant(value_discretization_interval=1e-3).compose(event)
    amplified = accounting.epsilon(sometimes, rounds, DELTA)
    assert 0.95 * by_losses.get_epsilon(DELTA) < amplified
    assert amplified < 0.3 * accounting.epsilon(always, rounds, DELTA)


@pytest.mark.parametrize("name", MECHANISMS)
def test_every_mechanism_states_its_guarantee_or_why_it_has_none(name):
    mechanism = MECHANISMS[name]()
    if name == "aggregate":
        promise = mechanism.with_noise(2.0).guarantee
        assert isinstance(promise, PrivateSums)
        assert promise.distance == 1 / 2
        return
    if name == "privunit":
        assert isinstance(replace(mechanism, blanket=0.1, cap=0.2).guarantee, PrivateUploads)
        return
    with refused(PrivacyError, type(mechanism).__name__, "ε") as refusal:
        accounting.epsilon(mechanism, 10, DELTA)
    assert len(str(refusal.value)) > 40


def test_absurd_promises_are_refused():
    with refused(PrivacyError, "ε = 1e-09", "1000 rounds"):
        accounting.calibrated(vm.AggregateGaussian(epsilon=1e-9), 1000)


def test_the_ledger_knows_each_users_spending():
    ledger = Ledger(vm.AggregateGaussian(epsilon=2.0, noise_multiplier=10.0))
    assert ledger.epsilon == 0
    ledger.spend(0, ["a", "b"])
    ledger.spend(1, ["b"])
    assert ledger.epsilon_of("c") == 0
    assert ledger.epsilon_of("a") == accounting.epsilon(ledger.mechanism, 1, 1e-6)
    assert ledger.epsilon == ledger.epsilon_of("b") > ledger.epsilon_of("a")
    while ledger.affords(["b"]):
        ledger.spend(2, ["b"])
    assert ledger.epsilon <= 2.0
    assert ledger.affords(["a", "c"])
    assert not ledger.affords(["a", "b", "c"])
    again = Ledger.from_dict(ledger.mechanism, ledger.as_dict())
    assert (again.spent, again.opened) == (ledger.spent, ledger.opened)


def empirical_epsilon(mechanism, trials, delta):
    """A lower bound of ε that holds with 99.9 %: can sums with and without a user be told apart?

    The user's contribution is as long as it may be; the test is the likelihood ratio's,
    whose best of several thresholds counts (Bonferroni).
    """
    grid = vm.Grid(1.0, (1, 2))
    cohort = 2
    contribution = np.zeros((cohort * trials, 2))
    contribution[::cohort, 0] = 100.0
    sums = []
    for heights, seed in ((contribution, 1), (0 * contribution, 2)):
        raw = Contribution(
            heights, np.zeros((len(heights), 4)), np.ones(len(heights)), np.zeros((len(heights), 2))
        )
        sources = [noise.draw(seed, i, 0) for i in range(len(heights))]
        sent = mechanism.answer(raw, grid, sources, cohort)
        sums.append(sent.uploads[:, 0].reshape(trials, cohort).sum(axis=1))
    present, absent = sums
    thresholds = np.quantile(np.concatenate(sums), np.linspace(0.3, 0.9995, 40))
    best = 0.0
    for threshold in thresholds:
        hits, false = np.sum(present > threshold), np.sum(absent > threshold)
        level = 0.001 / (2 * len(thresholds))
        least_hits = beta.ppf(level, hits, trials - hits + 1) if hits else 0.0
        most_false = beta.ppf(1 - level, false + 1, trials - false)
        if least_hits > delta:
            best = max(best, math.log((least_hits - delta) / most_false))
    return best


def test_no_attack_beats_the_promise_and_half_the_noise_breaks_it():
    delta, trials = 1e-3, 60_000
    mechanism = vm.AggregateGaussian(
        noise_multiplier=1.0, dropout=0.0, delta=delta, theta_share=0.0, levels=64
    )
    claimed = accounting.epsilon(mechanism, 1, delta)
    kept = empirical_epsilon(mechanism, trials, delta)
    assert 0.4 * claimed < kept <= claimed  # the attack is a serious one
    assert empirical_epsilon(mechanism.with_noise(0.5), trials, delta) > claimed
