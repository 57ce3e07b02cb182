"""A participant's side: sent once whatever happens, and nothing an aggregator says is believed."""

import json
import os
import stat
from dataclasses import dataclass, replace

import httpx
import numpy as np
import pytest

import veilmap as vm
from aggregators import (
    credential,
    deployed,
    halves_of,
    moved,
    new_keys,
    pair,
    small_survey,
    small_task,
    vector,
)
from refusals import refused
from veilmap._util.plain import to_plain
from veilmap.collection import report as reports
from veilmap.collection.aggregator import receipt_text
from veilmap.collection.client import Aggregators, Refused, Sending, Unreachable, receipt_in
from veilmap.collection.collector import Collector
from veilmap.collection.readings import contributed, readings_of
from veilmap.errors import ConfigurationError, DataError, PrivacyError, VeilmapError
from veilmap.geometry.coordinates import to_longitude_latitude
from veilmap.geometry.grid import Grid
from veilmap.surveys.contribution import Contribution, contribution

ROLES = ("leader", "helper")
KNOWN = {"task", "id", "hashes", "receipts", "secret", "credential", "blinded", "sent"}
DEEP = b"[" * 200_000


def told(survey, seed=0):
    """A contribution."""
    return Contribution(vector(survey, seed), used=3, outside=0, unknown=0, unusable=0)


class StoppedError(Exception):
    """The participant's computer was switched off."""


@dataclass
class Fragile(httpx.BaseTransport):
    """A network that ends the program at the ``at``-th request, before or after its answer."""

    at: int | None = None
    after: bool = False
    look: object = None

    def __post_init__(self):
        self.asked, self.real = [], httpx.HTTPTransport()

    def handle_request(self, request):
        self.asked.append(request)
        if self.look is not None:
            self.look(request)
        if self.at == len(self.asked) and not self.after:
            raise StoppedError
        answer = self.real.handle_request(request)
        if self.at == len(self.asked):
            answer.read()
            raise StoppedError
        return answer

    def close(self):
        self.real.close()


@pytest.fixture(scope="module")
def invited(tmp_path_factory):
    """Both aggregators on loopback, by invitation."""
    with deployed(tmp_path_factory.mktemp("invited"), invitations=True) as both:
        yield both


@pytest.fixture
def code(invited):
    """A code that nobody has used."""
    code = os.urandom(8).hex()
    invited.leader.store.invite([code])
    return code


def send(both, file, own, code, transport=None):
    """What `veilmap contribute` does after it has asked."""
    with httpx.Client(transport=transport, trust_env=False) as client:
        aggregators = Aggregators(client, both.task, pauses=())
        sending = Sending.begun(both.task, file)
        sending.admit(aggregators, code)
        sending.send(own, aggregators, lambda role: None)
        return sending


def received(both):
    return [one.store.standing().received for one in (both.leader, both.helper)]


def test_a_receipt_proves_that_both_have_taken_a_report(invited, code, tmp_path):
    file, before = tmp_path / "receipt.json", received(invited)
    sending = send(invited, file, told(invited.task.survey), code)
    content = json.loads(file.read_text())
    assert content["id"] == sending.id.hex()
    assert set(content) == {"task", "id", "hashes", "receipts", "sent"}
    task, hashes = invited.task, bytes.fromhex(content["hashes"])
    for role, key in (("leader", invited.keys.leader), ("helper", invited.keys.helper)):
        signed = key.sign("receipt", receipt_text(task, role, sending.id, hashes))
        assert content["receipts"][role] == signed
    assert received(invited) == [count + 1 for count in before]


def test_the_receipt_is_written_before_anything_leaves_and_is_private(invited, code, tmp_path):
    file = tmp_path / "receipt.json"
    own = told(invited.task.survey, 3)
    seen = []

    def look(request):
        content = json.loads(file.read_text())
        assert set(content) <= KNOWN
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        if request.url.path.endswith("/reports"):
            # What is needed to send the very same halves again is there already.
            sending = Sending.begun(invited.task, file)
            assert request.content[:16] == sending.id
            assert sending.hashes == request.content[16:80]
            halves = reports.halves(
                invited.task, own.vector, sending.id, sending.credential, sending.secret
            )
            assert request.content in [half.content for half in halves]
        seen.append(request.url.path.rsplit("/")[-1])

    umask = os.umask(0)
    try:
        send(invited, file, own, code, Fragile(look=look))
    finally:
        os.umask(umask)
    assert seen == ["tokens", "reports", "reports"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [file]


def test_a_receipt_holds_no_measurement(tmp_path):
    """But for hashes, which are those of random-looking halves, it is the same for all vectors."""
    task = small_task(new_keys())
    texts = []
    for seed in (1, 2):
        sending = Sending(task, tmp_path / "r.json", id=bytes(16), secret=b"s" * 32)
        sending.credential = credential(task, sending.id)
        with pytest.raises(Unreachable):
            sending.send(told(task.survey, seed), nobody(task), lambda role: None)
        texts.append(json.loads((tmp_path / "r.json").read_text()))
    assert texts[0].pop("hashes") != texts[1].pop("hashes")
    assert texts[0] == texts[1]
    assert set(texts[0]) <= KNOWN


def nobody(task):
    """Aggregators that do not answer."""

    def fails(request):
        raise httpx.ConnectError("nobody is there", request=request)

    return lying(fails, task)


STEPS = [("request", number, after) for number in (1, 2, 3) for after in (False, True)]
STEPS += [("save", number, after) for number in (1, 2, 3, 4) for after in (False, True)]


@pytest.mark.parametrize(("what", "number", "after"), STEPS)
def test_what_was_interrupted_goes_on_and_counts_once(
    invited, code, tmp_path, monkeypatch, what, number, after
):
    """Requests are token, leader's half, helper's half; the file is saved four times."""
    file, own = tmp_path / "receipt.json", told(invited.task.survey, 5)
    before, network = received(invited), Fragile()
    saved, save = [], Sending.save

    def stopping(self):
        saved.append(self.id)
        if len(saved) == number and not after:
            raise StoppedError
        save(self)
        if len(saved) == number:
            raise StoppedError

    if what == "save":
        monkeypatch.setattr(Sending, "save", stopping)
    else:
        network.at, network.after = number, after
    with pytest.raises(StoppedError):
        send(invited, file, own, code, network)
    monkeypatch.undo()
    complete = (what, number, after) == ("save", 4, True)
    if complete:
        with refused(DataError, file):
            Sending.begun(invited.task, file)
    else:
        first = json.loads(file.read_text())["id"] if file.exists() else None
        if first is None:
            assert network.asked == []  # nothing had left
        else:
            assert "secret" in json.loads(file.read_text())
        again = send(invited, file, own, code)
        assert first in (None, again.id.hex())
    assert received(invited) == [count + 1 for count in before]
    content = json.loads(file.read_text())
    assert set(content["receipts"]) == set(ROLES)
    assert "secret" not in content
    assert set(content) <= KNOWN


def test_an_interrupted_report_is_added_once(tmp_path):
    file = tmp_path / "receipt.json"
    with deployed(tmp_path) as both:
        own = told(both.task.survey, 5)
        for stop in (Fragile(at=1, after=True), Fragile(at=2, after=True)):
            with pytest.raises(StoppedError):
                send(both, file, own, None, stop)
        mine = send(both, file, own, None).id
        send(both, tmp_path / "other.json", told(both.task.survey, 6), None)
        Collector(both.aggregators, both.keys.collector).open(early=True, waiting=lambda _: None)
        for role in ROLES:
            assert both.aggregators.listed(role).count(mine) == 1
            assert len(both.aggregators.listed(role)) == 2


def test_other_measurements_for_a_half_sent_report_are_refused(invited, code, tmp_path):
    file, before = tmp_path / "receipt.json", received(invited)
    with pytest.raises(StoppedError):
        send(invited, file, told(invited.task.survey, 1), code, Fragile(at=2, after=True))
    left, network = file.read_bytes(), Fragile()
    with refused(DataError, file):
        send(invited, file, told(invited.task.survey, 2), code, network)
    assert network.asked == []
    assert file.read_bytes() == left
    send(invited, file, told(invited.task.survey, 1), code)
    assert received(invited) == [count + 1 for count in before]


def test_who_has_sent_does_not_send_again(invited, code, tmp_path):
    file = tmp_path / "receipt.json"
    sending = send(invited, file, told(invited.task.survey, 1), code)
    assert sending.secret.hex() not in file.read_text()
    before, kept = received(invited), file.read_bytes()
    with refused(DataError, file):
        send(invited, file, told(invited.task.survey, 1), code)
    assert file.read_bytes() == kept
    assert received(invited) == before
    # A new file does not help: the invitation was used.
    with refused(Refused):
        send(invited, tmp_path / "new.json", told(invited.task.survey, 1), code)
    assert received(invited) == before


def test_an_invitation_is_asked_for_and_wrong_ones_are_refused(invited, tmp_path):
    before = received(invited)
    for code, kind in ((None, DataError), ("", DataError), ("wrong", Refused)):
        with refused(kind):
            send(invited, tmp_path / "receipt.json", told(invited.task.survey), code)
    assert received(invited) == before


def test_what_is_asked_of_the_leader_for_a_token_does_not_tell_the_report(invited, code, tmp_path):
    network = Fragile()
    sending = send(invited, tmp_path / "receipt.json", told(invited.task.survey), code, network)
    token = network.asked[0]
    assert set(json.loads(token.content)) == {"code", "blinded"}
    for half in network.asked[1:]:
        assert code.encode() not in half.content
        assert sending.id in half.content
    assert sending.id.hex() not in token.content.decode()
    assert sending.credential.hex() not in token.content.decode()


# ---- files that are no receipt, or another's


def test_a_receipt_of_another_survey_is_refused(tmp_path):
    task = small_task(new_keys())
    Sending(task, tmp_path / "receipt.json").save()
    with refused(DataError, tmp_path / "receipt.json"):
        Sending.begun(moved(task, most_reports=999), tmp_path / "receipt.json")


@pytest.mark.parametrize(
    "content",
    [b"", b"[", b"[]", b"null", b"{}", b"\xff", b"1" * 10_000, DEEP, b'{"receipts": 1}'],
    ids=lambda content: repr(content[:8]),
)
def test_files_that_are_no_receipt_are_refused(tmp_path, content):
    file = tmp_path / "receipt.json"
    file.write_bytes(content)
    with refused(DataError, file):
        Sending.begun(small_task(new_keys()), file)
    with refused(DataError, file):
        receipt_in(file)
    assert file.read_bytes() == content


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("task", None), ("task", 5), ("id", None), ("id", 5), ("id", "xy"), ("id", "00"),
        ("id", "00" * 17), ("hashes", None), ("hashes", 5), ("hashes", "0"), ("hashes", "00" * 63),
        ("receipts", None), ("receipts", 5), ("receipts", []), ("secret", 5), ("secret", ""),
        ("secret", "00" * 31), ("secret", "x" * 64), ("credential", 5), ("credential", "x"),
        ("credential", "00"), ("credential", "00" * 70_000), ("blinded", 5), ("blinded", []),
        ("blinded", "a"), ("blinded", "a b c"), ("blinded", "00 1 1 1"),
    ],
    ids=lambda one: str(one)[:8],
)  # fmt: skip
def test_damaged_receipts_are_refused_before_anything_leaves(tmp_path, name, wrong):
    task, file, asked = small_task(new_keys()), tmp_path / "receipt.json", []
    sending = Sending(task, file)
    sending.credential = credential(task, sending.id)
    sending.save()
    content = json.loads(file.read_text())
    file.write_text(json.dumps(content | {name: wrong}))
    aggregators = lying(lambda request: asked.append(request) or httpx.Response(400), task)
    with refused(DataError, file):
        again = Sending.begun(task, file)
        again.admit(aggregators, None)
        again.send(told(task.survey), aggregators, lambda role: None)
    assert asked == []


def test_receipts_that_lack_something_are_refused(tmp_path):
    task, file = small_task(new_keys()), tmp_path / "receipt.json"
    Sending(task, file).save()
    content = json.loads(file.read_text())
    for name in ("task", "id", "hashes", "receipts"):
        file.write_text(json.dumps({key: own for key, own in content.items() if key != name}))
        with refused(DataError, file):
            Sending.begun(task, file)


def test_a_receipt_that_cannot_be_written_keeps_everything_here(tmp_path):
    task, asked = small_task(new_keys()), []
    (tmp_path / "file").write_text("")
    sending = Sending.begun(task, tmp_path / "file" / "receipt.json")
    aggregators = lying(lambda request: asked.append(request) or httpx.Response(400), task)
    with refused(DataError):
        sending.admit(aggregators, None)
        sending.send(told(task.survey), aggregators, lambda role: None)
    assert asked == []


# ---- aggregators that lie


def lying(answer, task, pauses=()):
    """Aggregators that answer what a function says."""
    client = httpx.Client(transport=httpx.MockTransport(answer), trust_env=False)
    return Aggregators(client, task, pauses)


def client_of(answer):
    return lying(answer, None).client


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    """Both aggregators in this process; and a report with its receipts."""
    both = pair(tmp_path_factory.mktemp("honest"))
    halves = halves_of(both.task, 1)
    yield both, halves
    both.close()


def test_both_must_publish_the_same_task(honest):
    both, _ = honest
    other = moved(both.task, most_reports=999)

    def answer(request):
        return httpx.Response(200, content=(both.task, other)[request.url.port == 8002].content)

    for address in (both.task.leader, both.task.helper):
        with refused(PrivacyError):
            Aggregators.of(client_of(answer), address)
    same = client_of(lambda request: httpx.Response(200, content=both.task.content))
    for address in (both.task.leader, both.task.helper, both.task.leader + "/"):
        assert Aggregators.of(same, address).task == both.task


def test_the_digest_that_one_was_told_is_compared(honest):
    both, _ = honest
    same = client_of(lambda request: httpx.Response(200, content=both.task.content))
    whole = both.task.digest
    for good in (whole, whole[:8], whole[:20].upper(), None):
        assert Aggregators.of(same, both.task.leader, good).task == both.task
    wrong = "1" if whole[0] == "0" else "0"
    for other in (wrong + whole[1:], wrong + whole[1:8], whole[:7], whole[1:], whole + "0", " "):
        with refused(PrivacyError, both.task.leader):
            Aggregators.of(same, both.task.leader, other)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda both, halves: both.leader.receipt(halves[0])[:-2],
        lambda both, halves: "00" * 64,
        lambda both, halves: "",
        lambda both, halves: None,
        lambda both, halves: 5,
        lambda both, halves: "é" * 128,
        lambda both, halves: both.helper.receipt(halves[0]),
        lambda both, halves: both.leader.receipt(replace(halves[0], id=bytes(16))),
        lambda both, halves: both.leader.receipt(replace(halves[0], hashes=bytes(64))),
        lambda both, halves: both.keys.leader.sign(
            "opening",
            receipt_text(both.task, "leader", halves[0].id, halves[0].hashes),
        ),
    ],
)
def test_a_receipt_that_the_aggregator_did_not_sign_for_this_half_is_refused(honest, wrong):
    both, halves = honest
    receipt = {"receipt": wrong(both, halves)}
    with refused(PrivacyError, "leader"):
        lying(lambda request: httpx.Response(201, json=receipt), both.task).send(
            halves[0], "leader"
        )
    good = {"receipt": both.leader.receipt(halves[0])}
    answering = lying(lambda request: httpx.Response(201, json=good), both.task)
    assert answering.send(halves[0], "leader") == good["receipt"]


def test_a_wrong_receipt_is_not_kept_and_the_right_one_can_still_come(tmp_path):
    task = small_task(keys := new_keys())
    file, asked = tmp_path / "receipt.json", []

    def answer(request):
        asked.append(request)
        role = "leader" if request.url.port == 8001 else "helper"
        own = reports.parsed(request.content, task, role)
        signer = keys.leader if role == "leader" or len(asked) < 3 else keys.helper
        receipt = signer.sign("receipt", receipt_text(task, role, own.id, own.hashes))
        return httpx.Response(201, json={"receipt": receipt})

    aggregators = lying(answer, task)
    for kind in (PrivacyError, None):
        sending = Sending.begun(task, file)
        sending.admit(aggregators, None)
        if kind is None:
            sending.send(told(task.survey), aggregators, lambda role: None)
        else:
            with refused(kind, "helper"):
                sending.send(told(task.survey), aggregators, lambda role: None)
            assert "secret" in json.loads(file.read_text())
    assert set(json.loads(file.read_text())["receipts"]) == set(ROLES)
    assert [one.content for one in asked[:2]] == [one.content for one in asked[2:]]


@pytest.mark.parametrize(
    "signature",
    ["00" * 256, "01" * 256, "ff" * 256, "", "no hexadecimal", None, 5, "00" * 5000],
    ids=lambda signature: str(signature)[:8],
)
def test_a_token_that_is_not_valid_is_refused_and_nothing_is_sent(tmp_path, signature):
    task, asked = small_task(new_keys(), invitations=True), []

    def answer(request):
        asked.append(request.url.path)
        return httpx.Response(200, json={"signature": signature})

    sending = Sending.begun(task, tmp_path / "receipt.json")
    with refused(PrivacyError, "leader"):
        sending.admit(lying(answer, task), "code")
    assert len(asked) == 1
    again = Sending.begun(task, tmp_path / "receipt.json")
    assert again.credential is None
    assert again.blinded == sending.blinded  # the code is good for this one alone


def everything(aggregators, key, half):
    """All that a participant or a collector asks of aggregators."""
    collector = Collector(aggregators, key)
    return {
        "task": lambda: Aggregators.of(aggregators.client, aggregators.task.leader),
        "send": lambda: aggregators.send(half, "leader"),
        "listed": lambda: aggregators.listed("helper"),
        "status": lambda: collector.standing("leader"),
        "opening": lambda: collector.open(early=True, waiting=lambda added: None),
        "share": lambda: collector.joined({"statement": '{"reports": 3}'}),
    }


ASKED = ("task", "send", "status", "opening", "share")


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("status", [200, 202, 400, 500])
@pytest.mark.parametrize(
    "content",
    [b"", b"no JSON", b"[]", b"3", b"null", b'"x"', b"{}", b"\xff\xfe", DEEP, b"1" * 10_000,
     b'{"error": {"error": []}}', b'{"added": "x"}', b'{"added": 1e999}'],
    ids=lambda content: repr(content[:8]),
)  # fmt: skip
def test_nonsense_is_refused_in_one_line(honest, monkeypatch, asked, status, content):
    both, halves = honest

    def slept(seconds):  # somebody who waits for an opening would wait for ever
        raise Unreachable("waiting")

    monkeypatch.setattr("veilmap.collection.collector.time.sleep", slept)
    answering = lying(lambda request: httpx.Response(status, content=content), both.task)
    with refused(VeilmapError):
        everything(answering, both.keys.collector, halves[0])[asked]()


@pytest.mark.parametrize("asked", [*ASKED, "listed"])
def test_an_error_line_comes_without_control_characters_and_cut(honest, asked):
    both, halves = honest
    line = "a\x1b[31mb\nc\rd\x00\x07\u202e\u2028<b>" + "long " * 1000
    answering = lying(lambda request: httpx.Response(400, json={"error": line}), both.task)
    with refused(Refused) as caught:
        everything(answering, both.keys.collector, halves[0])[asked]()
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 800


@pytest.mark.parametrize("asked", [*ASKED, "listed"])
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_not_followed(honest, asked, status):
    both, halves = honest
    hosts = []

    def answer(request):
        hosts.append(request.url.host)
        return httpx.Response(status, headers={"location": "https://elsewhere.example/"})

    with refused(Refused):
        everything(lying(answer, both.task), both.keys.collector, halves[0])[asked]()
    assert set(hosts) == {"127.0.0.1"}


class Endless(httpx.SyncByteStream):
    """An answer of 200 MB that counts how much of it was read."""

    def __init__(self):
        self.read = 0

    def __iter__(self):
        for _ in range(200):
            self.read += 1_000_000
            yield b" " * 1_000_000


@pytest.mark.parametrize("asked", [*ASKED, "listed"])
def test_huge_answers_are_not_read_to_their_end(honest, asked):
    both, halves = honest
    stream = Endless()
    answering = lying(lambda request: httpx.Response(200, stream=stream), both.task)
    with refused(VeilmapError):
        everything(answering, both.keys.collector, halves[0])[asked]()
    assert stream.read < 30_000_000


def test_a_huge_task_is_called_too_large(honest):
    both, _ = honest
    with refused(DataError) as caught:
        Aggregators.of(
            client_of(lambda request: httpx.Response(200, stream=Endless())), both.task.leader
        )
    assert "no address" not in str(caught.value)


def test_what_a_published_task_says_reaches_no_terminal_as_it_is():
    """Names in it come from whoever publishes it."""
    task = small_task(new_keys())
    for wrong in ("twice\x1b[2J\nsecond line", "a\rb"):
        content = to_plain(task)
        for station in content["survey"]["stations"]:
            station["id"] = wrong
        client = client_of(lambda request, told=content: httpx.Response(200, json=told))
        with refused(DataError, task.leader) as caught:
            Aggregators.of(client, task.leader)
        assert str(caught.value).isprintable()


@pytest.mark.parametrize("failure", [500, 503, httpx.ConnectError, httpx.ReadTimeout])
def test_what_may_be_well_later_is_tried_again(honest, monkeypatch, failure):
    both, halves = honest
    slept, left = [], [3]
    monkeypatch.setattr("veilmap.collection.client.time.sleep", slept.append)

    def answer(request):
        left[0] -= 1
        if left[0] < 0:
            return httpx.Response(201, json={"receipt": both.leader.receipt(halves[0])})
        if isinstance(failure, int):
            return httpx.Response(failure, json={"error": "not now"})
        raise failure("no", request=request)

    lying(answer, both.task, pauses=(1, 2, 3)).send(halves[0], "leader")
    assert slept == [1, 2, 3]
    left[0], slept[:] = 9, []
    with refused(Unreachable, "leader", both.task.leader):
        lying(answer, both.task, pauses=(1, 2, 3)).send(halves[0], "leader")
    assert slept == [1, 2, 3]


def test_a_refusal_is_not_tried_again(honest, monkeypatch):
    both, halves = honest
    asked = []
    monkeypatch.setattr("veilmap.collection.client.time.sleep", pytest.fail)

    def answer(request):
        asked.append(request)
        return httpx.Response(410, json={"error": "over"})

    with refused(Refused, "over"):
        lying(answer, both.task, pauses=(1, 2)).send(halves[0], "leader")
    assert len(asked) == 1


@pytest.mark.parametrize(
    "address", ["http://127.0.0.1:1", "https://127.0.0.1:1", "http://[::1", "http://127.0.0.1:x",
                "http://", "nothing", "ftp://127.0.0.1", "http://a\x00b", "http://127.0.0.1:99999"],
)  # fmt: skip
def test_addresses_that_nobody_answers_at_are_named(address):
    with (
        httpx.Client(trust_env=False, timeout=5) as client,
        refused((Unreachable, DataError)) as caught,
    ):
        Aggregators.of(client, address)
    assert address.replace("\x00", "") in str(caught.value).replace("\x00", "")


# ---- a participant's file

CRS = "EPSG:32633"
WEST, SOUTH = 455_000.0, 5_410_000.0


@pytest.fixture(scope="module")
def town():
    """A survey of a place on Earth."""
    stations = (
        vm.Station("north", WEST + 200, SOUTH + 350, 25),
        vm.Station("7", WEST + 90, SOUTH + 40, 12),
    )
    grid = Grid(80.0, (5, 6), (WEST, SOUTH), CRS)
    return replace(small_survey(), grid=grid, stations=stations)


@pytest.fixture(scope="module")
def walk():
    """Places in metres, base stations (one is unknown) and gains of 30 readings."""
    rng = np.random.default_rng(8)
    xy = np.column_stack([WEST + rng.uniform(0, 480, 30), SOUTH + rng.uniform(0, 400, 30)])
    xy[:2] += 5_000  # outside the area
    bs = np.array(["north", "7", "north", "elsewhere", "7"] * 6)
    return xy, bs, np.round(rng.normal(-95, 8, 30), 1)


def write(path, columns):
    rows = zip(*columns.values(), strict=True)
    lines = [",".join(columns), *(",".join(map(str, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n")
    return path


def in_metres(walk, **others):
    xy, bs, gain = walk
    return {"user_x": xy[:, 0], "user_y": xy[:, 1], "bs": bs, "gain": gain} | others


def in_degrees(walk, **others):
    xy, bs, gain = walk
    longitude, latitude = to_longitude_latitude(CRS, xy).T
    return {"latitude": latitude, "longitude": longitude, "bs": bs, "gain": gain} | others


def direct(town, walk, chosen=slice(None)):
    xy, bs, gain = (one[chosen] for one in walk)
    return contribution(town, xy, bs, gain)


@pytest.mark.parametrize("columns", [in_metres, in_degrees])
def test_files_in_metres_and_in_degrees_tell_the_same(town, walk, tmp_path, columns):
    data, left_out = readings_of(write(tmp_path / "walk.csv", columns(walk)), town)
    own, expected = contributed(town, data), direct(town, walk)
    np.testing.assert_array_equal(own.vector, expected.vector)
    assert (own.used, own.outside) == (expected.used, expected.outside)
    gone = own.unknown + own.unusable + sum(len(one.rows) for one in left_out)
    assert own.used + own.outside + gone == 30
    assert gone == 6
    assert own.used > 15


def test_powers_and_losses_are_gains_of_a_sender(town, walk, tmp_path):
    gain = walk[2]
    for quantity, values, power in (("rsrp", gain + 46, 46.0), ("path-loss", -gain, 0.0)):
        file = write(tmp_path / "walk.csv", in_metres(walk, gain=np.round(values, 1)))
        data, _ = readings_of(file, town, quantity=quantity, tx_power_dbm=power)
        np.testing.assert_array_equal(contributed(town, data).vector, direct(town, walk).vector)


def test_columns_of_other_names_are_told(town, walk, tmp_path):
    table = in_degrees(walk)
    table["level"], table["cell"] = table.pop("gain"), table.pop("bs")
    file = write(tmp_path / "walk.csv", table)
    data, _ = readings_of(file, town, columns={"gain": "level", "bs": "cell"})
    np.testing.assert_array_equal(contributed(town, data).vector, direct(town, walk).vector)


def test_of_several_people_one_is_named(town, walk, tmp_path):
    owner = np.array([1, 2, 2] * 10)
    file = write(tmp_path / "walk.csv", in_metres(walk, user=owner))
    with refused(ConfigurationError, "walk.csv", 2, parameter="user"):
        readings_of(file, town)
    for user in (1, 2):
        data, _ = readings_of(file, town, user=str(user))
        np.testing.assert_array_equal(
            contributed(town, data).vector, direct(town, walk, owner == user).vector
        )
    with refused(ConfigurationError, "walk.csv", 3, parameter="user"):
        readings_of(file, town, user="3")
    one = write(tmp_path / "one.csv", in_metres(walk, user=np.full(30, "me")))
    data, _ = readings_of(one, town)
    np.testing.assert_array_equal(contributed(town, data).vector, direct(town, walk).vector)
    alone = write(tmp_path / "alone.csv", in_metres(walk))
    with refused(ConfigurationError, "alone.csv", parameter="user"):
        readings_of(alone, town, user="1")


def test_rows_that_cannot_be_read_are_left_out_and_counted(town, walk, tmp_path):
    table = in_metres(walk, gain=walk[2].astype(object))
    table["gain"][4], table["gain"][5] = "", "nan"
    data, left_out = readings_of(write(tmp_path / "walk.csv", table), town)
    own = contributed(town, data)
    rest = np.ones(30, dtype=bool)
    rest[[4, 5]] = False
    np.testing.assert_array_equal(own.vector, direct(town, walk, rest).vector)
    gone = own.unknown + own.unusable + sum(len(one.rows) for one in left_out)
    assert own.used + own.outside + gone == 30


@pytest.mark.parametrize("content", ["", "latitude,longitude,bs,gain\n", "x,y\n1,2\n", "\x00\x01"])
def test_empty_files_and_files_of_something_else_are_refused(town, tmp_path, content):
    (tmp_path / "walk.csv").write_text(content)
    with refused(VeilmapError):
        readings_of(tmp_path / "walk.csv", town)
    with refused(VeilmapError, "none.csv"):
        readings_of(tmp_path / "none.csv", town)


def test_a_file_of_other_stations_alone_is_refused(town, walk, tmp_path):
    file = write(tmp_path / "walk.csv", in_metres(walk, bs=np.full(30, "elsewhere")))
    with refused(VeilmapError, "walk.csv", "station"):
        readings_of(file, town)
