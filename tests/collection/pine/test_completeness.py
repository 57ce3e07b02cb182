"""Honest people pass, whatever their vector; the few whose checks fail by chance draw anew."""

import math
import os
from unittest import mock

import numpy as np
import pytest

from aggregators import small_survey, vector
from refusals import refused
from veilmap.collection.pine import encoding, field, proof, reports, verifying
from veilmap.collection.pine.choosing import chosen
from veilmap.collection.pine.encoding import ChecksFailed
from veilmap.collection.pine.parameters import NormProofs
from veilmap.collection.pine.reports import Verifier
from veilmap.collection.pine.verifying import Unproven
from veilmap.collection.shares import added, centred
from veilmap.errors import ConfigurationError

PARAMETERS = chosen(40, 1024)
TRIES = [300, pytest.param(10_000, marks=pytest.mark.slow)]


def random_vector(rng, parameters):
    """Few entries or many, short or as long as may be, and of either sign."""
    vector = np.zeros(parameters.dimension, dtype=np.int64)
    count = rng.integers(1, parameters.dimension + 1)
    direction = rng.normal(size=count)
    length = parameters.bound * rng.choice([1.0, rng.uniform()])
    entries = np.trunc(direction / np.linalg.norm(direction) * length)
    vector[rng.choice(len(vector), count, replace=False)] = entries
    return vector


def verified(parameters, own, verifier=None):
    verifier = verifier or Verifier(parameters, os.urandom(32), os.urandom(32))
    report = os.urandom(16)
    made = reports.prove(parameters, own, verifier.digest, report, os.urandom(32))
    return centred(added(*verifier.verify(report, made)))


@pytest.mark.parametrize("tries", TRIES)
def test_random_honest_vectors_are_taken_and_never_made_twice(tries):
    """All of them at the first try: a retry has a chance of 2⁻⁸⁴, a refusal one of 2⁻²³."""
    rng, retries = np.random.default_rng(0), 0
    verifier = Verifier(PARAMETERS, os.urandom(32), os.urandom(32))
    honest = encoding.wraparound_bits

    def counted(*about):
        nonlocal retries
        try:
            return honest(*about)
        except ChecksFailed:
            retries += 1
            raise

    with mock.patch.object(encoding, "wraparound_bits", counted):
        for _ in range(tries):
            own = random_vector(rng, PARAMETERS)
            np.testing.assert_array_equal(verified(PARAMETERS, own, verifier), own)
    assert retries == 0


@pytest.mark.parametrize(
    "own", [[1024], [-1024], [0], [512, -512, 512, 512], [1, -1] * 20], ids=str
)
def test_vectors_at_the_edge(own):
    vector = np.zeros(PARAMETERS.dimension, dtype=np.int64)
    vector[: len(own)] = own
    np.testing.assert_array_equal(verified(PARAMETERS, vector), vector)


@pytest.mark.parametrize("dimension", [1, 2, 3, 4, 5, 17, 333])
@pytest.mark.parametrize("bound", [16, 37_000])
def test_any_dimension_and_bound(dimension, bound):
    """Also where wraparound bounds are near the largest that the field bears."""
    parameters, rng = chosen(dimension, bound), np.random.default_rng(dimension)
    own = random_vector(rng, parameters)
    np.testing.assert_array_equal(verified(parameters, own), own)


def test_with_narrow_checks_clients_try_again_as_often_as_expected():
    """±√B at 64 entries of 8, and W = 128: a sum beyond it is 2.8 deviations off."""
    narrow = NormProofs(64, 64, 1.9, 8, 8, 1, 1, 8, 8)
    assert narrow.wraparound_bound == 128
    own, tries, attempts = np.full(64, 8), 300, 0
    honest = encoding.wraparound_bits

    def counted(*about):
        nonlocal attempts
        attempts += 1
        return honest(*about)

    with mock.patch.object(encoding, "wraparound_bits", counted):
        for _ in range(tries):
            np.testing.assert_array_equal(verified(narrow, own), own)
    # |sum of 64 z| ≥ 16, with 128 fair bits: |Bin(128, ½) − 64| ≥ 16, but 16 itself still passes.
    fails = (math.comb(128, 80) + 2 * sum(math.comb(128, k) for k in range(81, 129))) / 2**128
    again = 1 - (1 - fails) ** 8
    wanted = again / (1 - again)
    deviation = math.sqrt(again / (1 - again) ** 2 / tries)
    assert attempts / tries - 1 == pytest.approx(wanted, abs=5 * deviation)
    assert fails <= 2 * math.exp(-((128 / 64) ** 2))


def test_more_checks_may_pass_than_must():
    """Those beyond are marked as failed: the verifiers count exactly."""
    some = NormProofs(8, 64, 7.9, 12, 5, 2, 2, 8, 2)
    own = np.arange(8)
    np.testing.assert_array_equal(verified(some, own), own)


def test_a_point_that_would_show_wires_is_never_used():
    """An honest report is refused then, with a reason by which its client makes it anew."""
    shape, rng = PARAMETERS.norm, np.random.default_rng(1)
    circuit = proof.Circuit(
        rng.integers(0, 9, (shape.calls, shape.arity)).astype(np.uint64),
        np.ones(shape.calls, dtype=np.uint64),
        0,
    )
    for power in range(shape.size):
        point = field.element(pow(int(field.root_of_unity(shape.size)), power, field.PRIME))
        with pytest.raises(proof.UnluckyPoint):
            proof.queried(shape, circuit, np.zeros(shape.proof, dtype=np.uint64), point)
    ones = mock.patch.object(
        verifying, "expanded", lambda *about: np.ones(about[-1], dtype=np.uint64)
    )
    with ones, pytest.raises(Unproven) as caught:
        verified(PARAMETERS, np.zeros(PARAMETERS.dimension, dtype=np.int64))
    assert caught.value.reason == "unlucky"


def test_the_same_secret_gives_the_same_halves_and_another_vector_others():
    """Otherwise two vectors under one mask would tell their difference."""
    rng = np.random.default_rng(2)
    own, other = random_vector(rng, PARAMETERS), random_vector(rng, PARAMETERS)
    digest, report, secret = os.urandom(32), os.urandom(16), os.urandom(32)
    made = [reports.prove(PARAMETERS, one, digest, report, secret) for one in (own, own, other)]
    assert made[0] == made[1]
    assert made[0][1][-64:] != made[2][1][-64:]


def test_contributions_to_a_survey_are_proven_as_they_are():
    """The norm that is proven is the design's C, in steps of its lattice."""
    survey = small_survey()
    parameters = reports.parameters_of(survey)
    assert (parameters.dimension, parameters.bound) == (survey.numbers, survey.clip)
    own = vector(survey, 3)
    np.testing.assert_array_equal(verified(parameters, own), own)


def test_what_is_too_long_or_of_another_length_is_refused_before_anything_is_sent():
    for wrong in (
        np.full(40, 163),
        np.zeros(39, dtype=np.int64),
        np.zeros((40, 1), dtype=np.int64),
    ):
        with refused(ConfigurationError, "vector", parameter="vector"):
            reports.prove(PARAMETERS, wrong, bytes(32), bytes(16), bytes(32))
