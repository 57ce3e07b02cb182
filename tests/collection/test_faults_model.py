"""Clients, both aggregators, faults and time in any order, against a model of plain dictionaries.

Every report that both have acknowledged is in the opened sum once, whatever is killed, lost,
repeated or reordered.
"""

import hashlib
import json
import shutil
import sqlite3
import tempfile
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from aggregators import DirectPeer, credential, halves_of, new_keys, pair, small_task
from veilmap.collection import report as reports
from veilmap.collection import shares
from veilmap.collection.aggregator import Helper, Leader
from veilmap.collection.keys import LARGEST_DELAY, is_signed
from veilmap.collection.pine.sharding import helper_measurement
from veilmap.collection.report import Half, Refusal
from veilmap.collection.store import (
    ADDED,
    PAIRED,
    PENDING,
    REFUSED,
    StorageError,
    Store,
    entries_of,
)
from veilmap.collection.task import ROLES
from veilmap.collection.verification import parsed_request
from veilmap.errors import DataError
from veilmap.surveys.aggregate import add_noise

SEED = 11  # of the noise
PROOFS = False  # whether contributions are proven
PEOPLE = 5
MOST_REPORTS = 4
BEGAN = 1_800_000_000.0  # while the survey is open
HOUR = 3600.0
DAY = 24 * HOUR  # how long a half waits for its partner
NEARLY_A_DAY = DAY - 2 * LARGEST_DELAY  # a request may be under way for some time
ROAD_FAULTS = ("request lost", "answer lost", "twice")
NOTHING = ("nothing", "leader", 1)
# Whose halves both have at first: None for neither's, True for another report with its id.
BEGINNINGS = ((False, False), (False, False), (False, None), (None, False), (False, True))


class Killed(Exception):  # noqa: N818
    """A process ended here."""


class Lost(Exception):  # noqa: N818
    """A request or its answer did not arrive."""


@dataclass(frozen=True)
class Report:
    """A report and its vector; a twin has its person's id and another vector."""

    vector: np.ndarray
    leader: Half
    helper: Half

    @property
    def id(self):
        return self.leader.id

    @property
    def hashes(self):
        return self.leader.hashes

    def half(self, role):
        return self.leader if role == "leader" else self.helper


def survey_task():
    """The task of all examples, and its keys."""
    return _survey_task(PROOFS)


@cache
def _survey_task(proofs):
    keys = new_keys()
    closes = "2027-06-01T00:00Z"
    return small_task(keys, proofs=proofs, most_reports=MOST_REPORTS, closes=closes), keys


def report_of(person, twin):
    return _report_of(PROOFS, person, twin)


@cache
def _report_of(proofs, person, twin):
    task, _ = _survey_task(proofs)
    vector = np.random.default_rng([person, twin]).integers(-90, 91, task.survey.numbers)
    name = hashlib.sha256(f"person {person}".encode()).digest()
    report = name[: reports.ID_BYTES]
    admitted = credential(task, report)
    return Report(vector, *reports.halves(task, vector, report, admitted, name))


@cache
def noise():
    """What the aggregators add together, as they have a seed."""
    survey = survey_task()[0].survey
    total = np.zeros(survey.numbers, dtype=np.int64)
    for number in range(2):
        add_noise(survey, total, SEED, number)
    return total


class Watched:
    """A store whose process is killed at a chosen step, or whose disk is full."""

    def __init__(self, store):
        self.store, self.dead = store, False
        self.kill_at = None  # steps from now: statements, commits, and what comes after those
        self.full = None  # or "write", or "commit"
        self._inner = store._transaction
        store._transaction = self._transaction
        sa.event.listen(store._engine, "before_cursor_execute", self._before_statement)
        sa.event.listen(store._engine, "commit", self._before_commit)

    def _before_statement(self, connection, cursor, statement, *rest):
        self._step()
        if self.full == "write" and statement.startswith(("INSERT", "UPDATE", "DELETE")):
            raise _no_room(statement)

    def _before_commit(self, connection):
        self._step()
        if self.full == "commit":
            raise _no_room("COMMIT")

    @contextmanager
    def _transaction(self):
        with self._inner() as now:
            yield now
        self._step()  # it is stored, and nobody was told

    def _step(self):
        if self.kill_at is not None:
            self.kill_at -= 1
            self.dead = self.dead or self.kill_at <= 0
        if self.dead:
            raise Killed


def _no_room(statement):
    full = sqlite3.OperationalError("database or disk is full")
    return sa.exc.OperationalError(statement, None, full)


class FewInJob(Leader):
    """A leader that needs several jobs for few reports."""

    _most_in_job = 2


@st.composite
def hazards(draw, steps=30):
    """What befalls one of both during a rule: nothing, its end, or a full disk."""
    kind = draw(st.sampled_from(["nothing", "nothing", "kill", "kill", "write", "commit"]))
    return kind, draw(st.sampled_from(ROLES)), draw(st.integers(1, steps))


road_faults = st.lists(st.sampled_from([None, None, *ROAD_FAULTS]), max_size=4)
some_reports = st.tuples(st.integers(0, PEOPLE - 1), st.sampled_from([False, False, True]))


class Road:
    """The way from the leader to the helper, with the faults of its next requests."""

    def __init__(self, world, faults=()):
        self._world, self._faults = world, list(faults)

    def job(self, content):
        return self._carried("job", content)

    def close(self):
        return self._carried("close")

    def opening(self, statement, signature):
        return self._carried("opening", statement, signature)

    def _carried(self, what, *content):
        fault = self._faults.pop(0) if self._faults else None
        self._world.sent.append((self._world.now, what, content))
        if fault == "request lost":
            raise Lost
        answer = self._world.delivered(what, content)
        if what == "job":
            request = content[0][16:]
            if self._world.task.proofs is not None:
                request = parsed_request(self._world.task, request).request
            self._world.answered.append((int.from_bytes(content[0][:8]), request, answer))
        if fault == "twice":
            assert self._world.delivered(what, content) == answer
        if fault == "answer lost":
            raise Lost
        return answer


class Faults(RuleBasedStateMachine):
    """Both aggregators on files, and what a model says that they must have."""

    def __init__(self):
        super().__init__()
        self.task, self.keys = survey_task()
        memory = Path("/dev/shm")
        where = memory if memory.is_dir() else None
        self.folder = Path(tempfile.mkdtemp(prefix="veilmap-", dir=where))
        self.now = BEGAN
        self.sent = []
        self.answered = []  # jobs: number, request, answer
        self.backups = {}
        self.stored = {role: {} for role in ROLES}  # id: hashes
        self.arrived = {role: {} for role in ROLES}  # id: when first
        self.acknowledged = {role: {} for role in ROLES}  # report: when last
        self.due = set()  # reports that must be in the sum
        self.states = {role: {} for role in ROLES}  # id: of its row, when last looked
        self.stages = dict.fromkeys(ROLES, "collecting")
        self.first_opened = {}
        self.watched = {}
        for role in ROLES:
            self.start(role)

    def teardown(self):
        try:
            self.finish()
        finally:
            for one in self.watched.values():
                one.store.close()
            shutil.rmtree(self.folder)

    # ---- processes

    def clock(self):
        self.now += 0.001
        return self.now

    def file(self, role):
        return self.folder / f"{role}.db"

    def start(self, role, seed=SEED):
        store = Store(f"sqlite:///{self.file(role)}", self.task, role)
        self.watched[role] = Watched(store)
        kind, key = (FewInJob, self.keys.leader) if role == "leader" else (Helper, self.keys.helper)
        opening = self.folder / f"{role}.json"
        made = kind(self.task, role, store, key, opening, clock=self.clock, seed=seed)
        setattr(self, role, made)

    def aggregator(self, role):
        return self.leader if role == "leader" else self.helper

    def restart_the_dead(self):
        for role, one in list(self.watched.items()):
            one.full = one.kill_at = None
            if one.dead:
                one.store.close()
                self.start(role)

    @contextmanager
    def hazard(self, hazard):
        """Within the block it befalls; yields what of it all came out."""
        kind, role, step = hazard
        if kind == "kill":
            self.watched[role].kill_at = step
        elif kind != "nothing":
            self.watched[role].full = kind
        outcome = []
        try:
            yield outcome
        except (Killed, Lost, StorageError) as problem:
            outcome.append(problem)
        finally:
            self.restart_the_dead()

    def delivered(self, what, content):
        """What the helper answers, as the leader gets to know it over HTTP."""
        try:
            return getattr(DirectPeer(self.helper), what)(*content)
        except Killed:
            raise Lost from None
        except StorageError as problem:
            raise Refusal("storage", str(problem), 502) from None

    # ---- clients

    def predicted(self, role, halves):
        """The reason of each refusal or None, and what is stored then."""
        closes = self.task.closes_at.timestamp()
        over = self.stages[role] != "collecting" or self.now >= closes
        known, answers = dict(self.stored[role]), []
        for half in halves:
            if half.id in known:
                refused = self.states[role].get(half.id) == REFUSED
                same = known[half.id] == half.hashes
                answers.append("replayed" if not same else "mismatch" if refused else None)
            elif over or len(known) >= MOST_REPORTS:
                answers.append("over" if over else "full")
            else:
                known[half.id] = half.hashes
                answers.append(None)
        return answers, known

    def upload(self, role, wanted, hazard=NOTHING):
        """Send halves in one transaction; whether all went well."""
        self.clock()
        chosen = [report_of(*one) for one in wanted]
        answers, known = self.predicted(role, [one.half(role) for one in chosen])
        writes = known != self.stored[role]
        with self.hazard(hazard) as outcome:
            aggregator = self.aggregator(role)
            halves = [aggregator.parsed(one.half(role).content) for one in chosen]
            found = aggregator.take(halves)
            assert [one and one.reason for one in found] == answers
            assert not (writes and hazard[:2] in (("write", role), ("commit", role)))
        if outcome:
            now_there = {row[0]: row[1] for row in self.rows(role)}
            if isinstance(outcome[0], StorageError):
                assert now_there == self.stored[role], "half a transaction, or an unsaid one"
            assert now_there in (self.stored[role], known), "half a transaction"
            self.store_in_model(role, now_there)
            return False
        self.store_in_model(role, known)
        for report, answer in zip(chosen, answers, strict=True):
            if answer is None:
                self.confirm(role, report)
        return True

    def store_in_model(self, role, known):
        for report in known.keys() - self.stored[role].keys():
            self.arrived[role][report] = self.now
            self.states[role][report] = PENDING
        self.stored[role] = known

    def confirm(self, role, report):
        name = report.id, report.hashes
        self.acknowledged[role][name] = self.now
        times = [self.acknowledged[one].get(name) for one in ROLES]
        if None not in times and max(times) - min(times) < NEARLY_A_DAY:
            self.due.add(name)

    @rule(role=st.sampled_from(ROLES), wanted=st.lists(some_reports, min_size=1, max_size=3),
          hazard=hazards(12))  # fmt: skip
    def some_halves_come(self, role, wanted, hazard):
        self.upload(role, wanted, hazard)

    @rule(
        person=st.integers(0, PEOPLE - 1),
        hazard=hazards(9),
        tries=st.integers(1, 2),
        between=st.sampled_from(["nothing", "expiry", "pairing", "half a day"]),
    )
    def somebody_takes_part(self, person, hazard, tries, between):
        """As the real client does: both halves, and both again where one was not taken."""
        for attempt in range(tries):
            befalls = hazard if attempt == 0 else NOTHING
            if not self.upload("leader", [(person, False)], befalls):
                continue
            if between == "half a day":
                self.now += 12 * HOUR
            if between in ("half a day", "pairing"):
                self.the_leader_pairs([], False, NOTHING)
            if between in ("half a day", "expiry"):
                self.old_halves_expire("leader", NOTHING, 0.0)
            self.look()
            if self.upload("helper", [(person, False)], befalls):
                break

    @initialize(
        some=st.lists(st.sampled_from(BEGINNINGS), max_size=MOST_REPORTS), paired=st.booleans()
    )
    def some_took_part_before(self, some, paired):
        for person, (ours, theirs) in enumerate(some):
            for role, twin in zip(ROLES, (ours, theirs), strict=True):
                if twin is not None:
                    self.upload(role, [(person, twin)])
        if paired:
            self.the_leader_pairs([], False, NOTHING)

    @rule(role=st.sampled_from(ROLES), person=st.integers(0, PEOPLE - 1), at=st.integers(0, 10**6))
    def an_altered_half_comes(self, role, person, at):
        half = report_of(person, False).half(role)
        content = bytearray(half.content)
        content[-1 - at % len(half.share)] ^= 1
        with pytest.raises(Refusal) as refused:
            self.aggregator(role).parsed(bytes(content))
        assert refused.value.reason == "altered"

    # ---- pairing and time

    @rule(faults=road_faults, empty=st.booleans(), hazard=hazards(20))
    def the_leader_pairs(self, faults, empty, hazard):
        with self.hazard(hazard), suppress_refusals("job", "storage", "opened"):
            self.leader.pair(Road(self, faults), empty=empty)

    @precondition(lambda self: self.answered)
    @rule(which=st.integers(0, 10**6))
    def an_old_answer_arrives(self, which):
        """What the leader did with it before is not done again."""
        number, request, answer = self.answered[which % len(self.answered)]
        with closing(sqlite3.connect(self.file("leader"))) as database:
            begun = database.execute("SELECT number FROM jobs WHERE answer IS NULL").fetchone()
        if begun is None or begun[0] != number:
            entries = zip(entries_of(request), answer, strict=True)
            added = [report for (report, _), verdict in entries if verdict == PAIRED]
            self.leader.store.finish_job(number, added, {})

    @precondition(lambda self: self.sent)
    @rule(which=st.integers(0, 10**6), hazard=hazards(14))
    def an_old_request_arrives(self, which, hazard):
        when, what, content = self.sent[which % len(self.sent)]
        # The helper refuses what was not signed just now.
        if self.now - when > LARGEST_DELAY or what not in ("job", "close", "opening"):
            return
        if what == "close" and self.stages["leader"] == "collecting":
            return
        with self.hazard(hazard), suppress(Refusal):
            self.delivered(what, content)

    @rule(seconds=st.sampled_from([6.0, HOUR, 13 * HOUR, 25 * HOUR]))
    def time_passes(self, seconds):
        self.now += seconds

    @rule(role=st.sampled_from(ROLES), hazard=hazards(8), waited=st.sampled_from([0.0, 25 * HOUR]))
    def old_halves_expire(self, role, hazard, waited):
        self.now += waited
        before = {row[0]: row for row in self.rows(role)}
        with self.hazard(hazard) as outcome:
            deleted = self.aggregator(role).expire()
        self.forget(role, before)
        if not outcome:
            assert deleted == len(before) - len(self.stored[role])

    def forget(self, role, before):
        """What is no longer there; it must have waited in vain for long enough."""
        there = {row[0] for row in self.rows(role)}
        for report in before.keys() - there:
            assert before[report][2] == PENDING
            assert self.now - self.arrived[role][report] > DAY
            for one in (self.stored, self.arrived, self.states):
                del one[role][report]

    @precondition(lambda self: set(self.stages.values()) == {"collecting"})
    @rule()
    def a_quiet_day_passes(self):
        """What belongs together is added; what has no partner is deleted."""
        self.now += 25 * HOUR
        idle = 0
        while idle < 2:  # the first may finish an old empty job
            idle += self.leader.pair(Road(self), empty=True) == 0
        for role in ROLES:
            before = {row[0]: row for row in self.rows(role)}
            self.aggregator(role).expire()
            self.forget(role, before)
        left = {role: {row[0]: row[2] for row in self.rows(role)} for role in ROLES}
        for role in ROLES:
            assert PENDING not in left[role].values()

    # ---- opening

    @property
    def matching(self):
        """Reports whose halves are here and there, and belong together."""
        ours, theirs = self.stored["leader"], self.stored["helper"]
        return {report for report in ours if theirs.get(report) == ours[report]}

    def opened_at_both(self):
        return set(self.stages.values()) == {"opened"}

    @precondition(lambda self: len(self.matching) >= 2)
    @rule(faults=road_faults, hazard=hazards(60), early=st.sampled_from([True, True, False]))
    def the_survey_is_opened(self, faults, hazard, early):
        self.back_up_both()
        self.try_to_open(faults, hazard, early)

    def try_to_open(self, faults=(), hazard=NOTHING, early=True):
        """Whether it was opened."""
        allowed = ["storage"]
        if not early and self.now < self.task.closes_at.timestamp():
            allowed.append("collecting")
        if len(self.stored["leader"]) < 2 or len(self.matching) < 2:
            allowed.append("too few")
        found = None
        with self.hazard(hazard), suppress_refusals(*allowed):
            found = self.leader.open(Road(self, faults), early=early)
        self.look(opening=True)
        if found is not None:
            self.check_opened(found)
        return found is not None

    def finish(self):
        """Open it at last, also after all that went wrong before."""
        tries = 0
        while not self.try_to_open():
            tries += 1
            if len(self.matching) < 2:
                return
            assert tries < 3
        self.check_opened(self.leader.certificate())

    def check_opened(self, certificate):
        expected = sorted(self.matching)
        assert self.due <= {(report, self.stored["leader"][report]) for report in expected}
        statement = certificate["statement"].encode()
        for role in ROLES:
            assert is_signed(self.task.key(role), "opening", statement, certificate[role])
            assert self.aggregator(role).store.opened_reports() == b"".join(expected)
        told = json.loads(statement)
        assert told["reports"] == len(expected)
        assert told["list"] == hashlib.sha256(b"".join(expected)).hexdigest()
        opened = {role: self.aggregator(role).store.opened() for role in ROLES}
        self.first_opened = self.first_opened or opened
        assert opened == self.first_opened
        total = shares.centred(shares.added(*map(shares.from_bytes, opened.values())))
        vectors = [self.known_report(report).vector for report in expected]
        np.testing.assert_array_equal(total - noise(), np.sum(vectors, axis=0))

    def known_report(self, report, role="leader"):
        """The report whose half is stored."""
        both = [report_of(person, twin) for person in range(PEOPLE) for twin in (False, True)]
        (found,) = [
            one for one in both if (one.id, one.hashes) == (report, self.stored[role][report])
        ]
        return found

    # ---- databases that are put back

    def back_up_both(self):
        if "opened" in self.stages.values():
            return
        for role in ROLES:
            self.backups[role] = self.folder / f"{role}.backup"
            _copy_database(self.file(role), self.backups[role])

    @precondition(lambda self: set(self.stages.values()) == {"collecting"})
    @rule()
    def somebody_backs_up(self):
        self.back_up_both()

    @precondition(lambda self: self.backups and self.opened_at_both())
    @rule(back=st.sampled_from([("leader",), ("helper",), ROLES]),
          more=st.lists(st.integers(0, PEOPLE - 1), max_size=3))  # fmt: skip
    def databases_are_put_back(self, back, more):
        """The same noise or none, also if more people came; then all goes on as it was."""
        kept = {role: self.folder / f"{role}.kept" for role in back}
        for role in back:
            _copy_database(self.file(role), kept[role])
            self.replace_database(role, self.backups[role], seed=SEED + 1)
        for person in more:
            for role in ROLES:
                self.aggregator(role).take([report_of(person, False).half(role)])
        for _ in range(2):
            with suppress(Refusal, DataError):
                self.leader.open(Road(self), early=True)
        for role in ROLES:
            opened = self.aggregator(role).store.opened()
            assert opened in (None, self.first_opened[role]), "a second noisy sum"
        for role in back:
            self.replace_database(role, kept[role])

    def replace_database(self, role, copy, seed=SEED):
        self.watched[role].store.close()
        for ending in ("", "-wal", "-shm"):
            Path(f"{self.file(role)}{ending}").unlink(missing_ok=True)
        _copy_database(copy, self.file(role))
        self.start(role, seed)

    # ---- what always holds

    def rows(self, role):
        """(id, hashes, state) of all reports, read past the aggregator."""
        with closing(sqlite3.connect(self.file(role))) as database:
            return database.execute("SELECT id, hashes, state FROM reports").fetchall()

    @invariant()
    def all_is_well(self):
        self.look()

    def look(self, opening=False):
        """Both databases are as the model has them."""
        for role in ROLES:
            self.look_at(role, opening)
        ours, theirs = self.states["leader"], self.states["helper"]
        with closing(sqlite3.connect(self.file("leader"))) as database:
            unfinished = database.execute(
                "SELECT request FROM jobs WHERE answer IS NULL"
            ).fetchone()
        offered = unfinished[0] if unfinished else b""
        for report, state in theirs.items():
            if state == ADDED and ours.get(report) != ADDED:
                assert ours.get(report) == PENDING, "added on one side alone"
                assert report in offered, "added on one side alone"
        for report, state in ours.items():
            if state == ADDED:
                assert theirs[report] == ADDED
                assert report in self.matching
        for role, other in (ROLES, ROLES[::-1]):
            for report, state in self.states[role].items():
                if state == REFUSED:
                    assert self.stored[other][report] != self.stored[role][report]
        for report, hashes in self.due:
            for role in ROLES:
                assert self.stored[role].get(report) == hashes, "an acknowledged half is gone"
                assert self.states[role][report] != REFUSED

    def look_at(self, role, opening):
        with closing(sqlite3.connect(self.file(role))) as database:
            rows = database.execute("SELECT id, hashes, state FROM reports").fetchall()
            kept = {one for (one,) in database.execute("SELECT id FROM shares")}
            columns = "state, received, added, total FROM task"
            stage, received, added, total = database.execute(f"SELECT {columns}").fetchone()
        assert {row[0]: row[1] for row in rows} == self.stored[role]
        states = {row[0]: row[2] for row in rows}
        for report, before in self.states[role].items():
            assert before in (PENDING, states[report]), "a report's fate has changed"
        self.states[role] = states
        order = ["collecting", "closed", "agreed", "opened"]
        assert order.index(stage) >= order.index(self.stages[role])
        if not opening and role == "leader":
            assert stage == self.stages[role]
        self.stages[role] = stage
        in_sum = [report for report, state in states.items() if state == ADDED]
        assert (received, added) == (len(rows), len(in_sum))
        pending = {report for report, state in states.items() if state == PENDING}
        assert kept == (set() if stage == "opened" else pending)
        if stage == "opened":
            assert total is None
            return
        wanted = [self.share(role, report) for report in in_sum]
        nothing = np.zeros(self.task.survey.numbers, dtype=np.uint32)
        np.testing.assert_array_equal(shares.from_bytes(total), shares.added(nothing, *wanted))

    def share(self, role, report):
        """The elements that a report has in the sum of a role."""
        share = self.known_report(report, role).half(role).share
        if role == "leader":
            return reports.elements_of(self.task, share)
        numbers = self.task.survey.numbers
        if self.task.proofs is not None:
            return helper_measurement(self.task.proofs, share[128:160])[:numbers].astype(np.uint32)
        return shares.expanded(share, self.task.digest_bytes, report, numbers)


@contextmanager
def suppress_refusals(*reasons):
    try:
        yield
    except Refusal as refusal:
        if refusal.reason not in reasons:
            raise


def _copy_database(source, target):
    """A database's content, with what is in its log."""
    target.unlink(missing_ok=True)
    with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(target)) as new:
        old.backup(new)


def _run(examples, steps):
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    run_state_machine_as_test(
        Faults,
        settings=settings(
            max_examples=examples, stateful_step_count=steps, suppress_health_check=checks
        ),
    )


def test_whatever_is_killed_lost_or_repeated_every_report_counts_once():
    _run(80, 25)


@pytest.mark.parametrize("examples", [20, pytest.param(150, marks=pytest.mark.slow)])
def test_so_does_every_report_with_a_proof(monkeypatch, examples):
    monkeypatch.setitem(globals(), "PROOFS", True)
    _run(examples, 25)


@pytest.mark.slow
def test_in_longer_lives_too_every_report_counts_once():
    _run(250, 30)


class Unreachable(DirectPeer):
    """A helper that no request reaches."""

    def job(self, content):
        raise Lost

    def close(self):
        raise Lost


@pytest.mark.parametrize("closed", [False, True])
def test_an_empty_offer_that_was_lost_hides_no_report_from_the_opening(tmp_path, closed):
    moment = [BEGAN]
    both = pair(tmp_path, clock=lambda: moment[0])
    people = [halves_of(both.task, seed) for seed in range(3)]
    for ours, theirs in people[:2]:
        assert both.leader.take([ours]) == both.helper.take([theirs]) == [None]
    both.leader.pair(both.peer)
    if closed:  # the last one's halves come before either is closed
        assert both.leader.take([people[2][0]]) == [None]
        both.leader.pair(both.peer)
        assert both.helper.take([people[2][1]]) == [None]
        both.leader.store.stop_collecting()
    moment[0] += 1
    with pytest.raises(Lost):
        both.leader.pair(Unreachable(both.helper), empty=True)
    if not closed:
        for one, half in zip((both.leader, both.helper), people[2], strict=True):
            assert one.take([half]) == [None]
    both.leader.open(both.peer, early=True)
    ids = b"".join(sorted(ours.id for ours, _ in people))
    assert both.leader.store.opened_reports() == both.helper.store.opened_reports() == ids
    both.close()


@pytest.mark.parametrize("back", [("leader",), ("helper",), ROLES])
@pytest.mark.parametrize("more", [[], [2]])
def test_a_database_that_is_put_back_gives_no_second_noise(back, more):
    world = Faults()
    for role in ROLES:
        world.upload(role, [(0, False), (1, False)])
    world.back_up_both()
    assert world.try_to_open()
    world.databases_are_put_back(back=back, more=more)
    world.teardown()
