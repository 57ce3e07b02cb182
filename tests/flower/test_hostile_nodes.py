"""Whatever one node sends instead of its upload, it is refused by name and the run goes on."""

import io
import json
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("flwr", reason="the Flower engine is an optional extra")

from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, RecordDict

import veilmap as vm
from fakegrid import FakeGrid, node
from veilmap.federation.config import RunConfig
from veilmap.federation.engine import LocalExchange
from veilmap.federation.history import load
from veilmap.federation.rounds import Recording, Training
from veilmap.flower.client import Own
from veilmap.flower.exchange import FlowerExchange

MECHANISM = vm.UniformNoise(noise_budget=10)
CULPRIT = 2


@pytest.fixture(scope="module")
def town():
    scene = vm.Scene.synthetic(0, cell_size=10.0)
    return scene, scene.measure(users=5, links_per_user=30, seed=0)


@pytest.fixture(scope="module")
def reference(town):
    """The run in which the culprit never was."""
    scene, data = town
    honest = data.select(data.user != CULPRIT)
    return training(scene).play(LocalExchange(honest, MECHANISM, 5))


def training(scene, **recorded):
    crowd, step = vm.Participation(), vm.NoiseAwareStep()
    config = RunConfig(scene.grid, MECHANISM, "uploads", 2, 5, step, crowd)
    return Training(config, Recording(**recorded))


def exchange(data, change=lambda message, reply: reply, asked="train"):
    """Nodes 100, 101, … of one user each, one of which changes its replies to a question."""

    def own(user):
        mine = Own(data.select(data.user == user), MECHANISM, 5)
        return node(lambda context: mine)

    grid = FakeGrid({100 + user: own(user) for user in data.users.tolist()})
    honest = grid.handlers[100 + CULPRIT]

    def handle(message):
        reply = honest(message)
        return change(message, reply) if message.metadata.message_type == asked else reply

    grid.handlers[100 + CULPRIT] = handle
    return FlowerExchange(grid, 1, 0.3, 0.2, 0.01)


def heights(make):
    """Other heights: ``make`` gets the honest ones, (1, M)."""

    def change(message, reply):
        stored = reply.content["arrays"]["heights"]
        reply.content["arrays"]["heights"] = Array(make(stored.numpy().copy()))
        return reply

    return change


def theta(make):
    def change(message, reply):
        stored = reply.content["arrays"]["propagation"]
        reply.content["arrays"]["propagation"] = Array(make(stored.numpy().copy()))
        return reply

    return change


def facts(**told):
    def change(message, reply):
        reply.content["facts"].update(told)
        return reply

    return change


def filled(value):
    def make(values):
        values[:] = value
        return values

    return make


def bytes_of(data):
    def change(message, reply):
        reply.content["arrays"]["heights"] = Array("float64", (1, 900), "numpy.ndarray", data)
        return reply

    return change


def npy(header):
    """An .npy file with a header of one's own and no numbers."""
    text = header.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


def fortran(values):
    stream = io.BytesIO()
    np.save(stream, np.asfortranarray(np.vstack([values, values])))
    return Array("float64", (2, 900), "numpy.ndarray", stream.getvalue()).numpy()


def without(record):
    def change(message, reply):
        content = {name: part for name, part in reply.content.items() if name != record}
        return Message(RecordDict(content), reply_to=message)

    return change


def failing(reason):
    return lambda message, reply: Message(Error(code=0, reason=reason), reply_to=message)


REAL = "{'descr': '<f8', 'fortran_order': False, 'shape': "
DEEP = "[" * 200_000 + "]" * 200_000
KINDS = {
    "θ of 1e308": theta(filled(1e308)),
    "θ of -1e308": theta(filled(-1e308)),
    "θ of 1e7": theta(filled(1e7)),
    "θ not a number": theta(filled(np.nan)),
    "θ infinite": theta(filled(np.inf)),
    "θ too long": theta(lambda values: np.hstack([values, values])),
    "θ as text": theta(lambda values: values.astype(str)),
    "bool heights": heights(lambda values: values > 0),
    "text heights": heights(lambda values: values.astype(str)),
    "complex heights": heights(lambda values: values.astype(complex)),
    "big-endian heights": heights(lambda values: values.astype(">f8")),
    "single precision": heights(lambda values: values.astype(np.float32)),
    "whole heights": heights(lambda values: np.zeros(values.shape, dtype=np.int64)),
    "structured heights": heights(lambda values: np.zeros((1, 900), dtype=[("a", "f8")])),
    "dates": heights(lambda values: np.zeros(values.shape, dtype="M8[s]")),
    "heights infinite": heights(filled(np.inf)),
    "heights of 1e300": heights(filled(1e300)),
    "three axes": heights(lambda values: values[None]),
    "no axis": heights(lambda values: np.array(1.0)),
    "two rows": heights(lambda values: np.vstack([values, values])),
    "stored by columns": heights(fortran),
    "a shape of petabytes": bytes_of(npy(REAL + "(1, 1000000000000000)}")),
    "a negative shape": bytes_of(npy(REAL + "(-1, -8)}") + bytes(64)),
    "a deep header": bytes_of(npy("(" * 50 + ")" * 50)),
    "objects": bytes_of(npy("{'descr':'|O','fortran_order':False,'shape':(1,1)}") + bytes(8)),
    "no bytes": bytes_of(b""),
    "a weight of infinity": facts(weights=[float("inf")]),
    "a weight not a number": facts(weights=[float("nan")]),
    "a weight as text": facts(weights=["many"]),
    "a weight with a fraction": facts(weights=[1.5]),
    "a weight of true": facts(weights=[True]),
    "a weight of 0": facts(weights=[0]),
    "a weight of 2**62": facts(weights=[2**62]),
    "no weights": facts(weights=[]),
    "a weight alone": facts(weights=3),
    "a round of infinity": facts(round=float("inf")),
    "a round as text": facts(round="now"),
    "a round to come": facts(round=7),
    "nested users": facts(users=DEEP),
    "a user in a list": facts(users="[[2]]"),
    "users not JSON": facts(users="2"),
    "users as a number": facts(users=2),
    "a user twice": facts(users="[2, 2]"),
    "a user of true": facts(users="[true]"),
    "a user with a fraction": facts(users="[2.0]"),
    "a user not a number": facts(users="[NaN]"),
    "a very long id": facts(users=json.dumps(["x" * 10**6])),
    "a very large id": facts(users=f"[{10**4000}]"),
    "somebody else": facts(users="[0]"),
    "no arrays": without("arrays"),
    "no facts": without("facts"),
    "arrays where facts are": lambda message, reply: Message(
        RecordDict({"arrays": reply.content["arrays"], "facts": ArrayRecord({})}), reply_to=message
    ),
    "facts where arrays are": lambda message, reply: Message(
        RecordDict({"arrays": ConfigRecord({}), "facts": reply.content["facts"]}), reply_to=message
    ),
    "nothing": lambda message, reply: Message(RecordDict(), reply_to=message),
    "an error of a megabyte": failing("x" * 2**20),
    "an error of many lines": failing("a\nb\r\n\x1b[31m"),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_the_sender_is_left_out_by_name_and_the_map_is_that_of_the_others(
    kind, town, reference, tmp_path
):
    scene, data = town
    plan = training(scene, out=tmp_path / "run")
    run = plan.play(exchange(data, KINDS[kind]))
    assert [row.clients for row in run.history] == [4, 4]
    for row in run.history:
        assert row.notes.startswith(f"{CULPRIT} ")
        assert len(row.notes) < 1000
        assert row.notes.isprintable()
    np.testing.assert_array_equal(run.radio_map.heights, reference.radio_map.heights)
    assert run.radio_map.propagation == reference.radio_map.propagation
    assert load(tmp_path / "run" / "history.csv")[0].notes == run.history[0].notes


INTRODUCTIONS = {
    "nested": facts(users=DEEP),
    "a list in a list": facts(users="[[2]]"),
    "true": facts(users="[true]"),
    "a number": facts(users=2),
    "not JSON": facts(users="{"),
    "a mapping": facts(users='{"2": 2}'),
    "no number": facts(users="[NaN]"),
    "endless": facts(users="[" + "1," * 200_000 + "1]"),
    "long": facts(users=json.dumps(["x" * 10**6])),
    "nothing": lambda message, reply: Message(RecordDict(), reply_to=message),
    "an error": failing("x" * 2**20),
}


@pytest.mark.parametrize("kind", INTRODUCTIONS)
def test_a_node_that_does_not_say_who_it_is_is_not_asked(kind, town, reference):
    scene, data = town
    run = training(scene).play(exchange(data, INTRODUCTIONS[kind], asked="query"))
    assert [row.clients for row in run.history] == [4, 4]
    np.testing.assert_array_equal(run.radio_map.heights, reference.radio_map.heights)


def test_nobody_answers_for_another_node(town, reference):
    scene, data = town

    def forged(message, reply):
        reply.metadata.__dict__["_src_node_id"] = 100
        return reply

    run = training(scene).play(exchange(data, forged))
    assert [row.clients for row in run.history] == [4, 4]
    np.testing.assert_array_equal(run.radio_map.heights, reference.radio_map.heights)


def test_a_thousand_nodes_that_fail_do_not_make_a_history_that_cannot_be_read(tmp_path):
    from veilmap.federation import history

    scene = vm.Scene.synthetic(0, cell_size=10.0)
    run = training(scene, out=tmp_path / "run").play(
        LocalExchange(scene.measure(users=2, links_per_user=9, seed=0), MECHANISM, 5)
    )
    notes = history.noted(f"{node} {'x' * 10000}" for node in range(5000))
    history.save([replace(run.history[0], notes=notes)], tmp_path / "history.csv")
    assert load(tmp_path / "history.csv")[0].notes == notes
