"""Whatever a node of a masked sum sends, it is named and asked no more, and costs others little."""

import copy
import json

import numpy as np
import pytest

pytest.importorskip("flwr", reason="the Flower engine is an optional extra")

from cryptography.hazmat.primitives.asymmetric import ec, rsa
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.app.user_config import UserConfig
from flwr.common import ndarray_to_bytes
from flwr.common.secure_aggregation.crypto.symmetric_encryption import decrypt, encrypt
from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_CONFIGS as CONFIGS
from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_STATE as STATE
from flwr.supercore.primitives.asymmetric import public_key_to_bytes

import veilmap as vm
from fakegrid import FakeGrid, enrol, enrolment_in
from veilmap.federation.config import RunConfig
from veilmap.federation.rounds import Recording, Training
from veilmap.flower.client import Own, client_app
from veilmap.flower.secagg import account, session, sharing
from veilmap.flower.secagg.engine import SecureExchange
from veilmap.flower.secagg.enrolment import Roster
from veilmap.flower.secagg.whole_numbers import MODULUS
from veilmap.privacy.accounting import calibrated

FORMAL = calibrated(vm.AggregateGaussian(epsilon=8, delta=1e-3, dropout=0.4), 3)
USERS, CULPRIT, ROUNDS = 6, 3, 2
RECORD = session.RECORD


class Federation:
    """Nodes 100, 101, … of users 0, 1, …, one of which changes its replies to one stage."""

    def __init__(self, folder, stage, change):
        self.folder = folder
        names = [f"node-{user}" for user in range(USERS)]
        enrol(folder, names)
        self.scene = vm.Scene.synthetic(0, cell_size=30.0)
        self.data = self.scene.measure(users=USERS, links_per_user=20, seed=0)
        self.state = None  # of the culprit
        self.grid = FakeGrid({100 + user: self._node(user) for user in range(USERS)})
        honest = self.grid.handlers[100 + CULPRIT]

        def handle(message):
            now, reply = stage_of(message), honest(message)  # which takes the stage out
            return change(self, message, reply) if now == stage else reply

        self.grid.handlers[100 + CULPRIT] = handle

    def _node(self, user):
        own = Own(self.data.select(self.data.user == user), FORMAL, 5, self._enrolment(user))
        app = client_app(lambda context: own)
        context = Context(run_id=1, node_id=100 + user, node_config=UserConfig(),
                          state=RecordDict(), run_config=UserConfig())  # fmt: skip
        if user == CULPRIT:
            self.state = context.state
        return lambda message: app(message, context)

    def _enrolment(self, user):
        return enrolment_in(self.folder, f"node-{user}")

    def play(self):
        step, crowd = vm.NoiseAwareStep(), vm.Participation()
        config = RunConfig(self.scene.grid, FORMAL, "sums", ROUNDS, 5, step, crowd)
        roster = Roster.load(self.folder / "roster")
        exchange = SecureExchange(self.grid, 1, 0.5, 0.3, 0.01, mechanism=FORMAL, roster=roster)
        return Training(config, Recording()).play(exchange)

    def paid(self):
        """In how many sums the account of each honest node says that it was."""
        found = []
        for user in set(range(USERS)) - {CULPRIT}:
            own = self._enrolment(user)
            found.append(account.load(own.account, own.owner).answers)
        return found


def stage_of(message):
    record = message.content.config_records.get(CONFIGS)
    return str(record["stage"]) if record else "introduction"


def put(record, **told):
    """The reply with other values of a record."""

    def change(federation, message, reply):
        reply.content.config_records.setdefault(record, ConfigRecord()).update(told)
        return reply

    return change


def signed(**told):
    """The same in an advert that is signed anew: what an enrolled node can do."""

    def change(federation, message, reply):
        keys = reply.content.config_records[CONFIGS]
        keys.update({name: make() if callable(make) else make for name, make in told.items()})
        own, here = federation._enrolment(CULPRIT), 100 + CULPRIT
        try:
            advert = session.Advert(here, own.name, keys["pk1"], keys["pk2"])
            announced = session.Announcement.read(message.content)
            reply.content[RECORD]["signature"] = own.sign(advert.message(announced))
        except (AttributeError, KeyError, TypeError):
            pass
        return reply

    return change


def same_key_twice(federation, message, reply):
    return signed(pk2=reply.content[CONFIGS]["pk1"])(federation, message, reply)


def edited(name, edit):
    """The reply with a list of it edited."""

    def change(federation, message, reply):
        record = reply.content[CONFIGS]
        record[name] = edit(list(record[name]))
        return reply

    return change


def repacked(edit):
    """Shares that its peers can decrypt, and which are something else inside."""

    def change(federation, message, reply):
        record, state = reply.content[CONFIGS], federation.state.config_records[STATE]
        secrets = dict(zip(state["ss2_dict:K"], state["ss2_dict:V"], strict=True))
        record["ctxts"] = [
            encrypt(secrets[to], edit(decrypt(secrets[to], text)))
            for to, text in zip(record["dsts"], record["ctxts"], strict=True)
        ]
        return reply

    return change


def numbers(make):
    def change(federation, message, reply):
        reply.content[CONFIGS]["masked_params"] = [
            ndarray_to_bytes(np.asarray(part)) for part in make()
        ]
        return reply

    return change


def wrong(share):
    """A share as long as it should be, of nothing."""
    return share[:4] + bytes(len(share) - 4)


def nothing(federation, message, reply):
    return Message(RecordDict(), reply_to=message)


def dropped(record):
    def change(federation, message, reply):
        del reply.content[record]
        return reply

    return change


def key(curve):
    return lambda: public_key_to_bytes(ec.generate_private_key(curve()).public_key())


def rsa_key():
    return public_key_to_bytes(rsa.generate_private_key(65537, 2048).public_key())


def vector(values, factor=0, count=None):
    """A masked vector of the right length unless another is named."""
    cells = vm.Scene.synthetic(0, cell_size=30.0).grid.cells

    def make():
        return np.array([factor]), np.full(count or cells + 6, values)

    return make


SETUP, SHARE, MASKED, AGREE, UNMASK = account.STAGES
# What is sent, and how many sums honest nodes then pay for that nobody gets.
KINDS = {
    "setup: nothing": (SETUP, nothing, 0),
    "setup: keys as text": (SETUP, signed(pk1="key"), 0),
    "setup: no key": (SETUP, signed(pk1=b"no key"), 0),
    "setup: another curve": (SETUP, signed(pk1=key(ec.SECP256R1)), 0),
    "setup: an RSA key": (SETUP, signed(pk2=rsa_key), 0),
    "setup: one key for both": (SETUP, same_key_twice, 0),
    "setup: a key of a megabyte": (SETUP, signed(pk1=b"x" * 2**20), 0),
    "setup: no name": (SETUP, put(RECORD, name=7), 0),
    "setup: another's name": (SETUP, put(RECORD, name="node-0"), 0),
    "setup: a long name": (SETUP, put(RECORD, name="x" * 10**6), 0),
    "setup: signature as text": (SETUP, put(RECORD, signature="x"), 0),
    "share keys: nothing": (SHARE, nothing, 0),
    "share keys: text": (SHARE, edited("ctxts", lambda old: ["x"] * len(old)), 0),
    "share keys: bytes of nothing": (SHARE, edited("ctxts", lambda old: [b"x"] * len(old)), 0),
    "share keys: swapped": (SHARE, edited("ctxts", lambda old: old[1:] + old[:1]), 0),
    "share keys: one left out": (SHARE, edited("ctxts", lambda old: old[1:]), 0),
    "share keys: one peer twice": (SHARE, edited("dsts", lambda old: [old[0]] * len(old)), 0),
    "share keys: to itself": (SHARE, edited("dsts", lambda old: [103, *old[1:]]), 0),
    "share keys: to nobody": (SHARE, edited("dsts", lambda old: [999, *old[1:]]), 0),
    "share keys: to true": (SHARE, edited("dsts", lambda old: [True] * len(old)), 0),
    "share keys: endless": (SHARE, edited("ctxts", lambda old: [b"x" * 2**20] * len(old)), 0),
    "share keys: empty inside": (SHARE, repacked(lambda text: b""), 0),
    "share keys: from another": (SHARE, repacked(lambda text: bytes(8) + text[8:]), 0),
    "share keys: for another": (SHARE, repacked(lambda text: text[:8] + bytes(8) + text[16:]), 0),
    "share keys: short inside": (SHARE, repacked(lambda text: text[:-9]), 0),
    "share keys: no digest": (SHARE, dropped(RECORD), 0),
    # Peers cannot see that shares do not fit each other before they are put together.
    "share keys: unfitting": (SHARE, repacked(lambda text: text[:24] + bytes(len(text) - 24)), 1),
    "share keys: another digest": (SHARE, put(RECORD, seed=bytes(32)), 1),
    "collect: nothing": (MASKED, nothing, 0),
    "collect: text": (MASKED, put(CONFIGS, masked_params=["x", "y"]), 0),
    "collect: no arrays": (MASKED, put(CONFIGS, masked_params=[b"x", b"y"]), 0),
    "collect: one array": (MASKED, put(CONFIGS, masked_params=[b"x"]), 0),
    "collect: real numbers": (MASKED, numbers(vector(0.5)), 0),
    "collect: complex numbers": (MASKED, numbers(vector(1j)), 0),
    "collect: too few": (MASKED, numbers(vector(1, count=7)), 0),
    "collect: below 0": (MASKED, numbers(vector(-1)), 0),
    "collect: beyond the modulus": (MASKED, numbers(vector(MODULUS)), 0),
    "collect: a huge factor": (MASKED, numbers(vector(0, factor=2**62)), 0),
    "collect: invented complaint": (MASKED, put(RECORD, unopened=[999]), 0),
    "collect: complaint as text": (MASKED, put(RECORD, unopened=["x"]), 0),
    "agree: nothing": (AGREE, nothing, 0),
    "agree: text": (AGREE, put(RECORD, signature="x"), 0),
    "agree: of another view": (AGREE, put(RECORD, signature=b"x"), 0),
    "unmask: nothing": (UNMASK, nothing, 0),
    "unmask: text": (UNMASK, edited("shares", lambda old: ["x"] * len(old)), 0),
    "unmask: empty": (UNMASK, edited("shares", lambda old: [b""] * len(old)), 0),
    "unmask: short": (UNMASK, edited("shares", lambda old: [s[:-1] for s in old]), 0),
    "unmask: wrong": (UNMASK, edited("shares", lambda old: [wrong(s) for s in old]), 0),
    "unmask: swapped": (UNMASK, edited("shares", lambda old: old[1:] + old[:1]), 0),
    "unmask: of true": (UNMASK, edited("nids", lambda old: [True] * len(old)), 0),
    "unmask: of another": (UNMASK, edited("nids", lambda old: [1] * len(old)), 0),
    "unmask: endless": (UNMASK, edited("shares", lambda old: [b"x" * 2**20] * len(old)), 0),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_culprit_is_named_and_the_others_go_on_without_it(kind, tmp_path):
    stage, change, lost = KINDS[kind]
    federation = Federation(tmp_path, stage, change)
    first, second = federation.play().history
    assert f"{CULPRIT} left at " in first.notes
    assert second.opened
    assert second.clients == USERS - 1
    assert not second.notes
    assert federation.paid() == [first.opened + second.opened + lost] * (USERS - 1)


@pytest.mark.parametrize(
    "told",
    [
        {"users": "[" * 100_000 + "]" * 100_000},
        {"users": "[true]"},
        {"users": "[0]"},
        {"users": "[0, 3]"},
        {"users": json.dumps(["x" * 10**6])},
    ],
)
def test_an_introduction_that_its_node_did_not_sign_is_none(told, tmp_path):
    def change(federation, message, reply):
        reply.content["facts"].update(told)
        return reply

    run = Federation(tmp_path, "introduction", change).play()
    assert [row.clients for row in run.history] == [USERS - 1] * ROUNDS


def test_a_node_that_comes_first_cannot_take_a_user_whose_node_is_written_down(tmp_path):
    federation = Federation(tmp_path, "", None)
    roster = tmp_path / "roster"
    lines = roster.read_text().splitlines()
    roster.write_text("".join(f"{line} [{user}]\n" for user, line in enumerate(lines)))
    thief = federation._node(CULPRIT)

    def lying(message):
        now, reply = stage_of(message), thief(message)
        if now == "introduction":
            own, users = federation._enrolment(CULPRIT), [0]
            told = {"name": own.name, "signature": own.sign(session.introduction(103, users))}
            reply.content["facts"].update({"users": json.dumps(users)})
            reply.content[RECORD].update(told)
        return reply

    honest = federation.grid.handlers
    federation.grid.handlers = {103: lying, **{n: honest[n] for n in honest if n != 103}}
    run = federation.play()
    assert run.history[0].clients == USERS - 1
    assert federation.paid() == [ROUNDS] * (USERS - 1)  # user 0 answered by its own node


def test_false_complaints_exclude_nobody_but_their_sender_for_the_round(tmp_path):
    def change(federation, message, reply):
        peers = list(message.content[CONFIGS]["srcs"])
        content = RecordDict({RECORD: ConfigRecord({"unopened": peers})})
        return Message(content, reply_to=message)

    run = Federation(tmp_path, MASKED, lambda f, m, r: change(f, copy.copy(m), r)).play()
    assert [row.clients for row in run.history] == [USERS - 1] * ROUNDS
    assert all(f"{CULPRIT} left at collect" in row.notes for row in run.history)


def test_secrets_are_put_together_in_spite_of_wrong_shares_whose_givers_are_found():
    secret = bytes(range(32))
    shares = dict(enumerate(sharing.create_shares(secret, 7, 12)))
    for liars in ({3}, {0, 11}, {2, 5, 8}):
        given = {giver: wrong(s) if giver in liars else s for giver, s in shares.items()}
        assert sharing.recovered(given, 7, secret.__eq__) == (secret, liars)
    assert sharing.recovered(shares, 7, secret.__eq__) == (secret, set())
    few = {giver: wrong(s) if giver == 0 else s for giver, s in list(shares.items())[:7]}
    assert sharing.recovered(few, 7, secret.__eq__) == (None, set())
