"""A real server in a process of its own, asked over sockets."""

import importlib.util
import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import httpx
import numpy as np
import pytest

import veilmap as vm
from commands import run as command
from servers import serving as in_thread
from veilmap._util import serving as impatience
from veilmap._util.sockets import listening
from veilmap.runs.command import NewTraining
from veilmap.runs.source import Source
from veilmap.web import serving
from veilmap.web.app import create_app
from veilmap.web.events import MOST_LISTENERS
from webs import age, line_of, make_runs, service_of, unpacked, until

SMALL = {"city": 3, "users": 5, "rounds": 6, "seed": 1}
LONG = SMALL | {"rounds": 1000}


@dataclass
class Served:
    """A server that is up; ``said`` is what it printed until then."""

    process: subprocess.Popen
    said: str
    temporary: Path

    @property
    def port(self):
        return int(re.search(r"http://\S+:(\d+)/", self.said).group(1))

    @property
    def client(self):
        return httpx.Client(
            base_url=f"http://127.0.0.1:{self.port}", headers={"X-Veilmap": "page"}, timeout=60
        )

    @property
    def left(self):
        """Temporary folders of its own."""
        return [path.name for path in self.temporary.iterdir() if "veilmap" in path.name]

    def end(self, how=signal.SIGINT):
        if self.process.poll() is None:
            self.process.send_signal(how)
        return self.process.wait(60)


@contextmanager
def served(place, *arguments):
    """`veilmap serve` on a free port of loopback."""
    temporary = place / "temporary"
    temporary.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "veilmap.cli", "serve", *map(str, arguments), "--port", "0",
         "--new-runs", str(place / "new")],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env=os.environ | {"TMPDIR": str(temporary), "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    with process:
        try:
            lines = [process.stdout.readline() for _ in range(2)]
            assert "Ctrl-C ends it" in lines[-1], lines
            yield Served(process, "".join(lines), temporary)
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
                try:
                    process.wait(60)
                except subprocess.TimeoutExpired:
                    process.kill()
            sys.stderr.write(process.stdout.read())  # for a test that failed


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("served")


@pytest.fixture(scope="module")
def server(place):
    """A server of three finished runs, and one that goes on for as long as anybody looks."""
    runs = place / "runs"
    runs.mkdir()
    make_runs(runs)
    shutil.copytree(runs / "aligned", runs / "going")
    (runs / "going" / "radio_map.nc").unlink()
    age(runs / "going" / "history.csv", -3600)
    with served(place, runs) as up:
        yield up


@pytest.fixture(scope="module")
def client(server):
    with server.client as client:
        yield client


def events(client, run):
    """What a page hears of a run until it ends."""
    with client.stream("GET", f"/api/runs/{run}/events", timeout=120) as stream:
        name = None
        for line in stream.iter_lines():
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                yield name, json.loads(line.removeprefix("data: "))


def started(client, wanted):
    answer = client.post("/api/runs", json=wanted)
    assert answer.status_code == 202, answer.text
    return answer.json()["id"]


def state_of(client, run):
    return next(each for each in client.get("/api/state").json()["runs"] if each["id"] == run)


def after_some_rounds(client, run):
    return until(
        lambda: (found := state_of(client, run))["played"] >= 2 and found, "rounds are played", 120
    )


def children_of(pid):
    found = subprocess.run(
        ["ps", "-Aww", "-o", "pid=,ppid=,args="], capture_output=True, text=True, check=True
    ).stdout
    rows = [line.split(maxsplit=2) for line in found.splitlines()]
    return [int(own) for own, parent, args in rows if int(parent) == pid and " train " in args]


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


# ---- training


def test_a_run_is_followed_from_its_first_round_to_its_map(client):
    run = started(client, SMALL)
    rows, names, maps = [], [], 0
    for name, progress in events(client, run):
        names.append(name)
        rows += progress["rows"]
        if rows and name == "progress":
            layer = client.get(f"/api/runs/{run}/layer", params={"layer": "heights"})
            assert layer.status_code == 200, layer.text
            maps += unpacked(layer.content)[1]["values"].shape == (100, 100)
    assert [row["round"] for row in rows] == list(range(6))
    assert names.count("end") == 1
    assert names[-1] == "end"
    assert (progress["state"], progress["played"]) == ("finished", 6)
    assert client.get(f"/api/runs/{run}").json()["kept"] == [1, 2, 3, 5, 6]


def test_a_run_that_was_paused_ends_as_one_that_was_not(client, place):
    wanted = SMALL | {"rounds": 60, "users": 20}
    run = started(client, wanted)
    after_some_rounds(client, run)
    paused = client.post(f"/api/runs/{run}/pause").json()
    assert paused["state"] == "paused"
    assert paused["played"] < 60
    line_of(client.post(f"/api/runs/{run}/pause"), 400)
    assert client.post(f"/api/runs/{run}/resume").status_code == 202
    *_, (name, progress) = events(client, run)
    assert (name, progress["state"]) == ("end", "finished")
    rows = client.get(f"/api/runs/{run}/history").json()["rows"]
    assert [row["round"] for row in rows] == list(range(60))
    scene = vm.Scene.synthetic(3)
    undisturbed = vm.train(
        scene.measure(users=20, seed=6),
        scene.grid,
        mechanism=vm.GeometryAligned(),
        rounds=60,
        seed=1,
    )
    learned = vm.RadioMap.load(place / "new" / run / "radio_map.nc")
    np.testing.assert_array_equal(learned.heights, undisturbed.radio_map.heights)
    assert "only an interrupted one" in line_of(client.post(f"/api/runs/{run}/resume"), 400)


def test_a_run_that_was_stopped_can_be_looked_at(client):
    run = started(client, LONG)
    waiting = started(client, LONG)
    after_some_rounds(client, run)
    assert state_of(client, waiting)["state"] == "waiting"
    assert client.post(f"/api/runs/{waiting}/stop").json()["state"] == "stopped"
    stopped = client.post(f"/api/runs/{run}/stop").json()
    assert stopped["state"] == "stopped"
    assert client.get(f"/api/runs/{run}").json()["state"] == "stopped"
    for path in ("layer?layer=heights", "history", "seen?user=0&round=1"):
        assert client.get(f"/api/runs/{run}/{path}").status_code == 200
    ((name, progress),) = events(client, run)
    assert (name, progress["state"]) == ("end", "stopped")
    assert "not finished" in line_of(client.post(f"/api/runs/{run}/audit"), 400)


def test_a_command_that_fails_says_why(client):
    run = started(client, SMALL | {"users": 1, "sums": True, "mechanism": "none"})
    *_, (name, progress) = events(client, run)
    assert (name, progress["state"]) == ("end", "failed")
    assert "cohort of 1" in progress["problem"]
    assert state_of(client, run)["problem"] == progress["problem"]
    assert "the run is failed" in line_of(client.post(f"/api/runs/{run}/resume"), 400)


# ---- many clients


def asks(server, text, room=None):
    """A connection over which this much was asked, and nothing is read."""
    one = socket.socket()
    if room:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
    one.settimeout(60)
    one.connect(("127.0.0.1", server.port))
    one.sendall(text.encode())
    return one


def test_slow_clients_do_not_keep_others_waiting(server, client):
    whole = "GET {} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    texts = [
        *["GET /api/st"] * 30,
        *[
            "POST /api/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Veilmap: page\r\n"
            "Content-Length: 99\r\n\r\n{"
        ]
        * 20,
        *[whole.format(f"/api/runs/aligned/layer?x={x}&y=1&z=9") for x in range(20)],
        *[whole.format("/api/runs/aligned/layer.tif?layer=heights")] * 10,
        *[whole.format("/api/runs/going/events")] * 20,
    ]
    with ExitStack() as stack:
        for text in texts:
            stack.enter_context(closing(asks(server, text, room=1024)))
        for path in ("/api/state", "/api/runs/bare", "/api/runs/aligned/layer?layer=heights"):
            assert client.get(path, timeout=20).status_code == 200
    assert server.process.poll() is None
    assert client.get("/api/state").status_code == 200


def test_there_are_only_so_many_listeners(server, client):
    text = "GET /api/runs/going/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"

    def listening():
        one = asks(server, text)
        return one if one.recv(15).startswith(b"HTTP/1.1 200") else one.close()

    with ExitStack() as stack:
        # Those of other tests may not be gone yet.
        for _ in range(MOST_LISTENERS):
            stack.enter_context(closing(until(listening, "there is room for a listener")))
        with client.stream("GET", "/api/runs/going/events") as answer:
            assert answer.status_code == 400  # else it would never end
            answer.read()
        assert f"{MOST_LISTENERS} pages follow runs already" in line_of(answer, 400)
        assert client.get("/api/state").status_code == 200
    with closing(until(listening, "there is room again")):
        pass


def test_addresses_are_taken_as_they_are_written(server):
    for path in (
        "/page/../app.py",
        "/page/%2e%2e/app.py",
        "/../../etc/passwd",
        "/page//etc/passwd",
    ):
        text = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
        with closing(asks(server, text)) as one:
            answer = b"".join(iter(lambda one=one: one.recv(4096), b""))
        assert answer.startswith(b"HTTP/1.1 404 ")
        assert b"import" not in answer
        assert b"content-security-policy" in answer


# ---- how it begins and ends


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_it_shows_a_demo_and_ends_with_its_processes(tmp_path, how, monkeypatch):
    monkeypatch.setenv("VEILMAP_THREADS", "1")  # or the demo might end by itself
    with served(tmp_path) as server, server.client as client:
        (run,) = client.get("/api/state").json()["runs"]
        assert run["name"] == "city0-aligned-mu50-rho1"
        assert (run["rounds"], run["users"]) == (200, 100)
        (child,) = until(lambda: children_of(server.process.pid), "the demo is started")
        assert len(server.left) == 1
        with client.stream("GET", f"/api/runs/{run['id']}/events") as stream:
            assert next(stream.iter_lines()) == "event: progress"
            assert server.end(how) in (0, 130)
        assert not alive(child)
        assert server.left == []


def test_interrupted_before_it_serves_it_leaves_nothing(tmp_path, monkeypatch):
    tiny = NewTraining(Source(None, None, city=3, users=5, cell_size=15.0), "none", {}, 1000, 1)
    monkeypatch.setattr(serving, "_demo", lambda: tiny)
    before, during = children_of(os.getpid()), []

    def interrupted(url):
        assert url.startswith("http://127.0.0.1:")
        during.extend(until(lambda: {*children_of(os.getpid())} - {*before}, "the demo is started"))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        serving.serve([], port=0, new_runs=tmp_path, on_ready=interrupted)
    assert during
    assert not set(during) & set(children_of(os.getpid()))


def test_beyond_loopback_a_token_is_needed(tmp_path, server):
    runs = server.temporary.parent / "runs"
    with (
        served(tmp_path, runs / "bare", "--host", "0.0.0.0") as open_one,
        open_one.client as client,
    ):
        token = re.search(r"\?token=([\w-]{32,})\s", open_one.said).group(1)
        for path in ("/", "/api/state", "/page/main.js"):
            line_of(client.get(path), 401)
        assert client.get("/", params={"token": token}).status_code == 303
        assert client.get("/api/state").status_code == 200  # by the cookie
        with open_one.client as other:
            line_of(other.get("/api/state"), 401)
            headers = {"Authorization": f"Bearer {token}"}
            assert other.get("/api/state", headers=headers).status_code == 200


_ASK = """
import os, socket, sys
port = int(sys.argv[1])
os.setuid(int(sys.argv[2]))
one = socket.socket()
one.connect(("127.0.0.1", port))
one.sendall(b"GET /api/state HTTP/1.1\\r\\nHost: 127.0.0.1\\r\\nConnection: close\\r\\n\\r\\n")
try:
    print(one.recv(12).decode())
except ConnectionResetError:
    pass
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
@pytest.mark.skipif(sys.platform != "linux", reason="Linux tells")
def test_another_user_of_this_host_is_told_nothing(tmp_path, server):
    for user, told in ((65_534, ""), (0, "HTTP/1.1 200")):
        ask = [sys.executable, "-I", "-c", _ASK, str(server.port), str(user)]
        done = subprocess.run(ask, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == told


@pytest.mark.parametrize("token", ["short", "letters & more letters", "ein-schönes-token-für-alle"])
def test_a_token_that_fits_no_address_is_refused(capsys, tmp_path, monkeypatch, token):
    monkeypatch.setenv("VEILMAP_TOKEN", token)
    code, _, error = command(capsys, "serve", "--new-runs", str(tmp_path / "new"))
    assert code == 2
    assert "VEILMAP_TOKEN" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("way", ["file", "environment"])
def test_a_token_is_in_no_list_of_processes(tmp_path, server, monkeypatch, way):
    token = "a-token-of-this-test-alone"
    runs, options = server.temporary.parent / "runs", []
    if way == "file":
        (tmp_path / "token").write_text(f"{token}\n")
        (tmp_path / "token").chmod(0o600)
        options = ["--token-file", tmp_path / "token"]
    else:
        monkeypatch.setenv("VEILMAP_TOKEN", token)
    with served(tmp_path, runs / "bare", *options) as own, own.client as client:
        assert f"?token={token}" in own.said
        assert client.get("/api/state").status_code == 401
        headers = {"Authorization": f"Bearer {token}"}
        assert client.get("/api/state", headers=headers).status_code == 200
        ps = ["ps", "-Aww", "-o", "args="]
        assert token not in subprocess.run(ps, capture_output=True, text=True, check=True).stdout


def test_a_port_that_is_taken_is_said_in_a_line(capsys, tmp_path):
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        code, _, error = command(
            capsys, "serve", "--port", str(port), "--new-runs", str(tmp_path / "new")
        )
    assert code == 2
    assert error.startswith(f"veilmap: cannot listen on 127.0.0.1:{port}: ")
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["{}/nowhere"], "is no folder"),
        (["{}/file"], "is no folder"),
        (["--token", "a-token-that-is-long-enough"], "--token"),  # all would see it
        (["--token-file", "{}/file"], "--token-file"),
        (["--token-file", "{}/nowhere"], "nowhere"),
        (["--token-file", "{}/open"], "chmod 600"),
        (["--open", "--host", "0.0.0.0"], "--open"),
        (["--port", "70000"], "--port"),
        (["--host", "nowhere.invalid"], "nowhere.invalid"),
        (["--new-runs", "{}/file"], "is a file"),
    ],
)
def test_what_cannot_be_served_is_said_in_a_line(capsys, tmp_path, arguments, line):
    (tmp_path / "file").write_text("")
    (tmp_path / "file").chmod(0o600)
    (tmp_path / "open").write_text("short")  # refused for who may read it, before it is read
    (tmp_path / "open").chmod(0o640)
    options = ["--port", "0", "--new-runs", str(tmp_path / "new")]
    code, _, error = command(
        capsys, "serve", *options, *(argument.format(tmp_path) for argument in arguments)
    )
    assert code == 2
    assert line in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("missing", ["fastapi", "uvicorn"])
def test_without_its_libraries_it_says_what_to_install(capsys, tmp_path, monkeypatch, missing):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == missing else found(name)
    )
    code, _, error = command(capsys, "serve", "--new-runs", str(tmp_path))
    assert code == 2
    assert f"the page needs {missing}: pip install 'veilmap[web]'" in error


# ---- who is slow, says nothing, or comes in crowds


def silent(server, count):
    """Connections that begin requests and never end them, or say nothing."""
    begun = "GET /api/state HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "
    return [asks(server, begun[:number] if number % 3 else "") for number in range(count)]


def test_people_are_answered_while_300_connections_say_nothing(server, client):
    with ExitStack() as stack:
        for one in silent(server, 300):
            stack.enter_context(closing(one))
        for path in ("/", "/api/state", "/api/runs/aligned/layer?layer=heights"):
            assert client.get(path, timeout=20).status_code == 200


def statuses(server, path, count):
    """What so many requests at once are answered, with how often."""
    text = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    with ExitStack() as stack:
        asked = [stack.enter_context(closing(asks(server, text))) for _ in range(count)]
        return Counter(one.recv(12) for one in asked)


def test_300_requests_at_once_are_all_answered(server):
    assert statuses(server, "/page/main.js", 300) == {b"HTTP/1.1 200": 300}


@pytest.mark.slow
def test_1000_requests_at_once_are_all_answered(server):
    for path in ("/page/main.js", "/api/state", "/api/runs/aligned/layer?layer=heights"):
        assert statuses(server, path, 1000) == {b"HTTP/1.1 200": 1000}


def test_a_header_without_end_is_refused(server, client):
    with closing(asks(server, "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Long: ")) as one:
        sent = 0
        with suppress(ConnectionError):
            while sent < 20_000_000 and not select.select([one], [], [], 0)[0]:
                sent += one.send(bytes(b"x" * 65_536))
        assert sent < 20_000_000
    assert client.get("/api/state").status_code == 200


@pytest.fixture
def hurried(monkeypatch, tmp_path):
    """A page in a thread of this process, which waits for nobody for long."""
    for name in ("HEAD_SECONDS", "BODY_SECONDS"):
        monkeypatch.setattr(impatience, name, 0.5)
    service = service_of([], tmp_path / "work")
    with listening("127.0.0.1", [0]) as listener, in_thread(create_app(service), listener):
        yield SimpleNamespace(port=listener.getsockname()[1])


def ended(one):
    """What was answered before the connection was ended."""
    with suppress(ConnectionResetError):
        return b"".join(iter(lambda: one.recv(4096), b""))
    return b""


def test_connections_that_say_nothing_are_ended(hurried):
    with ExitStack() as stack:
        for one in silent(hurried, 30):
            assert ended(stack.enter_context(closing(one))) == b""


def test_a_header_that_comes_letter_by_letter_does_not_keep_a_connection(hurried):
    with closing(asks(hurried, "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ")) as one:
        end = time.monotonic() + 20
        with pytest.raises(ConnectionError):
            while time.monotonic() < end:
                one.sendall(b"x")
                time.sleep(0.02)


def test_a_body_that_does_not_come_is_refused(hurried):
    begun = (
        "POST /api/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Veilmap: page\r\n"
        "Content-Length: 99\r\n\r\n{"
    )
    with closing(asks(hurried, begun)) as one:
        assert one.recv(12) == b"HTTP/1.1 408"


@contextmanager
def answering(content):
    """A server whose one answer is longer than what the system holds for a client."""

    async def app(scope, receive, send):
        if scope["type"] != "http":
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": content})

    with listening("127.0.0.1", [0]) as listener, in_thread(app, listener, lifespan="off"):
        yield SimpleNamespace(port=listener.getsockname()[1])


def test_who_reads_slowly_gets_the_answer_and_who_does_not_is_ended(monkeypatch):
    monkeypatch.setattr(impatience, "READ_SECONDS", 0.8)
    text = "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    content = bytes(60_000_000)
    with answering(content) as page:
        with closing(asks(page, text)) as slow:
            got = 0
            for _ in range(10):
                time.sleep(0.2)
                got += len(slow.recv(4_000_000, socket.MSG_WAITALL))
            got += sum(map(len, iter(lambda: slow.recv(1_000_000), b"")))
        assert got > len(content)
        with closing(asks(page, text)) as silent_one:
            time.sleep(2)
            assert len(ended(silent_one)) < len(content)


def open_things(server):
    """Files and threads that a server's process has open."""
    own = Path(f"/proc/{server.process.pid}")
    return len(list((own / "fd").iterdir())), len(list((own / "task").iterdir()))


def listened(server):
    """One listener of a run's events, who hears something and leaves."""
    text = "GET /api/runs/going/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with closing(asks(server, text)) as one:
        assert one.recv(15).startswith(b"HTTP/1.1 200")


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs Linux's /proc")
def test_listeners_that_leave_leave_nothing_behind(server, client):
    for _ in range(30):
        listened(server)
    before = until(lambda: settled(server), "the first listeners are gone")
    for _ in range(60):
        listened(server)
    until(lambda: open_things(server)[0] <= before[0] + 2, "their connections are closed")
    assert open_things(server)[1] <= before[1] + 2
    assert client.get("/api/state").status_code == 200


def settled(server):
    """Its open things once they stay the same for a second; None before."""
    before = open_things(server)
    time.sleep(1)
    return before if open_things(server) == before else None


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs Linux's /proc")
def test_a_listener_of_minutes_costs_no_memory(server):
    """VEILMAP_LISTEN_SECONDS=3600 makes an hour of it."""
    seconds = float(os.environ.get("VEILMAP_LISTEN_SECONDS", "90"))
    with server.client as client, client.stream("GET", "/api/runs/going/events") as stream:
        lines = stream.iter_lines()
        heard_for(lines, seconds / 3)
        before = memory_of(server), *open_things(server)
        heard_for(lines, 2 * seconds / 3)
        after = memory_of(server), *open_things(server)
    assert after[0] <= before[0] + 20_000, (before, after)  # kB
    assert after[1:] <= tuple(one + 2 for one in before[1:]), (before, after)


def heard_for(lines, seconds):
    """Listen, at least until the next sign of life after so many seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        next(lines)


def memory_of(server):
    """Resident memory in kB."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status).group(1))
