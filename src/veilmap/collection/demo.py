"""A whole survey on one machine: simulated people, two aggregators with TLS, invitations, a map."""

import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx

from veilmap._util import files
from veilmap._util.sockets import listening
from veilmap.collection.client import Aggregators, Sending
from veilmap.collection.collector import Collector, open_into
from veilmap.collection.connection import connected
from veilmap.collection.folder import AggregatorFolder, PublicFile, task_between
from veilmap.collection.keys import SigningKey
from veilmap.collection.readings import contributed
from veilmap.collection.report import half_bytes
from veilmap.collection.store import Store
from veilmap.collection.task import ROLES, Role, Task
from veilmap.data.measurements import Measurements
from veilmap.errors import ConfigurationError
from veilmap.model.evaluation import mean_absolute_error
from veilmap.scenes.scene import Scene
from veilmap.surveys.design import Survey, stations_of
from veilmap.surveys.folder import SurveyFolder
from veilmap.surveys.posterior import Buildings

_STATIONS = 12
_NOISE_DB = 3.0  # of readings
_UNSEEN = 200  # people by whom the map is judged
_COME = 0.9  # of those invited: a design counts on some who do not
_START_SECONDS = 120.0  # machines that are busy take long; who has ended is not waited for

Step = Callable[[str, int], None]


@dataclass(frozen=True)
class Played:
    """What a survey of simulated people took, and how good its map is."""

    people: int
    seconds_each: float  # from a participant's file to both receipts
    bytes_each: int
    error_db: float  # on people who did not take part


def play(out: Path, people: int, epsilon: float, seed: int, step: Step) -> Played:
    """Design, publish, serve, contribute, open; everything is written below ``out``.

    ``step`` is told what is going on, and how many have contributed.
    """
    scene = Scene.synthetic(seed, base_stations=_STATIONS)
    data = scene.measure(users=people, links_per_user=_STATIONS, noise_db=_NOISE_DB, seed=2 * seed)
    task, collector = _published(out, _designed(scene, people, epsilon))
    codes = [secrets.token_urlsafe(16) for _ in range(people)]
    store = Store(AggregatorFolder(out / "leader").database, task, "leader", serving=False)
    store.invite(codes)
    store.close()
    authority = out / "authority" / "ca.crt"
    with ExitStack() as open_:
        serving = {role: open_.enter_context(served(out, role, task)) for role in ROLES}
        client = open_.enter_context(connected(authority))
        for role, process in serving.items():
            _await(client, task.address(role), process, out / role / "aggregator.log")
        aggregators = Aggregators.of(client, task.leader, task.digest)
        began = time.monotonic()
        for number, (user, code) in enumerate(zip(data.users.tolist(), codes, strict=True)):
            own = data.select(data.user == user)
            _contribute(aggregators, own, out / "receipts" / f"{number}.json", code)
            step("contributing", number + 1)
        each = (time.monotonic() - began) / people
        step("opening the sum", people)
        found = open_into(
            SurveyFolder(out / "town"), Collector(aggregators, collector), early=True,
            buildings=_public(scene),
        )  # fmt: skip
    unseen = scene.measure(
        users=_UNSEEN, links_per_user=_STATIONS, noise_db=_NOISE_DB, seed=2 * seed + 1
    )
    size = half_bytes(task, "leader")
    return Played(people, each, size, mean_absolute_error(found, unseen))


def _designed(scene: Scene, people: int, epsilon: float) -> Survey:
    west, east, south, north = scene.grid.extent
    names = [f"mast-{number + 1}" for number in range(len(scene.base_stations))]
    return Survey.design(
        (west, south, east, north),
        stations_of(scene.base_stations, names),
        participants=round(_COME * people),
        epsilon=epsilon,
        coarsest=True,
        id="demo",
        aggregators=2,
    )


def _published(out: Path, design: Survey) -> tuple[Task, SigningKey]:
    """The task of two new aggregators, which certify themselves by an authority of their own."""
    public: dict[Role, PublicFile] = {}
    for role in ROLES:
        with listening("127.0.0.1", [0]) as free:
            port = free.getsockname()[1]
        address = f"https://127.0.0.1:{port}"
        AggregatorFolder.init(
            out / role, role, address, port=port, authority=out / "authority", names=["127.0.0.1"]
        )
        public[role] = PublicFile.load(out / role / "public.json", role)
    collector, tomorrow = SigningKey.new(), datetime.now(UTC) + timedelta(days=1)
    task = task_between(
        design, public["leader"], public["helper"], collector, closes=tomorrow.isoformat()
    )
    collector.save(out / "collector.key")
    task.save(out / "task.json")
    return task, collector


@contextmanager
def served(out: Path, role: Role, task: Task) -> Iterator[subprocess.Popen[bytes]]:
    """`veilmap aggregator serve` as a process of its own, which is asked to stop at the end."""
    folder = out / role
    command = [
        *(sys.executable, "-m", "veilmap.cli", "aggregator", "serve"),
        *("--survey", out / "task.json", "--role", role, "--folder", folder),
        *("--port", task.address(role).rpartition(":")[2]),
        *("--certificate", folder / "tls" / "server.pem", "--key", folder / "tls" / "server.key"),
        *("--authority", out / "authority" / "ca.crt"),
    ]
    with files.open_log(folder / "aggregator.log") as log:
        process = subprocess.Popen(
            [str(word) for word in command], stdout=log, stderr=log, stdin=subprocess.DEVNULL
        )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _await(client: httpx.Client, address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until an aggregator answers."""
    end = time.monotonic() + _START_SECONDS
    while True:
        try:
            if client.get(f"{address}/health").is_success:
                return
        except httpx.HTTPError as problem:
            if process.poll() is not None or time.monotonic() > end:
                raise ConfigurationError(
                    f"{address} did not start: {problem}; {log} may say why"
                ) from None
        time.sleep(0.1)


def _contribute(aggregators: Aggregators, own: Measurements, receipt: Path, code: str) -> None:
    """What `veilmap contribute` does."""
    sending = Sending.begun(aggregators.task, receipt)
    vector = contributed(aggregators.task.survey, own)
    sending.admit(aggregators, code)
    sending.send(vector, aggregators, lambda role: None)


def _public(scene: Scene) -> Buildings:
    """The city's buildings, as the public knows them."""
    return scene.grid, scene.heights
