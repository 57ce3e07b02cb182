"""What must be refused: long vectors with any proof, proofs of others, and altered reports.

A cheat passes with a chance of 2⁻⁴⁰ at most, so that no seed and no try can make a test fail by
chance. `make test-slow` has 10,000 tries of everything.
"""

import os
from dataclasses import replace

import numpy as np
import pytest

import pine_cheats as cheats
from veilmap.collection.pine import reports, sharding, verifying
from veilmap.collection.pine.choosing import chosen, errors
from veilmap.collection.pine.parameters import NormProofs
from veilmap.collection.pine.reports import Verifier
from veilmap.collection.pine.verifying import Unproven
from veilmap.collection.shares import PRIME as Q
from veilmap.collection.shares import added, centred

PARAMETERS = chosen(24, 64)
VERIFIER = Verifier(PARAMETERS, os.urandom(32), os.urandom(32))
TRIES = [150, pytest.param(10_000, marks=pytest.mark.slow)]
MANY = pytest.mark.parametrize("tries", TRIES)


def honest(rng, parameters=PARAMETERS):
    """A vector of any length up to the bound."""
    direction = rng.normal(size=parameters.dimension)
    length = parameters.bound * rng.uniform(0, 1)
    return np.trunc(direction / np.linalg.norm(direction) * length).astype(np.int64)


def proven(vector, report, digest=VERIFIER.digest, parameters=PARAMETERS):
    return reports.prove(parameters, vector, digest, report, os.urandom(32))


def at(rng, values):
    """A vector with these entries at random places."""
    vector = np.zeros(PARAMETERS.dimension, dtype=np.int64)
    vector[rng.choice(len(vector), len(values), replace=False)] = values
    return vector


# ---- vectors that are too long


def a_little(rng):
    """One step beyond the bound: the squared norm is B + 1."""
    return at(rng, [PARAMETERS.bound, 1])


def twice(rng):
    """Any direction, twice as long as it may be."""
    return honest(rng) + at(rng, [2 * PARAMETERS.bound] * 3)


def largest_entry(rng):
    """As much of one entry as the field has."""
    return at(rng, [Q // 2])


def one_root(rng):
    """A large entry whose square is a small number modulo q."""
    while True:
        square = int(rng.integers(1, PARAMETERS.bound**2))
        found = cheats.root(square)
        if found and min(found, Q - found) > 10 * PARAMETERS.bound:
            return at(rng, [found])


def several_roots(rng):
    """Large entries whose squares add up to a small number modulo q."""
    while True:
        own = np.concatenate([rng.integers(0, Q, 2), rng.integers(-3, 4, 2)])
        square = (int(rng.integers(PARAMETERS.bound**2)) - cheats.squared_norm(own)) % Q
        found = cheats.root(square)
        if found:
            return at(rng, [*own, found])


def halves(rng):
    """Four times (q ± 1) / 2, which is ± 1/2: squares add up to 1, and sums of two are small."""
    return at(rng, rng.choice([Q // 2, Q // 2 + 1], 4))


def quarters(rng):
    """Sixteen times ± 1/4 modulo q: their squares add up to 1."""
    quarter = pow(4, Q - 2, Q)
    return at(rng, rng.choice([quarter, Q - quarter], 16))


LONG = [a_little, twice, largest_entry]
WRAPPING = [one_root, several_roots, halves, quarters]


@pytest.mark.parametrize("long", LONG + WRAPPING, ids=lambda one: one.__name__)
def test_these_vectors_are_too_long(long):
    """Those that wrap around have a norm in range modulo q, so that only the checks can tell."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        squared = cheats.squared_norm(long(rng) % Q) % Q
        centre = centred((long(rng) % Q).astype(np.uint32))
        assert cheats.squared_norm(centre) > PARAMETERS.bound**2
        assert (squared <= PARAMETERS.bound**2) == (long in WRAPPING)


@MANY
@pytest.mark.parametrize(
    "norm", [cheats.norm_modulo_q, cheats.largest_norm, cheats.norm_in_one_bit]
)
@pytest.mark.parametrize("long", LONG, ids=lambda one: one.__name__)
def test_a_long_vector_is_refused_whatever_is_said_of_its_norm(long, norm, tries):
    rng = np.random.default_rng(1)
    for _ in range(-(-tries // 3)):
        report = os.urandom(16)
        own = cheats.forged(PARAMETERS, long(rng), VERIFIER.digest, report, norm)
        assert not cheats.taken(VERIFIER, report, own)


@MANY
@pytest.mark.parametrize(
    "checks", [cheats.claimed, cheats.too_few, cheats.weighed, cheats.beyond_bits]
)
@pytest.mark.parametrize("long", WRAPPING, ids=lambda one: one.__name__)
def test_a_vector_that_wraps_around_is_refused_whatever_is_said_of_its_checks(long, checks, tries):
    rng = np.random.default_rng(2)
    for _ in range(-(-tries // 4)):
        report = os.urandom(16)
        own = cheats.forged(PARAMETERS, long(rng), VERIFIER.digest, report, checks=checks)
        assert not cheats.taken(VERIFIER, report, own)


@pytest.mark.parametrize("long", WRAPPING, ids=lambda one: one.__name__)
def test_a_vector_that_wraps_around_passes_a_check_every_other_time_at_most(long):
    """The lemma that the number of checks rests on; 3,000 checks of each kind of vector."""
    rng, seen = np.random.default_rng(3), []
    with cheats.lying(cheats.norm_modulo_q, lambda parameters, sums: seen.append(sums) or _none()):
        for _ in range(30):
            vector = long(rng)
            with pytest.raises(_Enough):
                proven(vector, os.urandom(16))
    sums = np.concatenate(seen)[:3000]
    passed = np.abs(centred(sums.astype(np.uint32))) < PARAMETERS.wraparound_bound
    assert passed.mean() <= 0.5 + 5 * 0.5 / np.sqrt(len(sums))


class _Enough(Exception):  # noqa: N818
    pass


def _none():
    raise _Enough


@pytest.mark.parametrize(("checks", "successes"), [(3, 3), (4, 2)])
def test_with_few_checks_as_many_cheats_pass_as_the_formula_says(checks, successes):
    """So it is the checks that refuse the others, and not something in how cheats are made."""
    few = replace(PARAMETERS, checks=checks, successes=successes)
    verifier, rng, tries = replace(VERIFIER, parameters=few), np.random.default_rng(4), 400
    passed = 0
    for _ in range(tries):
        report = os.urandom(16)
        own = cheats.forged(few, halves(rng), verifier.digest, report)
        passed += cheats.taken(verifier, report, own)
    # Of ± 1/2 an even number must be chosen, which is exactly every other time.
    wanted = errors(replace(few, proofs=40, norm_proofs=40), hashes=1).soundness
    assert passed / tries == pytest.approx(wanted, abs=5 * np.sqrt(wanted * (1 - wanted) / tries))


# ---- proofs that are of something else


@MANY
def test_a_proof_for_another_vector_is_refused(tries):
    """Measurement of one, proofs of another, with anything else from either."""
    rng = np.random.default_rng(5)
    start, end = 128, 128 + 4 * PARAMETERS.measurement
    for number in range(tries):
        report = os.urandom(16)
        (leader, helper), (other, theirs) = (proven(honest(rng), report) for _ in range(2))
        mixed = [
            (leader[:end] + other[end:], helper),
            (other[:start] + leader[start:], helper),
            (leader, theirs),
            (leader, helper[:-32] + theirs[-32:]),
            (leader[:start] + other[start:end] + leader[end:], helper),
        ][number % 5]
        assert not cheats.taken(VERIFIER, report, mixed)


@MANY
def test_a_proof_for_another_report_or_survey_is_refused(tries):
    rng = np.random.default_rng(6)
    for number in range(tries):
        report, digest = os.urandom(16), VERIFIER.digest
        if number % 2:
            made = proven(honest(rng), os.urandom(16))
        else:
            made = proven(honest(rng), report, digest[:-1] + bytes([digest[-1] ^ 1]))
        assert not cheats.taken(VERIFIER, report, made)


@MANY
def test_a_random_proof_is_refused(tries):
    """All of it, or one of its elements by another."""
    rng = np.random.default_rng(7)
    start = 128 + 4 * PARAMETERS.measurement
    report = os.urandom(16)
    leader, helper = proven(honest(rng), report)
    for number in range(tries):
        content = bytearray(leader)
        count = PARAMETERS.proof_elements if number % 2 else 1
        first = start + 4 * int(rng.integers(PARAMETERS.proof_elements - count + 1))
        old = np.frombuffer(leader[first : first + 4 * count], dtype="<u4").astype(np.int64)
        new = (old + rng.integers(1, Q, count)) % Q
        content[first : first + 4 * count] = new.astype("<u4").tobytes()
        assert not cheats.taken(VERIFIER, report, (bytes(content), helper))


@MANY
def test_a_flipped_bit_is_noticed_wherever_it_is(tries):
    """In any byte of either half: 10,000 tries go several times through all of them."""
    rng = np.random.default_rng(8)
    report = os.urandom(16)
    made = proven(honest(rng), report)
    total = sum(map(len, made))
    for number in range(tries):
        place = number * max(1, total // tries) + int(rng.integers(max(1, total // tries)))
        place %= total
        role, place = (0, place) if place < len(made[0]) else (1, place - len(made[0]))
        content = bytearray(made[role])
        content[place] ^= 1 << int(rng.integers(8))
        altered = [bytes(content) if one == role else made[one] for one in (0, 1)]
        assert not cheats.taken(VERIFIER, report, altered)
    assert cheats.taken(VERIFIER, report, made)


@pytest.mark.parametrize("role", [0, 1])
def test_every_byte_of_a_small_report_counts(role):
    """One bit of each: the parts of the other, the blinds, the shares or their seeds."""
    small = NormProofs(6, 20, 3.9, 5, 4, proofs=5, norm_proofs=4, chunk=6, norm_chunk=2)
    verifier = replace(VERIFIER, parameters=small)
    rng, report = np.random.default_rng(9), os.urandom(16)
    made = proven(honest(rng, small), report, parameters=small)
    for place in range(len(made[role])):
        content = bytearray(made[role])
        content[place] ^= 1 << int(rng.integers(8))
        altered = [bytes(content) if one == role else made[one] for one in (0, 1)]
        assert not cheats.taken(verifier, report, altered)


# ---- aggregators


def test_an_altered_message_is_refused():
    """Shares of the outcomes, the leader's parts, and the seeds that it used."""
    report = os.urandom(16)
    nonce = reports.nonce_of(VERIFIER.digest, report)
    leader, helper = proven(honest(np.random.default_rng(10)), report)
    told = reports.message(PARAMETERS, VERIFIER.key, nonce, leader)
    for place in [*range(0, len(told), 97), *range(len(told) - 128, len(told))]:
        content = bytearray(told)
        content[place] ^= 1
        with pytest.raises(Unproven):
            reports.judged(PARAMETERS, VERIFIER.key, nonce, helper, bytes(content))
    for content in (b"", told[:-1], told + b"\0", told[:-132] + b"\xff" * 4 + told[-128:]):
        with pytest.raises(Unproven) as caught:
            reports.judged(PARAMETERS, VERIFIER.key, nonce, helper, content)
        assert caught.value.reason == "malformed"
    found = reports.judged(PARAMETERS, VERIFIER.key, nonce, helper, told)
    assert len(found) == PARAMETERS.dimension


def test_with_another_key_at_the_helper_nothing_is_taken():
    report = os.urandom(16)
    nonce = reports.nonce_of(VERIFIER.digest, report)
    leader, helper = proven(honest(np.random.default_rng(11)), report)
    told = reports.message(PARAMETERS, VERIFIER.key, nonce, leader)
    with pytest.raises(Unproven):
        reports.judged(PARAMETERS, os.urandom(32), nonce, helper, told)


@pytest.mark.parametrize("which", [0, 1], ids=["wraparound", "joint"])
def test_a_leader_that_was_told_another_part_checks_with_other_randomness(which):
    """The helper finds out, so that neither adds what the other does not."""
    report = os.urandom(16)
    nonce = reports.nonce_of(VERIFIER.digest, report)
    leader, helper = proven(honest(np.random.default_rng(12)), report)
    content = bytearray(leader)
    content[32 * which] ^= 1
    told = reports.message(PARAMETERS, VERIFIER.key, nonce, bytes(content))
    honest_told = reports.message(PARAMETERS, VERIFIER.key, nonce, leader)
    with pytest.raises(Unproven):
        reports.judged(PARAMETERS, VERIFIER.key, nonce, helper, told)
    with pytest.raises(Unproven) as caught:  # also where the outcomes suit by chance
        reports.judged(PARAMETERS, VERIFIER.key, nonce, helper, honest_told[:-64] + told[-64:])
    assert caught.value.reason == "disagreement"


def test_a_share_is_kept_back_where_randomness_differs():
    """As long as the decision has another seed than was used, whichever it is."""
    random = os.urandom(7 * 32)
    vector = honest(np.random.default_rng(14))
    made = sharding.sharded(PARAMETERS, vector, bytes(16), random)
    both = [
        verifying.begun(PARAMETERS, role, VERIFIER.key, bytes(16), made.parts, own)
        for role, own in enumerate((made.leader, made.helper))
    ]
    seeds = verifying.decided(PARAMETERS, *(message for _, message in both))
    for state, _ in both:
        for other in ((seeds[0], bytes(32)), (bytes(32), seeds[1])):
            with pytest.raises(Unproven):
                verifying.finished(state, other)
    total = sum(verifying.finished(state, seeds) for state, _ in both) % Q
    np.testing.assert_array_equal(centred(total.astype(np.uint32)), vector)


@pytest.mark.parametrize(("role", "change"), [
    (0, "shorter"), (0, "longer"), (0, "no element"), (1, "shorter"), (1, "longer")
])  # fmt: skip
def test_what_is_no_share_is_malformed(role, change):
    """Of a helper's share, which has only seeds, every content of the right length is one."""
    leader, helper = proven(honest(np.random.default_rng(12)), bytes(16))
    made = (leader, helper)[role]
    content = {
        "shorter": made[:-1], "longer": made + b"\0", "no element": made[:-4] + b"\xff" * 4
    }[change]  # fmt: skip
    with pytest.raises(Unproven) as caught:
        if role == 0:
            reports.message(PARAMETERS, VERIFIER.key, bytes(16), content)
        else:
            reports.judged(PARAMETERS, VERIFIER.key, bytes(16), content, b"")
    assert caught.value.reason == "malformed"


def test_neither_share_of_a_vector_tells_of_it():
    """Shares of a vector are new with every secret, and only both together are the vector."""
    vector = honest(np.random.default_rng(13))
    report, seen = os.urandom(16), []
    for _ in range(2):
        first, second = VERIFIER.verify(report, proven(vector, report))
        np.testing.assert_array_equal(centred(added(first, second)), vector)
        seen += [first, second]
    for one in range(4):
        for other in range(one):
            assert (seen[one] != seen[other]).mean() > 0.9
