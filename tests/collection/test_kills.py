"""Real aggregators that are killed, have no room, or cannot reach each other, under load."""

import os
import random
import resource
import secrets
import select
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import httpx
import numpy as np
import pytest

import veilmap as vm
from aggregators import Keys, halves_of, small_survey, small_task
from veilmap._util.sockets import listening
from veilmap.collection import report as reports
from veilmap.collection.client import Aggregators, Sending, Unreachable
from veilmap.collection.collector import Collector, Refused
from veilmap.collection.folder import AggregatorFolder
from veilmap.collection.keys import SigningKey
from veilmap.collection.task import ROLES
from veilmap.geometry.grid import Grid
from veilmap.surveys.aggregate import add_noise

pytestmark = [pytest.mark.faults, pytest.mark.xdist_group("kills")]

SEED = 23  # of the noise, in servers that have one
KILLS = 100
START_SECONDS = 60.0
OPEN_SECONDS = 120.0
SERVE = """
import sys
from pathlib import Path
from veilmap.collection.folder import AggregatorFolder
from veilmap.collection.serving import serve
from veilmap.collection.task import Task
folder, task, port, seed = sys.argv[1:]
serve(AggregatorFolder.existing(Path(folder)), Task.load(Path(task)), host="127.0.0.1",
      port=int(port), seed=int(seed), on_ready=print)
"""


@dataclass
class Server:
    """An aggregator's process, which can be killed and started again."""

    folder: Path
    role: str
    port: int
    seed: int | None
    process: subprocess.Popen | None = None

    @property
    def own(self):
        return AggregatorFolder(self.folder / self.role)

    @property
    def database(self):
        return self.own.path / "reports.db"

    def start(self):
        task = self.folder / "task.json"
        if self.seed is None:
            command = ["-m", "veilmap.cli", "aggregator", "serve", "--survey", task]
            command += ["--role", self.role, "--folder", self.own.path, "--port", self.port]
        else:
            command = ["-c", SERVE, self.own.path, task, self.port, self.seed]
        one_thread = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        with (self.folder / f"{self.role}.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, *map(str, command)], stdout=log, stderr=log,
                stdin=subprocess.DEVNULL, env=os.environ | one_thread,
            )  # fmt: skip

    def kill(self):
        """End it as a power cut of its process would."""
        self.process.kill()
        self.process.wait(timeout=20)

    def stop(self):
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.kill()

    def limit_files(self, size):
        """Let it write no file beyond a size, as on a full disk."""
        _, most = resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (size, most))

    def has_room(self):
        self.limit_files(resource.RLIM_INFINITY)

    def log(self):
        return (self.folder / f"{self.role}.log").read_text(errors="replace")[-3000:]

    def stored(self):
        """The ids in its database."""
        with closing(sqlite3.connect(self.database, timeout=30)) as database:
            return {one for (one,) in database.execute("SELECT id FROM reports")}


class Cable:
    """Between leader and helper: it can be cut, can swallow answers, and can repeat itself."""

    def __init__(self, listener, port):
        self._listener, self._port = listener, port
        self._ended = threading.Event()
        self._open = set()
        self._lock = threading.Lock()
        self.cut = False
        self.swallows = False  # what the helper answers
        self.carried = []  # what the leader sent over each connection
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def close(self):
        self._ended.set()
        self._thread.join(timeout=10)
        self.hang_up()

    def hang_up(self):
        """End all connections."""
        with self._lock:
            for one in self._open:
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def repeat(self, sent):
        """Send once more what was sent before; what the helper answers is of no interest."""
        with socket.create_connection(("127.0.0.1", self._port), timeout=5) as again:
            again.sendall(bytes(sent))
            again.settimeout(0.5)
            with suppress(OSError):
                while again.recv(65536):
                    pass

    def _accept(self):
        while not self._ended.is_set():
            if not select.select([self._listener], [], [], 0.1)[0]:
                continue
            near, _ = self._listener.accept()
            if self.cut:
                near.close()
                continue
            threading.Thread(target=self._carry, args=(near,), daemon=True).start()

    def _carry(self, near):
        sent = bytearray()
        self.carried.append(sent)
        with near, suppress(OSError):
            far = socket.create_connection(("127.0.0.1", self._port), timeout=5)
            with far:
                with self._lock:
                    self._open |= {near, far}
                try:
                    self._both_ways(near, far, sent)
                finally:
                    with self._lock:
                        self._open -= {near, far}

    def _both_ways(self, near, far, sent):
        while not self._ended.is_set() and not self.cut:
            for one in select.select([near, far], [], [], 0.1)[0]:
                part = one.recv(65536)
                if not part:
                    return
                if one is near:
                    sent += part
                    far.sendall(part)
                elif self.swallows:
                    return
                else:
                    near.sendall(part)


@dataclass
class Deployment:
    """Both processes, what reaches them, and what was sent."""

    task: vm.Survey
    servers: dict
    cable: Cable
    client: httpx.Client
    collector: Collector
    folder: Path
    vectors: dict = field(default_factory=dict)  # by id, of all that anybody began to send
    acknowledged: set = field(default_factory=set)  # by both
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def direct(self):
        """Clients' way to both, which does not use the cable."""
        return Direct(self.client, self.task, self.servers)

    def wait(self, roles=ROLES):
        end = time.monotonic() + START_SECONDS
        for role in roles:
            while not self.answers(role):
                server = self.servers[role]
                assert time.monotonic() < end, server.log()
                time.sleep(0.05)

    def answers(self, role):
        with suppress(httpx.HTTPError):
            where = f"http://127.0.0.1:{self.servers[role].port}/health"
            return self.client.get(where, timeout=5).is_success
        return False

    def new_report(self, number):
        """A new Sending and its vector, noted."""
        sending = Sending(self.task, self.folder / "receipts" / f"{number}-{secrets.token_hex(8)}")
        vector = np.random.default_rng(number).integers(-9, 10, self.task.survey.numbers)
        with self.lock:
            self.vectors[sending.id] = vector
        return sending, vector

    def take_part(self, number, seconds=60.0):
        """Send a report as the real client does, again and again; whether both have taken it."""
        sending, vector = self.new_report(number)
        own, end = SimpleNamespace(vector=vector), time.monotonic() + seconds
        sending.admit(self.direct, None)
        while time.monotonic() < end:
            with suppress(Unreachable):
                sending.send(own, self.direct, lambda role: None)
                with self.lock:
                    self.acknowledged.add(sending.id)
                return True
            sending = Sending.begun(self.task, sending.file)
        return False

    def send_half(self, number):
        """Half of a report, whose person goes away."""
        sending, vector = self.new_report(number)
        sending.admit(self.direct, None)
        halves = reports.halves(
            self.task, vector, sending.id, sending.credential, sending.secret
        )  # fmt: skip
        which = number % 2
        with suppress(Unreachable):
            self.direct.send(halves[which], ROLES[which])

    def open(self):
        """The opening, after several tries if need be."""
        end = time.monotonic() + OPEN_SECONDS
        while time.monotonic() < end:
            with suppress(Refused, Unreachable):
                return self.collector.open(early=True, waiting=lambda added: None)
            time.sleep(0.5)
        return pytest.fail("\n".join(server.log() for server in self.servers.values()))

    def check(self):
        """Open, and compare the sum with what it must be; how many are in it."""
        opening = self.open()
        listed = {role: self.direct.listed(role) for role in ROLES}
        assert listed["leader"] == listed["helper"]
        there = set(listed["leader"])
        assert len(there) == len(listed["leader"])
        assert self.acknowledged <= there <= self.vectors.keys()
        found = self.collector.joined(opening)
        assert found.participants == len(there)
        wrong = found.total - np.sum([self.vectors[one] for one in sorted(there)], axis=0)
        if self.servers["leader"].seed is None:
            assert 0.5 * found.deviation < wrong.std() < 2 * found.deviation
            assert np.abs(wrong).max() < 8 * found.deviation
        else:
            for number in range(2):
                less = np.zeros_like(wrong)
                add_noise(self.task.survey, less, SEED, number)
                wrong = wrong - less
            assert not wrong.any()
        return len(there)


class Direct(Aggregators):
    """Reaches both at the ports where they listen."""

    def __init__(self, client, task, servers):
        where = {role: f"http://127.0.0.1:{server.port}" for role, server in servers.items()}
        near = SimpleNamespace(
            digest=task.digest, digest_bytes=task.digest_bytes, key=task.key,
            address=where.__getitem__, most_reports=task.most_reports, survey=task.survey,
            admission=task.admission,
        )  # fmt: skip
        super().__init__(client, near, pauses=(0.05, 0.1, 0.2, 0.4))


@contextmanager
def deployment(folder, *, seed=SEED, survey=None):
    """Both aggregators as processes, the leader's way to the helper being a cable."""
    with ExitStack() as stack:
        ports = {}
        for role in ROLES:
            with listening("127.0.0.1", [0]) as free:
                ports[role] = free.getsockname()[1]
        listener = stack.enter_context(listening("127.0.0.1", [0]))
        where = {"leader": f"http://127.0.0.1:{ports['leader']}",
                 "helper": f"http://127.0.0.1:{listener.getsockname()[1]}"}  # fmt: skip
        for role in ROLES:
            AggregatorFolder.init(folder / role, role, where[role], port=ports[role])
        leader, helper = (AggregatorFolder(folder / role).key for role in ROLES)
        keys = Keys(leader, helper, SigningKey.new(), None)
        survey = survey or small_survey()
        task = small_task(keys, survey=survey, most_reports=20_000, **where)
        task.save(folder / "task.json")
        (folder / "receipts").mkdir()
        limits = httpx.Limits(max_keepalive_connections=20)
        client = stack.enter_context(httpx.Client(timeout=20, trust_env=False, limits=limits))
        servers = {role: Server(folder, role, ports[role], seed) for role in ROLES}
        cable = Cable(listener, ports["helper"])
        stack.callback(cable.close)
        collector = Collector(Aggregators(client, task), keys.collector)
        found = Deployment(task, servers, cable, client, collector, folder)
        for server in servers.values():
            stack.callback(server.stop)
            server.start()
        found.wait()
        yield found


@contextmanager
def load(both, people=3, pause=0.05):
    """People who take part while the block lasts; some send one half and go away."""
    ended = threading.Event()

    def come(first):
        number = first
        while not ended.is_set():
            number += people
            if number % 10 == 7:
                both.send_half(number)
            else:
                both.take_part(number)
            ended.wait(pause)

    with ThreadPoolExecutor(people) as pool:
        running = [pool.submit(come, first) for first in range(people)]
        try:
            yield
        finally:
            ended.set()
        for one in running:
            one.result(timeout=120)


def killed_often(both, role, times, seed):
    """Kill a server at random moments, also while it starts; start it again at once."""
    rng = random.Random(seed)
    for _ in range(times):
        if rng.random() < 0.8:
            both.wait([role])
            time.sleep(rng.uniform(0.0, 2.0))
        else:
            time.sleep(rng.uniform(0.0, 1.5))
        both.servers[role].kill()
        both.servers[role].start()


def test_a_hundred_kills_lose_nothing_and_count_nothing_twice(tmp_path, record_property):
    with deployment(tmp_path) as both:
        with load(both), ThreadPoolExecutor(2) as pool:
            killers = [
                pool.submit(killed_often, both, role, KILLS // 2, number)
                for number, role in enumerate(ROLES)
            ]
            for one in killers:
                one.result(timeout=900)
            both.wait()
        in_sum = both.check()
        facts = {"begun": len(both.vectors), "acknowledged": len(both.acknowledged)}
        for name, value in (facts | {"in_sum": in_sum}).items():
            record_property(name, value)
        print(facts, in_sum)  # noqa: T201
        assert len(both.acknowledged) > KILLS


def test_kills_during_the_opening_open_one_sum(tmp_path):
    with deployment(tmp_path) as both:
        for number in range(20):
            assert both.take_part(number)
        rng = random.Random(3)
        with ThreadPoolExecutor(1) as pool:
            opening = pool.submit(both.open)
            for _ in range(4):
                time.sleep(rng.uniform(0.0, 0.1))
                role = rng.choice(ROLES)
                both.servers[role].kill()
                both.servers[role].start()
                both.wait()
            opening.result(timeout=OPEN_SECONDS)
        assert both.check() == 20


@pytest.mark.parametrize("role", ROLES)
def test_a_full_disk_is_said_and_nothing_is_confirmed_until_there_is_room(tmp_path, role):
    with deployment(tmp_path, seed=None) as both:
        for number in range(5):
            assert both.take_part(number)
        server, (ours, theirs) = both.servers[role], halves_of(both.task, 50)
        half = ours if role == "leader" else theirs
        where = f"http://127.0.0.1:{server.port}/tasks/{both.task.digest}/reports"
        server.limit_files(1)
        for _ in range(3):
            told = both.client.post(where, content=half.content)
            assert (told.status_code, told.json()["reason"]) == (503, "storage")
            assert "receipt" not in told.json()
        assert half.id not in server.stored()
        server.has_room()
        assert both.client.post(where, content=half.content).status_code == 201
        for number in range(5, 8):
            assert both.take_part(number)
        assert both.check() == 8


def test_a_kill_in_a_large_batch_leaves_whole_reports(tmp_path):
    grid = Grid(80.0, (30, 30), (1000.0, 2000.0))
    survey = vm.Survey(
        "large", grid, small_survey().stations, participants=2, epsilon=50.0, delta=1e-3,
        aggregators=2,
    )  # fmt: skip
    with deployment(tmp_path, survey=survey) as both:
        server, rng = both.servers["leader"], random.Random(8)
        where = f"http://127.0.0.1:{server.port}/tasks/{both.task.digest}/reports"
        confirmed = set()

        def send(half):
            with suppress(httpx.HTTPError):
                if both.client.post(where, content=half.content).is_success:
                    confirmed.add(half.id)

        for number in range(4):
            pairs = [halves_of(both.task, 100 * number + one) for one in range(80)]
            with ThreadPoolExecutor(40) as pool:
                for ours, _ in pairs:
                    pool.submit(send, ours)
                time.sleep(rng.uniform(0.05, 0.6))
                server.kill()
            server.start()
            both.wait(["leader"])
            with closing(sqlite3.connect(server.database, timeout=30)) as database:
                assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
                counted = database.execute("SELECT received FROM task").fetchone()[0]
                whole = database.execute("SELECT count(*) FROM shares").fetchone()[0]
            there = server.stored()
            assert confirmed <= there
            assert counted == whole == len(there)
        assert confirmed


def test_clients_go_on_while_leader_and_helper_cannot_reach_each_other(tmp_path):
    with deployment(tmp_path) as both:
        with load(both, people=2):
            for number in range(3):
                before = len(both.acknowledged)
                both.cable.cut = True
                both.cable.hang_up()
                await_more(both, before + 10)
                both.cable.swallows = number == 1
                both.cable.cut = False
                time.sleep(1.5)
                both.cable.swallows = False
        assert both.check() >= 30


def test_requests_that_are_repeated_late_and_out_of_order_change_nothing(tmp_path):
    with deployment(tmp_path) as both:
        rng, repeated = random.Random(5), 0
        with load(both, people=2):
            for _ in range(8):
                before = len(both.acknowledged)
                both.cable.hang_up()  # the next request has a connection of its own
                await_more(both, before + 4)
                for sent in rng.choices([one for one in both.cable.carried if one] or [b""], k=2):
                    repeated += len(sent) > 0
                    both.cable.repeat(sent)
        assert repeated
        in_sum = both.check()
        for sent in list(both.cable.carried):
            both.cable.repeat(sent)
        assert both.check() == in_sum


def await_more(both, acknowledged, seconds=60.0):
    end = time.monotonic() + seconds
    while len(both.acknowledged) < acknowledged:
        logs = "\n".join(server.log() for server in both.servers.values())
        assert time.monotonic() < end, logs
        time.sleep(0.05)
