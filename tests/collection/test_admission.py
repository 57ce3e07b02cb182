"""Who may take part: tokens that tell nothing of their invitation, and proofs of work."""

import hashlib
import math
import random
from types import SimpleNamespace

import numpy as np
import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from scipy import stats

from aggregators import new_keys, pair, small_task
from refusals import refused
from veilmap.collection import admission
from veilmap.collection.admission import Blinded, Invitations, Issuer, ProofOfWork
from veilmap.collection.report import Refusal
from veilmap.errors import ConfigurationError, DataError

KEYS = new_keys()
ISSUER = KEYS.issuer
PUBLIC = ISSUER.public
N, E = PUBLIC.modulus, 65537
DIGEST, REPORT = hashlib.sha256(b"a task").digest(), bytes(range(16))


@pytest.fixture(scope="module")
def stranger():
    """Another issuer."""
    return Issuer.new()


def token(report=REPORT, digest=DIGEST, issuer=ISSUER):
    blinded = issuer.public.blinded(digest, report)
    return blinded.finished(issuer.signed(blinded.message))


def private_exponent():
    return ISSUER.private.private_numbers().d


# ---- tokens


def test_a_token_is_a_signature_that_any_library_verifies():
    """RSASSA-PSS with SHA-384 and a salt of 48 bytes, over the task's digest and report's id."""
    key = rsa.RSAPublicNumbers(E, N).public_key()
    scheme = padding.PSS(padding.MGF1(hashes.SHA384()), 48)
    content = b"veilmap token\0" + DIGEST + REPORT
    for _ in range(5):
        key.verify(token(), content, scheme, hashes.SHA384())
    with pytest.raises(InvalidSignature):
        key.verify(token(), content + b"\0", scheme, hashes.SHA384())


def test_a_token_of_the_library_is_as_good():
    scheme = padding.PSS(padding.MGF1(hashes.SHA384()), 48)
    content = b"veilmap token\0" + DIGEST + REPORT
    assert PUBLIC.admits(ISSUER.private.sign(content, scheme, hashes.SHA384()), DIGEST, REPORT)


def test_the_token_of_an_invitation_admits_its_report():
    credential = token()
    assert len(credential) == PUBLIC.credential_bytes == 256
    assert PUBLIC.admits(credential, DIGEST, REPORT)


@pytest.mark.parametrize(
    ("digest", "report"),
    [(DIGEST, bytes(16)), (bytes(32), REPORT), (REPORT + bytes(16), DIGEST[:16])],
)
def test_a_token_admits_no_other_report_and_none_of_another_survey(digest, report):
    assert not PUBLIC.admits(token(), digest, report)


def test_the_token_of_another_issuer_admits_nothing(stranger):
    assert not PUBLIC.admits(token(issuer=stranger), DIGEST, REPORT)
    assert not stranger.public.admits(token(), DIGEST, REPORT)
    assert stranger.public.admits(token(issuer=stranger), DIGEST, REPORT)


def test_an_answer_that_the_issuer_did_not_sign_gives_no_token(stranger):
    blinded = PUBLIC.blinded(DIGEST, REPORT)
    for answer in (bytes(256), bytes(255) + b"\1", blinded.message, b"\xff" * 256):
        assert not PUBLIC.admits(blinded.finished(answer), DIGEST, REPORT)


@pytest.mark.parametrize(
    "credential",
    [b"", bytes(256), b"\xff" * 256, bytes(255), bytes(257), bytes(8)],
    ids=["nothing", "0", "ones", "short", "long", "work"],
)
def test_garbage_is_no_token(credential):
    assert not PUBLIC.admits(credential, DIGEST, REPORT)


def test_a_token_plus_the_modulus_is_no_second_token():
    """One report has one credential of an issuer's answer, and not a family of them."""
    for _ in range(20):
        credential = token()
        larger = int.from_bytes(credential) + N
        if larger < 2**2048:
            assert not PUBLIC.admits(larger.to_bytes(256), DIGEST, REPORT)


def test_any_token_could_be_of_any_invitation():
    """For each number that the issuer saw and each token there is a blinding between the two.

    So that the numbers, which the issuer connects with invitations, tell nothing of the tokens.
    """
    seen, tokens = [], []
    for number in range(3):
        blinded = PUBLIC.blinded(DIGEST, bytes([number]) * 16)
        assert len(blinded.message) == 256
        seen.append(blinded.message)
        tokens.append(blinded.finished(ISSUER.signed(blinded.message)))
    for message in map(int.from_bytes, seen):
        assert 0 < message < N
        signature = pow(message, private_exponent(), N)
        for credential in map(int.from_bytes, tokens):
            encoded = pow(credential, E, N)
            factor = pow(message * pow(encoded, -1, N), private_exponent(), N)
            assert math.gcd(factor, N) == 1
            assert encoded * pow(factor, E, N) % N == message
            assert signature * pow(factor, -1, N) % N == credential


def test_what_the_issuer_sees_is_uniform_whatever_the_report_is(monkeypatch):
    """A chi-square test of 1,200 numbers of one report in 32 classes, with a seed."""
    source = random.Random(5)
    seeded = SimpleNamespace(randbelow=source.randrange, token_bytes=source.randbytes)
    monkeypatch.setattr(admission, "secrets", seeded)
    made = [PUBLIC.blinded(DIGEST, REPORT) for _ in range(1200)]
    limit = stats.chi2.isf(1e-6, 31)

    def unevenness(numbers):
        counts = np.bincount([32 * one // N for one in numbers], minlength=32)
        return ((counts - len(numbers) / 32) ** 2).sum() / (len(numbers) / 32)

    assert unevenness([int.from_bytes(one.message) for one in made]) < limit
    # What was hidden is no such number: it begins with a bit that is 0, whatever its salt, and
    # both primes of a key are at least 0.75 · 2^1024.
    bare = [int.from_bytes(one.message) * pow(one.inverse, E, N) % N for one in made]
    assert max(bare) < 2**2047
    assert unevenness(bare) > limit


def test_every_token_is_blinded_anew():
    one, other = (PUBLIC.blinded(DIGEST, REPORT) for _ in range(2))
    assert one.message != other.message
    assert one.inverse != other.inverse
    for blinded in (one, other):
        credential = blinded.finished(ISSUER.signed(blinded.message))
        assert pow(int.from_bytes(credential), E, N) != int.from_bytes(blinded.message)


def test_a_blinded_token_outlives_a_file():
    blinded = PUBLIC.blinded(DIGEST, REPORT)
    again = Blinded.from_text(blinded.as_text())
    assert again == blinded
    assert PUBLIC.admits(again.finished(ISSUER.signed(again.message)), DIGEST, REPORT)


# ---- the issuer


@pytest.mark.parametrize("number", [1, 2, N // 2, N - 1], ids=["1", "2", "half", "last"])
def test_the_issuer_signs_numbers_below_its_key(number):
    message = number.to_bytes(256)
    assert ISSUER.can_sign(message)
    assert int.from_bytes(ISSUER.signed(message)) == pow(number, private_exponent(), N)


@pytest.mark.parametrize(
    "message",
    [bytes(256), N.to_bytes(256), (N + 1).to_bytes(256), b"\xff" * 256, b"", b"\1", bytes(255),
     bytes(256) + b"\1", b"\1" + bytes(256)],
    ids=["0", "n", "n + 1", "ones", "nothing", "short", "shorter", "longer", "longer before"],
)  # fmt: skip
def test_the_issuer_signs_nothing_else(message):
    assert not ISSUER.can_sign(message)


def test_a_fault_in_the_arithmetic_gives_out_no_signature(monkeypatch):
    """From a signature that is right modulo one prime alone, anybody could factor the key."""
    own = ISSUER.private.private_numbers()
    public = own.public_numbers
    wrong = SimpleNamespace(
        public_numbers=public, p=own.p, q=own.q, dmp1=own.dmp1 ^ 2, dmq1=own.dmq1, iqmp=own.iqmp
    )
    faulty = Issuer(SimpleNamespace(private_numbers=lambda: wrong))
    with pytest.raises(RuntimeError):
        faulty.signed((12345).to_bytes(256))


def test_an_issuer_outlives_its_file():
    again = Issuer.load(ISSUER.pem)
    assert again.public == PUBLIC
    assert PUBLIC.admits(token(issuer=again), DIGEST, REPORT)


def pem_of(key):
    kind = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, kind, serialization.NoEncryption())


@pytest.mark.parametrize(
    "pem",
    [
        b"", b"garbage", ISSUER.pem[:500],
        pem_of(ec.generate_private_key(ec.SECP256R1())), pem_of(rsa.generate_private_key(E, 1024)),
    ],
    ids=["nothing", "garbage", "cut", "another kind", "short"],
)  # fmt: skip
def test_what_is_no_issuers_key_is_refused(pem):
    with refused(DataError):
        Issuer.load(pem)


# ---- invitations


@pytest.fixture
def leader(tmp_path):
    both = pair(tmp_path, small_task(KEYS, invitations=True), KEYS)
    both.leader.store.invite(["one", "two"])
    yield both.leader
    both.close()


def reason(leader, code, message):
    """The reason for which an invitation is not changed into a token, and the status."""
    with pytest.raises(Refusal) as caught:
        leader.issued(code, message)
    assert "\n" not in caught.value.line
    return caught.value.reason, caught.value.status


def asked(leader, report=REPORT):
    return leader.task.admission.blinded(leader.task.digest_bytes, report)


def test_an_invitation_gives_a_token_for_one_report(leader):
    blinded = asked(leader)
    credential = blinded.finished(leader.issued("one", blinded.message))
    assert leader.task.admission.admits(credential, leader.task.digest_bytes, REPORT)
    assert leader.store.invited() == (2, 1)


def test_the_same_token_may_be_asked_for_again(leader):
    """An answer that was lost on its way costs nobody an invitation."""
    blinded = asked(leader)
    first = leader.issued("one", blinded.message)
    assert leader.issued(" one\n", blinded.message) == first
    assert leader.store.invited() == (2, 1)


@pytest.mark.parametrize("report", [REPORT, bytes(16)], ids=["same report", "another report"])
def test_an_invitation_that_was_used_gives_no_other_token(leader, report):
    blinded = asked(leader)
    first = leader.issued("one", blinded.message)
    assert reason(leader, "one", asked(leader, report).message) == ("invitation used", 409)
    assert leader.issued("one", blinded.message) == first
    assert leader.store.invited() == (2, 1)


def test_each_invitation_has_a_token_of_its_own(leader):
    for code, report in (("one", REPORT), ("two", bytes(16))):
        blinded = asked(leader, report)
        credential = blinded.finished(leader.issued(code, blinded.message))
        assert leader.task.admission.admits(credential, leader.task.digest_bytes, report)
    assert leader.store.invited() == (2, 2)


@pytest.mark.parametrize("code", ["", "three", "ONE", "one two", "on", "%", "x" * 10_000, "é"])
def test_an_unknown_code_gives_no_token(leader, code):
    assert reason(leader, code, asked(leader).message) == ("no invitation", 403)
    assert leader.store.invited() == (2, 0)


def test_the_hash_of_a_code_is_no_code(leader):
    """Who reads the leader's database cannot take part."""
    stored = hashlib.sha256(b"one").digest()
    for code in (stored.hex(), stored.decode("latin-1")):
        assert reason(leader, code, asked(leader).message) == ("no invitation", 403)


@pytest.mark.parametrize(
    "message",
    [bytes(256), N.to_bytes(256), b"\xff" * 256, b"", bytes(255), bytes(255) + b"\1\1"],
    ids=["0", "n", "ones", "nothing", "short", "long"],
)
def test_a_number_out_of_range_is_refused_and_uses_up_no_invitation(leader, message):
    assert reason(leader, "one", message) == ("malformed", 400)
    assert leader.store.invited() == (2, 0)


def test_a_survey_that_is_over_gives_no_tokens(leader):
    leader.store.stop_collecting()
    assert reason(leader, "one", asked(leader).message) == ("over", 410)
    assert leader.store.invited() == (2, 0)


def test_a_survey_without_invitations_gives_no_tokens(tmp_path):
    both = pair(tmp_path, small_task(KEYS), KEYS)
    assert reason(both.leader, "one", PUBLIC.blinded(DIGEST, REPORT).message) == ("no tokens", 404)
    both.close()


@pytest.mark.parametrize(
    "key", [None, 5, "", "x", f"{N:x}0", f"{N - 1:x}"],
    ids=["none", "number", "empty", "text", "long", "even"],
)  # fmt: skip
def test_what_is_no_key_for_tokens_is_refused(key):
    with refused(ConfigurationError, parameter="key"):
        Invitations(key)


# ---- proof of work


def zeros(credential, digest=DIGEST, report=REPORT):
    """How many bits at the beginning of the hash are 0."""
    found = hashlib.sha256(b"veilmap work\0" + digest + report + credential).digest()
    return 256 - int.from_bytes(found).bit_length()


@pytest.mark.parametrize("bits", [1, 5, 8, 9, 13])
def test_solved_work_admits_its_report(bits):
    work = ProofOfWork(bits)
    credential = work.solved(DIGEST, REPORT)
    assert len(credential) == work.credential_bytes == 8
    assert work.admits(credential, DIGEST, REPORT)
    assert zeros(credential) >= bits
    # It is the first number that does it.
    tried = int.from_bytes(credential)
    assert all(zeros(number.to_bytes(8)) < bits for number in range(tried))


@pytest.mark.parametrize(
    ("digest", "report"), [(DIGEST, bytes(16)), (bytes(32), REPORT), (bytes(32), bytes(16))]
)
def test_work_for_another_report_or_survey_admits_nothing(digest, report):
    work = ProofOfWork(13)
    assert not work.admits(work.solved(DIGEST, REPORT), digest, report)


def test_as_many_bits_as_are_asked_for_must_be_0():
    """Every number is admitted by so many bits as its hash begins with, and by no more."""
    for number in range(4000):
        credential = number.to_bytes(8)
        most = zeros(credential)
        for bits in {1, max(1, most), min(30, most + 1)}:
            assert ProofOfWork(bits).admits(credential, DIGEST, REPORT) == (most >= bits)


@pytest.mark.parametrize("bits", [0, -1, 31, 256, 2.5, math.nan, math.inf, "x", None])
def test_work_that_is_none_or_too_much_is_refused(bits):
    with refused(ConfigurationError, "bits", parameter="bits"):
        ProofOfWork(bits)
