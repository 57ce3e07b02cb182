"""The Flower engine: the same map as in process, whatever nodes do."""

import json
import os
import subprocess
import sys
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

pytest.importorskip("flwr", reason="the Flower engine is an optional extra")

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

import veilmap as vm
from fakegrid import FakeGrid, enrol, node
from flat import grouped
from refusals import refused
from veilmap.errors import ConfigurationError, DataError, RunFolderError
from veilmap.federation.config import Fingerprint, RunConfig
from veilmap.federation.engine import LocalExchange
from veilmap.federation.messages import Broadcast, Update
from veilmap.federation.participation import Turnout
from veilmap.federation.public import Public
from veilmap.federation.rounds import Training
from veilmap.federation.server import Server
from veilmap.flower import app, records, simulation
from veilmap.flower.client import Own
from veilmap.flower.exchange import FlowerExchange

ALIGNED = vm.GeometryAligned(noise_budget=10)


@pytest.fixture(scope="module")
def town():
    scene = vm.Scene.synthetic(0)
    return scene, scene.measure(users=9, links_per_user=30, seed=0)


def training(town, mechanism=ALIGNED, rounds=4, **options):
    scene, data = town
    step, crowd = vm.NoiseAwareStep(), options.pop("participation", vm.Participation())
    config = RunConfig(scene.grid, mechanism, "uploads", rounds, 5, step, crowd)
    options = {"public": Public(*data.stations)} | grouped(options, recording=vm.Recording)
    return Training(replace(config, data=Fingerprint.of(data)), **options)


def own_of(data, users, mechanism=ALIGNED):
    part = data.select(np.isin(data.user, users))
    return lambda context: Own(part, mechanism, 5)


def grid_of(data, mechanism=ALIGNED, per_node=1):
    users = data.users.tolist()
    groups = [users[i : i + per_node] for i in range(0, len(users), per_node)]
    return FakeGrid({100 + n: node(own_of(data, own, mechanism)) for n, own in enumerate(groups)})


def exchange_of(grid, **options):
    settings = {"least_users": 1, "deadline": 0.2, "poll": 0.01, "patience": 0.5}
    return FlowerExchange(grid, **settings | options)


def same(one, other):
    np.testing.assert_array_equal(one.radio_map.heights, other.radio_map.heights)
    assert one.radio_map.propagation == other.radio_map.propagation


# ---- One conformance suite for every engine


@dataclass
class Engine:
    """Something that plays a training on a town's users."""

    name: str

    def exchange(self, data, mechanism=ALIGNED):
        if self.name == "in-process":
            return LocalExchange(data, mechanism, 5)
        per_node = 4 if self.name == "flower, several users a node" else 1
        return exchange_of(grid_of(data, mechanism, per_node))


ENGINES = [Engine(name) for name in ("in-process", "flower", "flower, several users a node")]


@pytest.fixture(params=ENGINES, ids=lambda engine: engine.name)
def engine(request):
    return request.param


def test_every_engine_gives_the_same_bits(engine, town):
    reference = training(town).play(LocalExchange(town[1], ALIGNED, 5))
    same(training(town).play(engine.exchange(town[1])), reference)


def test_every_engine_honours_participation_and_dropouts(engine, town):
    crowd = vm.Participation(share=0.6, dropout=0.2, late=0.1)
    there = LocalExchange(town[1], ALIGNED, 5)
    reference = training(town, participation=crowd, rounds=8).play(there)
    run = training(town, participation=crowd, rounds=8).play(engine.exchange(town[1]))
    same(run, reference)
    assert [(r.clients, r.dropped, r.late) for r in run.history] == [
        (r.clients, r.dropped, r.late) for r in reference.history
    ]


def test_every_engine_resumes_from_its_checkpoint_to_the_same_bits(engine, town, tmp_path):
    whole = training(town, rounds=6).play(engine.exchange(town[1]))

    class StopError(Exception):
        pass

    def stop(row):
        if row.round == 3:
            raise StopError

    out = tmp_path / "run"
    with pytest.raises(StopError):
        training(town, rounds=6, out=out, checkpoint_every=2, on_round=stop).play(
            engine.exchange(town[1])
        )
    again = training(town, rounds=6, out=out, checkpoint_every=2, resume=True)
    same(again.play(engine.exchange(town[1])), whole)


def test_every_engine_keeps_the_same_transcript(engine, town):
    reference = training(town, keep_uploads={1}).play(LocalExchange(town[1], ALIGNED, 5))
    run = training(town, keep_uploads={1}).play(engine.exchange(town[1]))
    seen, wanted = (r.transcript.uploads(1) for r in (run, reference))
    assert seen.clients == wanted.clients
    np.testing.assert_array_equal(seen.uploads, wanted.uploads)
    np.testing.assert_array_equal(seen.theta_gradient, wanted.theta_gradient)


# ---- Nodes that fail


def spoiled(change):
    """Wrap a node so that its answers in training are changed."""

    def wrap(handler):
        def handle(message):
            reply = handler(message)
            return change(message, reply) if message.metadata.message_type == "train" else reply

        return handle

    return wrap


def with_heights(change):
    def apply(message, reply):
        arrays = reply.content["arrays"]
        arrays["heights"] = Array(change(arrays["heights"].numpy().copy()))
        return reply

    return spoiled(apply)


def set_to(value):
    def change(heights):
        heights[:, 3] = value
        return heights

    return change


def failing(message, reply):
    raise OSError("disk full")


def for_somebody_else(message, reply):
    reply.content["facts"]["users"] = json.dumps([0])  # who has answered already
    return reply


def rubbish(message, reply):
    content = RecordDict({"x": ArrayRecord({"y": Array(np.ones(3))})})
    return Message(content, reply_to=message)


def broken_bytes(message, reply):
    bad = Array("float64", (9999,), "numpy.ndarray", b"nonsense")
    content = RecordDict({"arrays": ArrayRecord({"heights": bad}), "facts": ConfigRecord({})})
    return Message(content, reply_to=message)


FAULTS = {
    "not a number": (with_heights(set_to(np.nan)), "2 is not finite"),
    "wrong shape": (with_heights(lambda h: h[:, :-1]), "2 has the wrong shape"),
    "huge norm": (with_heights(set_to(1e6)), "2 has norm 1e+06, more than"),
    "never answers": (spoiled(lambda m, r: None), "2 did not answer within 0.2 s"),
    "fails": (spoiled(failing), "2 failed on its node: disk full"),
    "speaks for somebody else": (spoiled(for_somebody_else), "2 sent no update"),
    "sends rubbish": (spoiled(rubbish), "2 sent something else than veilmap does"),
    "sends broken bytes": (spoiled(broken_bytes), "2 sent something else than veilmap does"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_bad_node_is_dropped_and_named_and_the_map_is_unharmed(fault, town):
    scene, data = town
    wrap, note = FAULTS[fault]
    grid = grid_of(data)
    grid.handlers[102] = wrap(grid.handlers[102])
    run = training(town).play(exchange_of(grid))
    assert all(row.notes.startswith(note) for row in run.history), run.history[0].notes
    assert all(row.clients == 8 for row in run.history)
    # The same as if that user had never been there.
    others = data.select(data.user != 2)
    alone = training((scene, others)).play(LocalExchange(others, ALIGNED, 5))
    same(run, alone)


def test_a_node_that_comes_back_takes_part_again(town):
    grid = grid_of(town[1])
    gone = grid.handlers.pop(104)
    rows = []

    def on_round(row):
        rows.append(row.clients)
        if row.round == 1:
            grid.handlers[104] = gone
        if row.round == 2:
            grid.handlers.pop(103)

    training(town, on_round=on_round).play(exchange_of(grid))
    assert rows == [8, 8, 9, 8]


def test_a_node_that_joins_while_users_are_chosen_shifts_nobody(town):
    _, data = town
    grid = grid_of(data)
    joins = grid.handlers.pop(100)  # user 0, who stands before all others
    exchange = exchange_of(grid)
    users = exchange.users()
    grid.handlers[100] = joins
    first_two = np.arange(len(users)) < 2
    turnout = Turnout(users, first_two, first_two)
    plan = training(town)
    server = Server(
        plan.config.step, plan.config.step.start(plan.config.grid), 4, ALIGNED, "uploads"
    )
    total = server.open_round([2])
    exchange.collect(total, turnout)
    assert total.clients == [1, 2]


def test_nodes_that_do_not_introduce_themselves_are_not_asked(town):
    grid = grid_of(town[1])
    grid.handlers[300] = lambda message: None
    grid.handlers[301] = lambda message: Message(RecordDict(), reply_to=message)
    run = training(town, rounds=2).play(exchange_of(grid, deadline=0.05))
    assert run.history[-1].clients == 9
    assert not [kind for target, kind in grid.asked if target in (300, 301) and kind == "train"]


def test_a_second_node_cannot_take_over_a_user(town):
    scene, data = town
    grid = grid_of(data)
    grid.handlers[400] = node(own_of(data, [2]))
    run = training(town).play(exchange_of(grid))
    same(run, training(town).play(LocalExchange(data, ALIGNED, 5)))
    assert (400, "train") not in grid.asked
    # Everybody was asked once whom they speak for: in a deployment each question takes seconds.
    assert sorted(target for target, kind in grid.asked if kind == "query") == [
        *range(100, 109),
        400,
    ]


def test_a_smallest_cohort_is_waited_for_in_every_round(town):
    grid = grid_of(town[1])

    def on_round(row):
        for number in (101, 102):
            grid.handlers.pop(number, None)

    with refused(ConfigurationError, 7, "8 users"):
        training(town, on_round=on_round).play(exchange_of(grid, least_cohort=8))


def test_too_few_nodes_are_waited_for_and_then_reported(town):
    with refused(ConfigurationError, 9, "12 users", "0.5 s"):
        training(town).play(exchange_of(grid_of(town[1]), least_users=12))


# ---- What travels


def numbers_in(messages):
    """All bytes of arrays and all numbers of records that the server received."""
    blobs, values = [], []
    for message in messages:
        for record in message.content.values():
            for value in record.values():
                if isinstance(value, Array):
                    blobs.append(value.numpy().tobytes())
                else:
                    values.append(str(value))
    return b"".join(blobs), " ".join(values)


@pytest.mark.parametrize("mechanism", [ALIGNED, vm.NoNoise()])
def test_no_measurement_and_no_position_reaches_the_server(mechanism, town):
    _, data = town
    grid = grid_of(data, mechanism)
    training(town, mechanism=mechanism).play(exchange_of(grid))
    blobs, values = numbers_in(grid.received)
    assert len(blobs) > 9 * 4 * 8 * 10_000
    secrets = np.concatenate([data.gain_db, data.user_xyz[:, :2].ravel()])
    for secret in np.unique(secrets):
        assert np.float64(secret).tobytes() not in blobs
        assert repr(float(secret)) not in values
    kinds = {tuple(sorted(message.content)) for message in grid.received}
    assert kinds == {("facts",), ("arrays", "facts")}
    facts = {key for m in grid.received for key in m.content["facts"]}
    assert facts == {"users", "round", "weights"}


def test_a_node_answers_only_for_those_who_were_asked(town):
    scene, data = town
    broadcast = Broadcast(0, vm.NoiseAwareStep().start(scene.grid).radio_map, 9)
    handler = node(own_of(data, [1, 4, 6]))
    for asked, wanted in (([4], [4]), ([6, 1], [1, 6]), ([3], [])):
        reply = handler(Message(records.question(broadcast, asked), 1, "train"))
        assert [update.client for update in records.read_answer(reply.content)] == wanted


def test_messages_survive_the_way(town):
    scene, _ = town
    rng = np.random.default_rng(0)
    theta = vm.Propagation(-31.5, -21.0, -40.0, -29.0)
    radio_map = vm.RadioMap(scene.grid, rng.normal(size=scene.grid.shape), theta, 0.37)
    asked = records.read_question(records.question(Broadcast(7, radio_map, 55, 1.25), [3, 9]))
    assert asked.users == (3, 9)
    told = asked.broadcast
    assert (told.round, told.cohort, told.filter_width) == (7, 55, 1.25)
    received = asked.broadcast.radio_map
    np.testing.assert_array_equal(received.heights, radio_map.heights)
    assert (received.propagation, received.sharpness, received.grid) == (theta, 0.37, scene.grid)
    updates = [
        Update(u, 7, 10 + i, rng.normal(size=5), rng.normal(size=4))
        for i, u in enumerate(["a", "b"])
    ]
    back = records.read_answer(records.answer(updates))
    for one, other in zip(back, updates, strict=True):
        assert (one.client, one.round, one.weight) == (other.client, other.round, other.weight)
        np.testing.assert_array_equal(one.height_gradient, other.height_gradient)
    assert records.read_answer(records.answer([])) == []


# ---- Flower's own simulation, in a process of its own

_SIMULATION = """
import threading
import numpy as np, veilmap as vm
if __name__ == "__main__":
    scene = vm.Scene.synthetic(0)
    data = scene.measure(users=100, seed=0)
    settings = {"mechanism": vm.GeometryAligned(noise_budget=10), "rounds": 5, "seed": 3}
    here = vm.train(data, scene.grid, **settings)
    lock = threading.Lock()  # a progress bar has one: nodes must not be sent what is recorded
    recording = vm.Recording(on_round=lambda row: lock.locked())
    there = vm.train(
        data, scene.grid, engine=vm.flower.Simulation(), recording=recording, **settings
    )
    scale = np.abs(here.radio_map.heights).max()
    apart = np.abs(there.radio_map.heights - here.radio_map.heights).max() / scale
    theta = [run.radio_map.propagation.as_array() for run in (here, there)]
    apart = max(apart, np.abs(theta[1] / theta[0] - 1).max())
    print("apart", apart, "clients", there.history[-1].clients)
    few = scene.measure(users=6, links_per_user=20, seed=1)
    settings = {"mechanism": vm.AggregateGaussian(epsilon=8, delta=1e-3), "rounds": 2, "seed": 3}
    sums = [vm.train(few, scene.grid, engine=e, **settings) for e in (None, vm.flower.Simulation())]
    heights = [run.radio_map.heights for run in sums]
    print("sums equal", np.array_equal(*heights), sums[1].history[-1].clients)
    def fail(row):
        raise ValueError("from a round")

    try:
        few = scene.measure(users=3, links_per_user=5, seed=1)
        recording = vm.Recording(on_round=fail)
        vm.train(few, scene.grid, engine=vm.flower.Simulation(), rounds=2, recording=recording)
    except ValueError as error:
        print("raised:", error)
"""


def _run_script(folder, text):
    """What a script prints; Ray's files are its own, so that scripts do not find each other."""
    script = folder / "script.py"
    script.write_text(text)
    with TemporaryDirectory(prefix="ray-") as ray:  # a short path: sockets lie below it
        done = subprocess.run(
            [sys.executable, str(script)], capture_output=True, text=True, timeout=300,
            check=False, env=os.environ | {"RAY_TMPDIR": ray},
        )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_flowers_simulation_gives_the_map_of_the_process(tmp_path):
    pytest.importorskip("ray", reason="Flower's simulation needs Ray")
    said = _run_script(tmp_path, _SIMULATION)
    words = said.split()
    assert float(words[words.index("apart") + 1]) <= 1e-9
    assert words[words.index("clients") + 1] == "100"
    # Sums come through SecAgg+, to the bit.
    assert "sums equal True 6" in said
    # An error on the server's side reaches the caller as it is.
    assert "raised: from a round" in said


# ---- The same on a Ray cluster

_ON_A_CLUSTER = """
import numpy as np, ray, veilmap as vm
from ray.cluster_utils import Cluster
if __name__ == "__main__":
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False}
    )
    for _ in range(2):
        cluster.add_node(num_cpus=1)
    scene = vm.Scene.synthetic(0)
    data = scene.measure(users=12, links_per_user=30, seed=0)
    settings = {"mechanism": vm.AggregateGaussian(epsilon=8, delta=1e-3), "rounds": 2, "seed": 3}
    here = vm.train(data, scene.grid, **settings)
    there = vm.train(data, scene.grid, engine=vm.flower.Simulation(cluster.address), **settings)
    print("equal", np.array_equal(here.radio_map.heights, there.radio_map.heights))
    # Without its address nobody joins it, though Ray would: its file names the last cluster.
    alone = vm.train(data, scene.grid, engine=vm.flower.Simulation(), **settings)
    print("alone", np.array_equal(here.radio_map.heights, alone.radio_map.heights))
    ray.init(address=cluster.address, log_to_driver=False)
    print("workers", sum(node["Resources"].get("CPU", 0) > 0 for node in ray.nodes()))
    ray.shutdown()
    cluster.shutdown()
"""


@pytest.mark.slow
def test_two_workers_of_a_ray_cluster_give_the_map_of_the_process(tmp_path):
    pytest.importorskip("ray", reason="Flower's simulation needs Ray")
    said = _run_script(tmp_path, _ON_A_CLUSTER)
    assert "equal True" in said
    assert "alone True" in said
    assert "workers 2" in said


def test_a_simulation_that_breaks_ends_its_server(town, monkeypatch):
    scene, data = town
    servers = []

    def breaks(server, *_, **__):
        """Flower's way: the server in a thread of its own, which nobody ends."""
        grid = FakeGrid({})  # no node ever comes
        servers.append(threading.Thread(target=server, args=(grid, None), daemon=True))
        servers[0].start()
        raise RuntimeError("An error was encountered") from ValueError("no cores")

    monkeypatch.setattr(simulation, "run_simulation", breaks)
    with refused(ConfigurationError, "no cores"):
        vm.train(data, scene.grid, rounds=2, engine=vm.flower.Simulation())
    servers[0].join(timeout=30)
    assert not servers[0].is_alive()


# ---- Wrong use


def test_a_cluster_must_answer(town, monkeypatch):
    scene, data = town
    monkeypatch.setenv("RAY_gcs_rpc_server_reconnect_timeout_s", "1")
    for nobody in ("nowhere", "127.0.0.1:1"):
        with refused(ConfigurationError, f"'{nobody}'"):
            vm.train(data, scene.grid, rounds=2, engine=vm.flower.Simulation(nobody))


def test_a_folder_that_is_taken_is_refused_before_anything_starts(town, tmp_path):
    scene, data = town
    (tmp_path / "config.json").write_text("{}")
    with refused(RunFolderError, tmp_path, "resume"):
        vm.train(
            data,
            scene.grid,
            engine=vm.flower.Simulation(),
            rounds=2,
            recording=vm.Recording(out=tmp_path),
        )


def test_without_flower_a_line_says_what_to_install(tmp_path):
    hidden = tmp_path / "flwr"
    hidden.mkdir()
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as u\n"
        "found = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name in ('flwr', 'ray') else found(name, *a)\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "veilmap.cli", "train", "--engine", "flower", "--users", "5",
         "--rounds", "2", "--out", str(tmp_path / "run")],
        capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 2
    assert "pip install 'veilmap[flower]'" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not Path(tmp_path / "run").exists()


# ---- The apps of a deployment


def run_settings(town, out, **other):
    rows, columns = town[0].grid.shape
    return {
        "out": str(out), "cell-size": town[0].grid.cell_size, "rows": rows, "columns": columns,
        "rounds": 3, "seed": 5, "mechanism": "aligned",
    } | other  # fmt: skip


def deployed(data, folder):
    """Nodes with files of their own, as a deployment has them."""
    handlers = {}
    for number, user in enumerate(data.users.tolist()):
        file = folder / f"user-{user}.parquet"
        data.select(data.user == user).save(file)
        settings = {"data": str(file), "mechanism": "aligned", "noise-budget": 10.0, "seed": 5}
        handlers[number] = node(lambda context, own=settings: app.node_settings(own))
    return FakeGrid(handlers)


def test_a_deployment_gives_the_map_of_the_process(town, tmp_path):
    grid = deployed(town[1], tmp_path)
    run = app.training_of(run_settings(town, tmp_path / "run")).play(exchange_of(grid))
    same(run, training(town, rounds=3).play(LocalExchange(town[1], ALIGNED, 5)))
    again = vm.Run.load(tmp_path / "run")
    same(again, run)
    assert again.transcript.base_stations.shape == (0, 3)


def test_settings_of_a_promise_reach_the_node_and_its_account(town, tmp_path):
    town[1].select(town[1].user == 0).save(tmp_path / "own.parquet")
    settings = {"data": str(tmp_path / "own.parquet"), "mechanism": "aggregate", "epsilon": 4.0,
                "noise-multiplier": 3.0, "theta-share": 0.1}  # fmt: skip
    with pytest.raises(vm.VeilmapError):
        app.node_settings(settings)  # without keys it takes part in no sum
    enrol(tmp_path, ["a", "b"])
    files = {"key": "a", "roster": "roster", "account": "a.json"}
    own = app.node_settings(settings | {name: str(tmp_path / f) for name, f in files.items()})
    assert own.mechanism == vm.AggregateGaussian(epsilon=4.0, noise_multiplier=3.0, theta_share=0.1)
    assert own.enrolment.account == tmp_path / "a.json"
    assert own.enrolment.name == "a"


def test_a_deployment_that_was_killed_goes_on_by_itself(town, tmp_path):
    grid = deployed(town[1], tmp_path)
    settings = run_settings(town, tmp_path / "run", rounds=5)
    begun = app.training_of(settings)
    assert not begun.recording.resume

    def stop(row):
        if row.round == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        recording = replace(begun.recording, on_round=stop)
        replace(begun, recording=recording).play(exchange_of(grid))
    again = app.training_of(settings)
    assert again.recording.resume
    same(
        again.play(exchange_of(grid)),
        training(town, rounds=5).play(LocalExchange(town[1], ALIGNED, 5)),
    )
    with refused(RunFolderError, tmp_path / "run", "rounds", 5, 6):
        app.training_of(settings | {"rounds": 6}).play(exchange_of(grid))


@pytest.mark.parametrize(
    ("settings", "kind", "named"),
    [
        ({}, ConfigurationError, "data"),
        ({"data": "/nowhere.parquet"}, DataError, "/nowhere.parquet"),
    ],
)
def test_a_node_without_data_says_so(settings, kind, named):
    with refused(kind, named):
        app.node_settings(settings)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"mechanism": "magic"}, ["mechanism", "'magic'"]),
        ({"mechanism": "aggregate", "server-sees": "uploads"}, ["aggregate", "server-sees"]),
        ({"server-sees": "everything"}, ["server-sees", "'everything'"]),
        ({"mechanism": "uniform", "tradeoff": 1.0}, ["uniform", "tradeoff"]),
        ({"rounds": 0}, ["rounds", 0]),
        ({"rows": 0}, ["shape", 0]),
    ],
)
def test_wrong_run_settings_are_named(town, tmp_path, change, named):
    with refused(ConfigurationError, *named):
        app.training_of(run_settings(town, tmp_path, **change))


def test_missing_run_settings_are_named(town, tmp_path):
    for name in ("out", "cell-size", "rows", "columns"):
        settings = run_settings(town, tmp_path)
        del settings[name]
        with refused(ConfigurationError, name):
            app.training_of(settings)
