"""Two aggregators for tests: in one process without HTTP, or served on loopback."""

import secrets
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import numpy as np

import veilmap as vm
from servers import serving
from veilmap._util.sockets import listening
from veilmap.collection import report as reports
from veilmap.collection.admission import Invitations, Issuer, ProofOfWork
from veilmap.collection.aggregator import Helper, Leader
from veilmap.collection.client import Aggregators
from veilmap.collection.keys import SigningKey
from veilmap.collection.metrics import Metrics
from veilmap.collection.pine.reports import parameters_of
from veilmap.collection.service import HttpPeer, Service, create_app
from veilmap.collection.store import Store
from veilmap.collection.task import Task
from veilmap.geometry.grid import Grid
from veilmap.surveys.contribution import contribution

STATIONS = (vm.Station("north", 1100, 2300, 25), vm.Station("7", 1390, 2010, 12))
METRICS_TOKEN = "metrics-token-of-tests"
_ISSUER = Issuer.new()  # making an RSA key takes a while


def small_survey(**changes):
    """4 × 5 points, two base stations; two people are enough to open it."""
    settings = {"participants": 2, "epsilon": 50.0, "delta": 1e-3, "aggregators": 2} | changes
    grid = Grid(80.0, (4, 5), (1000.0, 2000.0), settings.pop("crs", None))
    return vm.Survey("small", grid, STATIONS, **settings)


@dataclass(frozen=True)
class Keys:
    leader: SigningKey
    helper: SigningKey
    collector: SigningKey
    issuer: Issuer


def new_keys():
    return Keys(SigningKey.new(), SigningKey.new(), SigningKey.new(), _ISSUER)


def small_task(keys, *, invitations=False, survey=None, proofs=False, **changes):
    """A task of keys; by proof of very little work unless ``invitations`` are wanted.

    With ``proofs``, contributions are proven to be no longer than the survey's C.
    """
    survey = survey or small_survey()
    settings = {
        "survey": survey,
        "proofs": parameters_of(survey) if proofs else None,
        "leader": "http://127.0.0.1:8001",
        "helper": "http://127.0.0.1:8002",
        "leader_key": keys.leader.public,
        "helper_key": keys.helper.public,
        "collector_key": keys.collector.public,
        "opens": "2026-01-01T00:00Z",
        "closes": "2100-01-01T00:00Z",
        "most_reports": 1000,
        "admission": keys.issuer.public if invitations else ProofOfWork(1),
    }
    return Task(**settings | changes)


def vector(survey, seed):
    """The contribution of somebody with three readings."""
    rng = np.random.default_rng(seed)
    west, east, south, north = survey.grid.extent
    xy = rng.uniform((west, south), (east, north), (3, 2))
    return contribution(survey, xy, np.array(["north", "7", "north"]), rng.normal(-90, 9, 3)).vector


def credential(task, report, leader=None, code=None):
    """What admits a report: work, or a token of the leader for an invitation."""
    if not isinstance(task.admission, Invitations):
        return task.admission.solved(task.digest_bytes, report)
    blinded = task.admission.blinded(task.digest_bytes, report)
    return blinded.finished(leader.issued(code, blinded.message))


def halves_of(task, seed, report=None, own=None):
    """Both halves of a report of somebody's, admitted by work."""
    report = secrets.token_bytes(reports.ID_BYTES) if report is None else report
    own = vector(task.survey, seed) if own is None else own
    return reports.halves(
        task, own, report, credential(task, report), secrets.token_bytes(reports.SECRET_BYTES)
    )


class DirectPeer:
    """The helper as the leader reaches it, without HTTP."""

    def __init__(self, helper):
        self.helper = helper

    def job(self, content):
        return self.helper.answer(content)

    def close(self):
        return self.helper.store.stop_collecting()

    def opening(self, statement, signature):
        return self.helper.open(statement, signature)


@dataclass
class Pair:
    """Leader and helper in one process, with databases below a folder."""

    task: Task
    keys: Keys
    leader: Leader
    helper: Helper

    @property
    def peer(self):
        return DirectPeer(self.helper)

    def close(self):
        self.leader.store.close()
        self.helper.store.close()


def database(folder: Path, role: str) -> str:
    return f"sqlite:///{folder / role}.db"


def pair(folder, task=None, keys=None, *, seed=None, urls=None, **clock):
    """Both aggregators of a task; opened again from the same folder they go on where they were."""
    keys = keys or new_keys()
    task = task or small_task(keys)
    urls = urls or {role: database(folder, role) for role in ("leader", "helper")}
    leader = Leader(
        task, "leader", Store(urls["leader"], task, "leader"), keys.leader, seed=seed,
        issuer=keys.issuer if isinstance(task.admission, Invitations) else None, **clock,
    )  # fmt: skip
    helper = Helper(
        task, "helper", Store(urls["helper"], task, "helper"), keys.helper, seed=seed, **clock
    )
    return Pair(task, keys, leader, helper)


@dataclass
class Deployed:
    """Two aggregators that answer on loopback."""

    task: Task
    keys: Keys
    leader: Leader
    helper: Helper
    client: httpx.Client

    @property
    def aggregators(self):
        return Aggregators(self.client, self.task, pauses=(0.05, 0.1, 0.2))

    def address(self, role, what=None):
        """The address of an aggregator, or of something below its task."""
        base = self.task.address(role)
        return base if what is None else f"{base}/tasks/{self.task.digest}/{what}"

    def send(self, half, role):
        kind = {"content-type": "application/octet-stream"}
        return self.client.post(self.address(role, "reports"), content=half.content, headers=kind)


@contextmanager
def deployed(folder, *, keys=None, seed=None, **changes):
    """Leader and helper served over plain HTTP in threads; ``changes`` are of `small_task`."""
    keys = keys or new_keys()
    with ExitStack() as stack:
        sockets = {
            role: stack.enter_context(listening("127.0.0.1", [0])) for role in ("leader", "helper")
        }
        where = {role: f"http://127.0.0.1:{one.getsockname()[1]}" for role, one in sockets.items()}
        task = small_task(keys, **(where | changes))
        both = pair(folder, task, keys, seed=seed)
        client = stack.enter_context(httpx.Client(timeout=30, trust_env=False))
        peer = HttpPeer(both.leader, client)
        services = {
            "helper": Service(both.helper, Metrics(), METRICS_TOKEN),
            "leader": Service(both.leader, Metrics(), METRICS_TOKEN, peer),
        }
        for role, service in services.items():
            stack.enter_context(serving(create_app(service), sockets[role]))
        yield Deployed(task, keys, both.leader, both.helper, client)


def moved(task, **changes):
    """The task with some things changed."""
    return replace(task, **changes)
