"""What two aggregators refuse over HTTP, and that nothing of it is stored or stops them."""

import hashlib
import json
import logging
import secrets
import socket
import sqlite3
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import replace

import httpx
import pytest
import uvicorn

from aggregators import METRICS_TOKEN, credential, deployed, moved, new_keys, small_task, vector
from refusals import refused
from veilmap._util import certificates, serving
from veilmap._util.sockets import listening
from veilmap.collection import report as reports
from veilmap.collection import service
from veilmap.collection.admission import ProofOfWork
from veilmap.collection.client import Aggregators, Unreachable
from veilmap.collection.collector import Collector
from veilmap.collection.connection import connected
from veilmap.collection.keys import SigningKey

pytestmark = pytest.mark.xdist_group("refused")

ROLES = ("leader", "helper")
BINARY = {"content-type": "application/octet-stream"}
CODES = 40


@pytest.fixture(scope="module")
def invited(tmp_path_factory):
    """Two aggregators of a survey by invitation; the codes are numbers."""
    folder = tmp_path_factory.mktemp("invited")
    with deployed(folder, invitations=True) as both:
        both.folder = folder
        both.leader.store.invite([str(number) for number in range(CODES)])
        yield both


@pytest.fixture
def survey(invited):
    """The aggregators, which answer afterwards too, and whose logs tell of no fault."""
    with healthy(invited):
        yield invited


class Events(logging.Handler):
    """What the aggregators' log says."""

    def __init__(self):
        super().__init__()
        self.all = []

    def emit(self, record):
        self.all.append(record.getMessage())


@contextmanager
def healthy(both):
    log, events = logging.getLogger("veilmap.collection"), Events()
    log.addHandler(events)
    try:
        yield
    finally:
        log.removeHandler(events)
    for role in ROLES:
        answer = both.client.get(both.address(role) + "/health")
        assert (answer.status_code, answer.json()["role"]) == (200, role)
    assert "fault" not in events.all


@contextmanager
def running(folder, **changes):
    """Two aggregators for one test."""
    with deployed(folder, **changes) as both:
        both.folder = folder
        with healthy(both):
            yield both


class People:
    """Numbers of codes that were not used yet."""

    used = 0

    @classmethod
    def next(cls):
        cls.used += 1
        return str(cls.used - 1)


def report_of(both, seed=1, *, report=None, own=None, shown=None, code=None):
    """Both halves of a report that is admitted, unless something else is ``shown``."""
    report = report or secrets.token_bytes(16)
    if shown is None:
        shown = credential(both.task, report, both.leader, code or People.next())
    own = vector(both.task.survey, seed) if own is None else own
    return dict(zip(ROLES, reports.halves(both.task, own, report, shown, bytes(32)), strict=True))


def contents(both):
    """All that the databases say of reports, shares, sums and invitations."""
    found = []
    for role in ROLES:
        database = sqlite3.connect(both.folder / f"{role}.db", timeout=10)
        for what in (
            "id, hashes, state FROM reports ORDER BY id", "id, share FROM shares ORDER BY id",
            "state, received, added, total, statement, opened FROM task",
            "code, blinded FROM invitations ORDER BY code",
        ):  # fmt: skip
            found.append(database.execute(f"SELECT {what}").fetchall())
        database.close()
    return found


@contextmanager
def nothing_stored(both):
    """Neither database says anything else afterwards."""
    before = contents(both)
    yield
    assert contents(both) == before


def check(answer, status, reason):
    """An answer has a status and says the reason in one word, and what is wrong in one line."""
    assert answer.status_code == status, answer.text
    told = answer.json()
    assert set(told) == {"reason", "error"}
    assert told["reason"] == reason, told
    assert told["error"]
    assert "\n" not in told["error"]


def settled(both, added):
    """Wait until both have added so many reports."""
    end = time.monotonic() + 30
    while [one.standing().added for one in (both.leader, both.helper)] != [added, added]:
        assert time.monotonic() < end, "the reports were not paired"
        time.sleep(0.02)


def post(both, role, what, content=b"", **headers):
    return both.client.post(both.address(role, what), content=content, headers=headers)


def upload(both, role, content):
    return both.client.post(both.address(role, "reports"), content=content, headers=BINARY)


def raw(both, role):
    """A connection to an aggregator on which anything can be said."""
    host, port = both.task.address(role).removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=20)


def head_of(both, what, length, method="POST"):
    path = f"/tasks/{both.task.digest}/{what}"
    return f"{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n".encode()


def answered(connection):
    """The status and the body of the answer on a connection, until its end or its length."""
    found = b""
    while b"\r\n\r\n" not in found:
        part = connection.recv(65536)
        if not part:
            break
        found += part
    head, _, body = found.partition(b"\r\n\r\n")
    length = 0
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            length = int(line.split(b":")[1])
    while len(body) < length:
        part = connection.recv(65536)
        if not part:
            break
        body += part
    return int(head.split()[1]), body


# ---- reports


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("shown", [bytes(256), b"\xff" * 256, bytes(range(256))])
def test_a_report_without_a_token_is_refused(survey, role, shown):
    halves = report_of(survey, shown=shown)
    with nothing_stored(survey):
        check(survey.send(halves[role], role), 403, "not admitted")


@pytest.mark.parametrize("role", ROLES)
def test_a_token_of_another_report_is_refused(survey, role):
    """Somebody's token admits one id: with it nobody else takes part, nor the same person twice."""
    first = report_of(survey)
    assert survey.send(first[role], role).status_code == 201
    second = report_of(survey, 2, shown=first[role].credential)
    with nothing_stored(survey):
        check(survey.send(second[role], role), 403, "not admitted")


@pytest.mark.parametrize("role", ROLES)
def test_a_token_of_another_survey_is_refused(survey, role):
    """Of the same issuer, for the same id."""
    report = secrets.token_bytes(16)
    other = moved(survey.task, closes="2099-01-01T00:00Z")
    blinded = other.admission.blinded(other.digest_bytes, report)
    token = blinded.finished(survey.keys.issuer.signed(blinded.message))
    assert other.admission.admits(token, other.digest_bytes, report)
    halves = report_of(survey, report=report, shown=token)
    with nothing_stored(survey):
        check(survey.send(halves[role], role), 403, "not admitted")


@pytest.mark.parametrize("role", ROLES)
def test_another_report_with_an_id_that_was_used_is_refused(survey, role):
    first = report_of(survey)
    assert survey.send(first[role], role).status_code == 201
    second = report_of(survey, 2, report=first[role].id, shown=first[role].credential)
    assert second[role].id == first[role].id
    with nothing_stored(survey):
        check(survey.send(second[role], role), 409, "replayed")


def test_the_same_report_again_is_confirmed_and_counted_once(survey):
    before = survey.leader.standing().added
    halves = report_of(survey, 3)
    receipts = {role: survey.send(halves[role], role).json() for role in ROLES}
    settled(survey, before + 1)
    with nothing_stored(survey):
        for role in ROLES * 2:
            answer = survey.send(halves[role], role)
            assert (answer.status_code, answer.json()) == (201, receipts[role])
    assert survey.leader.standing().added == survey.helper.standing().added == before + 1


def test_the_same_report_at_the_same_moment_is_stored_once(survey):
    """Ten threads send one half."""
    before = survey.helper.standing().received
    half = report_of(survey, 4)["helper"]
    statuses = []
    threads = [
        threading.Thread(target=lambda: statuses.append(survey.send(half, "helper").status_code))
        for _ in range(10)
    ]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert statuses == [201] * 10
    assert survey.helper.standing().received == before + 1


def test_swapped_halves_are_refused(survey):
    halves = report_of(survey)
    with nothing_stored(survey):
        check(survey.send(halves["helper"], "leader"), 400, "malformed")
        check(survey.send(halves["leader"], "helper"), 413, "malformed")


def test_halves_of_two_reports_are_counted_by_neither(survey):
    before = [one.standing().added for one in (survey.leader, survey.helper)]
    one = report_of(survey)
    other = report_of(survey, 2, report=one["leader"].id, shown=one["leader"].credential)
    assert survey.send(one["leader"], "leader").status_code == 201
    assert survey.send(other["helper"], "helper").status_code == 201
    end = time.monotonic() + 30
    while one["leader"].id in dict(contents(survey)[1]):
        assert time.monotonic() < end, "the leader did not learn of it"
        time.sleep(0.02)
    assert [one.standing().added for one in (survey.leader, survey.helper)] == before
    with nothing_stored(survey):
        check(survey.send(one["leader"], "leader"), 409, "mismatch")
        check(survey.send(other["helper"], "helper"), 409, "mismatch")


@pytest.mark.parametrize("role", ROLES)
def test_truncated_and_longer_reports_are_refused(survey, role):
    content = report_of(survey)[role].content
    with nothing_stored(survey):
        for short in (b"", content[:1], content[:100], content[:-1]):
            check(upload(survey, role, short), 400, "malformed")
        check(upload(survey, role, content + b"\0"), 413, "malformed")


@pytest.mark.parametrize("role", ROLES)
def test_an_altered_report_is_refused(survey, role):
    half = report_of(survey)[role]
    with nothing_stored(survey):
        altered = replace(half, share=bytes([half.share[0] ^ 1]) + half.share[1:])
        check(survey.send(altered, role), 400, "altered")
        check(survey.send(replace(half, id=bytes(16)), role), 400, "altered")


@pytest.mark.parametrize(("role", "what"), [(r, w) for r in ROLES for w in ("reports", "opening")])
def test_a_giant_body_is_refused_before_it_is_read(survey, role, what):
    """The answer comes while nothing of the body was sent."""
    with nothing_stored(survey), raw(survey, role) as connection:
        connection.sendall(head_of(survey, what, 10**11))
        status, body = answered(connection)
    assert (status, json.loads(body)["reason"]) == (413, "malformed")


@pytest.mark.parametrize("length", ["-1", "+5", "0x10", "5, 5", "1e3", "9" * 40, "²", ""])
def test_a_length_that_is_none_is_refused(survey, length):
    with nothing_stored(survey), raw(survey, "leader") as connection:
        connection.sendall(head_of(survey, "reports", length) + bytes(5))
        status, _ = answered(connection)
    assert status in (400, 413)


@pytest.mark.parametrize("role", ROLES)
def test_a_body_in_chunks_is_refused(survey, role):
    content = report_of(survey)[role].content
    with nothing_stored(survey):
        check(upload(survey, role, iter([content])), 411, "malformed")
        check(upload(survey, role, iter([content[:50], content[50:]])), 411, "malformed")


@pytest.mark.parametrize("role", ROLES)
def test_a_connection_that_breaks_off_in_a_body_is_no_fault(survey, role):
    """A phone that loses its network sends the report again."""
    halves = report_of(survey)
    content = halves[role].content
    with nothing_stored(survey):
        for part in (content[:-1], content[:10], b""):
            with raw(survey, role) as connection:
                connection.sendall(head_of(survey, "reports", len(content)) + part)
                time.sleep(0.1)
        time.sleep(0.2)
    assert survey.send(halves[role], role).status_code == 201


# ---- tokens


NO_OBJECTS = [
    b"[1]", b"7", b"null", b'"code"', b"{", b"\xff\xfe", b"[" * 15_000, b'{"a":' * 3000, b"{}{}",
    b"nan", b"\0",
]  # fmt: skip
NO_TOKENS = [
    b"", b"{}", b'{"code":"0"}', b'{"code":0,"blinded":"00"}', b'{"code":"0","blinded":7}',
    b'{"code":null,"blinded":null}', b'{"code":["0"],"blinded":"00"}', b'{"code":"0","blinded":""}',
    b'{"code":"0","blinded":"zz"}', '{"code":"0","blinded":"é"}'.encode(),
    b'{"code":"0","blinded":"00"}', b'{"code":"0","blinded":"%s"}' % (b"00" * 256),
    b'{"code":"0","blinded":"%s"}' % (b"ff" * 256), b'{"code":"0","blinded":"\\ud800"}',
]  # fmt: skip


@pytest.mark.parametrize("content", NO_OBJECTS + NO_TOKENS)
def test_what_asks_for_no_token_is_refused(survey, content):
    with nothing_stored(survey):
        check(post(survey, "leader", "tokens", content), 400, "malformed")


def test_a_long_request_for_a_token_is_refused(survey):
    with nothing_stored(survey):
        check(post(survey, "leader", "tokens", b" " * 20_001), 413, "malformed")


@pytest.mark.parametrize("code", ["", "unknown", "0 1", "\0", "é", "%00", "' OR 1=1 --", "\ud800"])
def test_an_unknown_invitation_is_refused(survey, code):
    content = json.dumps({"code": code, "blinded": (5).to_bytes(256).hex()}).encode()
    with nothing_stored(survey):
        check(post(survey, "leader", "tokens", content), 403, "no invitation")


def test_an_invitation_that_was_used_is_refused_for_another_token(survey):
    code = People.next()
    first, second = (
        json.dumps({"code": code, "blinded": number.to_bytes(256).hex()}).encode()
        for number in (5, 6)
    )
    answer = post(survey, "leader", "tokens", first)
    assert answer.status_code == 200
    with nothing_stored(survey):
        check(post(survey, "leader", "tokens", second), 409, "invitation used")
        assert post(survey, "leader", "tokens", first).json() == answer.json()


def test_the_helper_gives_no_tokens(survey):
    content = json.dumps({"code": "0", "blinded": (5).to_bytes(256).hex()}).encode()
    with nothing_stored(survey):
        check(post(survey, "helper", "tokens", content), 404, "not here")


# ---- addresses


PATHS = [
    ("POST", "reports"), ("GET", "reports"), ("POST", "tokens"), ("POST", "aggregation_jobs"),
    ("POST", "closing"), ("POST", "opening"), ("GET", "aggregate_share"), ("GET", "status"),
]  # fmt: skip


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(("method", "what"), PATHS)
def test_another_task_is_not_here(survey, role, method, what):
    other = moved(survey.task, closes="2099-01-01T00:00Z").digest
    with nothing_stored(survey):
        for digest in (other, survey.task.digest[:-1], survey.task.digest.upper(), "x", "%ff"):
            url = f"{survey.address(role)}/tasks/{digest}/{what}"
            headers = survey.keys.collector.headers(method, url, b"")
            answer = survey.client.request(method, url, headers=headers)
            check(answer, 404, "wrong task")


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(
    "path",
    ["/x", "/tasks", "/tasks/", "/reports.db", "/page/../../task.py", "/page/%2e%2e/%2e%2e/task.py",
     "/docs", "/openapi.json", "/page//etc/passwd", "/page/.", "/page/take_part", "/%00", "/é"],
)  # fmt: skip
def test_an_unknown_path_is_not_here(survey, role, path):
    with nothing_stored(survey), raw(survey, role) as connection:
        target = path.replace("é", "%C3%A9")
        connection.sendall(f"GET {target} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
        status, body = answered(connection)
    assert (status, json.loads(body)["reason"]) == (404, "not here")


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "GET"])
def test_an_unknown_method_is_refused(survey, role, method):
    with nothing_stored(survey):
        answer = survey.client.request(method, survey.address(role, "tokens"))
        check(answer, 405, "not here")


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(
    "shown", [None, "", "Bearer", "Bearer wrong", "Basic eDp4", METRICS_TOKEN[:-1], "Bearer \xe9"]
)
def test_metrics_need_their_token(survey, role, shown):
    headers = {} if shown is None else {"authorization": shown.encode("latin-1")}
    check(survey.client.get(survey.address(role) + "/metrics", headers=headers), 401, "not signed")
    headers = {"authorization": f"Bearer {METRICS_TOKEN}"}
    answer = survey.client.get(survey.address(role) + "/metrics", headers=headers)
    assert answer.status_code == 200
    assert b"veilmap_reports_added" in answer.content


# ---- between the parties


def signature(key, method, url, body=b"", late=0.0):
    """The headers of a signed request, written from the protocol."""
    moment = str(round(time.time() + late))
    content = f"{method} {url}\n{moment}\n".encode() + hashlib.sha256(body).digest()
    signed = key._private.sign(b"veilmap request\0" + content).hex()
    return {"x-veilmap-time": moment, "x-veilmap-signature": signed}


# Method, path, role that answers, and party that may ask.
BETWEEN = [
    ("POST", "aggregation_jobs", "helper", "leader"), ("POST", "closing", "helper", "leader"),
    ("POST", "opening", "helper", "leader"), ("POST", "opening", "leader", "collector"),
    ("GET", "aggregate_share", "leader", "collector"),
    ("GET", "aggregate_share", "helper", "collector"),
    ("GET", "status", "leader", "collector"), ("GET", "status", "helper", "collector"),
]  # fmt: skip
between = pytest.mark.parametrize(("method", "what", "role", "party"), BETWEEN)


def request(both, method, what, role, headers, body=b""):
    return both.client.request(method, both.address(role, what), headers=headers, content=body)


@between
def test_a_request_that_is_not_signed_is_refused(survey, method, what, role, party):
    url = survey.address(role, what)
    good = signature(getattr(survey.keys, party), method, url)
    with nothing_stored(survey):
        for headers in (
            {},
            {"x-veilmap-signature": good["x-veilmap-signature"]},
            {"x-veilmap-time": good["x-veilmap-time"]},
            good | {"x-veilmap-signature": "00" * 64},
            good | {"x-veilmap-signature": "not hexadecimal"},
            good | {"x-veilmap-signature": good["x-veilmap-signature"][:-2]},
            good | {"x-veilmap-time": ""},
            good | {"x-veilmap-time": "-1"},
            good | {"x-veilmap-time": "9" * 5000},
            good | {"x-veilmap-time": str(int(good["x-veilmap-time"]) + 1)},
        ):
            check(request(survey, method, what, role, headers), 403, "not signed")


@between
def test_a_request_that_another_party_signed_is_refused(survey, method, what, role, party):
    url = survey.address(role, what)
    others = {"leader", "helper", "collector"} - {party}
    keys = [getattr(survey.keys, other) for other in sorted(others)] + [SigningKey.new()]
    with nothing_stored(survey):
        for key in keys:
            headers = signature(key, method, url)
            check(request(survey, method, what, role, headers), 403, "not signed")


@between
@pytest.mark.parametrize("late", [-360, 360, -1e9])
def test_a_request_of_another_time_is_refused(survey, method, what, role, party, late):
    headers = signature(getattr(survey.keys, party), method, survey.address(role, what), late=late)
    with nothing_stored(survey):
        check(request(survey, method, what, role, headers), 403, "clock")


@between
def test_a_request_that_was_signed_for_something_else_is_refused(survey, method, what, role, party):
    """For the other role, another path, another method, or another body."""
    key = getattr(survey.keys, party)
    url = survey.address(role, what)
    other = survey.address("helper" if role == "leader" else "leader", what)
    with nothing_stored(survey):
        for headers in (
            signature(key, method, other),
            signature(key, method, survey.address(role, "reports")),
            signature(key, method, url + "?x=1"),
            signature(key, "PUT", url),
            signature(key, method, url, b"{}"),
        ):
            check(request(survey, method, what, role, headers), 403, "not signed")


def test_what_is_asked_of_the_wrong_aggregator_is_not_here(survey):
    with nothing_stored(survey):
        for what in ("aggregation_jobs", "closing"):
            headers = signature(survey.keys.leader, "POST", survey.address("leader", what))
            check(request(survey, "POST", what, "leader", headers), 404, "not here")


@pytest.mark.parametrize("content", NO_OBJECTS)
def test_an_opening_that_is_no_object_is_refused(survey, content):
    with nothing_stored(survey):
        for role, key in (("leader", survey.keys.collector), ("helper", survey.keys.leader)):
            headers = signature(key, "POST", survey.address(role, "opening"), content)
            answer = request(survey, "POST", "opening", role, headers, content)
            check(answer, 400, "malformed")


def test_a_survey_that_collects_is_not_opened(survey):
    """It closes in 2100, and the collector does not ask for an early end."""
    headers = signature(survey.keys.collector, "POST", survey.address("leader", "opening"))
    with nothing_stored(survey):
        check(request(survey, "POST", "opening", "leader", headers), 409, "collecting")
        for role in ROLES:
            url = survey.address(role, "aggregate_share")
            headers = signature(survey.keys.collector, "GET", url)
            check(request(survey, "GET", "aggregate_share", role, headers), 409, "collecting")
            check(survey.client.get(survey.address(role, "reports")), 409, "collecting")


# ---- a leader that asks the helper for what it should not


def entry(half):
    return half.id + half.hashes


def job(both, number, entries=b"", all_offered=0):
    """What the helper answers to a job that the leader's key signed."""
    body = number.to_bytes(8) + all_offered.to_bytes(8) + entries
    url = both.address("helper", "aggregation_jobs")
    headers = signature(both.keys.leader, "POST", url, body)
    return request(both, "POST", "aggregation_jobs", "helper", headers, body)


def opening(both, statement, signer=None):
    signed = (signer or both.keys.leader).sign("opening", statement)
    body = json.dumps({"statement": statement.decode(), "signature": signed}).encode()
    headers = signature(both.keys.leader, "POST", both.address("helper", "opening"), body)
    return request(both, "POST", "opening", "helper", headers, body)


def statement(both, halves, **changes):
    """What leader and helper sign of a sum."""
    ids = b"".join(sorted(half.id for half in halves))
    content = {
        "helper_unpaired": 0, "leader_unpaired": 0, "list": hashlib.sha256(ids).hexdigest(),
        "reports": len(halves), "task": both.task.digest,
    } | changes  # fmt: skip
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def test_a_leader_cannot_have_reports_counted_or_opened_twice(tmp_path):
    """From the first job to a second opening, on one helper; the real leader has no reports."""
    with running(tmp_path) as both:
        halves = [report_of(both, seed)["helper"] for seed in range(4)]
        for half in halves:
            assert both.send(half, "helper").status_code == 201
        first, second, third, fourth = map(entry, halves)

        # Jobs that are none.
        with nothing_stored(both):
            for wrong in (first + first, first + second + first, first[:-1], first + b"\0"):
                check(job(both, 1000, wrong), 400, "malformed")
            check(job(both, 2**31, first), 400, "malformed")
            check(job(both, 2**64 - 1, first), 400, "malformed")
            check(job(both, 1000, first, 2), 400, "malformed")
            url = both.address("helper", "aggregation_jobs")
            for body in (b"", bytes(15)):
                headers = signature(both.keys.leader, "POST", url, body)
                answer = request(both, "POST", "aggregation_jobs", "helper", headers, body)
                check(answer, 413, "malformed")
            check(job(both, 1000, bytes(500 * 80 + 80)), 413, "malformed")

        # An id with other hashes, and one that nobody sent.
        mixed = fourth[:16] + third[16:]
        assert job(both, 1000, first + mixed + bytes(80)).content == b"pmw"
        assert both.helper.standing().added == 1

        # The same job again is answered alike; with another list it is another job.
        with nothing_stored(both):
            assert job(both, 1000, first + mixed + bytes(80)).content == b"pmw"
            check(job(both, 1000, second), 409, "job")
            check(job(both, 1000, first), 409, "job")
            check(job(both, 999, second), 409, "job")
            check(job(both, 0, second), 409, "job")

        # A report that is in the sum is told to be, not added once more; refused ones stay so.
        with nothing_stored(both):
            assert job(both, 1001, first + fourth).content == b"rm"
        assert both.helper.standing().added == 1

        # Nothing is opened of fewer than the design says, while reports are taken, or of others.
        with nothing_stored(both):
            alone = statement(both, halves[:1], helper_unpaired=2)
            check(opening(both, alone), 409, "too few")
        assert job(both, 1002, second).content == b"p"
        agreed = statement(both, halves[:2], helper_unpaired=1)
        with nothing_stored(both):
            check(opening(both, agreed), 409, "collecting")
        url = both.address("helper", "closing")
        told = request(both, "POST", "closing", "helper", signature(both.keys.leader, "POST", url))
        assert told.json() == {"unpaired": 1}
        with nothing_stored(both):
            for wrong in (
                statement(both, halves[:1], helper_unpaired=1),
                statement(both, halves[1:3], helper_unpaired=1),
                statement(both, halves[:2], helper_unpaired=0),
                statement(both, halves[:2], helper_unpaired=1, task="0" * 64),
                statement(both, halves[:2], helper_unpaired=1, reports=3),
                statement(both, halves[:2], helper_unpaired=1, more=1),
            ):
                check(opening(both, wrong), 409, "disagreement")
            for wrong in (b"", b"x", b"[]", b"{}", b'{"leader_unpaired":"x"}', b"[" * 9000):
                check(opening(both, wrong), 400, "malformed")
            for other in (both.keys.collector, both.keys.helper):
                check(opening(both, agreed, other), 403, "not signed")

        # One opening; the same again is confirmed, and a second one is refused.
        answer = opening(both, agreed)
        assert answer.status_code == 200
        share = both.helper.store.opened()
        with nothing_stored(both):
            assert opening(both, agreed).json() == answer.json()
            again = statement(both, halves[:2], helper_unpaired=1, leader_unpaired=1)
            check(opening(both, again), 409, "opened")
            other = statement(both, halves[:3], helper_unpaired=1)
            check(opening(both, other), 409, "disagreement")
            check(job(both, 1003, third), 409, "opened")
            check(job(both, 1003), 409, "opened")
        assert both.helper.store.opened() == share


def test_a_leaders_strange_statements_are_refused_and_are_no_fault(survey):
    both = survey
    with nothing_stored(both):
        for wrong in (b'{"leader_unpaired":Infinity}', b'{"leader_unpaired":1e999}'):
            check(opening(both, wrong), 400, "malformed")
        body = json.dumps({"statement": "\ud800", "signature": "00" * 64}).encode()
        headers = signature(both.keys.leader, "POST", both.address("helper", "opening"), body)
        answer = request(both, "POST", "opening", "helper", headers, body)
        assert answer.status_code in (400, 403)


# ---- when reports are taken


def test_too_few_are_not_opened_and_reports_are_still_taken(tmp_path):
    with running(tmp_path) as both:
        halves = report_of(both)
        for role in ROLES:
            assert both.send(halves[role], role).status_code == 201
        settled(both, 1)
        body = b'{"early":true}'
        url = both.address("leader", "opening")
        with nothing_stored(both):
            headers = signature(both.keys.collector, "POST", url, body)
            check(request(both, "POST", "opening", "leader", headers, body), 409, "too few")
        other = report_of(both, 2)
        for role in ROLES:
            assert both.send(other[role], role).status_code == 201


def test_after_the_opening_nothing_is_taken_but_what_is_there_is_confirmed(tmp_path):
    with running(tmp_path, invitations=True) as both:
        both.leader.store.invite(["a", "b", "c"])
        taken = [report_of(both, seed, code=code) for seed, code in enumerate("ab")]
        for halves in taken:
            for role in ROLES:
                assert both.send(halves[role], role).status_code == 201
        report = secrets.token_bytes(16)
        shown = credential(both.task, report, both.leader, "c")
        fresh = report_of(both, 3, report=report, shown=shown)
        collector = Collector(both.aggregators, both.keys.collector)
        certificate = collector.open(early=True, waiting=lambda added: None)
        with nothing_stored(both):
            for role in ROLES:
                check(both.send(fresh[role], role), 410, "over")
                for halves in taken:
                    assert both.send(halves[role], role).status_code == 201
            other = report_of(
                both, 4, report=taken[0]["leader"].id, shown=taken[0]["leader"].credential
            )
            check(both.send(other["leader"], "leader"), 409, "replayed")
            asked = json.dumps({"code": "c", "blinded": (5).to_bytes(256).hex()}).encode()
            check(post(both, "leader", "tokens", asked), 410, "over")
            assert collector.open(early=True, waiting=lambda added: None) == certificate


def test_after_the_end_a_report_is_taken_only_if_it_was_before(tmp_path):
    times = {"opens": "2020-01-01T00:00Z", "closes": "2021-01-01T00:00Z"}
    with running(tmp_path, **times) as both:
        stored, fresh = report_of(both), report_of(both, 2)
        before = both.task.closes_at.timestamp() - 1
        for aggregator, role in ((both.leader, "leader"), (both.helper, "helper")):
            assert aggregator.store.take([stored[role]], before) == [None]
        settled(both, 1)
        with nothing_stored(both):
            for role in ROLES:
                check(both.send(fresh[role], role), 410, "over")
                assert both.send(stored[role], role).status_code == 201


def test_before_the_beginning_no_report_is_taken(tmp_path):
    with running(tmp_path, opens="2099-01-01T00:00Z") as both, nothing_stored(both):
        halves = report_of(both)
        for role in ROLES:
            check(both.send(halves[role], role), 403, "early")


def test_a_full_survey_takes_no_more(tmp_path):
    with running(tmp_path, most_reports=2) as both:
        people = [report_of(both, seed) for seed in range(3)]
        for halves in people[:2]:
            for role in ROLES:
                assert both.send(halves[role], role).status_code == 201
        settled(both, 2)
        with nothing_stored(both):
            for role in ROLES:
                check(both.send(people[2][role], role), 410, "full")
                assert both.send(people[0][role], role).status_code == 201


# ---- who is slow, or says nothing


def test_people_are_answered_while_300_connections_say_nothing(survey, monkeypatch):
    """Their headers never end; after a while the aggregator ends the connections."""
    monkeypatch.setattr(serving, "HEAD_SECONDS", 0.5)
    silent = [raw(survey, "leader") for _ in range(300)]
    try:
        begun = b"POST /tasks/x/reports HTTP/1.1\r\nhost: x\r\nx-slow: "
        for number, connection in enumerate(silent):
            if number % 3:
                connection.sendall(begun[:number])
        halves = report_of(survey, 5)
        with httpx.Client(timeout=10, trust_env=False) as client:
            url = survey.address("leader", "reports")
            answer = client.post(url, content=halves["leader"].content, headers=BINARY)
        assert answer.status_code == 201
        for connection in silent:
            ended(connection)
    finally:
        for connection in silent:
            connection.close()


def ended(connection):
    """Wait for the other side to end a connection, without an answer."""
    with suppress(ConnectionResetError):
        assert connection.recv(100) == b""


def test_a_header_that_comes_letter_by_letter_does_not_keep_a_connection(survey, monkeypatch):
    monkeypatch.setattr(serving, "HEAD_SECONDS", 0.3)
    with raw(survey, "leader") as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nhost: x\r\nx-slow: ")
        end = time.monotonic() + 10
        with pytest.raises(OSError):  # noqa: PT011
            while time.monotonic() < end:
                connection.sendall(b"x")
                time.sleep(0.02)


@pytest.mark.parametrize("role", ROLES)
def test_a_slow_body_is_refused_and_keeps_nobody_waiting(survey, role, monkeypatch):
    monkeypatch.setattr(service, "_BODY_SECONDS", 0.4)
    halves, other = report_of(survey, 6), report_of(survey, 7)
    content = halves[role].content
    with raw(survey, role) as connection:
        connection.sendall(head_of(survey, "reports", len(content)) + content[:10])
        assert survey.send(other[role], role).status_code == 201
        with nothing_stored(survey):
            status, body = answered(connection)
    assert (status, json.loads(body)["reason"]) == (408, "slow")
    assert survey.send(halves[role], role).status_code == 201


def test_memory_for_uploads_is_bounded_and_given_back(tmp_path, monkeypatch):
    """With room for one report, a second one is told to come again."""
    monkeypatch.setattr(service, "_MEMORY", 500)
    with running(tmp_path) as both:
        halves, other = report_of(both), report_of(both, 2)
        content = halves["leader"].content
        for _ in range(3):
            with raw(both, "leader") as connection:
                connection.sendall(head_of(both, "reports", len(content)) + content[:-1])
                time.sleep(0.1)
                with nothing_stored(both):
                    check(both.send(other["leader"], "leader"), 503, "busy")
                connection.sendall(content[-1:])
                status, _ = answered(connection)
                assert status == 201
        assert both.send(other["leader"], "leader").status_code == 201


# ---- TLS


@contextmanager
def under_tls(folder, names, keys):
    """An aggregator's task, published under a certificate for some names."""
    if not (folder / "ca.crt").exists():
        certificates.write_authority(folder)
    certificates.write_server(folder, names, 2)
    with listening("127.0.0.1", [0]) as listener:
        address = f"https://127.0.0.1:{listener.getsockname()[1]}"
        task = small_task(keys, leader=address, helper=f"{address[:-1]}0", admission=ProofOfWork(1))
        asked = []

        async def app(scope, receive, send):
            asked.append(scope["path"])
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": task.content})

        config = uvicorn.Config(
            app, log_level="critical", access_log=False, lifespan="off", ws="none",
            ssl_certfile=folder / "server.pem", ssl_keyfile=folder / "server.key",
        )  # fmt: skip
        server = uvicorn.Server(config)
        run = {"sockets": [listener]}
        thread = threading.Thread(target=server.run, kwargs=run, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        try:
            yield task, asked
        finally:
            server.should_exit = True
            thread.join(timeout=20)


def test_a_server_with_a_certificate_for_another_name_is_sent_nothing(tmp_path):
    keys = new_keys()
    with under_tls(tmp_path, ["radio.example.org", "127.0.0.2"], keys) as (task, asked):
        with connected(tmp_path / "ca.crt") as client:
            with refused(Unreachable, task.leader):
                Aggregators.of(client, task.leader)
            sender = Aggregators(client, task, pauses=())
            with refused(Unreachable, "leader", task.leader):
                sender.post("leader", "reports", b"secret", "application/octet-stream")
        assert asked == []


def test_a_server_that_an_unknown_authority_certified_is_sent_nothing(tmp_path):
    keys = new_keys()
    with under_tls(tmp_path, ["127.0.0.1"], keys) as (task, asked):
        with connected(None) as client, refused(Unreachable, task.leader):
            Aggregators.of(client, task.leader)
        assert asked == []
        with connected(tmp_path / "ca.crt") as client:
            assert client.get(f"{task.leader}/task").content == task.content
        assert asked == ["/task"]
