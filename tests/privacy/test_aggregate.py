import math
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import veilmap as vm
from refusals import refused
from veilmap._kernels import few_cells
from veilmap.errors import ConfigurationError
from veilmap.model.propagation import at_100_m
from veilmap.privacy import noise
from veilmap.privacy.mechanisms import Contribution
from veilmap.privacy.mechanisms.lattice import ROUNDING, _cumulative, discrete_gaussian

GRID = vm.Grid(3.0, (4, 5))
FIXED = vm.AggregateGaussian(noise_multiplier=2.0, clip=0.5)


def contribution(rng, users, scale=1.0, cells=GRID.cells):
    return Contribution(
        scale * rng.normal(size=(users, cells)),
        scale * 10 * rng.normal(size=(users, 4)),
        np.full(users, 7),
        np.zeros((users, 2)),
    )


def without_noise(mechanism, raw):
    """What users would send if they added no noise, (N, M + P)."""
    silent = SimpleNamespace(add_to=lambda total, draw: None, deviation=0.0)
    with patch.object(vm.AggregateGaussian, "_sampler", lambda *_: silent):
        sent = mechanism.answer(raw, GRID, draws(len(raw.counts)), len(raw.counts))
    return np.hstack([sent.uploads, sent.theta_gradient])


def draws(users, seed=0):
    return [noise.draw(seed, i, 0) for i in range(users)]


@pytest.mark.parametrize("deviation", [0.7, 3.0, 25.4])
def test_the_table_holds_the_discrete_gaussians_probabilities(deviation):
    table = _cumulative(deviation)
    reach = len(table) // 2
    k = np.arange(-reach, reach + 1)
    weights = np.exp(-(k**2) / (2 * deviation**2))
    probabilities = [(high - low) / 2**128 for low, high in pairwise([0, *table])]
    np.testing.assert_allclose(probabilities, weights / weights.sum(), rtol=1e-9, atol=1e-36)
    assert table[-1] == 2**128 - 1
    assert math.exp(-(reach**2) / (2 * deviation**2)) < 2.0**-128


@pytest.mark.parametrize("deviation", [0.7, 3.0, 140.0])
def test_samples_follow_the_table(deviation):
    from scipy.stats import chisquare

    sampler = discrete_gaussian(deviation)
    count = 200_000
    sample = sampler.sample(count, noise.draw(1, "a", 0))
    k = np.arange(-math.ceil(2.5 * deviation), math.ceil(2.5 * deviation) + 1)
    weights = np.exp(-(k**2) / (2 * deviation**2))
    every = np.arange(-int(20 * deviation) - 1, int(20 * deviation) + 2)
    expected = count * weights / np.exp(-(every**2) / (2 * deviation**2)).sum()
    seen = np.array([np.sum(sample == value) for value in k])
    rest = count - expected.sum()
    # A true sample fails this once in a million runs.
    assert chisquare([*seen, count - seen.sum()], [*expected, rest]).pvalue > 1e-6
    assert abs(sample.mean()) < 6 * deviation / math.sqrt(count)


def test_inversion_is_what_the_definition_says():
    deviation = 4.2
    table = _cumulative(deviation)
    sampler = discrete_gaussian(deviation)

    class Source:
        def words(self, count, purpose):
            rng = np.random.default_rng(5)
            words = rng.integers(0, 2**64, count, dtype=np.uint64)
            words[:4] = [0, 2**64 - 1, np.uint64(table[30] >> 64), np.uint64(table[50] >> 64)]
            return words

    sample = sampler.sample(500, Source())
    words = Source().words(564, "noise")
    spare = iter(words[500:].tolist())
    highs = {entry >> 64 for entry in table}
    for value, word in zip(sample.tolist(), words[:500].tolist(), strict=True):
        number = (word << 64) | (next(spare) if word in highs else 0)
        least = next(k for k, entry in enumerate(table) if number < entry)
        assert value == least - len(table) // 2


def test_a_word_that_equals_an_entry_is_settled_by_its_lower_half():
    sampler = discrete_gaussian(4.2)
    table, entry = _cumulative(4.2), 30
    high, low = table[entry] >> 64, table[entry] & (2**64 - 1)
    sample = {}
    for lower in (0, low - 1, low, 2**64 - 1):

        class Source:
            def words(self, count, purpose, lower=lower):
                return np.array([high] + [lower] * (count - 1), dtype=np.uint64)

        sample[lower] = int(sampler.sample(1, Source())[0]) + len(table) // 2
    assert sample == {0: entry, low - 1: entry, low: entry + 1, 2**64 - 1: entry + 1}


@pytest.mark.parametrize("scale", [1e6, 1e9, 1e10, 1e30])
def test_nothing_is_left_of_what_cannot_be_made_short_enough(scale):
    values = np.array([3.0, -4.0])
    few_cells.on_lattice(values, 2, scale, 2.0, np.uint64(5))
    assert values.tolist() == [0.0, 0.0]


@given(st.integers(0, 2**32 - 1), st.sampled_from([1e-6, 0.01, 1.0, 1e3]), st.integers(1, 2000))
def test_no_contribution_is_longer_than_the_sensitivity(seed, scale, levels):
    mechanism = vm.AggregateGaussian(noise_multiplier=1.0, levels=levels)
    raw = contribution(np.random.default_rng(seed), 3, scale)
    for whole in without_noise(mechanism, raw):
        assert math.sqrt(whole @ whole) <= mechanism.sensitivity(GRID.cells, 4)


@pytest.mark.parametrize("length", [0.5, 1.0, 2.0, 1e6])
def test_a_gradient_of_theta_is_clipped_and_keeps_its_direction(length):
    mechanism = vm.AggregateGaussian(noise_multiplier=1.0, levels=1024, theta_clip=3.0)
    users, axis = 400, np.array([0.6, 0.0, 0.0, 0.8])
    # By gain at 100 m and slope, in which θ is clipped.
    slopes = np.linalg.solve(at_100_m(2), axis * length * mechanism.theta_clip)
    raw = Contribution(
        np.zeros((users, GRID.cells)),
        np.tile(slopes, (users, 1)),
        np.ones(users),
        np.zeros((users, 2)),
    )
    whole = without_noise(mechanism, raw)[:, GRID.cells :]
    _, mean = mechanism.read(np.zeros(GRID.cells), whole.sum(axis=0), users)
    seen = at_100_m(2) @ mean
    # Where rounding made it too long, a user's is made shorter by a tenth, at most twice here.
    expected = min(length, 1.0) * mechanism.theta_clip
    assert 0.81 * expected < np.linalg.norm(seen) < 1.01 * expected
    # Half a step of 205 for the clip, in the mean of 400.
    assert np.abs(seen / np.linalg.norm(seen) - axis).max() < 5 * 0.5 / math.sqrt(users) / 80


def test_heights_and_theta_are_rounded_by_coins_of_their_own():
    mechanism, users = vm.AggregateGaussian(noise_multiplier=1.0, levels=1024), 4000
    step = mechanism.clip / mechanism.levels
    theta_step = step / (mechanism.theta_share * mechanism.clip / mechanism.theta_clip)
    heights, theta = np.zeros((users, GRID.cells)), np.zeros((users, 4))
    heights[:, 0], theta[:, 1] = 10.5 * step, 10.5 * theta_step  # a slope: its axis is unchanged
    raw = Contribution(heights, theta, np.ones(users), np.zeros((users, 2)))
    whole = without_noise(mechanism, raw)
    pair = whole[:, 0], whole[:, GRID.cells + 1]
    assert {*pair[0]} == {*pair[1]} == {10, 11}
    assert abs(np.corrcoef(*pair)[0, 1]) < 5 / math.sqrt(users)


def test_each_purpose_asks_for_words_of_its_own():
    class Source:
        def __init__(self):
            self.asked = []

        def words(self, count, purpose):
            self.asked.append(purpose)
            return noise.draw(0, "a", 0).words(count, purpose)

    sources = [Source() for _ in range(3)]
    mechanism = replace(FIXED, contribute=0.5)
    mechanism.answer(contribution(np.random.default_rng(0), 3), GRID, sources, 3)
    for source in sources:
        assert len(source.asked) == len(set(source.asked)) == 3


def test_rounding_is_without_bias():
    mechanism = vm.AggregateGaussian(noise_multiplier=1.0, levels=40, theta_share=0.1)
    one = contribution(np.random.default_rng(3), 1, 0.02)
    users = 4000
    raw = Contribution(*(np.repeat(part, users, axis=0) for part in (
        one.height_gradient, one.theta_gradient, one.counts, one.user_xy)))  # fmt: skip
    whole = without_noise(mechanism, raw)
    heights, theta = mechanism.read(
        whole[:, : GRID.cells].sum(axis=0), whole[:, GRID.cells :].sum(axis=0), users
    )
    norm = np.linalg.norm(one.height_gradient)
    clipped = one.height_gradient[0] * min(1, math.sqrt(1 - 0.1**2) * mechanism.clip / norm)
    # A number that is rounded at random strays by half a step at most.
    stray = 5 * 0.5 / math.sqrt(users) * mechanism.clip / mechanism.levels
    assert np.abs(heights - clipped).max() < stray
    assert np.isfinite(theta).all()
    assert len(np.unique(whole[:, 0])) == 2


def test_sums_count_modulo_the_range_of_their_bits():
    mechanism = vm.AggregateGaussian(noise_multiplier=1.0, levels=100, bits=16)
    small = np.array([5.0, -7.0, 32_767.0, -32_768.0])
    theta = np.zeros(4)
    plain, _ = mechanism.read(small, theta, 1)
    for turns in (-3, 1, 2):
        again, _ = mechanism.read(small + turns * 2.0**16, theta, 1)
        np.testing.assert_array_equal(again, plain)


def test_the_sum_is_read_as_the_mean_of_clipped_gradients():
    rng = np.random.default_rng(0)
    users = 400
    raw = contribution(rng, users, 0.05)
    sent = FIXED.answer(raw, GRID, draws(users), users)
    assert sent.uploads.dtype == np.int64
    assert (sent.weights == 1).all()
    heights, theta = FIXED.read(sent.uploads.sum(axis=0), sent.theta_gradient.sum(axis=0), users)
    limit = math.sqrt(1 - 0.2**2) * 0.5
    norms = np.linalg.norm(raw.height_gradient, axis=1)
    clipped = raw.height_gradient * np.minimum(1, limit / norms)[:, None]
    # σ of the mean: at least zΔ/n, at most that over √(1 − dropout), rounded up to 3 digits.
    deviation = 2.0 * FIXED.clip / users / math.sqrt(0.9)
    away = (heights - clipped.mean(axis=0)) / deviation
    assert np.abs(away).max() < 5
    assert 0.6 < away.std() < 1.4
    assert np.isfinite(theta).all()


def test_noise_on_the_sum_is_what_is_promised_even_when_some_are_missing():
    users, missing = 50, 5
    some = contribution(np.random.default_rng(0), users)
    raw = replace(
        some,
        height_gradient=np.zeros_like(some.height_gradient),
        theta_gradient=np.zeros_like(some.theta_gradient),
    )
    sums = []
    for seed in range(300):
        sent = FIXED.answer(raw, GRID, draws(users, seed), users)
        sums.append(np.hstack([sent.uploads, sent.theta_gradient])[missing:].sum(axis=0))
    promised = FIXED.noise_multiplier * FIXED.sensitivity(GRID.cells, 4)
    values = np.ravel(sums)
    # Relative deviation of a sample variance: √(2/n); rounding up adds at most 1 %.
    slack = 5 * math.sqrt(2 / len(values))
    assert 1 - slack < values.var() / promised**2 < 1.02 + slack
    assert FIXED.least_answers(users) == users - missing


@given(
    st.floats(0.5, 50),
    st.integers(2, 3000),
    st.integers(1, 5000),
    st.sampled_from([0.0, 0.1, 0.35]),
    st.just(1024),
)
@example(0.5, 2, 20, 0.0, 40)  # so coarse that what rounding takes is seen
def test_the_shares_that_must_be_there_add_up_to_the_promised_noise(
    z, cohort, cells, dropout, levels
):
    mechanism = vm.AggregateGaussian(noise_multiplier=z, dropout=dropout, levels=levels)
    share = mechanism.share_deviation(cells, 4, cohort)
    there = mechanism.least_answers(cohort)
    assert there >= (1 - dropout) * cohort * (1 - 1e-12)
    promised = math.hypot(z * mechanism.sensitivity(cells, 4), ROUNDING)
    assert 1 - 1e-12 <= share * math.sqrt(there) / promised < 1.011  # rounded up to three digits


@pytest.mark.parametrize(("z", "cohort", "cells"), [(1.0, 2, 20), (50.0, 10**8, 10**8)])
def test_the_coarsest_lattice_that_is_taken_lacks_less_than_is_charged(z, cohort, cells):
    def taken(levels):
        mechanism = vm.AggregateGaussian(noise_multiplier=z, levels=levels)
        try:
            return mechanism.share_deviation(cells, 4, cohort), mechanism.guarantee.uneven
        except vm.VeilmapError:
            return None

    deviation, charged = next(filter(None, map(taken, range(1, 2000))))
    # Twice in each entry, by the theta functions of all partial sums.
    k = np.arange(1, cohort) if cohort < 1000 else np.arange(1, 1000)
    exponents = -2 * (math.pi * deviation) ** 2 * k / (k + 1)
    lacking = 4 * np.exp(exponents).sum() + 4 * cohort * math.exp(exponents[-1])
    assert 2 * (cells + 4) * lacking <= charged
    assert charged < 1e-6  # it costs next to nothing


def test_users_who_keep_back_send_noise_only():
    mechanism = vm.AggregateGaussian(noise_multiplier=0.05, contribute=0.25, clip=1.0, levels=4096)
    users = 2000
    raw = contribution(np.random.default_rng(0), users, 10.0)
    sent = mechanism.answer(raw, GRID, draws(users), users)
    there = np.linalg.norm(sent.uploads, axis=1) > 2000  # a clipped contribution is 4096 long
    share = there.mean()
    assert abs(share - 0.25) < 5 * math.sqrt(0.25 * 0.75 / users)
    heights, _ = mechanism.read(sent.uploads.sum(axis=0), sent.theta_gradient.sum(axis=0), users)
    all_in = (
        raw.height_gradient
        / np.linalg.norm(raw.height_gradient, axis=1)[:, None]
        * math.sqrt(1 - 0.2**2)
    )
    # Each entry of the mean has the scatter of a sample: 1/√(q n M) of a unit vector's norm.
    scatter = 1 / math.sqrt(0.25 * users * GRID.cells)
    assert np.abs(heights - all_in.mean(axis=0)).max() < 5 * scatter


def test_a_vanishing_gradient_looks_like_any_other():
    raw = contribution(np.random.default_rng(0), 2, 0.0)
    sent = FIXED.answer(raw, GRID, draws(2), 2)
    assert (sent.uploads != 0).all(axis=1).any()


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("epsilon", 0),
        ("delta", 1),
        ("dropout", -0.1),
        ("dropout", 1),
        ("contribute", 0),
        ("theta_share", 1),
        ("levels", 0),
        ("bits", 40),
        ("noise_multiplier", 0),
    ],
)
def test_wrong_promises_are_refused(parameter, value):
    with refused(ConfigurationError, parameter, value):
        vm.AggregateGaussian(**{parameter: value})


def test_what_cannot_be_proven_is_refused():
    raw = contribution(np.random.default_rng(0), 2)
    with refused(ConfigurationError, "accounting.calibrated"):
        vm.AggregateGaussian().answer(raw, GRID, draws(2), 2)
    coarse = vm.AggregateGaussian(noise_multiplier=1.0, levels=4)
    with refused(ConfigurationError, "4 levels"):
        coarse.answer(raw, GRID, draws(2), 100)
    raw.height_gradient[0, 0] = np.nan
    with refused(ConfigurationError, "gradient"):
        FIXED.answer(raw, GRID, draws(2), 2)
