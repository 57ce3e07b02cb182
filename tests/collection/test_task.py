"""The task of a survey: it reads only what it writes, and nothing that could not be kept."""

import hashlib
import json
import math
from copy import deepcopy
from dataclasses import fields, replace

import pytest

import veilmap as vm
from aggregators import STATIONS, moved, new_keys, small_survey, small_task
from refusals import refused
from veilmap.collection.admission import Invitations, ProofOfWork
from veilmap.collection.keys import SigningKey
from veilmap.collection.pine.reports import parameters_of
from veilmap.collection.task import Task
from veilmap.errors import ConfigurationError, DataError

Q = 2**32 - 2**20 + 1
KEYS = new_keys()
FILE = "task.json"


@pytest.fixture(scope="module", params=[False, True], ids=["work", "invitations"])
def task(request):
    return small_task(KEYS, invitations=request.param)


@pytest.fixture(scope="module")
def plain_task():
    return small_task(KEYS)


def written(content):
    """Plain data as a task is written."""
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


# ---- byte for byte


def test_a_task_reads_what_it_writes(task, tmp_path):
    assert Task.parse(task.content, FILE) == task
    task.save(tmp_path / FILE)
    assert (tmp_path / FILE).read_bytes() == task.content
    assert Task.load(tmp_path / FILE) == task
    assert hashlib.sha256(task.content).hexdigest() == task.digest == task.digest_bytes.hex()


def test_every_byte_that_was_changed_is_refused_or_makes_another_task(task):
    """A byte more, a byte less, and another byte at every third place."""
    content = task.content
    read = {}
    for at in range(0, len(content), 3):
        for other in (
            content[:at] + content[at + 1 :],
            content[:at] + b" " + content[at:],
            content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :],
        ):
            try:
                found = Task.parse(other, FILE)
            except DataError:
                continue
            assert found.content == other
            read[other] = found.digest
    assert len(set(read.values())) == len(read) > 100  # most digits of keys and numbers
    assert read.get(content, task.digest) == task.digest


@pytest.mark.parametrize(
    "changed",
    [
        lambda text: text + "\n",
        lambda text: " " + text,
        lambda text: "\ufeff" + text,
        lambda text: text.replace(":", ": "),
        lambda text: json.dumps(json.loads(text), indent=1),
        lambda text: json.dumps(dict(reversed(json.loads(text).items())), separators=(",", ":")),
        lambda text: text.replace('"pairing_hours":24.0', '"pairing_hours":24'),
        lambda text: text.replace('"pairing_hours":24.0,', ""),
        lambda text: text.replace('"most_reports":1000', '"most_reports":1000.0'),
        lambda text: text.replace('"most_reports":1000', '"most_reports":1e3'),
        lambda text: text.replace('"most_reports":1000', '"most_reports":"1000"'),
        lambda text: text.replace('"most_reports":1000', '"most_reports":7,"most_reports":1000'),
        lambda text: text.replace("+00:00", "Z"),
        lambda text: text.replace("T00:00:00+00:00", "T01:00:00+01:00"),
        lambda text: text.replace("http://127.0.0.1:8001", "http://127.0.0.1:8001/"),
        lambda text: text.replace("http://127.0.0.1:8001", "HTTP://127.0.0.1:8001"),
        lambda text: text.replace("small", "sm\\u0061ll"),
        lambda text: text[:-1] + ',"extra":1}',
        lambda text: text[:-1],
        lambda text: text + text,
    ],
)
def test_another_way_to_write_the_same_task_is_refused(plain_task, changed):
    """Both aggregators and all participants name the task by the digest of its bytes."""
    text = plain_task.content.decode()
    assert changed(text) != text
    with refused(DataError, FILE):
        Task.parse(changed(text).encode(), FILE)


def test_names_in_other_scripts_are_written_in_ascii(plain_task):
    other = moved(plain_task, survey=small_survey(crs=None))
    named = moved(other, survey=replace(other.survey, id="Größe 测量"))
    assert named.content.isascii()
    assert Task.parse(named.content, FILE) == named
    raw = json.dumps(
        json.loads(named.content), sort_keys=True, separators=(",", ":"), ensure_ascii=False
    )
    with refused(DataError, FILE):
        Task.parse(raw.encode(), FILE)


# ---- garbage


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{}", b"[]", b"null", b"7", b'"task"', b"nan", b"\xff\xfe", b"\0" * 50,
        b"{" * 100_000, b"[" * 1_000_000, b'{"type":' * 20_000, b'{"type":"Task"}',
        b'{"type":"Survey"}', b'{"type":["Task"]}', b'{"type":"Grid"}', b"9" * 10_000,
        b'[{"type":"ProofOfWork"}]', b'{"type":"ProofOfWork","bits":8}',
        b'{"survey":{"type":"Task"},"type":"Task"}',
        '{"type":"Task"}'.encode("utf-16"), b'{"type":"Task","\\ud800":1}',
    ],
)  # fmt: skip
def test_garbage_is_refused_in_one_line(content, tmp_path):
    with refused(DataError, FILE):
        Task.parse(content, FILE)
    (tmp_path / FILE).write_bytes(content)
    with refused(DataError, FILE):
        Task.load(tmp_path / FILE)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with refused(DataError, tmp_path / FILE):
        Task.load(tmp_path / FILE)
    with refused(DataError, tmp_path):
        Task.load(tmp_path)


def test_a_huge_file_is_not_read(plain_task, tmp_path):
    (tmp_path / FILE).write_bytes(plain_task.content + b" " * 10_000_000)
    with refused(DataError, "large"):
        Task.load(tmp_path / FILE)
    with refused(DataError, "large"):
        Task.parse(plain_task.content + b" " * 10_000_000, FILE)


def leaves(content, path=()):
    """The path of every value in plain data."""
    inner = content.items() if isinstance(content, dict) else enumerate(content)
    for key, value in inner:
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from leaves(value, (*path, key))


WRONG = [
    None, True, -1, 0, 2.5, 1e308, 5e-324, math.inf, -math.inf, math.nan, 10**30, "", "x", "é",
    "\ud800", "0" * 70, [], {}, [[]], {"type": "Task"}, {"type": "Grid"},
]  # fmt: skip


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of the accounting, for absurd ε
def test_a_wrong_value_at_any_place_is_refused_or_makes_another_task(task):
    original = json.loads(task.content)
    paths = list(leaves(original))
    assert len(paths) > 40
    for path in paths:
        for wrong in (*WRONG, "left out"):
            content = deepcopy(original)
            *outer, last = path
            place = content
            for key in outer:
                place = place[key]
            place[last] = wrong
            if wrong == "left out":
                del place[last]
            changed = written(content)
            try:
                found = Task.parse(changed, FILE)
            except DataError:
                continue
            assert found.content == changed


# ---- addresses


@pytest.mark.parametrize("role", ["leader", "helper"])
@pytest.mark.parametrize(
    "address",
    [
        "", "radio.example.org", "//radio.example.org", "ftp://radio.example.org", "https://",
        "https:radio.example.org", "https://:8443", "https://radio.example.org:0",
        "https://radio.example.org:65536", "https://radio.example.org:x",
        "https://radio.example.org/survey", "https://radio.example.org//",
        "https://radio.example.org?a=1", "https://radio.example.org#code",
        "https://somebody@radio.example.org", "https://somebody:secret@radio.example.org",
        "https://radio example.org", "https://räder.example.org", "https://radio.example.org\\x",
        "https://[::1", "https://<b>", "http://radio.example.org", "http://192.168.0.1:8000",
        "http://127.0.0.1.example.org", "http://localhost.example.org", "javascript:alert(1)",
        "file:///etc/passwd", None, 7,
    ],
)  # fmt: skip
def test_a_bad_address_is_refused(plain_task, role, address):
    with refused(ConfigurationError, role, parameter=role):
        moved(plain_task, **{role: address})


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("https://radio.example.org", "https://radio.example.org"),
        ("https://radio.example.org/", "https://radio.example.org"),
        ("https://radio.example.org:8443", "https://radio.example.org:8443"),
        ("https://[2001:db8::1]:8443", "https://[2001:db8::1]:8443"),
        ("http://localhost:8000/", "http://localhost:8000"),
        ("http://[::1]:8000", "http://[::1]:8000"),
    ],
)
def test_an_address_is_scheme_host_and_port(plain_task, given, kept):
    changed = moved(plain_task, helper=given)
    assert changed.helper == kept == changed.address("helper")
    assert changed.address("leader") == plain_task.leader


def test_two_aggregators_need_two_addresses(plain_task):
    with refused(ConfigurationError, parameter="helper"):
        moved(plain_task, helper=plain_task.leader + "/")


# ---- keys


NAMES = ["leader_key", "helper_key", "collector_key"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("key", ["", "ab", "0" * 63, "0" * 65, "g" * 64, "A" * 64, None, 7])
def test_a_bad_key_is_refused(plain_task, name, key):
    with refused(ConfigurationError, name, parameter=name):
        moved(plain_task, **{name: key})


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("other", NAMES)
def test_nobody_has_the_key_of_another(plain_task, name, other):
    if name != other:
        with refused(ConfigurationError, "leader", "helper", "collector"):
            moved(plain_task, **{name: getattr(plain_task, other)})


@pytest.mark.parametrize("key", ["", "zz", "0x", None, 7, "f" * 511, "f" * 513, "f" * 511 + "e"])
def test_a_bad_key_for_invitations_is_refused(key):
    """An RSA modulus is an odd number of 2,048 bits."""
    with refused(ConfigurationError, parameter="key"):
        Invitations(key)


@pytest.mark.parametrize("admission", [None, "work", {"bits": 8}, 16])
def test_who_may_take_part_must_be_said(plain_task, admission):
    with refused(ConfigurationError, parameter="admission"):
        moved(plain_task, admission=admission)


# ---- times


@pytest.mark.parametrize("name", ["opens", "closes"])
@pytest.mark.parametrize("time", ["2026-05-01T00:00", "2026-05-01", "2026-05-01 12:00:00"])
def test_a_time_without_a_zone_is_refused(plain_task, name, time):
    with refused(ConfigurationError, name, parameter=name):
        moved(plain_task, **{name: time})


@pytest.mark.parametrize("name", ["opens", "closes"])
@pytest.mark.parametrize("time", ["", "soon", "2026-13-01T00:00Z", "1790000000", None, 1790000000])
def test_what_is_no_time_is_refused(plain_task, name, time):
    with refused(ConfigurationError, name, parameter=name):
        moved(plain_task, **{name: time})


@pytest.mark.parametrize("name", ["opens", "closes"])
@pytest.mark.parametrize("time", ["0001-01-01T00:00+14:00", "9999-12-31T23:59-14:00"])
def test_a_time_that_no_calendar_has_in_utc_is_refused(plain_task, name, time):
    with refused(ConfigurationError, name, parameter=name):
        moved(plain_task, **{name: time})


@pytest.mark.parametrize(
    "closes", ["2026-01-01T00:00Z", "2025-01-01T00:00Z", "2026-01-01T01:00+02:00"]
)
def test_a_survey_does_not_close_before_it_opens(plain_task, closes):
    with refused(ConfigurationError, parameter="closes"):
        moved(plain_task, closes=closes)


def test_times_are_kept_in_utc(plain_task):
    other = moved(plain_task, opens="2026-03-01T02:30+02:00", closes="2026-03-01T00:31:00Z")
    assert other.opens == "2026-03-01T00:30:00+00:00"
    assert (other.closes_at - other.opens_at).total_seconds() == 60


@pytest.mark.parametrize("hours", [0, -1, math.nan, math.inf, 24 * 365 + 1, "x", None])
def test_a_bad_time_for_pairing_is_refused(plain_task, hours):
    with refused(ConfigurationError, "pairing_hours", parameter="pairing_hours"):
        moved(plain_task, pairing_hours=hours)


# ---- the design


def test_a_design_for_one_aggregator_is_refused():
    """Its noise would be of the whole promise only with a third machine that sees everything."""
    with refused(ConfigurationError, parameter="survey"):
        small_task(KEYS, survey=small_survey(aggregators=1))


@pytest.mark.parametrize("survey", [None, "small", {}])
def test_what_is_no_design_is_refused(plain_task, survey):
    with refused(ConfigurationError, parameter="survey"):
        moved(plain_task, survey=survey)


def test_a_design_whose_noise_cannot_be_drawn_is_refused():
    with refused(ConfigurationError, parameter="survey"):
        small_task(KEYS, survey=small_survey(clip=2**20))


@pytest.mark.parametrize("clip", [16, 1024, 2**17])
def test_more_reports_than_the_modulus_has_room_for_are_refused(clip):
    survey = small_survey(clip=clip)
    room = math.floor((Q / 2 - 32 * survey.deviation) / clip)
    assert small_task(KEYS, survey=survey, most_reports=room).most_reports == room
    with refused(ConfigurationError, parameter="most_reports"):
        small_task(KEYS, survey=survey, most_reports=room + 1)
    assert room * clip + 32 * survey.deviation < Q / 2


@pytest.mark.parametrize("most", [1, 0, -5, 2.5, math.inf, "many", None])
def test_fewer_reports_than_the_design_asks_for_are_refused(plain_task, most):
    with refused(ConfigurationError, "most_reports", parameter="most_reports"):
        moved(plain_task, most_reports=most)
    assert moved(plain_task, most_reports=2).most_reports == 2


# ---- the digest


def grid(**changes):
    return replace(small_survey().grid, **changes)


OTHERS = {
    "survey": [
        small_survey(epsilon=49.0), small_survey(delta=2e-3), small_survey(participants=3),
        small_survey(range_db=81.0), small_survey(level_weight=0.3), small_survey(clip=1000),
        small_survey(crs="EPSG:32633"), replace(small_survey(), id="other"),
        replace(small_survey(), grid=grid(cell_size=81.0)),
        replace(small_survey(), grid=grid(shape=(5, 4))),
        replace(small_survey(), grid=grid(origin=(1000.0, 2001.0))),
        replace(small_survey(), stations=STATIONS[:1]),
        replace(small_survey(), stations=STATIONS[::-1]),
        *(
            replace(small_survey(), stations=(STATIONS[0], replace(STATIONS[1], **{name: value})))
            for name, value in {
                "id": "8", "x": 1.0, "y": 1.0, "z": 13.0, "level_db": -74.0, "slope_db": -31.0,
                "azimuth_deg": 0.0, "beam_width_deg": 90.0,
            }.items()
        ),
    ],
    "leader": ["https://radio.example.org"],
    "helper": ["https://radio.example.org:8002"],
    "leader_key": [SigningKey.new().public],
    "helper_key": [SigningKey.new().public],
    "collector_key": [SigningKey.new().public],
    "opens": ["2026-01-01T00:00:01Z"],
    "closes": ["2100-01-01T00:00:01Z"],
    "most_reports": [1001],
    "admission": [ProofOfWork(2), KEYS.issuer.public],
    "pairing_hours": [25.0],
    "proofs": [parameters_of(small_survey()), replace(parameters_of(small_survey()), proofs=200)],
}  # fmt: skip


def test_every_field_is_in_the_digest(plain_task):
    assert set(OTHERS) == {field.name for field in fields(Task)}
    assert {field.name for field in fields(vm.Station)} <= {
        "id", "x", "y", "z", "level_db", "slope_db", "azimuth_deg", "beam_width_deg",
    }  # fmt: skip
    others = [moved(plain_task, **{name: one}) for name, some in OTHERS.items() for one in some]
    assert len({one.digest for one in (plain_task, *others)}) == 1 + len(others)
    assert all(len(one.digest) == 64 for one in others)


def test_the_digest_is_the_same_for_the_same_task():
    assert small_task(KEYS).digest == small_task(KEYS).digest
