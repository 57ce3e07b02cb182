"""What a survey by two aggregators costs: over HTTP, and as its participants grow in number.

python benchmarks/collection.py http
python benchmarks/collection.py http --participants 2000 --designed-for 10000 --invitations --tls
PYTHONPATH=tests/support python benchmarks/collection.py growth

`http` serves leader and helper as processes on loopback. A third process sends reports that were
prepared before in files, over connections that are kept: first the leader's half of a report, and
after its receipt the helper's. Then the collector has the sum opened, and it is compared with the
exact one. With 10,000 participants it takes a minute on two cores.

`growth` has both aggregators in one process, without HTTP, and compares them with the masked sums
of SecAgg+ (`veilmap.flower.secagg`), whose nodes and server also share a process. It needs the
extra flower, and takes three minutes.

Both run on Linux: times and memory of processes are read below /proc.
"""

import argparse
import asyncio
import json
import logging
import multiprocessing
import os
import secrets
import ssl
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np

import veilmap as vm
from veilmap._util.sockets import listening
from veilmap.collection import report as reports
from veilmap.collection.admission import Invitations, ProofOfWork
from veilmap.collection.client import Aggregators
from veilmap.collection.collector import Collector, participants_of
from veilmap.collection.connection import connected, trusted
from veilmap.collection.folder import AggregatorFolder, PublicFile, task_between
from veilmap.collection.keys import SigningKey
from veilmap.collection.store import Store
from veilmap.collection.task import ROLES, Role, Task
from veilmap.surveys.contribution import contribution
from veilmap.surveys.design import stations_of

AREA = (0.0, 0.0, 2000.0, 2000.0)
STATIONS = 12
READINGS = 24  # of a participant
EPSILON = 2.0
HOST = "127.0.0.1"

START_SECONDS, STOP_SECONDS = 60.0, 30.0
ANSWER_SECONDS = 60.0  # of one request
SAMPLE_SECONDS = 0.1
EARLY = 1000  # reports after which memory is noted, to be compared with the end

BATCH, JOB, BLOCK = 25, 250, 1000  # reports of a transaction, of a job, of a row's part


def say(text: str) -> None:
    """The progress line, which replaces the one before it."""
    print(f"\r{text:<78}", end="", file=sys.stderr, flush=True)


def designed(participants: int) -> vm.Survey:
    """The survey of a town, spaced for so many participants."""
    rng = np.random.default_rng(0)
    places = np.column_stack([rng.uniform(0, 2000, (STATIONS, 2)), np.full(STATIONS, 25.0)])
    return vm.Survey.design(
        AREA,
        stations_of(places, [f"mast-{number}" for number in range(STATIONS)]),
        participants=participants,
        epsilon=EPSILON,
        coarsest=True,
        aggregators=2,
    )


def vector_of(survey: vm.Survey, number: int) -> np.ndarray:
    """The contribution of a made-up participant."""
    rng = np.random.default_rng(number)
    west, east, south, north = survey.grid.extent
    xy = rng.uniform((west, south), (east, north), (READINGS, 2))
    names = np.array([station.id for station in survey.stations])
    gain = rng.normal(-90, 9, READINGS)
    return contribution(survey, xy, rng.choice(names, READINGS), gain).vector


def size_of(survey: vm.Survey) -> str:
    rows, columns = survey.grid.shape
    return (
        f"{len(survey.stations)} base stations, {rows} × {columns} points, ε = {survey.epsilon:g}:"
        f" {survey.numbers:,} numbers, {survey.upload_bytes:,} bytes a participant"
    )


def show(title: str, rows: Sequence[Sequence[str]]) -> None:
    print(f"\n{title}")
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True)))


# ---- Over HTTP: what is served


@dataclass(frozen=True)
class Deployed:
    """A task, and what its parties need."""

    out: Path
    task: Task
    collector: SigningKey
    tls: bool

    @property
    def authority(self) -> Path | None:
        return self.out / "authority" / "ca.crt" if self.tls else None


def deployed(
    out: Path, survey: vm.Survey, most: int, *, tls: bool, invitations: bool, proofs: bool
) -> Deployed:
    """Folders of two new aggregators, and their task."""
    public: dict[Role, PublicFile] = {}
    for role in ROLES:
        with listening(HOST, [0]) as free:
            port = free.getsockname()[1]
        address = f"{'https' if tls else 'http'}://{HOST}:{port}"
        own = {"authority": out / "authority", "names": [HOST]} if tls else {}
        AggregatorFolder.init(out / role, role, address, port=port, **own)
        public[role] = PublicFile.load(out / role / "public.json", role)
    collector, tomorrow = SigningKey.new(), datetime.now(UTC) + timedelta(days=1)
    task = task_between(
        survey, public["leader"], public["helper"], collector, closes=tomorrow.isoformat(),
        most_reports=most, admission=None if invitations else ProofOfWork(1), proofs=proofs,
    )  # fmt: skip
    task.save(out / "task.json")
    return Deployed(out, task, collector, tls)


@contextmanager
def served(place: Deployed, role: Role) -> Iterator["Watched"]:
    """An aggregator as a process, once it answers; it is asked to stop at the end."""
    folder = place.out / role
    command: list[object] = [
        *(sys.executable, "-m", "veilmap.cli", "aggregator", "serve"),
        *("--survey", place.out / "task.json", "--role", role, "--folder", folder),
        *("--host", HOST, "--port", urlsplit(place.task.address(role)).port),
    ]
    if place.tls:
        tls = folder / "tls"
        command += ["--certificate", tls / "server.pem", "--key", tls / "server.key"]
        command += ["--authority", place.authority]
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            [str(word) for word in command], stdout=log, stderr=log, stdin=subprocess.DEVNULL
        )
    try:
        _await(place, role, process)
        yield Watched(process.pid, folder)
    finally:
        process.terminate()
        try:
            process.wait(timeout=STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _await(place: Deployed, role: Role, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + START_SECONDS
    with connected(place.authority) as client:
        while True:
            try:
                if client.get(f"{place.task.address(role)}/health").is_success:
                    return
            except httpx.HTTPError:
                if process.poll() is not None or time.monotonic() > end:
                    told = (place.out / role / "log").read_text()[-2000:]
                    sys.exit(f"the {role} did not start:\n{told}")
            time.sleep(0.1)


@dataclass
class Watched:
    """A service, as the system accounts for it."""

    pid: int
    folder: Path
    seen: list[tuple[int, int, float]] = field(default_factory=list)  # reports, bytes, CPU
    database: int = 0  # bytes, the most

    @property
    def cpu(self) -> float:
        """Seconds of CPU so far."""
        words = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    def sample(self, taken: int) -> None:
        """Note memory, CPU time and database after so many reports."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        self.seen.append((taken, pages * os.sysconf("SC_PAGE_SIZE"), self.cpu))
        self.database = max(self.database, self.stored)

    @property
    def peak(self) -> int:
        """Bytes of memory, the most there ever were."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))

    @property
    def stored(self) -> int:
        """Bytes of the database and of its log."""
        return sum(file.stat().st_size for file in self.folder.glob("reports.db*"))

    def resident(self, taken: int) -> int:
        """Bytes of memory when so many reports were there."""
        return next((size for count, size, _ in self.seen if count >= taken), self.seen[-1][1])

    def cpu_between(self, first: int, last: int) -> float:
        """Seconds of CPU a report, from one number of reports to another."""
        began, ended = (next(own for own in self.seen if own[0] >= k) for k in (first, last))
        return (ended[2] - began[2]) / max(1, ended[0] - began[0])


# ---- Over HTTP: who sends


@dataclass(frozen=True)
class Posts:
    """Bodies of one length in a file, one of each participant, and where they are sent."""

    address: str
    path: str
    kind: str
    file: Path
    size: int

    @property
    def head(self) -> bytes:
        where = urlsplit(self.address).netloc
        return (
            f"POST {self.path} HTTP/1.1\r\nhost: {where}\r\ncontent-type: {self.kind}\r\n"
            f"content-length: {self.size}\r\n\r\n"
        ).encode()


@dataclass(frozen=True)
class Sent:
    """What the process that sends tells of itself, with the answers to each first request."""

    seconds: float
    cpu: float
    answers: list[bytes]


class Sender:
    """One participant after the other, over a connection to each address."""

    def __init__(self, posts: Sequence[Posts], tls: ssl.SSLContext | None) -> None:
        self._posts, self._tls = posts, tls

    async def run(self, numbers: Iterator[int], done: Any, answers: dict[int, bytes]) -> None:
        """Send what ``numbers`` has left, counting what was acknowledged."""
        async with asyncio.timeout(ANSWER_SECONDS):
            links = [await self._connected(own) for own in self._posts]
        files = [os.open(own.file, os.O_RDONLY) for own in self._posts]
        heads = [own.head for own in self._posts]
        try:
            for number in numbers:
                for k, own in enumerate(self._posts):
                    body = os.pread(files[k], own.size, number * own.size)
                    async with asyncio.timeout(ANSWER_SECONDS):
                        answer = await self._posted(links[k], heads[k] + body)
                    if k == 0:
                        answers[number] = answer
                with done.get_lock():
                    done.value += 1
        finally:
            for file in files:
                os.close(file)
            for _, writer in links:
                writer.close()

    async def _connected(self, own: Posts) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        where = urlsplit(own.address)
        return await asyncio.open_connection(where.hostname, where.port, ssl=self._tls)

    @staticmethod
    async def _posted(
        link: tuple[asyncio.StreamReader, asyncio.StreamWriter], request: bytes
    ) -> bytes:
        reader, writer = link
        writer.write(request)
        await writer.drain()
        head = await reader.readuntil(b"\r\n\r\n")
        status, *lines = head.decode("latin-1").split("\r\n")
        fields = dict(line.lower().split(": ", 1) for line in lines if line)
        body = await reader.readexactly(int(fields["content-length"]))
        if status.split()[1] not in ("200", "201"):
            raise RuntimeError(f"{status}: {body[:300]!r}")
        return body


def _send(
    posts: Sequence[Posts], count: int, connections: int, authority: Path | None,
    done: Any, pipe: Any,
) -> None:  # fmt: skip
    """The body of the process that sends."""
    tls = trusted(authority) if authority else None
    answers: dict[int, bytes] = {}

    async def everybody() -> None:
        numbers = iter(range(count))
        async with asyncio.TaskGroup() as group:
            for _ in range(min(connections, count)):
                group.create_task(Sender(posts, tls).run(numbers, done, answers))

    began, own = time.monotonic(), time.process_time()
    try:
        asyncio.run(everybody())
    except BaseExceptionGroup as problems:
        pipe.send(repr(problems.exceptions[0]))
        return
    spent = time.monotonic() - began, time.process_time() - own
    pipe.send(Sent(*spent, [answers[number] for number in range(count)]))


def sent(
    posts: Sequence[Posts], count: int, options: argparse.Namespace, authority: Path | None,
    what: str, sample: Callable[[int], None],
) -> Sent:  # fmt: skip
    """Have a process of its own send everything; ``sample`` is called while it does."""
    apart = multiprocessing.get_context("spawn")
    done, (ours, theirs) = apart.Value("q", 0), apart.Pipe(duplex=False)
    arguments = posts, count, options.connections, authority, done, theirs
    process = apart.Process(target=_send, args=arguments, daemon=True)
    process.start()
    theirs.close()
    end = time.monotonic() + 60 * options.minutes
    try:
        while not ours.poll(SAMPLE_SECONDS):
            sample(done.value)
            say(f"{what}: {done.value:,} of {count:,}")
            if time.monotonic() > end:
                sys.exit(f"\n{what}: {done.value:,} of {count:,} after {options.minutes:g} min")
        found = ours.recv()
    except EOFError:
        sys.exit(f"\n{what}: the process that sends ended")
    finally:
        process.join(timeout=5)
        if process.is_alive():
            process.terminate()
            process.join()
    if not isinstance(found, Sent):
        sys.exit(f"\n{what}: {found}")
    return found


# ---- Over HTTP: what is sent


@dataclass
class Crowd:
    """Participants, with what each keeps to itself, and the sum of what they contribute."""

    task: Task
    ids: list[bytes]
    credentials: list[bytes]
    total: np.ndarray

    @classmethod
    def of(cls, task: Task, count: int) -> "Crowd":
        ids = [secrets.token_bytes(reports.ID_BYTES) for _ in range(count)]
        return cls(task, ids, [], np.zeros(task.survey.numbers, dtype=np.int64))

    def work(self) -> None:
        """Be admitted by proof of work."""
        admission, digest = self.task.admission, self.task.digest_bytes
        assert isinstance(admission, ProofOfWork)
        self.credentials = [admission.solved(digest, own) for own in self.ids]

    def halves_in(self, folder: Path) -> list[Posts]:
        """Make all reports, and write them into a file for each aggregator."""
        files = {role: folder / f"{role}.halves" for role in ROLES}
        with ExitStack() as open_:
            written = [open_.enter_context(files[role].open("wb")) for role in ROLES]
            for number, (own, credential) in enumerate(
                zip(self.ids, self.credentials, strict=True)
            ):
                vector = vector_of(self.task.survey, number)
                self.total += vector
                secret = secrets.token_bytes(reports.SECRET_BYTES)
                halves = reports.halves(self.task, vector, own, credential, secret)
                for file, half in zip(written, halves, strict=True):
                    file.write(half.content)
                if number % 100 == 0:
                    say(f"preparing reports: {number:,} of {len(self.ids):,}")
            for file in written:
                file.flush()
                os.fsync(file.fileno())  # or the services' own would wait for it
        path = f"/tasks/{self.task.digest}/reports"
        return [
            Posts(
                self.task.address(role), path, "application/octet-stream", files[role],
                reports.half_bytes(self.task, role),
            )
            for role in ROLES
        ]  # fmt: skip


def tokens(place: Deployed, crowd: Crowd, codes: list[str], ask: Callable[[Posts], Sent]) -> Sent:
    """Change everybody's invitation into what admits their report."""
    admission, digest = place.task.admission, place.task.digest_bytes
    assert isinstance(admission, Invitations)
    blinded = [admission.blinded(digest, own) for own in crowd.ids]
    bodies = [
        json.dumps({"code": code, "blinded": own.message.hex()}).encode()
        for code, own in zip(codes, blinded, strict=True)
    ]
    (size,) = {len(body) for body in bodies}
    file = place.out / "tokens"
    file.write_bytes(b"".join(bodies))
    path = f"/tasks/{place.task.digest}/tokens"
    found = ask(Posts(place.task.leader, path, "application/json", file, size))
    signatures = [bytes.fromhex(json.loads(answer)["signature"]) for answer in found.answers]
    crowd.credentials = [
        own.finished(signature) for own, signature in zip(blinded, signatures, strict=True)
    ]
    return found


# ---- Over HTTP: the whole


def http(options: argparse.Namespace) -> dict[str, Any]:
    """Collect and open one survey, and print what it took."""
    count, busy = options.participants, os.getloadavg()[0]
    survey = replace(designed(options.designed_for or count), participants=count)
    with tempfile.TemporaryDirectory(prefix="veilmap-") as folder, ExitStack() as open_:
        out = Path(folder)
        place = deployed(
            out, survey, count, tls=options.tls, invitations=options.invitations,
            proofs=options.proofs,
        )  # fmt: skip
        codes = invited(place, count) if options.invitations else []
        services = {role: open_.enter_context(served(place, role)) for role in ROLES}
        for one in services.values():
            one.sample(0)
        crowd, result = Crowd.of(place.task, count), {}
        if codes:
            before = services["leader"].cpu
            token = tokens(
                place, crowd, codes,
                lambda one: sent([one], count, options, place.authority, "tokens", lambda n: None),
            )  # fmt: skip
            spent = services["leader"].cpu - before
            result = {"tokens_per_s": count / token.seconds, "token_cpu_s": spent}
        else:
            crowd.work()
        result |= collected(place, crowd, services, options)
    result |= {
        "participants": count, "numbers": survey.numbers, "tls": options.tls,
        "invitations": options.invitations, "connections": options.connections,
        "load_before": busy,
    }  # fmt: skip
    print_http(survey, result)
    if result["problems"]:
        sys.exit("; ".join(result["problems"]))
    return result


def invited(place: Deployed, count: int) -> list[str]:
    """Codes that are good for a token each."""
    codes = [secrets.token_urlsafe(16) for _ in range(count)]
    database = AggregatorFolder(place.out / "leader").database
    store = Store(database, place.task, "leader", serving=False)
    store.invite(codes)
    store.close()
    return codes


def collected(
    place: Deployed, crowd: Crowd, services: dict[Role, Watched], options: argparse.Namespace
) -> dict[str, Any]:
    """Have everybody's report taken, and the sum opened and compared."""
    count, patience = len(crowd.ids), 60 * options.minutes

    def sample(taken: int) -> None:
        for one in services.values():
            one.sample(taken)

    def cpu() -> dict[Role, float]:
        return {role: one.cpu for role, one in services.items()}

    began = time.monotonic()
    posts = crowd.halves_in(place.out)
    prepared, before = time.monotonic() - began, cpu()
    report = sent(posts, count, options, place.authority, "reports", sample)
    sample(count)
    received, full = cpu(), {role: one.seen[-1][1] for role, one in services.items()}
    with connected(place.authority) as client:
        collector = Collector(Aggregators(client, place.task), place.collector)
        left = count - collector.standing("leader").added
        began = time.monotonic()

        def waiting(added: int) -> None:
            say(f"opening: {added:,} of {count:,} added")
            if time.monotonic() > began + patience:
                sys.exit(f"\nthe sum was not opened in {options.minutes:g} min")

        opening = collector.open(early=True, waiting=waiting)
        found = collector.joined(opening)
        closing = time.monotonic() - began
        sample(count)
        opened = cpu()
        say("")
        problems = wrong(crowd, collector, opening, found)
    return {
        "half_bytes": {role: reports.half_bytes(place.task, role) for role in ROLES},
        "prepared_s": prepared, "sending_s": report.seconds, "sender_cpu_s": report.cpu,
        "reports_per_s": count / report.seconds, "left_to_pair": left, "opening_s": closing,
        "problems": problems,
        "services": {
            role: {
                "receiving_cpu_s": received[role] - before[role],
                "cpu_s": opened[role] - before[role],
                "first_quarter_cpu_s": one.cpu_between(1, count // 4),
                "last_quarter_cpu_s": one.cpu_between(count - count // 4, count),
                "resident_start": one.resident(0), "resident_early": one.resident(EARLY),
                "resident_half": one.resident(count // 2),
                "resident_all": full[role],
                "resident_most": one.peak,
                "resident_end": one.seen[-1][1],
                "database_most": one.database, "database_end": one.stored,
            }
            for role, one in services.items()
        },
    }  # fmt: skip


def wrong(crowd: Crowd, collector: Collector, opening: dict[str, str], found: Any) -> list[str]:
    """What is wrong with the opened sum, of which everything is known here."""
    count, said = len(crowd.ids), []
    if participants_of(opening) != count:
        said.append(f"{participants_of(opening)} of {count} reports are in the sum")
    for role in ROLES:
        standing = collector.standing(role)
        if (standing.received, standing.added, standing.unpaired) != (count, count, 0):
            said.append(f"the {role} says {standing}")
        if collector.aggregators.listed(role) != sorted(crowd.ids):
            said.append(f"the {role} lists other reports")
    # Of n numbers the noise's deviation is seen up to 1 / √(2n), and its mean up to 1 / √n of it.
    ratio = (found.total - crowd.total) / found.deviation
    many = len(ratio)
    if not abs(ratio.std() - 1) < 5 / np.sqrt(2 * many) or not abs(ratio.mean()) < 5 / many**0.5:
        said.append(f"the sum is off by {ratio.mean():.3f} ± {ratio.std():.3f} deviations of noise")
    return said


def print_http(survey: vm.Survey, told: dict[str, Any]) -> None:
    count, seconds = told["participants"], told["sending_s"]
    mb = 1e-6
    halves = " and ".join(f"{told['half_bytes'][role]:,} to the {role}" for role in ROLES)
    print(f"{count:,} participants; {size_of(survey)}")
    print(
        f"{'TLS' if told['tls'] else 'plain HTTP'}, {told['connections']} participants at once,"
        f" {'invitations' if told['invitations'] else 'proof of work of 1 bit'};"
        f" bodies: {halves}; load of the machine before: {told['load_before']:.1f}"
    )
    if told["invitations"]:
        print(
            f"tokens: {told['tokens_per_s']:.0f} a second,"
            f" {1e3 * told['token_cpu_s'] / count:.2f} ms of the leader's CPU each"
        )
    all_cpu = told["sender_cpu_s"] + sum(
        one["receiving_cpu_s"] for one in told["services"].values()
    )
    print(f"preparing all reports beforehand: {told['prepared_s']:.1f} s")
    print(f"reports, both halves stored: {told['reports_per_s']:.0f} a second, {seconds:.1f} s")
    print(
        f"the process that sends: {told['sender_cpu_s'] / seconds:.0%} of a core,"
        f" {told['sender_cpu_s'] / all_cpu:.0%} of the CPU time of all three"
    )
    print(
        f"from closing to the opened sum: {told['opening_s']:.1f} s, with"
        f" {told['left_to_pair']:,} reports not added yet at closing"
    )
    right = "as many and as noisy as it must be" if not told["problems"] else "WRONG, see below"
    print(f"the opened sum, compared with the exact one of all {count:,}: {right}")
    rows = [
        ["", "receiving", "first quarter", "last quarter", "with opening", "of a core, receiving"]
    ]
    memory = [
        ["", "start", f"{EARLY:,} reports", "half", "all", "opened", "most", "bytes a report"]
    ]
    disk = [["", "most", "opened", "bytes a report, opened"]]
    for role, one in told["services"].items():
        each = (one["resident_all"] - one["resident_early"]) / max(1, count - EARLY)
        each_cpu = (
            one["receiving_cpu_s"] / count, one["first_quarter_cpu_s"], one["last_quarter_cpu_s"],
            one["cpu_s"] / count,
        )  # fmt: skip
        busy = one["receiving_cpu_s"] / seconds
        rows.append([role, *(f"{1e3 * spent:.2f}" for spent in each_cpu), f"{busy:.0%}"])
        sizes = ("start", "early", "half", "all", "end", "most")
        memory.append(
            [role, *(f"{mb * one[f'resident_{name}']:.1f}" for name in sizes), f"{each:+.0f}"]
        )
        disk.append([
            role, f"{mb * one['database_most']:.1f}", f"{mb * one['database_end']:.1f}",
            f"{one['database_end'] / count:.0f}",
        ])  # fmt: skip
    show("CPU time of each service, milliseconds a report", rows)
    show(
        f"Resident memory in MB; a report: from {EARLY:,} reports to all, unopened",
        memory,
    )
    show("Database with its log, in MB", disk)


# ---- Growth


@dataclass
class Spent:
    """Seconds by what they went into: of the processor, and on the wall."""

    cpu: Counter[str] = field(default_factory=Counter)
    wall: Counter[str] = field(default_factory=Counter)

    @contextmanager
    def on(self, what: str, out_of: str | None = None) -> Iterator[None]:
        """Count a block's time; ``out_of`` is another, around it, which then does not have it."""
        cpu, wall = time.process_time(), time.perf_counter()
        yield
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        self.cpu[what] += cpu
        self.wall[what] += wall
        if out_of is not None:
            self.cpu[out_of] -= cpu
            self.wall[out_of] -= wall

    def plus(self, other: "Spent") -> "Spent":
        result = Spent(Counter(self.cpu), Counter(self.wall))
        result.cpu.update(other.cpu)
        result.wall.update(other.wall)
        return result


CLIENT = ("client: vector", "client: halves")
STEPS = (
    *("leader: parse", "leader: take", "leader: add"),
    *("helper: parse", "helper: take", "helper: add"),
)
OPEN = "open"


@dataclass(frozen=True)
class Grown:
    """What a survey of some size cost."""

    participants: int
    blocks: list[Spent]  # of BLOCK participants each
    opening: Spent

    @property
    def spent(self) -> Spent:
        """Everything."""
        result = self.opening
        for block in self.blocks:
            result = result.plus(block)
        return result

    def ms(self, *what: str, wall: bool = False) -> float:
        """Milliseconds a participant."""
        spent = self.spent.wall if wall else self.spent.cpu
        return 1e3 * sum(spent[name] for name in what) / self.participants

    @property
    def last_to_first(self) -> float:
        """What the last block cost both aggregators, relative to the first."""
        first, last = (sum(self.blocks[k].cpu[step] for step in STEPS) for k in (0, -1))
        return last / first


def grown(survey: vm.Survey, count: int) -> Grown:
    """Take, pair, add and open so many reports in one process, on files of SQLite."""
    from aggregators import DirectPeer, new_keys, pair, small_task

    spent = Spent()

    class TimedPeer(DirectPeer):
        def job(self, content: bytes) -> bytes:
            with spent.on("helper: add", out_of="leader: add"):
                return self.helper.answer(content)

    blocks: list[Spent] = []
    total = np.zeros(survey.numbers, dtype=np.int64)
    with tempfile.TemporaryDirectory(prefix="veilmap-") as folder:
        keys = new_keys()
        both = pair(Path(folder), small_task(keys, survey=survey, most_reports=count), keys)
        task, peer = both.task, TimedPeer(both.helper)
        sides = ("leader", both.leader), ("helper", both.helper)
        for start in range(0, count, BATCH):
            if start % BLOCK == 0:
                spent = Spent()
                blocks.append(spent)
            halves = []
            for number in range(start, min(start + BATCH, count)):
                with spent.on("client: vector"):
                    vector = vector_of(survey, number)
                with spent.on("client: halves"):
                    own = secrets.token_bytes(reports.ID_BYTES)
                    secret = secrets.token_bytes(reports.SECRET_BYTES)
                    credential = task.admission.solved(task.digest_bytes, own)
                    halves.append(reports.halves(task, vector, own, credential, secret))
                total += vector
            for k, (role, one) in enumerate(sides):
                contents = [pair_[k].content for pair_ in halves]
                with spent.on(f"{role}: parse"):
                    parsed = [one.parsed(content) for content in contents]
                with spent.on(f"{role}: take"):
                    refused = one.take(parsed)
                assert not any(refused), "a report was refused"
            if (start + BATCH) % JOB == 0 or start + BATCH >= count:
                with spent.on("leader: add"):
                    both.leader.pair(peer)
                say(f"{count:,} participants: {start + BATCH:,}")
        spent = opening = Spent()
        with opening.on(OPEN):
            both.leader.open(peer, early=True)
        check_opened(both, survey, total, count)
        both.close()
    return Grown(count, blocks, opening)


def check_opened(both: Any, survey: vm.Survey, total: np.ndarray, count: int) -> None:
    """Whether the two shares of the opened sum are of the exact one, within the noise."""
    from veilmap.collection import shares

    parts = [shares.from_bytes(one.store.opened()) for one in (both.leader, both.helper)]
    ratio = (shares.centred(shares.added(*parts)) - total) / (np.sqrt(2) * survey.deviation)
    assert both.leader.standing().added == count, "a report is not in the sum"
    assert abs(ratio.std() - 1) < 5 / np.sqrt(2 * len(ratio)), "the sum is another one"


def masked(survey: vm.Survey, nodes: int) -> Spent:
    """One masked sum by SecAgg+ of vectors as long as the survey's, nodes and server together.

    Enrolment and introductions, which happen once in a training, do not count.
    """
    from flwr.app import Context, Message, RecordDict
    from flwr.app.user_config import UserConfig

    from fakegrid import FakeGrid, enrol, enrolment_in
    from veilmap.federation.messages import Broadcast
    from veilmap.federation.participation import Turnout
    from veilmap.federation.server import RoundSum
    from veilmap.flower import records
    from veilmap.flower.secagg import account, masking
    from veilmap.flower.secagg.engine import SecureExchange
    from veilmap.flower.secagg.session import Announcement
    from veilmap.flower.secagg.whole_numbers import Scale
    from veilmap.geometry.grid import Grid
    from veilmap.model.radio_map import RadioMap

    logging.getLogger("flwr").setLevel(logging.WARNING)
    mechanism = vm.NoNoise()
    beside = 2 + len(RadioMap(Grid(1.0, (1, 1)), np.zeros(1)).theta)  # numbers that are no cells
    ground = Grid(1.0, (1, survey.numbers - beside))
    broadcast = Broadcast(0, RadioMap(ground, np.zeros(ground.cells)), nodes)
    vectors = [vector_of(survey, user).astype(np.float64) for user in range(nodes)]
    for one in vectors:
        one[:2] = 1.0  # every node counts itself, and its weight

    def node(user: int, enrolment: Any) -> Callable[[Message], Message]:
        context = Context(run_id=1, node_id=100 + user, node_config=UserConfig(),
                          state=RecordDict(), run_config=UserConfig())  # fmt: skip

        def answer(message: Message, context: Context) -> Message:
            session = Announcement.read(context.state).session
            enrolment.enter(session, account.CHARGED, mechanism)
            say(f"SecAgg+ of {nodes} participants: {user + 1} masked")
            return Message(masking.vector(vectors[user]), reply_to=message)

        def handle(message: Message) -> Message:
            if str(message.metadata.message_type).startswith("query"):
                return Message(records.names([user]), reply_to=message)
            return masking.mask(message, context, answer, enrolment, mechanism)

        return handle

    with tempfile.TemporaryDirectory(prefix="veilmap-") as folder:
        names = [f"node-{user}" for user in range(nodes)]
        enrol(Path(folder), names)
        own = [enrolment_in(Path(folder), name) for name in names]
        grid = FakeGrid({100 + user: node(user, own[user]) for user in range(nodes)})
        exchange = SecureExchange(grid, least_users=nodes, patience=60, deadline=60, poll=0.01,
                                  mechanism=mechanism, roster=own[0].roster)  # fmt: skip
        users, everybody = exchange.users(), np.ones(nodes, dtype=bool)
        total, spent = RoundSum(broadcast), Spent()
        with spent.on("masked"):
            gathered = exchange.collect(total, Turnout(users, everybody, everybody))
            total.unseal()
    assert not gathered.absent, gathered.absent
    whole = np.rint(total.sum.height_gradient / Scale.of(mechanism, nodes).heights)
    expected = np.sum(vectors, axis=0)[2 : 2 + ground.cells]
    assert np.array_equal(whole, expected), "the masked sum is another one"
    return spent


def growth(options: argparse.Namespace) -> dict[str, Any]:
    """Cost of a participant by their number, beside that of masked sums."""
    sizes = [int(size) for size in options.sizes.split(",")]
    survey = replace(designed(options.designed_for), participants=min(sizes))
    busy = os.getloadavg()[0]
    grown(replace(survey, participants=JOB), JOB)  # what is only done once
    found = [grown(survey, size) for size in sizes]
    secagg = masked(survey, options.nodes) if options.nodes else None
    say("")
    print(f"{size_of(survey)}; load of the machine before: {busy:.1f}")
    print(f"{BATCH} reports in a transaction, {JOB} in a job; milliseconds of CPU a participant")
    rows = [["participants", *STEPS, OPEN, "sum", "ratio", "last/first 1,000", "sum, wall"]]
    both = (*STEPS, OPEN)
    for one in found:
        rows.append([
            f"{one.participants:,}", *(f"{one.ms(step):.3f}" for step in STEPS),
            f"{one.ms(OPEN):.3f}", f"{one.ms(*both):.3f}",
            f"× {one.ms(*both) / found[0].ms(*both):.2f}", f"× {one.last_to_first:.2f}",
            f"{one.ms(*both, wall=True):.3f}",
        ])  # fmt: skip
    show("Leader and helper", rows)
    rows = [["participants", *CLIENT, "sum", "ratio"]]
    for one in found:
        rows.append([
            f"{one.participants:,}", *(f"{one.ms(step):.3f}" for step in CLIENT),
            f"{one.ms(*CLIENT):.3f}", f"× {one.ms(*CLIENT) / found[0].ms(*CLIENT):.2f}",
        ])  # fmt: skip
    show("The client, with proof of work of 1 bit", rows)
    result: dict[str, Any] = {
        "numbers": survey.numbers, "load_before": busy,
        "sizes": [
            {"participants": one.participants, "cpu_s": one.spent.cpu, "wall_s": one.spent.wall,
             "last_to_first": one.last_to_first}
            for one in found
        ],
    }  # fmt: skip
    if secagg is not None:
        cpu, wall = secagg.cpu["masked"] / options.nodes, secagg.wall["masked"] / options.nodes
        ours = found[-1].ms(*both, *CLIENT) / 1e3
        print(
            f"\nA masked sum of SecAgg+ of {options.nodes} participants, vectors of"
            f" {survey.numbers:,} numbers, nodes and server together:\n{cpu:.3f} s of CPU a"
            f" participant ({wall:.3f} s on the wall); the survey, its clients included: {ours:.4f}"
            f" s, {cpu / ours:.0f} times less"
        )
        result["secagg"] = {"nodes": options.nodes, "cpu_s": secagg.cpu, "wall_s": secagg.wall}
    return result


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    kinds = parser.add_subparsers(dest="kind", required=True)
    over = kinds.add_parser("http", help="one survey over HTTP on this machine")
    over.add_argument("--participants", type=int, default=10_000)
    over.add_argument("--designed-for", type=int, help="participants that points are spaced for")
    over.add_argument("--connections", type=int, default=32, help="participants at once")
    over.add_argument("--invitations", action="store_true", help="instead of proof of work")
    over.add_argument("--proofs", action="store_true", help="of bounded contributions")
    over.add_argument("--tls", action="store_true", help="TLS ends at the aggregators")
    over.add_argument("--minutes", type=float, default=20, help="to wait for each part, at most")
    over.set_defaults(run=http)
    grows = kinds.add_parser("growth", help="cost of a participant by their number")
    grows.add_argument("--sizes", default="1000,5000,10000,50000", help="multiples of 1,000")
    grows.add_argument("--designed-for", type=int, default=10_000)
    grows.add_argument("--nodes", type=int, default=100, help="of the masked sum; 0 for none")
    grows.set_defaults(run=growth)
    options = parser.parse_args()
    result = options.run(options)
    if options.json:
        options.json.write_text(json.dumps(result, indent=1, default=float) + "\n")


if __name__ == "__main__":
    main()
