"""Shares and reports: what their halves add up to, and everything that is refused."""

import hashlib
import math
from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given
from hypothesis import strategies as st

from aggregators import credential, halves_of, new_keys, pair, small_survey, small_task, vector
from veilmap.collection import report as reports
from veilmap.collection import shares
from veilmap.collection.admission import ProofOfWork
from veilmap.collection.report import Refusal

Q = 2**32 - 2**20 + 1
ROLES = ("leader", "helper")
REPORT = bytes(range(16))
SECRET = bytes(range(100, 132))
HASHES = slice(16, 80)
KEYS = new_keys()


@pytest.fixture(scope="module")
def task():
    return small_task(KEYS, admission=ProofOfWork(10))


@pytest.fixture(scope="module")
def halves(task):
    own = vector(task.survey, 1)
    return dict(zip(ROLES, made(task, own), strict=True))


def made(task, own, report=REPORT, secret=SECRET):
    return reports.halves(task, own, report, credential(task, report), secret)


def why(content, task, role):
    """The reason for which a half is refused, or None."""
    try:
        reports.parsed(content, task, role)
    except Refusal as refusal:
        return refusal.reason
    return None


def changed(content, at, value):
    return content[:at] + bytes([value]) + content[at + 1 :]


def mask(seed, digest, report, count, q=Q):
    """Words of AES-256 in counter mode, block by block, without those that are not below q."""
    key = hashlib.sha256(b"veilmap mask\0" + digest + report + seed).digest()
    found, counter = [], 0
    while len(found) < count:
        some = b"".join(number.to_bytes(16) for number in range(counter, counter + 256))
        counter += 256
        words = Cipher(algorithms.AES(key), modes.ECB()).encryptor().update(some)
        for at in range(0, len(words), 4):
            word = int.from_bytes(words[at : at + 4], "little")
            if word < q:
                found.append(word)
    return found[:count]


# ---- shares


@given(
    own=st.lists(st.integers(-(2**20), 2**20), max_size=300),
    seed=st.binary(min_size=32, max_size=32),
    digest=st.binary(min_size=32, max_size=32),
    report=st.binary(min_size=16, max_size=16),
)
def test_both_shares_add_up_to_the_vector(own, seed, digest, report):
    masked = shares.split(np.array(own, dtype=np.int64), digest, report, seed).tolist()
    told = mask(seed, digest, report, len(own))
    assert [(a + b) % Q for a, b in zip(masked, told, strict=True)] == [one % Q for one in own]


@pytest.mark.parametrize("count", [0, 1, 63, 4096, 30_000])
def test_masks_are_those_of_the_reference(count):
    """One word in 4,096 is skipped: about seven of 30,000, so that a slip would be seen."""
    digest = hashlib.sha256(b"a task").digest()
    found = shares.expanded(SECRET, digest, REPORT, count)
    assert found.dtype == np.uint32
    assert found.tolist() == mask(SECRET, digest, REPORT, count)


def test_some_words_of_a_long_mask_were_skipped():
    key = hashlib.sha256(b"veilmap mask\0" + bytes(32) + REPORT + SECRET).digest()
    stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor().update(bytes(120_000))
    words = np.frombuffer(stream, dtype="<u4")
    assert (words >= Q).any()
    assert shares.expanded(SECRET, bytes(32), REPORT, 29_000).tolist() == (
        words[words < Q][:29_000].tolist()
    )


@pytest.mark.parametrize("q", [2**31 - 1, 2**28 + 3])
def test_where_many_words_are_skipped_the_stream_goes_on(monkeypatch, q):
    """With a smaller modulus what is drawn at once is not enough."""
    monkeypatch.setattr(shares, "PRIME", q)
    found = shares.expanded(SECRET, bytes(32), REPORT, 2000)
    assert found.tolist() == mask(SECRET, bytes(32), REPORT, 2000, q)


def test_a_mask_depends_on_seed_task_and_report():
    about = {"seed": SECRET, "digest": bytes(32), "report": REPORT}
    usual = shares.expanded(**about, count=50)
    for name, value in about.items():
        other = about | {name: changed(value, 0, value[0] ^ 1)}
        assert (shares.expanded(**other, count=50) != usual).all()


@given(st.lists(st.integers(0, Q - 1), max_size=40))
def test_elements_travel_as_four_bytes_each_with_the_lowest_first(elements):
    content = shares.to_bytes(np.array(elements, dtype=np.uint32))
    assert content == b"".join(one.to_bytes(4, "little") for one in elements)
    assert shares.from_bytes(content).tolist() == elements


@pytest.mark.parametrize("element", [Q, Q + 1, 2**32 - 1])
def test_what_is_no_residue_is_no_element(element):
    with pytest.raises(ValueError, match=str(Q)):
        shares.from_bytes(bytes(4) + element.to_bytes(4, "little"))


@given(st.lists(st.lists(st.integers(0, Q - 1), min_size=3, max_size=3), min_size=1, max_size=50))
def test_many_elements_are_added_modulo_q(rows):
    first, *others = (np.array(row, dtype=np.uint32) for row in rows)
    expected = [sum(column) % Q for column in zip(*rows, strict=True)]
    assert shares.added(first, *others).tolist() == expected


def test_thousands_of_the_largest_elements_do_not_overflow():
    largest = np.full(4, Q - 1, dtype=np.uint32)
    assert shares.added(largest, *[largest] * 4999).tolist() == [-5000 % Q] * 4


@given(st.data())
def test_sums_within_the_room_of_a_task_are_told_modulo_q(data):
    """As many reports of length C as a task may take, and 16 deviations of noise of each of two."""
    survey = data.draw(st.sampled_from([small_survey(), small_survey(clip=2**17)]))
    noise = math.floor(32 * survey.deviation)
    most = math.floor((Q / 2 - 32 * survey.deviation) / survey.clip)
    small_task(KEYS, survey=survey, most_reports=most)  # it is allowed
    bound = most * survey.clip + noise
    whole = [*data.draw(st.lists(st.integers(-bound, bound), max_size=20)), bound, -bound, 0]
    array = np.array(whole, dtype=np.int64)
    told = shares.residues(array)
    assert told.tolist() == [one % Q for one in whole]
    assert shares.centred(told).tolist() == whole


@pytest.mark.parametrize(("whole", "told"), [(Q // 2, Q // 2), (Q // 2 + 1, -(Q // 2)), (Q, 0)])
def test_sums_beyond_half_of_q_come_round(whole, told):
    assert shares.centred(shares.residues(np.array([whole]))).tolist() == [told]


# ---- what a participant makes


def test_halves_of_a_report_hold_both_shares_of_the_vector(task, halves):
    own = vector(task.survey, 1)
    elements = reports.elements_of(task, halves["leader"].share).tolist()
    told = mask(halves["helper"].share, task.digest_bytes, REPORT, len(own))
    assert [(a + b) % Q for a, b in zip(elements, told, strict=True)] == (own % Q).tolist()
    assert np.count_nonzero(own) > 5


def test_the_sum_of_three_peoples_halves_is_the_sum_of_their_vectors(task):
    masked, told, total = [0] * task.survey.numbers, [0] * task.survey.numbers, 0
    for number in range(3):
        own = vector(task.survey, number)
        report = bytes([number]) * 16
        leaders, helpers = made(task, own, report)
        mine = reports.elements_of(task, leaders.share).tolist()
        theirs = mask(helpers.share, task.digest_bytes, report, len(own))
        masked = [(a + b) % Q for a, b in zip(masked, mine, strict=True)]
        told = [(a + b) % Q for a, b in zip(told, theirs, strict=True)]
        total = total + own
    joined = [(a + b) % Q for a, b in zip(masked, told, strict=True)]
    assert shares.centred(np.array(joined, dtype=np.uint32)).tolist() == total.tolist()


def test_the_same_secret_and_vector_give_the_same_halves(task, halves):
    again = made(task, vector(task.survey, 1))
    assert [one.content for one in again] == [halves[role].content for role in ROLES]


@pytest.mark.parametrize("entry", [0, 5, -1])
def test_another_vector_never_has_the_same_mask(task, halves, entry):
    """Otherwise the leader could subtract two shares and see the difference of two vectors."""
    other = vector(task.survey, 1)
    other[entry] += 1
    leaders, helpers = made(task, other)
    assert helpers.share != halves["helper"].share
    assert leaders.share[:32] != halves["leader"].share[:32]
    mine, before = (reports.elements_of(task, one.share) for one in (leaders, halves["leader"]))
    # Of 84 elements one would agree by chance in 50 million cases.
    assert (mine != before).all()
    assert leaders.hashes[:32] != halves["leader"].hashes[:32]


def test_another_secret_report_or_task_has_another_mask(task, halves):
    own = vector(task.survey, 1)
    elsewhere = small_task(KEYS, admission=ProofOfWork(10), closes="2099-01-01T00:00Z")
    for other in (
        made(task, own, secret=bytes(32)),
        made(task, own, report=bytes(16)),
        made(elsewhere, own),
    ):
        assert other[1].share != halves["helper"].share
        mine = reports.elements_of(task, other[0].share)
        assert (mine != reports.elements_of(task, halves["leader"].share)).all()


def test_the_leaders_hash_says_nothing_to_who_guesses_the_vector(task, halves):
    """The hash covers a blind that the helper does not have, and that is not told by the seed."""
    own, seed = vector(task.survey, 1), halves["helper"].share
    masked = shares.to_bytes(shares.split(own, task.digest_bytes, REPORT, seed))
    assert halves["leader"].share[32:] == masked
    for blind in (b"", bytes(32), seed, hashlib.sha256(seed).digest()):
        guess = reports.share_hash("leader", task.digest_bytes, REPORT, blind + masked)
        assert guess != halves["leader"].hashes[:32]


@pytest.mark.parametrize("role", ROLES)
def test_a_half_is_read_as_it_was_written(task, halves, role):
    content = halves[role].content
    assert len(content) == reports.half_bytes(task, role)
    assert reports.parsed(content, task, role) == halves[role]
    size = {"leader": 16 + 64 + 2 + 8 + 32 + 4 * 84, "helper": 16 + 64 + 2 + 8 + 32}
    assert len(content) == size[role]


# ---- what is refused


def expected(task, role, content, at):
    """The reason for which a half with another byte somewhere is refused."""
    if 80 <= at < 82:
        return "malformed"
    if 82 <= at < 90:
        text = b"veilmap work\0" + task.digest_bytes + REPORT + content[82:90]
        good = int.from_bytes(hashlib.sha256(text).digest()) >> (256 - 10) == 0
        return None if good else "not admitted"
    other = range(48, 80) if role == "leader" else range(16, 48)
    return None if at in other else "altered"  # both compare the other's hash, see below


@pytest.mark.parametrize("role", ROLES)
def test_every_byte_that_was_changed_is_noticed(task, halves, role):
    """The credential alone may be changed into another valid one."""
    content = halves[role].content
    for at in range(len(content)):
        for bit in range(8):
            other = changed(content, at, content[at] ^ (1 << bit))
            assert why(other, task, role) == expected(task, role, other, at), (at, bit)


def test_every_byte_of_a_token_that_was_changed_is_noticed():
    task = small_task(KEYS, invitations=True)
    blinded = task.admission.blinded(task.digest_bytes, REPORT)
    token = blinded.finished(KEYS.issuer.signed(blinded.message))
    half = reports.halves(task, vector(task.survey, 1), REPORT, token, SECRET)[1]
    assert why(half.content, task, "helper") is None
    for at in range(82, 82 + 256):
        other = changed(half.content, at, half.content[at] ^ (1 << at % 8))
        assert why(other, task, "helper") == "not admitted"


def test_every_byte_of_the_others_hash_that_was_changed_keeps_both_from_adding(tmp_path):
    """One report for every byte, with the leader's half changed, or with the helper's."""
    task = small_task(KEYS)
    both = pair(tmp_path, task, KEYS)
    own = vector(task.survey, 1)
    for at in range(HASHES.start, HASHES.stop):
        leaders, helpers = made(task, own, report=bytes([at]) * 16)
        if at >= 48:
            leaders = replace(
                leaders, hashes=changed(leaders.hashes, at - 16, leaders.hashes[at - 16] ^ at)
            )
        else:
            helpers = replace(
                helpers, hashes=changed(helpers.hashes, at - 16, helpers.hashes[at - 16] ^ at)
            )
        assert leaders.hashes != helpers.hashes
        assert both.leader.take([both.leader.parsed(leaders.content)]) == [None]
        assert both.helper.take([both.helper.parsed(helpers.content)]) == [None]
    honest = made(task, own, report=bytes(16))
    for aggregator, half in zip((both.leader, both.helper), honest, strict=True):
        assert aggregator.take([aggregator.parsed(half.content)]) == [None]
    assert both.leader.pair(both.peer) == 65
    for aggregator, reason in ((both.leader, "mismatch"), (both.helper, "replayed")):
        standing = aggregator.standing()
        assert (standing.received, standing.added, aggregator.store.unpaired()) == (65, 1, 0)
        again = made(task, own, report=bytes([20]) * 16)[aggregator is both.helper]
        assert aggregator.take([again])[0].reason == reason  # the helper's half was changed
    both.close()


@pytest.mark.parametrize("role", ROLES)
def test_a_body_of_another_length_is_refused(task, halves, role):
    content = halves[role].content
    for length in range(len(content)):
        assert why(content[:length], task, role) == "malformed"
    for more in (b"\0", content, bytes(10_000)):
        assert why(content + more, task, role) == "malformed"
        assert why(more + content, task, role) == "malformed"


def test_swapped_halves_are_refused(task, halves):
    assert why(halves["leader"].content, task, "helper") == "malformed"
    assert why(halves["helper"].content, task, "leader") == "malformed"


@pytest.mark.parametrize("role", ROLES)
def test_swapped_hashes_are_refused(task, halves, role):
    own = halves[role]
    swapped = replace(own, hashes=own.hashes[32:] + own.hashes[:32])
    assert why(swapped.content, task, role) == "altered"


@pytest.mark.parametrize(("role", "other"), [ROLES, ROLES[::-1]])
def test_a_share_with_the_hash_of_the_other_role_is_refused(task, halves, role, other):
    """Also where its length would do: the hash says for whom a share is."""
    own = halves[role]
    wrong = reports.share_hash(other, task.digest_bytes, REPORT, own.share)
    assert why(replace(own, hashes=wrong + wrong).content, task, role) == "altered"


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(
    "change", [{"closes": "2099-01-01T00:00Z"}, {"most_reports": 999}, {"pairing_hours": 1}]
)
def test_a_half_for_another_task_is_refused(task, halves, role, change):
    elsewhere = small_task(KEYS, admission=ProofOfWork(10), **change)
    assert why(halves[role].content, elsewhere, role) == "altered"


@pytest.mark.parametrize("role", ROLES)
def test_the_work_for_another_task_is_refused(task, role):
    """The hashes are this task's, the credential another's."""
    elsewhere = small_task(KEYS, admission=ProofOfWork(10), closes="2099-01-01T00:00Z")
    for number in range(20):
        report = bytes([number]) * 16
        foreign = credential(elsewhere, report)
        if not task.admission.admits(foreign, task.digest_bytes, report):
            break
    own = reports.halves(task, vector(task.survey, 1), report, foreign, SECRET)
    assert why(own[ROLES.index(role)].content, task, role) == "not admitted"


@pytest.mark.parametrize("role", ROLES)
def test_halves_of_another_report_are_not_of_this_one(task, halves, role):
    other = made(task, vector(task.survey, 1), report=bytes(16))[ROLES.index(role)]
    mixed = replace(halves[role], share=other.share)
    assert why(mixed.content, task, role) == "altered"
    assert why(replace(other, id=REPORT).content, task, role) == "altered"


@pytest.mark.parametrize("at", [0, 40, 83])
@pytest.mark.parametrize(
    ("element", "reason"), [(Q - 1, None), (Q, "malformed"), (2**32 - 1, "malformed")]
)
def test_elements_that_are_no_residues_are_refused(task, halves, at, element, reason):
    share = halves["leader"].share
    begin = 32 + 4 * at
    share = share[:begin] + element.to_bytes(4, "little") + share[begin + 4 :]
    own = reports.share_hash("leader", task.digest_bytes, REPORT, share)
    half = replace(halves["leader"], share=share, hashes=own + halves["leader"].hashes[32:])
    assert why(half.content, task, "leader") == reason


@given(st.binary(max_size=600))
def test_garbage_is_refused_and_never_a_fault(content):
    task = small_task(KEYS)
    for role in ROLES:
        assert why(content, task, role) == "malformed"
        fitting = content.ljust(reports.half_bytes(task, role), b"\0")
        fitting = fitting[: reports.half_bytes(task, role)]
        assert why(fitting, task, role) in ("malformed", "altered")


def test_halves_that_tests_make_are_taken(task):
    """The other files of tests rest on it."""
    for role, half in zip(ROLES, halves_of(task, 3), strict=True):
        assert why(half.content, task, role) is None
