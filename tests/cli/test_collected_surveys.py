"""The commands of surveys of real participants, typed as a user would, rightly and wrongly."""

import configparser
import http.server
import io
import json
import os
import re
import shlex
import shutil
import socket
import ssl
import stat
import subprocess
import threading
from contextlib import closing, contextmanager, redirect_stdout
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import partial
from pathlib import Path

import httpx
import numpy as np
import pytest
import typer

import veilmap as vm
from aggregators import deployed, halves_of, moved, new_keys, small_survey, small_task
from commands import run
from veilmap import cli
from veilmap._util import certificates
from veilmap.collection import demo
from veilmap.collection.admission import Invitations, ProofOfWork
from veilmap.collection.folder import AggregatorFolder
from veilmap.collection.keys import SigningKey
from veilmap.collection.pine.reports import parameters_of
from veilmap.collection.store import Store
from veilmap.collection.task import Task
from veilmap.surveys.folder import SurveyFolder

ROLES = ("leader", "helper")
CLOSES = "2100-01-01T00:00Z"


@pytest.fixture
def command(capsys, monkeypatch):
    """A command of veilmap: its exit code, standard output and standard error."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("VEILMAP_DATABASE", raising=False)
    return partial(run, capsys)


@pytest.fixture
def refused(command):
    """A command that is refused in one line, which names everything that it must."""

    def typed(*words, named=()):
        code, out, error = command(*map(str, words))
        assert code == 2, (out, error)
        assert error.count("\n") == 1
        assert error.startswith("veilmap: ")
        for one in named:
            assert re.search(rf"(?<!\w){re.escape(str(one))}(?!\w)", error), error
        return error

    return typed


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """What both operators and who publishes have, made once: folders, a design, a task, a key."""
    home = tmp_path_factory.mktemp("made")
    for role, port in zip(ROLES, (8001, 8002), strict=True):
        AggregatorFolder.init(home / role, role, f"http://127.0.0.1:{port}")
    small_survey().save(home / "survey.json")
    with redirect_stdout(io.StringIO()), pytest.raises(SystemExit) as stop:
        cli.main(list(map(str, published(home))))
    assert stop.value.code == 0
    return home


def published(home, *changes):
    """The words of `survey publish`, with some changes."""
    given = {
        "--leader": home / "leader" / "public.json",
        "--helper": home / "helper" / "public.json",
        "--closes": CLOSES,
        "--out": home / "task.json",
        "--key": home / "collector.key",
    } | dict(zip(changes[::2], changes[1::2], strict=True))
    words = [word for pair in given.items() for word in pair]
    return "survey", "publish", home / "survey.json", *words


@pytest.fixture
def home(made, tmp_path, monkeypatch):
    """A copy of that, which is the current folder."""
    shutil.copytree(made, tmp_path / "home", copy_function=shutil.copy2)
    # What should have been refused fails, and does not serve for ever.
    monkeypatch.setattr("uvicorn.Server.run", lambda *_, **__: pytest.fail("it serves"))
    monkeypatch.chdir(tmp_path / "home")
    return tmp_path / "home"


def write_walk(path, seed=0, count=12, **columns):
    """Somebody's measurements in the small survey's metres."""
    rng = np.random.default_rng(seed)
    table = {
        "user_x": rng.uniform(1000, 1400, count),
        "user_y": rng.uniform(2000, 2320, count),
        "bs": rng.choice(["north", "7"], count),
        "gain": rng.normal(-90, 8, count),
    } | columns
    rows = zip(*table.values(), strict=True)
    path.write_text("\n".join([",".join(table), *(",".join(map(str, row)) for row in rows)]) + "\n")
    return path


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """Both aggregators on loopback, open to all, with no report at first."""
    with deployed(tmp_path_factory.mktemp("shared")) as both:
        yield both


@pytest.fixture
def walk(tmp_path, monkeypatch):
    """A current folder with somebody's measurements."""
    monkeypatch.chdir(tmp_path)
    return write_walk(tmp_path / "walk.csv")


def received(both):
    return [one.store.standing().received for one in (both.leader, both.helper)]


def row(shown, name):
    """The figures of a table's row."""
    line = next(line for line in shown.splitlines() if line.strip().startswith(name))
    return line.strip().removeprefix(name).split()


# ---- aggregator init


@pytest.mark.parametrize("role", ROLES)
def test_init_makes_keys_that_nobody_else_can_read(tmp_path, monkeypatch, command, role):
    monkeypatch.chdir(tmp_path)
    umask = os.umask(0)
    try:
        words = ("--role", role, "--address", "https://radio.example.org")
        code, out, error = command("aggregator", "init", *words, "--own-authority", "authority")
    finally:
        os.umask(umask)
    assert (code, error) == (0, "")
    folder = tmp_path / role  # its default
    assert f"{role}/public.json" in out
    assert mode(folder) == 0o700
    secrets = {"aggregator.key", "metrics.token"} | ({"issuer.pem"} if role == "leader" else set())
    for name in secrets:
        assert mode(folder / name) == 0o600
    assert mode(folder / "tls" / "server.key") == mode(tmp_path / "authority" / "ca.key") == 0o600
    public = json.loads((folder / "public.json").read_text())
    assert public["role"] == role
    assert public["address"] == "https://radio.example.org"
    assert public["key"] == SigningKey.load(folder / "aggregator.key").public
    assert ("issuer" in public) == (role == "leader")
    hidden = [(folder / name).read_text().strip() for name in secrets]
    for shown in (folder / "public.json", folder / "Containerfile"):
        assert not any(secret in shown.read_text() for secret in hidden)
    # The certificate is for the name that clients use, and of the authority.
    trusted = ssl.create_default_context(cafile=tmp_path / "authority" / "ca.crt")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "tls" / "server.pem", folder / "tls" / "server.key")
    for name in ("radio.example.org", "localhost", "127.0.0.1"):
        shake_hands(trusted, server, name)


def shake_hands(client, server, name):
    """A TLS handshake in memory."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(to_client, to_server, server_hostname=name)
    theirs = server.wrap_bio(to_server, to_client, server_side=True)
    done = set()
    for _ in range(10):
        for side in (ours, theirs):
            try:
                side.do_handshake()
                done.add(side)
            except ssl.SSLWantReadError:
                continue
    assert len(done) == 2


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        (("--role", "collector"), ("--role", "collector")),
        (("--address", "radio.example.org"), ("--address",)),
        (("--address", "http://radio.example.org"), ("--address",)),
        (("--address", "https://radio.example.org/path"), ("--address",)),
        (("--address", "https://user@radio.example.org"), ("--address",)),
        (("--address", "https://"), ("--address",)),
        (("--port", "0"), ("--port",)),
        (("--port", "65536"), ("--port",)),
        (("--days", "0"), ("--days",)),
        (("--folder", "taken"), ("taken",)),
        (("--folder", "file"), ("file",)),
        (("--folder", "file/below"), ("file",)),
    ],
)
def test_init_refuses_what_cannot_be(tmp_path, monkeypatch, refused, changes, named):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "something").write_text("")
    given = {"--role": "leader", "--address": "https://radio.example.org"}
    given |= dict(zip(changes[::2], changes[1::2], strict=True))
    words = [word for pair in given.items() for word in pair]
    refused("aggregator", "init", *words, named=named)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "something", "taken"]


def test_init_does_not_write_over_an_aggregator(home, refused):
    before = (home / "leader" / "aggregator.key").read_text()
    refused("aggregator", "init", "--role", "leader", "--address", "https://a.example.org",
            named=["leader"])  # fmt: skip
    assert (home / "leader" / "aggregator.key").read_text() == before


def parsed(words):
    """What the command line makes of words, without doing anything."""
    command = typer.main.get_command(cli.app)
    assert words[0] == "veilmap"
    while words[1] in getattr(command, "commands", {}):
        command, words = command.commands[words[1]], words[1:]
    return command.name, command.make_context(command.name, list(words[1:])).params


def of_service(folder, role):
    """The words that a systemd unit starts, and its sections."""
    unit = configparser.ConfigParser(interpolation=None, strict=True)
    unit.optionxform = str
    unit.read(folder / f"veilmap-{role}.service")
    start = shlex.split(unit["Service"]["ExecStart"])
    assert start[0] == "/usr/bin/env"
    return start[1:], unit


def of_container(folder):
    """The words that a container starts."""
    lines = (folder / "Containerfile").read_text().splitlines()
    (told,) = [line.removeprefix("CMD ") for line in lines if line.startswith("CMD ")]
    return json.loads(told)


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("role", ROLES)
def test_units_and_containers_start_what_the_command_line_knows(tmp_path, command, role, tls):
    folder = tmp_path / "aggregator"
    words = ("--role", role, "--address", "https://radio.example.org", "--port", "9443",
             "--host", "127.0.0.2", "--folder", str(folder))  # fmt: skip
    own = ("--own-authority", str(tmp_path / "authority")) if tls else ()
    assert command("aggregator", "init", *words, *own)[0] == 0
    _, known, _ = command("aggregator", "serve", "--help")
    service, unit = of_service(folder, role)
    container = of_container(folder)
    for start, home in ((service, f"/var/lib/veilmap/{role}"), (container, "/data")):
        name, given = parsed(start)
        assert name == "serve"
        assert (given["role"], given["port"]) == (role, 9443)
        assert Path(given["folder"]) == Path(home)
        assert Path(given["survey"]) == Path(home) / "task.json"
        assert (given["certificate"] is not None) == tls
        if tls:
            made = folder / Path(given["certificate"]).relative_to(home)
            assert "CERTIFICATE" in made.read_text()
            assert "PRIVATE KEY" in (folder / Path(given["key"]).relative_to(home)).read_text()
        for option in (word for word in start if word.startswith("--")):
            assert option in known
    assert parsed(service)[1]["host"] == "127.0.0.2"
    assert parsed(container)[1]["host"] == "0.0.0.0"
    assert unit["Service"]["ReadWritePaths"] == f"/var/lib/veilmap/{role}"
    assert unit["Service"]["UMask"] == "0077"
    check = shutil.which("systemd-analyze")
    if check is not None:
        file = folder / f"veilmap-{role}.service"
        told = subprocess.run(
            [check, "verify", "--man=no", file], capture_output=True, text=True, check=False
        )
        complaints = [line for line in told.stderr.splitlines() if file.name in line]
        assert complaints == []


# ---- survey publish


def test_publish_writes_the_task_and_its_key(home, command):
    (home / "task.json").unlink()
    (home / "collector.key").unlink()
    code, out, error = command(*map(str, published(home)))
    assert (code, error) == (0, "")
    task, key = Task.load(home / "task.json"), SigningKey.load(home / "collector.key")
    assert mode(home / "collector.key") == 0o600
    assert task.digest in out
    assert key.public == task.collector_key
    assert task.leader_key == SigningKey.load(home / "leader" / "aggregator.key").public
    assert task.helper_key == SigningKey.load(home / "helper" / "aggregator.key").public
    assert isinstance(task.admission, Invitations)
    assert task.proofs == parameters_of(task.survey)
    assert task.most_reports == 10 * task.survey.participants
    assert abs((task.opens_at - datetime.now(UTC)).total_seconds()) < 60
    assert task.closes_at == datetime.fromisoformat(CLOSES)


def test_publish_takes_who_may_take_part_when_and_how_many(home, command):
    words = published(home, "--out", "other.json", "--key", "other.key", "--open-to-all", "12",
                      "--opens", "2099-01-01T01:00+01:00", "--most", "77",
                      "--pairing-hours", "3")  # fmt: skip
    assert command(*map(str, words), "--no-proofs")[0] == 0
    task = Task.load(home / "other.json")
    assert task.proofs is None
    assert task.admission == ProofOfWork(12)
    assert task.opens_at == datetime(2099, 1, 1, tzinfo=UTC)
    assert (task.most_reports, task.pairing_hours) == (77, 3.0)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        (("--out", "task.json"), ("task.json",)),
        (("--key", "collector.key"), ("collector.key",)),
        (("--out", "leader"), ("leader",)),
        (("--out", "task.json/below"), ("task.json",)),
        (("--out", "same", "--key", "same"), ("same",)),
        (("--leader", "none.json"), ("none.json",)),
        (("--leader", "survey.json"), ("survey.json",)),
        (("--leader", "helper/public.json"), ("helper/public.json", "leader")),
        (("--helper", "leader/public.json"), ("leader/public.json", "helper")),
        (("--helper", "leader"), ("leader",)),
        (("--closes", "tomorrow"), ("--closes", "tomorrow")),
        (("--closes", "2100-01-01T00:00"), ("--closes",)),
        (("--closes", "2020-01-01T00:00Z"), ("--closes",)),
        (("--opens", "2100-01-02T00:00Z"), ("--closes",)),
        (("--opens", "x"), ("--opens",)),
        (("--most", "1"), ("--most",)),
        (("--most", "100000000"), ("--most",)),
        (("--open-to-all", "0"), ("--open-to-all",)),
        (("--open-to-all", "31"), ("--open-to-all",)),
        (("--pairing-hours", "0"), ("--pairing-hours",)),
        (("--pairing-hours", "nan"), ("--pairing-hours",)),
    ],
)
def test_publish_refuses_what_cannot_be(home, refused, changes, named):
    before = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
    words = published(home, "--out", "new.json", "--key", "new.key", *changes)
    refused(*words, named=named)
    assert {path: path.read_bytes() for path in home.rglob("*") if path.is_file()} == before


def test_publish_refuses_designs_that_two_aggregators_cannot_add_up(home, refused):
    words = ("--out", "new.json", "--key", "new.key")
    small_survey(aggregators=1).save(home / "survey.json")
    refused(*published(home, *words), named=["--aggregators 2"])
    (home / "survey.json").write_text("{}")
    refused(*published(home, *words), named=[home / "survey.json"])
    (home / "survey.json").unlink()
    refused(*published(home, *words), named=[home / "survey.json"])
    assert not (home / "new.key").exists()


@pytest.mark.parametrize(
    "change",
    [
        {"issuer": None}, {"issuer": "12"}, {"issuer": 5}, {"key": "12"}, {"key": None},
        {"address": "radio.example.org"}, {"address": "http://127.0.0.1:8002"}, {"role": None},
        {"role": ["leader"]},
    ],
)  # fmt: skip
def test_publish_refuses_public_files_that_say_something_else(home, refused, change):
    public = home / "leader" / "public.json"
    public.write_text(json.dumps(json.loads(public.read_text()) | change))
    refused(*published(home, "--out", "new.json", "--key", "new.key"))
    assert not (home / "new.key").exists()
    assert not (home / "new.json").exists()


# ---- aggregator serve


def served(*changes):
    given = {"--survey": "task.json", "--role": "leader", "--port": "0"}
    given |= dict(zip(changes[::2], changes[1::2], strict=True))
    return "aggregator", "serve", *(word for pair in given.items() for word in pair)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        (("--role", "both"), ("--role", "both")),
        (("--role", "helper", "--folder", "leader"), ("--role", "leader")),
        (("--folder", "nowhere"), ("nowhere",)),
        (("--folder", "task.json"), ("task.json",)),
        (("--survey", "none.json"), ("none.json",)),
        (("--survey", "survey.json"), ("survey.json",)),
        (("--survey", "leader"), ("leader",)),
        (("--certificate", "x.pem"), ("--key",)),
        (("--key", "x.key"), ("--key",)),
        (("--certificate", "x.pem", "--key", "x.key"), ("x.pem",)),
        (("--certificate", "task.json", "--key", "collector.key"), ("task.json",)),
        (("--authority", "none.crt"), ("none.crt",)),
        (("--authority", "task.json"), ("task.json",)),
        (("--port", "65536"), ("--port",)),
        (("--database", "nothing"), ("--database",)),
        (("--database", "mysql://a/b"), ("--database",)),
        (("--database", "sqlite:////nowhere/at/all.db"), ("--database",)),
        (("--database", "sqlite:///task.json"), ("--database",)),
    ],
)
def test_serve_refuses_what_cannot_be(home, refused, changes, named):
    refused(*served(*changes), named=named)


def test_serve_refuses_a_task_of_another_aggregator(home, refused):
    for role in ROLES:
        task = moved(Task.load(home / "task.json"), **{f"{role}_key": new_keys().leader.public})
        task.save(home / "other.json")
        words = served("--survey", "other.json", "--role", role)
        refused(*words, named=[role, "--survey"])
    moved(Task.load(home / "task.json"), admission=new_keys().issuer.public).save(
        home / "other.json"
    )
    refused(*served("--survey", "other.json"), named=["--survey", "leader"])
    (home / "leader" / "aggregator.key").write_text("no key")
    refused(*served(), named=["leader/aggregator.key"])


def test_serve_refuses_a_database_of_another_survey_or_role(home, refused):
    first = Task.load(home / "task.json")
    Store("sqlite:///leader/reports.db", first, "leader").close()
    moved(first, most_reports=19).save(home / "other.json")
    refused(*served("--survey", "other.json"), named=["--database"])
    Store("sqlite:///mine.db", first, "helper").close()
    refused(*served("--database", "sqlite:///mine.db"), named=["--database", "helper"])


def test_serve_refuses_a_port_that_is_taken_and_a_database_that_is_served(home, refused):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused(*served("--port", str(port)), named=["--port", port])
    with closing(
        Store(AggregatorFolder(home / "leader").database, Task.load(Path("task.json")), "leader")
    ):
        refused(*served(), named=[os.getpid()])


# ---- aggregator invite


def test_invite_makes_links_of_which_each_admits_one_person(tmp_path, monkeypatch, command):
    """Also while the leader serves."""
    monkeypatch.chdir(tmp_path)
    with deployed(tmp_path, invitations=True) as both:
        both.task.save(tmp_path / "task.json")
        AggregatorFolder.init(tmp_path / "leader", "leader", both.task.leader)
        both.keys.leader.save(tmp_path / "leader" / "aggregator.key")
        database = f"sqlite:///{tmp_path / 'leader.db'}"
        words = ("--survey", "task.json", "--out", "links.txt", "--database", database)
        code, out, _ = command("aggregator", "invite", *words, "--count", "3")
        assert code == 0
        assert "links.txt" in out
        assert mode(tmp_path / "links.txt") == 0o600
        links = (tmp_path / "links.txt").read_text().splitlines()
        assert len(set(links)) == 3
        for link in links:
            address, code = link.split("#")
            assert address == f"{both.task.leader}/take-part"
            assert len(code) >= 20
            assert code.encode() not in (tmp_path / "leader.db").read_bytes()
        assert both.leader.store.invited() == (3, 0)
        walk = str(write_walk(tmp_path / "walk.csv"))
        for number, link in enumerate(links[:2]):
            words = ("contribute", link, walk, "--yes", "--receipt", f"{number}.json")
            assert command(*words)[0] == 0
        assert both.leader.store.invited() == (3, 2)
        code, _, error = command("contribute", links[0], walk, "--yes", "--receipt", "again.json")
        assert code == 2
        assert error.count("\n") == 1
        words = ("contribute", both.task.leader, walk, "--yes", "--receipt", "third.json")
        code, _, error = command(*words)
        assert code == 2
        assert "--invitation" in error
        own = links[2].split("#")[1]
        assert command(*words, "--invitation", own)[0] == 0
        assert received(both) == [3, 3]
        # What is needed to open it is there, and its figures are told.
        both.keys.collector.save(tmp_path / "collector.key")
        _, shown, _ = command("survey", "status", "--survey", "task.json")
        assert row(shown, "invitations used") == ["3", "of", "3"]


def invited(*changes):
    given = {"--survey": "task.json", "--count": "2", "--out": "links.txt"}
    given |= dict(zip(changes[::2], changes[1::2], strict=True))
    return "aggregator", "invite", *(word for pair in given.items() for word in pair)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        (("--count", "0"), ("--count",)),
        (("--count", "1000001"), ("--count",)),
        (("--out", "task.json"), ("--out", "task.json")),
        (("--out", "leader"), ("leader",)),
        (("--folder", "helper"), ("helper",)),
        (("--folder", "nowhere"), ("nowhere",)),
        (("--survey", "none.json"), ("none.json",)),
        (("--database", "nothing"), ("--database",)),
    ],
)
def test_invite_refuses_what_cannot_be(home, refused, changes, named):
    refused(*invited(*changes), named=named)
    assert not (home / "links.txt").exists()


def test_invite_refuses_a_survey_that_is_open_to_all_or_anothers(home, refused):
    task = Task.load(home / "task.json")
    moved(task, admission=ProofOfWork(12)).save(home / "open.json")
    refused(*invited("--survey", "open.json"), named=["--survey"])
    moved(task, leader_key=new_keys().leader.public).save(home / "other.json")
    refused(*invited("--survey", "other.json"), named=["leader"])
    assert not (home / "links.txt").exists()
    assert not (home / "leader" / "reports.db").exists()


# ---- aggregator check


class Stub(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.paths.append(self.path)
        self.send_response_only(200)
        if self.server.ahead is not None:
            now = datetime.now(UTC) + timedelta(seconds=self.server.ahead)
            self.send_header("Date", format_datetime(now, usegmt=True))
        self.send_header("Content-Length", str(len(self.server.content)))
        self.end_headers()
        self.wfile.write(self.server.content)

    def log_message(self, *_):
        pass


class Quiet(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        pass


@contextmanager
def stub(certified=None):
    """A server on loopback that answers everything with its ``content``."""
    server = Quiet(("127.0.0.1", 0), Stub)
    server.content, server.ahead, server.paths = b"", 0, []
    if certified is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certified / "server.pem", certified / "server.key")
        server.socket = context.wrap_socket(server.socket, server_side=True)
    scheme = "http" if certified is None else "https"
    server.address = f"{scheme}://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=10)


@pytest.fixture
def stubs(tmp_path, monkeypatch):
    """Two servers that publish a task, which is in the current folder."""
    monkeypatch.chdir(tmp_path)
    with stub() as leader, stub() as helper:
        task = small_task(new_keys(), leader=leader.address, helper=helper.address)
        leader.content = helper.content = task.content
        task.save(tmp_path / "task.json")
        yield leader, helper


CHECK = ("aggregator", "check", "--survey", "task.json")


def test_check_finds_nothing_wrong_with_what_is_well(stubs, command):
    code, out, error = command(*CHECK)
    assert (code, error) == (0, "")
    for one in stubs:
        assert one.address in out
        assert one.paths == ["/task"]


@pytest.mark.parametrize(("ahead", "well"), [(50, True), (-50, True), (90, False), (-3700, False)])
def test_check_reports_clocks_that_are_off(stubs, command, refused, ahead, well):
    stubs[1].ahead = ahead
    if well:
        assert command(*CHECK)[0] == 0
    else:
        error = refused(*CHECK, named=["helper", "clock"])
        told = float(re.search(r"([+-]\d+) s", error)[1])
        assert abs(told - ahead) <= 3


def test_check_does_without_a_date(stubs, command):
    stubs[0].ahead = None
    assert command(*CHECK)[0] == 0


def test_check_reports_another_task(stubs, command, refused):
    stubs[1].content = moved(Task.load(Path("task.json")), most_reports=999).content
    refused(*CHECK, named=["helper", stubs[1].address])
    stubs[0].content = b"nothing"
    refused(*CHECK, named=["leader", stubs[0].address])


def test_check_reports_who_does_not_answer(stubs, tmp_path, command, refused):
    leader, helper = stubs
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        gone = f"http://127.0.0.1:{nobody.getsockname()[1]}"
    moved(Task.load(tmp_path / "task.json"), helper=gone).save(tmp_path / "task.json")
    leader.content = (tmp_path / "task.json").read_bytes()
    refused(*CHECK, named=["helper", gone])


def test_check_reports_certificates_that_end_soon_or_are_not_trusted(
    tmp_path, monkeypatch, command, refused
):
    monkeypatch.chdir(tmp_path)
    certificates.write_authority(tmp_path / "authority")
    for name, days in (("long", 300), ("soon", 5)):
        certificates.write_server(tmp_path / "authority", ["127.0.0.1"], days, out=tmp_path / name)
    trust = ("--authority", "authority/ca.crt")
    with stub(tmp_path / "long") as leader, stub(tmp_path / "soon") as helper:
        task = small_task(new_keys(), leader=leader.address, helper=helper.address)
        leader.content = helper.content = task.content
        task.save(tmp_path / "task.json")
        error = refused(*CHECK, *trust, named=["helper", "certificate"])
        assert re.search(r"\b[45] days", error)
        error = refused(*CHECK, named=["leader", leader.address])  # the usual authorities alone
        assert "certificate" in error.lower()
        moved(task, helper="http://127.0.0.1:1").save(tmp_path / "task.json")
        leader.content = (tmp_path / "task.json").read_bytes()
        _, out, _ = command(*CHECK, *trust)
        assert re.search(r"\b(299|300) days", out)


def test_check_refuses_files_that_are_none(stubs, refused):
    refused("aggregator", "check", "--survey", "none.json", named=["none.json"])
    refused(*CHECK, "--authority", "none.crt", named=["none.crt"])
    refused(*CHECK, "--authority", "task.json", named=["task.json"])


# ---- contribute


def test_who_takes_part_sees_what_would_leave_and_gets_a_receipt(shared, walk, command):
    before = received(shared)
    code, out, error = command("contribute", shared.task.leader, str(walk), "--yes")
    assert (code, error) == (0, "")
    assert received(shared) == [count + 1 for count in before]
    receipt = json.loads(Path("receipt.json").read_text())
    assert set(receipt["receipts"]) == set(ROLES)
    assert mode(Path("receipt.json")) == 0o600
    for shown in (shared.task.leader, shared.task.helper, shared.task.digest[:16], "receipt.json"):
        assert shown in out
    assert row(out, "stays here")[0] == "12"
    assert row(out, "leaves")[0] == str(shared.task.survey.numbers)
    # Once.
    code, _, error = command("contribute", shared.task.leader, str(walk), "--yes")
    assert code == 2
    assert "receipt.json" in error
    assert received(shared) == [count + 1 for count in before]


def test_readings_that_are_not_used_are_counted_where_one_sees_them(shared, tmp_path, command):
    rng = np.random.default_rng(1)
    x = rng.uniform(1000, 1400, 12)
    x[:2] = 9000
    names = np.array(["north"] * 9 + ["elsewhere"] * 3)
    file = write_walk(tmp_path / "walk.csv", user_x=x, bs=names)
    receipt = str(tmp_path / "r.json")
    words = ("contribute", shared.task.leader, str(file), "--receipt", receipt, "--yes")
    _, out, _ = command(*words)
    assert row(out, "stays here")[0] == "7"
    shown = " ".join(row(out, "left out"))
    assert {int(count) for count in re.findall(r"\d+", shown)} == {2, 3}


def test_a_link_or_a_digest_of_another_survey_sends_nothing(shared, walk, command, refused):
    before = received(shared)
    words = ("contribute", shared.task.leader, walk, "--yes", "--digest")
    for wrong in ("0" * 64, shared.task.digest[:7], "nonsense", ""):
        refused(*words, wrong)
    assert received(shared) == before
    assert not Path("receipt.json").exists()
    assert command(*map(str, words), shared.task.digest[:8])[0] == 0


class Terminal(io.StringIO):
    """Somebody who types an answer."""

    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("typed", "code", "sent"), [("n\n", 0, 0), ("\n", 0, 0), ("", 130, 0), ("y\n", 0, 1)]
)
def test_nothing_is_sent_unless_one_says_yes(shared, walk, command, monkeypatch, typed, code, sent):
    before = received(shared)
    monkeypatch.setattr("sys.stdin", Terminal(typed))
    found, out, _ = command("contribute", shared.task.leader, str(walk))
    assert found == code
    assert received(shared) == [count + sent for count in before]
    assert Path("receipt.json").exists() == bool(sent)
    assert row(out, "stays here")[0] == "12"


def test_without_a_terminal_nobody_is_asked_and_nothing_is_sent(shared, walk, refused, monkeypatch):
    before = received(shared)
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    refused("contribute", shared.task.leader, walk, named=["--yes"])
    assert received(shared) == before
    assert not Path("receipt.json").exists()


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("none.csv",), ("none.csv",)),
        (("empty.csv",), ()),
        (("elsewhere.csv",), ("elsewhere.csv",)),
        (("several.csv",), ("--user", "several.csv")),
        (("several.csv", "--user", "c"), ("--user", "c")),
        (("walk.csv", "--user", "a"), ("--user", "walk.csv")),
        (("walk.csv", "--column", "gain"), ("--column",)),
        (("walk.csv", "--column", "gain=nowhere"), ("nowhere",)),
        (("walk.csv", "--quantity", "joy"), ("--quantity",)),
        (("walk.csv", "--receipt", "below"), ("below",)),
        (("walk.csv", "--receipt", "walk.csv"), ("walk.csv",)),
        (("walk.csv", "--receipt", "walk.csv/below"), ("walk.csv",)),
        (("walk.csv", "--authority", "none.crt"), ("none.crt",)),
        ((), ()),
    ],
)
def test_contribute_refuses_what_cannot_be(shared, walk, refused, words, named):
    Path("empty.csv").write_text("")
    Path("below").mkdir()
    write_walk(Path("elsewhere.csv"), bs=np.full(12, "elsewhere"))
    write_walk(Path("several.csv"), user=np.array(["a", "b"] * 6))
    before, own = received(shared), walk.read_bytes()
    refused("contribute", shared.task.leader, *words, "--yes", named=named)
    assert received(shared) == before
    assert walk.read_bytes() == own
    assert not Path("receipt.json").exists()


@pytest.mark.parametrize(
    "address",
    ["radio.example.org", "ftp://127.0.0.1", "https://", "http://[::1", "http://127.0.0.1:1",
     "http://127.0.0.1:1/take-part#code", "http://127.0.0.1:99999", "http://127.0.0.1:x"],
)  # fmt: skip
def test_addresses_that_are_none_or_do_not_answer_are_refused(walk, refused, address):
    refused("contribute", address, walk, "--yes", named=[address.partition("/take")[0]])


def test_one_of_several_people_can_be_named(shared, tmp_path, command):
    file = write_walk(tmp_path / "several.csv", user=np.array(["a", "b", "b"] * 4))
    words = ("--receipt", str(tmp_path / "r.json"), "--yes", "--user", "b")
    code, out, _ = command("contribute", shared.task.leader, str(file), *words)
    assert code == 0
    assert row(out, "stays here")[0] == "8"


def test_check_before_the_opening_or_with_anothers_receipt_is_refused(
    shared, walk, command, refused
):
    command("contribute", shared.task.leader, str(walk), "--yes")
    refused("contribute", shared.task.leader, "--check")
    content = json.loads(Path("receipt.json").read_text())
    Path("other.json").write_text(json.dumps(content | {"task": "0" * 64}))
    refused("contribute", shared.task.leader, "--check", "--receipt", "other.json",
            named=["other.json"])  # fmt: skip
    for name in ("none.json", "walk.csv"):
        refused("contribute", shared.task.leader, "--check", "--receipt", name, named=[name])


@pytest.mark.parametrize("name", ["[/x]", "[bold]a[/bold]", "a\x1b[2Jb"])
def test_what_a_survey_calls_itself_is_shown_as_text(tmp_path, walk, command, name):
    """Its name is of whoever publishes it, and the participant's terminal is not theirs."""
    with stub() as leader, stub() as helper:
        task = small_task(new_keys(), leader=leader.address, helper=helper.address)
        task = moved(task, survey=replace(task.survey, id=name))
        leader.content = helper.content = task.content
        code, out, error = command("contribute", leader.address, str(walk))
    assert code == 2  # there is no terminal to ask
    assert "\x1b" not in out + error
    assert name.replace("\x1b", "") in out.replace("\x1b", "") or "\x1b" in name


# ---- survey status and open


@pytest.fixture
def collected(tmp_path, monkeypatch):
    """Both aggregators with three reports, and the collector's folder as the current one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "aggregators").mkdir()
    with deployed(tmp_path / "aggregators", survey=small_survey(participants=3)) as both:
        both.task.save(tmp_path / "task.json")
        both.keys.collector.save(tmp_path / "collector.key")
        for seed in range(3):
            for half, role in zip(halves_of(both.task, seed), ROLES, strict=True):
                both.aggregators.send(half, role)
        both.aggregators.send(halves_of(both.task, 9)[1], "helper")
        yield both


def test_from_reports_to_a_map(collected, tmp_path, command, refused):
    while collected.leader.store.standing().added < 3:
        pass
    code, out, error = command("survey", "status", "--survey", "task.json")
    assert (code, error) == (0, "")
    assert row(out, "state") == ["collecting", "collecting"]
    assert row(out, "reports received") == ["3", "4"]
    assert row(out, "in the sum") == ["3", "3"]
    assert row(out, "without their other half") == ["0", "1"]
    assert all(abs(float(one)) < 30 for one in row(out, "clock") if one != "s")
    assert "invitations" not in out
    # Its time is not over.
    refused("survey", "open", "town", "--survey", "task.json", named=["leader"])
    assert not (tmp_path / "town" / "ledger.json").exists()
    assert collected.leader.store.standing().state == "collecting"
    code, out, _ = command("survey", "open", "town", "--survey", "task.json", "--early")
    assert code == 0
    assert "3 participants" in " ".join(out.split())
    account = json.loads((tmp_path / "town" / "ledger.json").read_text())
    assert account["participants"] == 3
    assert account["epsilon"] == pytest.approx(50, rel=1e-3)
    before = (tmp_path / "town" / "sum.npz").read_bytes()
    assert vm.RadioMap.load(tmp_path / "town" / "radio_map.nc").field.ids == ("north", "7")
    # Once more, by the addresses of both, is the same.
    by_name = ("--leader", collected.task.leader, "--helper", collected.task.helper)
    for words in (("town", *by_name), ("town", "--survey", "task.json"), ("town",)):
        assert command("survey", "open", *words)[0] == 0
        assert (tmp_path / "town" / "sum.npz").read_bytes() == before
    assert command("survey", "open", "elsewhere", *by_name)[0] == 0
    sums = [SurveyFolder(tmp_path / name).opened().total for name in ("town", "elsewhere")]
    np.testing.assert_array_equal(*sums)
    _, out, _ = command("survey", "status", "--survey", "task.json")
    assert row(out, "state") == ["opened", "opened"]
    # Who comes now is too late.
    write_walk(tmp_path / "walk.csv")
    refused("contribute", collected.task.leader, "walk.csv", "--yes")
    # And `veilmap survey show` knows what both have signed.
    assert command("survey", "show", "town")[0] == 0


def test_what_makes_an_opening_impossible_is_said_before_the_survey_ends(
    collected, tmp_path, refused
):
    """A survey that is closed takes no more reports, so nothing is closed by mistake."""
    small_survey(participants=3).save(tmp_path / "design.json")
    SurveyFolder(tmp_path / "taken").begin(small_survey(participants=5), 5, None)
    SurveyFolder(tmp_path / "study").begin(small_survey(participants=5), 5, 1)
    (tmp_path / "file").write_text("")
    new_keys().collector.save(tmp_path / "other.key")
    leader, helper = collected.task.leader, collected.task.helper
    task = ("--survey", "task.json")
    for words, named in (
        (("town", *task, "--key", "other.key"), ()),
        (("town", *task, "--key", "none.key"), ("none.key",)),
        (("town", *task, "--key", "task.json"), ("task.json",)),
        (("town", "--survey", "none.json"), ("none.json",)),
        (("town", "--survey", "design.json"), ("design.json",)),
        (("file", *task), ("file",)),
        (("file/below", *task), ("file",)),
        (("town", *task, "--after", "nowhere"), ("nowhere/ledger.json",)),
        (("town", *task, "--buildings", "none.tif"), ("none.tif",)),
        (("town", *task, "--authority", "none.crt"), ("none.crt",)),
        (("town", "--leader", leader), ("both",)),
        (("town", "--helper", helper), ("both",)),
        (("town", "--leader", leader, "--helper", leader), ("--helper", leader)),
        (("town", "--leader", leader, "--helper", "http://127.0.0.1:1"), ("--helper",)),
        (("town", "--leader", "http://127.0.0.1:1", "--helper", helper), ("http://127.0.0.1:1",)),
        (("town", "--leader", "nothing", "--helper", helper), ("nothing",)),
        (("town",), ("town/survey.json",)),
        (("taken", *task), ("taken",)),
        (("town", *task, "--after", "study"), ()),
    ):
        refused("survey", "open", *words, "--early", named=named)
        assert not (tmp_path / "town" / "ledger.json").exists(), words
        states = [one.store.standing().state for one in (collected.leader, collected.helper)]
        assert states == ["collecting", "collecting"], words
    assert not (tmp_path / "taken" / "sum.npz").exists()


def test_too_few_reports_are_not_opened(tmp_path, monkeypatch, refused, command):
    monkeypatch.chdir(tmp_path)
    with deployed(tmp_path, survey=small_survey(participants=3)) as both:
        both.task.save(tmp_path / "task.json")
        both.keys.collector.save(tmp_path / "collector.key")
        code, out, _ = command("survey", "status", "--survey", "task.json")
        assert code == 0
        assert row(out, "reports received") == ["0", "0"]
        words = ("survey", "open", "town", "--survey", "task.json", "--early")
        refused(*words, named=["leader", 0, 3])
        assert both.leader.store.standing().state == "collecting"
    assert not (tmp_path / "town" / "ledger.json").exists()


def test_status_refuses_what_cannot_be(tmp_path, monkeypatch, refused):
    monkeypatch.chdir(tmp_path)
    keys = new_keys()
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        gone = f"http://127.0.0.1:{nobody.getsockname()[1]}"
    small_task(keys, leader=gone).save(tmp_path / "task.json")
    keys.collector.save(tmp_path / "collector.key")
    keys.helper.save(tmp_path / "helper.key")
    status = ("survey", "status", "--survey")
    refused(*status, "task.json", named=["leader", gone])
    refused(*status, "none.json", named=["none.json"])
    refused(*status, "task.json", "--key", "none.key", named=["none.key"])
    refused(*status, "task.json", "--key", "helper.key")
    refused(*status, "task.json", "--heard", "0", named=["--heard"])
    refused(*status, "task.json", "--authority", "none.crt", named=["none.crt"])


@pytest.mark.parametrize(
    "state", ["[/x]", "a\x1b[2Jb", "collecting"], ids=["markup", "escape", "honest"]
)
def test_status_shows_what_an_aggregator_says_as_text(tmp_path, monkeypatch, command, state):
    monkeypatch.chdir(tmp_path)
    keys = new_keys()
    with stub() as leader, stub() as helper:
        task = small_task(keys, leader=leader.address, helper=helper.address)
        counts = dict.fromkeys(("received", "added", "unpaired", "invitations"), 1)
        told = counts | {"invitations_used": 1, "time": 0.0, "state": state}
        leader.content = helper.content = json.dumps(told).encode()
        task.save(tmp_path / "task.json")
        keys.collector.save(tmp_path / "collector.key")
        code, out, error = command("survey", "status", "--survey", "task.json")
    assert code in (0, 2)
    assert "\x1b" not in out + error
    assert code == 2 or state.replace("\x1b", "") in out


# ---- the whole of it


def test_the_demo_plays_a_whole_survey_and_leaves_nothing_running(
    tmp_path, monkeypatch, command, refused
):
    """Two processes with TLS, invitations, and receipts that check out."""
    monkeypatch.chdir(tmp_path)
    checked, honest = [], demo.open_into

    def looking(*given, **named):
        found = honest(*given, **named)
        check_by_processes(tmp_path / "demo", command, refused)
        checked.append(found)
        return found

    monkeypatch.setattr(demo, "open_into", looking)
    monkeypatch.setattr("uvicorn.Server.run", lambda *_, **__: pytest.fail("it serves"))
    code, out, error = command("survey", "demo", "--people", "25", "--out", "demo")
    assert (code, error) == (0, "")
    assert row(out, "participants")[0] == "25,"
    folder, task = tmp_path / "demo", Task.load(tmp_path / "demo" / "task.json")
    town = SurveyFolder(folder / "town")
    assert town.account["participants"] == 25
    assert town.account["epsilon"] == pytest.approx(8, rel=1e-3)
    assert not town.account["seeded"]
    radio_map = vm.RadioMap.load(town.map_file)
    assert len(radio_map.field.ids) == 12
    receipts = sorted((folder / "receipts").iterdir())
    assert len(receipts) == 25
    ids = {json.loads(one.read_text())["id"] for one in receipts}
    assert len(ids) == 25
    for role in ROLES:
        lines = [
            json.loads(line) for line in (folder / role / "aggregator.log").read_text().splitlines()
            if line.startswith("{")
        ]  # fmt: skip
        assert [one["event"] for one in lines][:: len(lines) - 1] == ["started", "stopped"]
        assert not any(one["level"] in ("error", "critical") for one in lines)
        assert mode(folder / role) == 0o700
        assert mode(folder / role / "opening.json") == 0o600
        Store(AggregatorFolder(folder / role).database, task, role).close()  # nobody has it
        with pytest.raises(httpx.ConnectError):
            httpx.get(task.address(role), trust_env=False)
    before = (folder / "town" / "sum.npz").read_bytes()
    refused("survey", "demo", "--people", "25", "--out", "demo", named=["demo"])
    assert (folder / "town" / "sum.npz").read_bytes() == before
    assert len(checked) == 1


def check_by_processes(folder, command, refused):
    """What participants, operators and who publishes can see while both processes are there."""
    task, trust = folder / "task.json", ("--authority", str(folder / "authority" / "ca.crt"))
    leader = Task.load(task).leader
    receipts = sorted((folder / "receipts").iterdir())
    for receipt in (receipts[0], receipts[-1]):
        words = ("contribute", leader, "--receipt", str(receipt), "--check", *trust)
        assert command(*words)[0] == 0
    other = folder / "other.json"
    other.write_text(json.dumps(json.loads(receipts[0].read_text()) | {"id": "00" * 16}))
    words = ("contribute", leader, "--receipt", other, "--check", *trust)
    refused(*words, named=[other, "leader", "helper"])
    about, key = ("--survey", str(task)), ("--key", str(folder / "collector.key"))
    _, out, _ = command("survey", "status", *about, *key, *trust)
    assert row(out, "in the sum") == ["25", "25"]
    assert row(out, "invitations used") == ["25", "of", "25"]
    assert command("aggregator", "check", *about, *trust)[0] == 0
    refused("aggregator", "check", *about, named=["leader"])  # nobody else certifies them
    # One process serves a database.
    words = ("aggregator", "serve", *about, "--role", "leader", "--port", "0")
    refused(*words, "--folder", folder / "leader")


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--people", "19"), ("--people",)),
        (("--people", "5001"), ("--people",)),
        (("--out", "file"), ("file",)),
        (("--out", "file/below"), ("file",)),
        (("--out", "taken"), ("--out", "taken")),
        (("--epsilon", "-1"), ("--epsilon",)),
        (("--epsilon", "0.00001"), ("--epsilon",)),
    ],
)
def test_the_demo_refuses_what_cannot_be(tmp_path, monkeypatch, refused, words, named):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "something").write_text("")
    refused("survey", "demo", *words, named=named)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "something", "taken"]


@pytest.mark.parametrize("group", [("aggregator",), ("survey",)])
def test_every_command_is_listed_with_what_it_does(command, group):
    code, out, _ = command(*group, "--help")
    assert code == 0
    known = {
        "aggregator": ("init", "serve", "invite", "check"),
        "survey": ("publish", "status", "open", "demo"),
    }[group[0]]
    for name in known:
        assert re.search(rf"\b{name}\b", out)
        assert command(*group, name, "--help")[0] == 0
