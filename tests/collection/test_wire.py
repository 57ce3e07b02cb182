"""What two aggregators have before the sum is opened says nothing of any participant.

Some hundred people send reports. One half of them has reached the leader alone, and the other half
the helper alone, when the databases are looked at for the first time: shares that wait for their
other half are in them. They are looked at again when all are paired, with logs and metrics.
"""

import logging
import re
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pytest
from scipy import stats

from aggregators import METRICS_TOKEN, credential, deployed, small_survey
from veilmap.collection import aggregator, shares
from veilmap.collection import report as reports
from veilmap.collection.collector import Collector
from veilmap.surveys.contribution import contribution

pytestmark = pytest.mark.xdist_group("wire")

Q = 2**32 - 2**20 + 1
PEOPLE = 240
BUSY = range(0, PEOPLE, 20)  # these have tens of thousands of readings, all different counts
ROLES = ("leader", "helper")
FALSE_ALARM = 1e-9  # chance of each statistical test to fail: keys and addresses have no seed


@dataclass
class Person:
    """Somebody's readings, and the vector that is made of them."""

    xy: np.ndarray
    gain: np.ndarray
    vector: np.ndarray
    links: int

    @property
    def numbers(self):
        """The coordinates and gains of the first three readings."""
        return [*self.xy[:3].ravel().tolist(), *self.gain[:3].tolist()]


@dataclass
class Seen:
    """Everything that an aggregator had at some moment."""

    files: bytes  # its database, and the pages that are not in it yet
    told: bytes  # its metrics

    @property
    def all(self):
        return self.files + self.told


@dataclass
class Survey:
    people: list
    waiting: dict  # what each aggregator had while reports waited for their other half
    paired: dict  # and when all were added
    shares: dict  # the shares that were stored while they waited
    log: bytes
    opened: np.ndarray
    deviation: float


def somebody(survey, number):
    """With numbers that nothing else in the files is likely to hold."""
    rng = np.random.default_rng([7, number])
    links = 66_001 + 97 * number if number in BUSY else 3
    west, east, south, north = survey.grid.extent
    xy = rng.uniform((west, south), (east, north), (links, 2))
    bs = np.array(["north", "7"])[rng.integers(0, 2, links)]
    gain = rng.normal(-90, 9, links)
    return Person(xy, gain, contribution(survey, xy, bs, gain).vector, links)


def seen(both, folder):
    """A copy of every file of an aggregator's database, and its metrics."""
    found = {}
    for role in ROLES:
        files = sorted(folder.glob(f"{role}.db*"))
        assert files
        headers = {"authorization": f"Bearer {METRICS_TOKEN}"}
        told = both.client.get(f"{both.address(role)}/metrics", headers=headers).content
        found[role] = Seen(b"".join(file.read_bytes() for file in files), told)
    return found


def stored_shares(folder, role):
    database = sqlite3.connect(folder / f"{role}.db", timeout=10)
    rows = database.execute("SELECT share FROM shares ORDER BY id").fetchall()
    database.close()
    return [share for (share,) in rows]


class Lines(logging.Handler):
    """Every record of the log, with its facts."""

    def __init__(self):
        super().__init__()
        self.text = ""

    def emit(self, record):
        self.text += f"{record.getMessage()} {getattr(record, 'facts', '')}\n"


@pytest.fixture(scope="module")
def survey(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wire")
    lines, log = Lines(), logging.getLogger("veilmap.collection")
    log.addHandler(lines)
    before = log.level
    log.setLevel(logging.DEBUG)
    design = small_survey(participants=PEOPLE)
    people = [somebody(design, number) for number in range(PEOPLE)]
    rng = np.random.default_rng(11)
    with (
        pytest.MonkeyPatch.context() as patch,
        deployed(folder, survey=design, seed=5) as both,
        ThreadPoolExecutor(8) as pool,
    ):
        patch.setattr(aggregator, "_OFFER_AGAIN", 0.2)
        halves = []
        for one in people:
            report, secret = rng.bytes(16), rng.bytes(32)
            shown = credential(both.task, report)
            halves.append(
                dict(
                    zip(
                        ROLES,
                        reports.halves(both.task, one.vector, report, shown, secret),
                        strict=True,
                    )
                )
            )

        def send(role, some):
            answers = pool.map(lambda half: both.send(half[role], role), some)
            assert {answer.status_code for answer in answers} == {201}

        first, second = halves[: PEOPLE // 2], halves[PEOPLE // 2 :]
        send("leader", first)
        send("helper", second)
        waiting = seen(both, folder)
        waiting_shares = {role: stored_shares(folder, role) for role in ROLES}
        send("helper", first)
        send("leader", second)
        end = time.monotonic() + 60
        while {one.standing().added for one in (both.leader, both.helper)} != {PEOPLE}:
            assert time.monotonic() < end, "the reports were not paired"
            time.sleep(0.05)
        paired = seen(both, folder)
        told = lines.text.encode()
        collector = Collector(both.aggregators, both.keys.collector)
        opened = collector.joined(collector.open(early=True, waiting=lambda added: None))
    log.removeHandler(lines)
    log.setLevel(before)
    return Survey(people, waiting, paired, waiting_shares, told, opened.total, opened.deviation)


# ---- the survey is a real one


def test_the_opened_sum_is_that_of_all_people_with_noise(survey):
    total = sum(one.vector for one in survey.people)
    assert np.abs(total).max() > 10 * survey.deviation
    wrong = survey.opened - total
    # One of 84 numbers is beyond seven deviations in one of 5 billion cases.
    assert np.abs(wrong).max() < 7 * survey.deviation
    assert np.count_nonzero(wrong) > 0


def test_shares_waited_for_their_other_half_in_the_files_that_were_looked_at(survey):
    for role in ROLES:
        assert len(survey.shares[role]) == PEOPLE // 2
        for share in survey.shares[role]:
            # A leader's share may be on several pages: its middle is on one of them.
            assert share[40:60] in survey.waiting[role].files or len(share) == 32
            assert len(share) > 32 or share in survey.waiting[role].files
    assert b"veilmap_reports_received 240.0" in survey.paired["leader"].told


# ---- shares are uniform


def unevenness(classes, count):
    """Chi-square of how many fall into each class, and what it may be by chance."""
    expected = len(classes) / count
    assert expected > 10
    counts = np.bincount(classes, minlength=count)
    assert len(counts) == count
    return ((counts - expected) ** 2).sum() / expected, stats.chi2.isf(FALSE_ALARM, count - 1)


def looks_uniform(elements):
    """Whether elements modulo q are even among 128 classes, by magnitude and by remainder."""
    whole = np.asarray(elements).astype(np.uint64).ravel()
    for classes in (whole * 128 // Q, whole % 128):
        found, limit = unevenness(classes.astype(np.int64), 128)
        if found > limit:
            return False
    return True


def masked(survey):
    """The elements that the leader stored, a row for each person."""
    return np.array([shares.from_bytes(share[32:]) for share in survey.shares["leader"]])


def test_what_the_leader_stores_is_uniform(survey):
    stored = masked(survey)
    assert stored.shape == (PEOPLE // 2, survey.people[0].vector.size)
    assert looks_uniform(stored)


def test_the_difference_of_what_the_leader_stores_of_two_people_is_uniform(survey):
    """So no two people have one mask."""
    stored = masked(survey).astype(np.int64)
    assert looks_uniform((stored[1:] - stored[:-1]) % Q)


def test_the_difference_of_neighbouring_elements_is_uniform(survey):
    stored = masked(survey).astype(np.int64)
    assert looks_uniform((stored[:, 1:] - stored[:, :-1]) % Q)


def test_what_the_leader_stores_is_not_nearer_to_the_vectors_than_to_others(survey):
    """The sign of entries and of what is stored agree for half of them."""
    stored = shares.centred(masked(survey))
    vectors = np.array([one.vector for one in survey.people])
    for own in (vectors[: PEOPLE // 2], vectors[PEOPLE // 2 :]):
        agree = (np.sign(own) == np.sign(stored))[own != 0]
        # The deviation of a share of n fair coins is 1 / (2 √n).
        limit = stats.norm.isf(FALSE_ALARM / 2) / (2 * np.sqrt(len(agree)))
        assert abs(agree.mean() - 0.5) < limit


def test_blinds_and_seeds_are_uniform(survey):
    for role in ROLES:
        secret = b"".join(share[:32] for share in survey.shares[role])
        found, limit = unevenness(np.frombuffer(secret, dtype=np.uint8).astype(np.int64), 256)
        assert found < limit
        assert len({share[:32] for share in survey.shares[role]}) == PEOPLE // 2


@pytest.mark.parametrize(
    "unmasked", ["all", "some people", "one mask", "one element", "small mask"]
)
def test_a_vector_that_is_not_masked_is_found(survey, unmasked):
    """The tests above would fail on these."""
    vectors = np.array([one.vector for one in survey.people[: PEOPLE // 2]])
    rng = np.random.default_rng(3)
    if unmasked == "all":
        assert not looks_uniform(shares.residues(vectors))
    elif unmasked == "some people":
        mixed = masked(survey).copy()
        mixed[::10] = shares.residues(vectors[::10])
        assert not looks_uniform(mixed)
    elif unmasked == "one mask":
        same = (vectors - rng.integers(0, Q, vectors.shape[1])) % Q
        assert not looks_uniform((same[1:] - same[:-1]) % Q)
        assert looks_uniform(masked(survey))
    elif unmasked == "one number":
        each = (vectors - rng.integers(0, Q, (len(vectors), 1))) % Q
        assert not looks_uniform((each[:, 1:] - each[:, :-1]) % Q)
    else:
        assert not looks_uniform((vectors - rng.integers(0, 2**31, vectors.shape)) % Q)


# ---- and nothing else is there


def windows(content, size):
    """Every different number of so many bytes that begins at any byte, in order."""
    parts = []
    for begin in range(size):
        length = (len(content) - begin) // size
        parts.append(np.frombuffer(content, dtype=f"<u{size}", count=length, offset=begin))
    return np.unique(np.concatenate(parts))


def found_binary(values, kind, there):
    """Which values are among the windows of some bytes, as numbers of a kind."""
    size = np.dtype(kind).itemsize
    own = np.array(values, dtype=kind).view(f"<u{size}")
    at = np.searchsorted(there[size], own)
    return there[size][np.minimum(at, len(there[size]) - 1)] == own


FLOATS = ["<f8", ">f8", "<f4", ">f4"]
INTEGERS = ["<i8", ">i8", "<i4", ">i4"]
_DECIMALS = re.compile(rb"\d{2,}\.\d{4,}")
_DIGITS = re.compile(rb"\d+")


def as_text(value):
    """To four decimals, cut off, without sign."""
    whole, _, decimals = f"{abs(value):.9f}".partition(".")
    return f"{whole}.{decimals[:4]}".encode()


def decimals_of(content):
    """Every number with decimals that is written in there, to four decimals."""
    texts = (one.partition(b".") for one in _DECIMALS.findall(content))
    return {whole + b"." + decimals[:4] for whole, _, decimals in texts}


def leaks(content, people):
    """What of the people is found in there, by its form; chance finds are within what is allowed.

    Among random bytes, a pattern of k bytes is found with probability n / 256^k at most, n of them
    being different. Counts of links have three bytes that are not 0.
    """
    found, there = [], {size: windows(content, size) for size in (4, 8)}
    readings = np.array([one.numbers for one in people]).ravel()
    fixed = np.rint(1000 * np.abs(readings)).astype(np.int64)
    links = [one.links for one in people if one.links > 65_536]
    for name, values, kinds in (
        ("readings", readings, FLOATS), ("readings", fixed, INTEGERS), ("links", links, INTEGERS),
        ("links", links, FLOATS),
    ):  # fmt: skip
        for kind in kinds:
            telling = min(np.dtype(kind).itemsize, 8 if name == "readings" else 3)
            telling = min(telling, 3) if values is fixed else telling
            by_chance = min(1.0, len(there[np.dtype(kind).itemsize]) / 256**telling)
            allowed = stats.binom.isf(FALSE_ALARM, len(values), by_chance)
            if found_binary(values, kind, there).sum() > allowed:
                found.append((name, kind))
    if decimals_of(content) & {as_text(one) for one in readings}:
        found.append(("readings", "text"))
    digits = set(_DIGITS.findall(content))
    for name, values in (("readings", fixed), ("links", links)):
        texts = {str(one).encode() for one in values}
        # A run of k digits among random bytes begins anywhere with probability (10/256)^k.
        expected = len(content) * sum((1 / 256) ** len(one) for one in texts)
        if len(digits & texts) > stats.poisson.isf(FALSE_ALARM, expected):
            found.append((name, "digits"))
    return found


@pytest.mark.parametrize("when", ["waiting", "paired"])
@pytest.mark.parametrize("role", ROLES)
def test_no_file_of_an_aggregator_has_anything_of_a_participant(survey, role, when):
    content = getattr(survey, when)[role]
    assert len(content.files) > 30_000
    assert leaks(content.all + survey.log, survey.people) == []


@pytest.mark.parametrize("when", ["waiting", "paired"])
@pytest.mark.parametrize("role", ROLES)
def test_no_vector_is_in_a_file_of_an_aggregator(survey, role, when):
    """Neither as it is stored for the sum, nor as whole numbers of another kind."""
    content = getattr(survey, when)[role].all
    pairs = np.array([longest(one.vector) for one in survey.people])
    assert (pairs != 0).all()
    there = {8: windows(content, 8)}
    for kind in ("<u4", ">u4", "<f4"):
        told = shares.residues(pairs) if kind.endswith("u4") else pairs
        assert not found_binary(told.astype(kind).view("<u8").ravel(), "<u8", there).any()


def longest(vector):
    """The cosine and sine of a vector that are both not 0 and the largest."""
    both = vector.reshape(-1, 2)
    return both[np.abs(both).min(axis=1).argmax()]


def test_a_vector_in_a_file_is_found(survey):
    for kind in ("<u4", ">u4", "<f4"):
        whole = np.concatenate([one.vector for one in survey.people])
        told = shares.residues(whole) if kind.endswith("u4") else whole
        content = b"x" + survey.waiting["leader"].all + told.astype(kind).tobytes()
        pairs = np.array([longest(one.vector) for one in survey.people])
        told = shares.residues(pairs) if kind.endswith("u4") else pairs
        there = {8: windows(content, 8)}
        assert found_binary(told.astype(kind).view("<u8").ravel(), "<u8", there).all()


def test_what_a_file_should_not_have_is_found(survey):
    """The search finds numbers that were put among the bytes of a real database, in each form."""
    people = survey.people
    readings = [number for one in people for number in one.numbers]
    fixed = [round(1000 * abs(number)) for number in readings]
    links = [one.links for one in people if one.links > 65_536]
    planted = {
        ("readings", "text"): [str(one).encode() for one in readings],
        ("readings", "digits"): [str(one).encode() for one in fixed],
        ("links", "digits"): [str(one).encode() for one in links],
    }
    for kinds, values in ((FLOATS, readings), (INTEGERS, fixed)):
        for kind in kinds:
            planted["readings", kind] = [np.array(one, dtype=kind).tobytes() for one in values]
    for kind in FLOATS + INTEGERS:
        planted["links", kind] = [np.array(one, dtype=kind).tobytes() for one in links]
    content = survey.waiting["leader"].all
    content += b";".join(b";".join(hidden) for hidden in planted.values())
    assert set(leaks(content, people)) == set(planted)
