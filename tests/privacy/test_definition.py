"""The adversary of the definition on a small case, and the theorem that the noise rests on."""

import math
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest
from dp_accounting import rdp
from scipy.special import logsumexp
from scipy.stats import norm

import veilmap as vm
from veilmap.auditing.membership import found_allowed
from veilmap.federation.client import Clients
from veilmap.privacy import accounting, noise
from veilmap.privacy.mechanisms.aggregate import LEAST_DEVIATION
from veilmap.privacy.mechanisms.lattice import (
    LEAST_ON_SUM,
    ROUNDING,
    discrete_gaussian,
    unevenness,
)

FALSE_ALARMS = 0.2
TRIALS = 300


@pytest.fixture(scope="module")
def definition():
    """The benchmark's module: what docs/proof.md reports is what is tested here."""
    path = Path(__file__).parents[2] / "benchmarks" / "definition.py"
    spec = spec_from_file_location("definition", path)
    module = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture(scope="module")
def case(definition):
    setting = definition.Setting(users=20, candidates=10, links=10, cell_size=30.0, rounds=3)
    return setting, definition.promised(setting, 1.0)


def alarms(trials, present):
    """Share of trials with a score that few absent users reach, and how many trials there are."""
    scores = np.array([trial.score for trial in trials if trial.present is present])
    return np.mean(scores > norm.ppf(1 - FALSE_ALARMS)), len(scores)


def deviation(share, count):
    return math.sqrt(share * (1 - share) / count)


def right_places(trials):
    there = [trial.guess == trial.truth for trial in trials if trial.present]
    return np.mean(there), len(there)


def played(definition, case, count, share):
    return [definition.attacked(*case, seed, seed % 2 == 0, share) for seed in range(count)]


def test_an_adversary_who_knows_all_others_gets_no_further_than_epsilon_allows(definition, case):
    trials = played(definition, case, TRIALS, 1.0)
    false, count = alarms(trials, present=False)
    # The others are subtracted to the last step: what is left is noise of the known deviation.
    assert abs(false - FALSE_ALARMS) < 4 * deviation(FALSE_ALARMS, count)
    # Without any noise: no victim stands out further than the largest contribution would.
    allowed = definition.distance_allowed(case[1], case[0].rounds)
    assert 0.5 * allowed < max(trial.length for trial in trials) <= allowed
    bound = found_allowed(FALSE_ALARMS, 1.0, definition.DELTA)
    power, count = alarms(trials, present=True)
    assert power + 2 * deviation(bound, count) < bound
    bound = found_allowed(1 / case[0].candidates, 1.0, definition.DELTA)
    right, count = right_places(trials)
    assert right + 2 * deviation(bound, count) < bound


def test_a_tenth_of_the_noise_breaks_the_promise(definition, case):
    trials = played(definition, case, TRIALS, 0.1)
    bound = found_allowed(FALSE_ALARMS, 1.0, definition.DELTA)
    power, count = alarms(trials, present=True)
    assert power - 2 * deviation(power, count) > bound
    bound = found_allowed(1 / case[0].candidates, 1.0, definition.DELTA)
    right, count = right_places(trials)
    assert right - 2 * deviation(right, count) > bound
    present, absent = (
        np.array([trial.score for trial in trials if trial.present is there])
        for there in (True, False)
    )
    assert definition.least_epsilon(present, absent, definition.DELTA) > 1.0


def test_empirical_epsilons_are_lower_bounds_that_come_near(definition):
    distance, count = 1.0, 4000
    rng = np.random.default_rng(0)
    absent, present = rng.normal(size=count), rng.normal(distance, size=count)
    delta = 1e-2
    exact = accounting.epsilon_of_distance(distance, delta)
    # What the best of the thresholds could show with endless trials.
    shown = max(
        math.log((norm.sf(at - distance) - delta) / norm.sf(at)) for at in definition.THRESHOLDS
    )
    found = definition.least_epsilon(present, absent, delta)
    assert 0.7 * shown < found < shown <= exact
    sure = norm.cdf(distance / 2 - exact / distance)
    assert sure - math.exp(exact) * norm.cdf(-distance / 2 - exact / distance) == pytest.approx(
        delta
    )


def summed(deviation, shares):
    """Exact probabilities of a sum of discrete Gaussians."""
    reach = math.ceil(14 * deviation)
    one = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * deviation**2))
    total = np.ones(1)
    for _ in range(shares):
        total = np.convolve(total, one / one.sum())
    return total


@pytest.mark.parametrize("shares", [2, 3, 20])
@pytest.mark.parametrize("deviation", [0.7, 0.9, LEAST_DEVIATION])
def test_sums_of_shares_are_as_near_to_a_discrete_gaussian_as_is_charged(shares, deviation):
    """For shares as fine as those in use the bound is below what floats see."""
    total = summed(deviation, shares)
    reach = len(total) // 2
    near = np.arange(-reach, reach + 1)
    gaussian = np.exp(-(near**2) / (2 * shares * deviation**2))
    seen = total > 1e-12
    ratio = np.abs(np.log(total[seen]) - np.log(gaussian[seen] / gaussian.sum()))
    bound = unevenness(deviation, shares)
    assert ratio.max() <= bound + 1e-12
    # Further shares smooth what the first two lack.
    assert ratio.max() > 0.1 * bound or shares > 2 or bound < 1e-12


def test_a_gaussian_that_is_rounded_at_random_is_a_discrete_one():
    deviation, shift = LEAST_ON_SUM, 3
    whole = np.arange(-60, 61)
    x = np.linspace(-150, 150, 30_001)
    density = norm.pdf(x, shift, math.sqrt(deviation**2 - ROUNDING**2)) * (x[1] - x[0])
    kernel = np.exp(-((whole[:, None] - x) ** 2) / (2 * ROUNDING**2))
    everywhere = np.arange(-300, 301)
    kernel /= np.exp(-((everywhere[:, None] - x) ** 2) / (2 * ROUNDING**2)).sum(axis=0)
    expected = np.exp(-((whole - shift) ** 2) / (2 * deviation**2))
    expected /= np.exp(-((everywhere - shift) ** 2) / (2 * deviation**2)).sum()
    np.testing.assert_allclose(kernel @ density, expected, rtol=1e-10)


def test_who_knows_the_seed_subtracts_the_noise(definition, case):
    setting, claimed = case
    run = vm.train(
        setting.with_victim(0),
        setting.scene.grid,
        mechanism=claimed,
        rounds=setting.rounds,
        seed=7,
        recording=vm.Recording(keep_uploads="all"),
    )
    ids = setting.data.users[: setting.users].tolist()  # the first candidate is the last of them
    links = setting.data.links
    others = Clients(ids[:-1], links.users_between(0, len(ids) - 1), claimed, 7)
    victim = Clients(ids[-1:], links.users_between(len(ids) - 1, len(ids)), claimed, 7)
    for number, seen in run.transcript.rounds.items():
        left = definition._left_over(seen, others)
        sampler = discrete_gaussian(definition._share_deviation(claimed, seen.broadcast))
        for client in ids:
            left -= sampler.sample(len(left), noise.draw(7, client, number))
        np.testing.assert_array_equal(left, victim.contributions(seen.broadcast)[0])


@pytest.mark.parametrize("z", [0.7, 4.0])
@pytest.mark.parametrize("sampling", [0.01, 0.9])
@pytest.mark.parametrize("order", [2, 8, 32])
def test_secret_sampling_costs_no_more_than_is_charged_either_way(z, sampling, order):
    x = np.linspace(-60 * z, 60 * z, 100_001)
    without = norm.logpdf(x, 0, z)
    both = np.logaddexp(math.log(sampling) + norm.logpdf(x, 1, z), math.log1p(-sampling) + without)
    event = accounting.event_of(
        vm.AggregateGaussian(noise_multiplier=z, contribute=sampling), rounds=1
    )
    charged = rdp.RdpAccountant([order]).compose(event)._rdp[0]
    for one, other in ((both, without), (without, both)):
        integrand = order * one + (1 - order) * other + math.log(x[1] - x[0])
        # The integral is exact to about 10⁻¹¹; one of the two is met.
        assert logsumexp(integrand) / (order - 1) <= charged + 1e-10


def test_a_map_made_for_one_user_makes_nobody_stand_out_further_than_is_allowed(definition):
    setting = definition.Setting(users=20, candidates=1, links=10, rounds=3)
    claimed, trials = definition.promised(setting, 1.0), 200
    start = vm.NoiseAwareStep().start(setting.scene.grid).radio_map
    victim = definition.loneliest(setting)
    honest = definition.seen_with(start, setting, claimed, victim, 2)
    made = definition.active_map(setting, claimed, victim)
    found = definition.seen_with(made, setting, claimed, victim, trials)
    allowed = definition.distance_allowed(claimed, setting.rounds)
    # It does what it is made for: nearly the whole clip, and nobody to hide among.
    assert 0.85 * allowed < found.distance <= allowed
    assert found.others < 0.5 < honest.others
    there, away = found.scores[::2], found.scores[1::2]
    error = 2 / math.sqrt(trials)  # of the difference of two means of half of them
    assert there.mean() - away.mean() == pytest.approx(found.distance, abs=4 * error)
    power = np.mean(there > norm.ppf(1 - FALSE_ALARMS) + away.mean())
    bound = found_allowed(FALSE_ALARMS, 1.0, definition.DELTA)
    assert power + 2 * deviation(bound, trials / 2) < bound
