"""A mod that records what a Flower app sends, read by an audit."""

import numpy as np
import pytest

pytest.importorskip("flwr", reason="the Flower engine is an optional extra")

from flwr.app import Array, ArrayRecord, Context, Error, Message, RecordDict
from flwr.app.user_config import UserConfig

import fakegrid  # noqa: F401  stamps messages
import networks
import veilmap as vm
from refusals import refused
from veilmap.attacks.any_model import FirstLayer
from veilmap.auditing.recordings import recorded_rounds
from veilmap.errors import ConfigurationError
from veilmap.flower import RecordingMod

MODEL = networks.network()
RATE = 0.1


def context(number):
    return Context(run_id=1, node_id=number, node_config=UserConfig(), state=RecordDict(),
                   run_config=UserConfig())  # fmt: skip


def packed(parameters):
    return RecordDict({"arrays": ArrayRecord({n: Array(v) for n, v in parameters.items()})})


def app(own):
    """A step of gradient descent on one node's records: a whole model, as FedAvg expects."""

    def call(message, _):
        before = {n: a.numpy() for n, a in message.content["arrays"].items()}
        slope = networks.gradient(before, own)
        after = {name: before[name] - RATE * slope[name] for name in before}
        return Message(packed(after), reply_to=message)

    return call


def test_a_recorded_app_is_audited(tmp_path):
    people = networks.users(4)
    mod = RecordingMod(folder=tmp_path, user=lambda own: own.node_id - 7)
    nodes = {user: context(user + 7) for user in people}
    parameters = MODEL.parameters
    for _ in range(2):
        for user, own in people.items():
            reply = mod(Message(packed(parameters), 1, "train"), nodes[user], app(own))
        parameters = {n: a.numpy() for n, a in reply.content["arrays"].items()}
    rounds = recorded_rounds(tmp_path, MODEL, learning_rate=RATE)
    assert [len(one.seen.clients) for one in rounds] == [4, 4]
    audit = vm.audit_gradients(
        MODEL, people, area=networks.AREA, sees=rounds, attacks=[FirstLayer()]
    )
    assert all(one.score("first layer").median.value < 1e-2 for one in audit.exposed)


def test_replies_pass_through_and_errors_are_not_recorded(tmp_path):
    def failing(message, _):
        return Message(Error(code=1, reason="no data"), reply_to=message)

    mod = RecordingMod(folder=tmp_path)
    message = Message(packed(MODEL.parameters), 1, "train")
    assert mod(message, context(1), failing).has_error()
    assert list(tmp_path.iterdir()) == []
    own = networks.users(1)[0]
    wanted = app(own)(message, None).content["arrays"]["w1"].numpy()
    reply = mod(message, context(1), app(own))
    np.testing.assert_array_equal(reply.content["arrays"]["w1"].numpy(), wanted)
    assert len(list(tmp_path.iterdir())) == 1


def test_a_recording_keeps_what_is_really_sent(tmp_path):
    mod = RecordingMod(folder=tmp_path, sends="update")
    own = networks.users(1)[0]
    mod(Message(packed(MODEL.parameters), 1, "train"), context(0), app(own))
    (only,) = recorded_rounds(tmp_path, MODEL)
    sent = app(own)(Message(packed(MODEL.parameters), 1, "train"), None).content["arrays"]
    np.testing.assert_array_equal(only.seen.uploads[0][:24], sent["w1"].numpy().ravel())


def test_wrong_parameters_are_refused(tmp_path):
    with refused(ConfigurationError, parameter="sends"):
        RecordingMod(folder=tmp_path, sends="gradients")
