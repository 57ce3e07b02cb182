"""Errors as formulas say, against counting; and parameters that keep them below what is asked."""

import math
from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from refusals import refused
from veilmap.collection.pine.choosing import HASHES, _at_least, _forged, chosen, errors
from veilmap.collection.pine.parameters import NormProofs
from veilmap.collection.shares import PRIME as Q
from veilmap.errors import ConfigurationError

PUBLISHED = NormProofs(20, 128, 8.7, 100, 100, 5, 1, 150, 4)


def test_lengths_of_the_published_vectors():
    """Of an input share of 12,160 bytes and a verifier's message of 6,128."""
    assert (PUBLISHED.wraparound_bound, PUBLISHED.sum_bits, PUBLISHED.norm_bits) == (2048, 12, 15)
    assert (PUBLISHED.main.calls, PUBLISHED.main.size, PUBLISHED.norm.size) == (10, 16, 8)
    assert 4 * (PUBLISHED.measurement + PUBLISHED.proof_elements) + 64 == 12_160
    assert 4 * PUBLISHED.message_elements + 64 == 6_128


@pytest.mark.parametrize(("bound", "alpha", "wanted"), [
    (100, 2.55, 256), (100, 2.56, 512), (128, 7.99, 1024), (16, 1.0, 32)
])  # fmt: skip
def test_the_wraparound_bound_is_the_power_of_2_above(bound, alpha, wanted):
    """The reference code's: the least that is ⌈α √B⌉ + 1 or more."""
    assert replace(PUBLISHED, bound=bound, alpha=alpha).wraparound_bound == wanted
    assert wanted >= math.ceil(alpha * bound) + 1 > wanted / 2


@pytest.mark.parametrize("count", [1, 4, 7])
@pytest.mark.parametrize("chance", [0.5, 0.1, 1e-9])
def test_binomial_tails(count, chance):
    for least in range(count + 2):
        wanted = sum(
            math.prod(Fraction(chance) if one else 1 - Fraction(chance) for one in outcome)
            for outcome in product((0, 1), repeat=count)
            if sum(outcome) >= least
        )
        assert _at_least(least, count, chance) == pytest.approx(float(wanted), rel=1e-12)


def test_forging_a_few_proofs_by_trying_and_the_others_by_luck():
    """Simulated with large chances: the best of 20 draws of 4 proofs, then blind points."""
    rng, tries = np.random.default_rng(0), 100_000
    lucky, blind, hashes = 0.2, 0.3, 20
    best = rng.binomial(4, lucky, (tries, hashes)).max(axis=1)
    passes = (blind ** (4 - best)).mean()
    assert passes <= _forged(lucky, blind, 4, hashes) <= 3 * passes
    assert _forged(lucky, blind, 4, 1) == pytest.approx((lucky + blind * (1 - lucky)) ** 4, rel=0.5)
    assert _forged(0.0, blind, 4, HASHES) == pytest.approx(blind**4)


@pytest.mark.parametrize("dimension", [1, 24, 500, 20_000])
@pytest.mark.parametrize("bound", [16, 1024, 37_000])
@pytest.mark.parametrize("soundness", [2.0**-30, 2.0**-40, 2.0**-60])
def test_chosen_parameters_keep_their_promises(dimension, bound, soundness):
    parameters = chosen(dimension, bound, soundness=soundness)
    assert (parameters.dimension, parameters.bound) == (dimension, bound)
    found = errors(parameters)
    assert found.soundness <= soundness
    assert found.zero_knowledge <= 2.0**-64
    assert found.refusal < 1e-5


def test_they_are_not_larger_than_they_must_be():
    """One proof or one check less, and a promise is broken."""
    usual = chosen(500, 1024)
    for less in (
        {"proofs": usual.proofs - 1}, {"norm_proofs": usual.norm_proofs - 1},
        {"checks": usual.checks - 4, "successes": usual.successes - 4},
    ):  # fmt: skip
        assert errors(replace(usual, **less)).soundness > 2.0**-40
    narrow = replace(usual, alpha=usual.alpha / 2.1)
    assert errors(narrow).zero_knowledge > 2.0**-64


def test_more_hashes_help_a_cheat_and_more_proofs_hinder():
    usual = chosen(500, 1024)
    assert errors(usual, 2.0**80).soundness > errors(usual).soundness > errors(usual, 1).soundness
    assert errors(replace(usual, proofs=9), 2.0**64).soundness < errors(usual).soundness


def test_proofs_of_the_draft_are_worth_less_than_a_hundred_bits():
    """A single proof of the norm is passed by luck once in 2²⁸ reports, whatever else is so."""
    assert errors(PUBLISHED, 1).soundness == pytest.approx(2 * 7 / Q, rel=0.01)


def test_what_is_charged_to_delta():
    found = errors(chosen(500, 1024))
    assert found.delta(2.0) == pytest.approx((1 + math.exp(2)) * found.zero_knowledge)
    assert found.delta(8.0) < 1e-20


@pytest.mark.parametrize("bound", [37_840, 10**6])
def test_a_bound_for_which_the_field_is_too_small_is_refused(bound):
    with refused(ConfigurationError, "norm", parameter="bound"):
        chosen(500, bound)
    with refused(ConfigurationError, "norm", parameter="bound"):
        replace(PUBLISHED, bound=bound)


@pytest.mark.parametrize(("name", "value"), [
    ("dimension", 0), ("bound", 0), ("alpha", 0.0), ("alpha", math.inf), ("checks", 0),
    ("successes", 101), ("proofs", 0), ("norm_proofs", 256), ("chunk", 0), ("norm_chunk", 0),
])  # fmt: skip
def test_parameters_that_are_none_are_refused(name, value):
    with refused(ConfigurationError, name, parameter=name):
        replace(PUBLISHED, **{name: value})


@pytest.mark.parametrize(("name", "value"), [
    ("soundness", 0.0), ("soundness", 1.0), ("zero_knowledge", 0.0), ("hashes", 0.5),
    ("bound", 2_000_000),
])  # fmt: skip
def test_what_nothing_meets_is_refused(name, value):
    with refused(ConfigurationError, parameter=name):
        chosen(**{"dimension": 500, "bound": 1024, name: value})
