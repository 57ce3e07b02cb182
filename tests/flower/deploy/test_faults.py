"""Nodes and servers that die in the middle of a real run, and nodes without a key."""

import re
from itertools import pairwise

import numpy as np
import pytest

pytest.importorskip("flwr", reason="the Flower engine is an optional extra")

import veilmap as vm
from deployments import (
    command,
    kill,
    listed,
    log_of,
    logs,
    made,
    rows,
    running,
    training,
    trainings,
    veilmap,
    wait_until,
)
from veilmap.flower.deploy import processes

# Two cores: one deployment at a time. Flower misses a dead node after a minute, so these take
# minutes too, and have a target of their own.
pytestmark = [pytest.mark.xdist_group("deployment"), pytest.mark.faults]


def test_a_run_goes_on_without_a_killed_node_and_takes_it_back(tmp_path):
    # Flower misses a killed node after up to a minute, and lets it in again only then. That is
    # two rounds at this deadline; one may pass while the node starts, and one is to spare.
    rounds = 6
    fed = made(tmp_path / "fed", "--nodes", 2, "--rounds", rounds, deadline=40.0)
    with running(fed), training(fed) as run:
        wait_until(lambda: rows(fed), "the first round", fed)
        wait_until(lambda: trainings(fed, "node-2") >= 2, "node-2 is asked again", fed)
        kill(fed, "node-2")
        wait_until(lambda: len(rows(fed)) > 1, "a round without node-2", fed)
        processes.up(fed)  # comes back when the server has let the node in
        wait_until(lambda: run.poll() is not None, "the run ends", fed)
    clients = [row.clients for row in rows(fed)]
    assert run.returncode == 0, logs(fed)
    assert clients[:2] == [2, 1], logs(fed)
    # The note names the user whom node-2 speaks for.
    reason = r"1 (did not answer within 40 s|failed on its node: .*Node Unavailable.*)"
    assert re.fullmatch(reason, rows(fed)[1].notes), rows(fed)[1]
    assert 2 in clients[2:], logs(fed)
    back = clients.index(2, 2)
    assert clients == [2] + [1] * (back - 1) + [2] * (rounds - back), logs(fed)


@pytest.mark.parametrize(
    ("victims", "runs_begun"),
    [
        # The server's app waits for the SuperLink, unless that takes a minute to come back.
        pytest.param(["superlink"], (1, 2), id="SuperLink"),
        # The app dies with the SuperExec, which is its parent: another must take over.
        pytest.param(["superlink", "superexec"], (2,), id="whole server"),
    ],
)
def test_a_killed_server_changes_nothing_in_the_map(tmp_path, victims, runs_begun):
    # No answer may be missing, however slow this machine is: that would change the map.
    fed = made(tmp_path / "fed", "--nodes", 2, "--rounds", 3, deadline=240.0)
    with running(fed):
        with training(fed) as run:
            wait_until(lambda: rows(fed), "the first round", fed)
            # Now questions are with the nodes and none is on its way, which may get lost.
            asked_again = "all nodes are asked again"
            wait_until(lambda: all(trainings(fed, n) >= 2 for n in fed.names), asked_again, fed)
            for victim in victims:
                kill(fed, victim)
            wait_until(lambda: run.poll() is not None, "the command notices", fed, 60)
        assert run.returncode == 2
        assert "run it again" in log_of(fed, "run")
        processes.up(fed)
        with training(fed, "run-again") as again:
            wait_until(lambda: again.poll() is not None, "the run ends", fed, 300)
        assert again.returncode == 0, logs(fed)
        runs = flowers_runs(fed)
    assert len(runs) in runs_begun, runs
    assert runs[-1]["status"] == "finished:completed"
    # Two apps that write the same folder would be worse than a server that is down.
    assert all(earlier["finished-at"] <= later["pending-at"] for earlier, later in pairwise(runs))
    assert [row.round for row in rows(fed)] == [0, 1, 2]
    assert [row.clients for row in rows(fed)] == [2, 2, 2], logs(fed)
    there = vm.Run.load(fed.folder / "run").radio_map
    np.testing.assert_allclose(there.heights, in_process().heights, rtol=1e-9)


def in_process():
    """The map of the same training in this process."""
    scene = vm.Scene.synthetic(0)
    mechanism = vm.GeometryAligned(noise_budget=10.0)
    data = scene.measure(users=2, seed=0)
    return vm.train(data, scene.grid, mechanism=mechanism, rounds=3, seed=5).radio_map


def flowers_runs(federation):
    """What the SuperLink knows of runs, oldest first."""
    return sorted(listed(federation, "list")["runs"], key=lambda run: run["pending-at"])


def test_a_node_whose_key_is_missing_is_named_and_nothing_starts(tmp_path):
    fed = made(tmp_path / "fed", "--nodes", 2)
    fed.key("node-2").unlink()
    done = veilmap("federation", "up", fed.folder)
    assert done.returncode == 2
    assert done.stderr == f"veilmap: node-2 has no key: {fed.key('node-2')} is missing\n"
    assert not any(process.running for process in processes.status(fed))
    # A host of its own starts it with this script.
    with command(fed, "alone", [fed.folder / "start" / "node-2.sh"]) as node:
        assert node.wait(timeout=60) != 0
    assert f"No such file or directory: '{fed.key('node-2')}'" in log_of(fed, "alone")


def test_a_node_that_shows_no_key_is_refused_by_the_server(tmp_path):
    fed = made(tmp_path / "fed", "--nodes", 1)
    with running(fed):
        kill(fed, "node-1")  # its port is free for the other
        arguments = fed.command("node-1")
        at = arguments.index("--auth-supernode-private-key")
        with command(fed, "keyless", arguments[:at] + arguments[at + 2 :]) as node:
            assert node.wait(timeout=60) != 0, logs(fed)
        assert len(listed(fed, "supernode", "list")["nodes"]) == 1
    assert "SuperNode ID:" not in log_of(fed, "keyless")
