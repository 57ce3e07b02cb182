"""Aggregators whose databases are PostgreSQL's: the same as on SQLite, also when it restarts."""

import subprocess
import sys
import time

import httpx
import numpy as np
import pytest
from fastapi.testclient import TestClient

from aggregators import METRICS_TOKEN, halves_of, new_keys, pair, small_task, vector
from postgres import postgres
from veilmap._util.sockets import listening
from veilmap.collection import shares
from veilmap.collection.folder import AggregatorFolder
from veilmap.collection.metrics import Metrics
from veilmap.collection.service import Service, create_app
from veilmap.collection.store import StorageError, Store
from veilmap.collection.task import ROLES
from veilmap.errors import ConfigurationError
from veilmap.surveys.aggregate import add_noise

pytestmark = pytest.mark.xdist_group("postgres")

SEED = 5


@pytest.fixture(scope="module")
def server():
    with postgres() as server:
        yield server


@pytest.fixture
def both(server, tmp_path):
    """Both aggregators, each with a database of its own."""
    urls = {role: server.new_database() for role in ROLES}
    found = pair(tmp_path, seed=SEED, urls=urls)
    yield found
    found.close()


def take(both, seed):
    """Have both take somebody's halves, and say nothing against it."""
    ours, theirs = halves_of(both.task, seed)
    assert both.leader.take([both.leader.parsed(ours.content)]) == [None]
    assert both.helper.take([both.helper.parsed(theirs.content)]) == [None]


def without_noise(both):
    """The opened sum, less the noise that its seed tells."""
    survey = both.task.survey
    parts = [shares.from_bytes(one.store.opened()) for one in (both.leader, both.helper)]
    noise = np.zeros(survey.numbers, dtype=np.int64)
    for number in range(2):
        add_noise(survey, noise, SEED, number)
    return shares.centred(shares.added(*parts)) - noise


def expected(both, seeds):
    return np.sum([vector(both.task.survey, seed) for seed in seeds], axis=0)


def test_postgresql_opens_what_sqlite_opens(both, tmp_path):
    other = pair(tmp_path, both.task, both.keys, seed=SEED)
    for seed in range(5):
        for half_of_each in [halves_of(both.task, seed)]:
            for here in (both, other):
                assert here.leader.take([half_of_each[0]] * 2) == [None, None]
                assert here.helper.take([half_of_each[1]]) == [None]
        if seed % 2:
            assert both.leader.pair(both.peer) == other.leader.pair(other.peer)
    lonely, _ = halves_of(both.task, 9)
    assert both.leader.take([lonely]) == other.leader.take([lonely]) == [None]
    found = both.leader.open(both.peer, early=True)
    assert found == other.leader.open(other.peer, early=True)
    for role in ROLES:
        ours, theirs = getattr(both, role).store, getattr(other, role).store
        assert ours.opened() == theirs.opened()
        assert ours.opened_reports() == theirs.opened_reports()
        assert ours.standing() == theirs.standing()
        assert ours.unpaired() == theirs.unpaired()
    np.testing.assert_array_equal(without_noise(both), expected(both, range(5)))
    other.close()


def test_a_second_process_on_a_database_is_refused(server, tmp_path):
    helper = AggregatorFolder.init(tmp_path / "helper", "helper", "http://127.0.0.1:8002")
    keys = new_keys()
    task = small_task(keys, helper_key=helper.key.public)
    task.save(tmp_path / "task.json")
    url = server.new_database()
    first = Store(url, task, "helper")
    with listening("127.0.0.1", [0]) as free:
        port = free.getsockname()[1]
    command = [
        *(sys.executable, "-m", "veilmap.cli", "aggregator", "serve", "--role", "helper"),
        *("--survey", tmp_path / "task.json", "--folder", helper.path, "--port", port),
        *("--database", url),
    ]
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 2, done.stderr
    assert "another aggregator" in " ".join(done.stderr.split())
    first.close()
    Store(url, task, "helper").close()


def test_it_is_still_alone_after_postgresql_was_restarted(server, both):
    url = both.helper.store._engine.url.render_as_string(hide_password=False)
    server.stop()
    server.start()
    both.helper.standing()
    with pytest.raises(ConfigurationError, match="another aggregator"):
        Store(url, both.task, "helper")


def test_a_restart_of_postgresql_loses_nothing(server, both):
    for seed in range(3):
        take(both, seed)
    assert both.leader.pair(both.peer) == 3
    take(both, 3)
    late = halves_of(both.task, 4)
    server.stop()
    for aggregator, half in zip((both.leader, both.helper), late, strict=True):
        with pytest.raises(StorageError):
            aggregator.take([half])
    with pytest.raises(StorageError):
        both.leader.pair(both.peer)
    server.start()
    for aggregator, half in zip((both.leader, both.helper), late, strict=True):
        assert aggregator.standing().received == 4
        assert aggregator.take([half]) == [None]
    both.leader.open(both.peer, early=True)
    assert both.helper.standing().added == both.leader.standing().added == 5
    np.testing.assert_array_equal(without_noise(both), expected(both, range(5)))


def test_clients_are_told_to_try_again_while_postgresql_is_away(server, both):
    service = Service(both.helper, Metrics(), METRICS_TOKEN)
    where = f"/tasks/{both.task.digest}/reports"
    kind = {"content-type": "application/octet-stream"}
    _, half = halves_of(both.task, 1)
    with TestClient(create_app(service)) as client:
        server.stop()
        refused = client.post(where, content=half.content, headers=kind)
        assert (refused.status_code, refused.json()["reason"]) == (503, "storage")
        assert "receipt" not in refused.json()
        server.start()
        end = time.monotonic() + 20
        taken = httpx.Response(503)
        while not taken.is_success:
            assert time.monotonic() < end
            taken = client.post(where, content=half.content, headers=kind)
        assert both.helper.standing().received == 1


@pytest.mark.parametrize(
    "wrong",
    [
        "postgresql://veilmap@127.0.0.1:1/survey",  # nobody listens
        "{server}-that-is-not-there",
        "postgresql://127.0.0.1:port/survey",
        "mysql://veilmap@127.0.0.1/survey",
        "a file",
        "",
    ],
)
def test_an_address_that_is_none_is_one_clear_line(server, wrong):
    url = wrong.format(server=server.url("survey"))
    with pytest.raises(ConfigurationError) as refused:
        Store(url, small_task(new_keys()), "leader")
    assert refused.value.parameter == "database"
    assert len(str(refused.value).splitlines()) == 1
