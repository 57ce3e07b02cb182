"""Secure aggregation on Flower: the server gets sums, and nodes check what they are asked."""

import copy
import io
import json
from dataclasses import replace

import numpy as np
import pytest

from refusals import refused
from veilmap.errors import ConfigurationError, PrivacyError
from veilmap.federation.config import RunConfig

pytest.importorskip("flwr", reason="the Flower engine is an optional extra")

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.common import ndarray_to_bytes
from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_CONFIGS
from hypothesis import given, settings
from hypothesis import strategies as st

import veilmap as vm
from fakegrid import FakeGrid, enrol, enrolment_in, node
from flat import grouped
from veilmap.federation.client import Clients
from veilmap.federation.engine import LocalExchange
from veilmap.federation.messages import Broadcast, Update
from veilmap.federation.public import Public
from veilmap.federation.residual import ThenField
from veilmap.federation.rounds import Training
from veilmap.flower import records
from veilmap.flower.client import Own
from veilmap.flower.secagg import masking, sharing
from veilmap.flower.secagg.engine import SecureExchange
from veilmap.flower.secagg.whole_numbers import MODULUS, Scale
from veilmap.privacy.accounting import calibrated

FORMAL = calibrated(vm.AggregateGaussian(epsilon=8, delta=1e-3, dropout=0.4), 3)
STAGES = ("setup", "share_keys", "collect_masked_vectors", "agree", "unmask")


@pytest.fixture(scope="module")
def town():
    scene = vm.Scene.synthetic(0, cell_size=10.0)
    return scene, scene.measure(users=6, links_per_user=30, seed=0)


def training(town, mechanism=FORMAL, rounds=3, **options):
    scene, data = town
    crowd = options.pop("participation", vm.Participation())
    return Training(
        RunConfig(scene.grid, mechanism, "sums", rounds, 5, vm.NoiseAwareStep(), crowd),
        public=Public(*data.stations),
        **grouped({"keep_uploads": "all"} | options, recording=vm.Recording),
    )


ENROLLED = {}


@pytest.fixture(autouse=True)
def enrolled(tmp_path_factory):
    """Every test has a federation of its own: six nodes with keys, accounts and a roster."""
    ENROLLED["folder"] = tmp_path_factory.mktemp("enrolled")
    enrol(ENROLLED["folder"], [f"node-{number}" for number in range(6)])


def enrolment(user):
    return enrolment_in(ENROLLED["folder"], f"node-{user}")


def grid_of(data, mechanism=FORMAL):
    def own(user):
        part = data.select(data.user == user)
        return lambda context: Own(part, mechanism, 5, enrolment(user))

    return FakeGrid({100 + user: node(own(user), 100 + user) for user in data.users.tolist()})


def secure(grid, mechanism=FORMAL, deadline=0.3):
    roster = enrolment(0).roster
    return SecureExchange(grid, 1, 0.5, deadline, 0.01, mechanism=mechanism, roster=roster)


def without(data, *users):
    return data.select(~np.isin(data.user, users))


def stage_of(message):
    record = message.content.config_records.get(RECORD_KEY_CONFIGS)
    return str(record["stage"]) if record else ""


def leaving(handler, stage, rounds=(1,)):
    """A node that falls silent when a stage of some rounds is reached, and comes back."""
    seen = {"setup": 0}

    def handle(message):
        now = stage_of(message)
        seen["setup"] += now == "setup"
        if now and seen["setup"] - 1 in rounds and STAGES.index(now) >= STAGES.index(stage):
            return None
        return handler(message)

    return handle


# ---- The sum


def test_sums_of_the_formal_mode_are_those_of_the_process_to_the_bit(town):
    reference = training(town).play(LocalExchange(town[1], FORMAL, 5))
    run = training(town).play(secure(grid_of(town[1])))
    np.testing.assert_array_equal(run.radio_map.heights, reference.radio_map.heights)
    assert run.radio_map.propagation == reference.radio_map.propagation
    assert [row.epsilon for row in run.history] == [row.epsilon for row in reference.history]
    assert [row.clients for row in run.history] == [6, 6, 6]


@pytest.mark.parametrize(
    "mechanism", [vm.NoNoise(), vm.UniformNoise(noise_budget=10), vm.GeometryAligned()]
)
def test_other_sums_are_equal_to_the_step(mechanism, town):
    reference = training(town, mechanism, 1).play(LocalExchange(town[1], mechanism, 5))
    run = training(town, mechanism, 1).play(secure(grid_of(town[1], mechanism), mechanism))
    ours, theirs = run.transcript.rounds[0], reference.transcript.rounds[0]
    scale = Scale.of(mechanism, 6)
    # Every node rounds by at most half a step; the transcript keeps the mean.
    for name, step in (
        ("height_gradient", scale.heights),
        ("theta_gradient", scale.propagation),
    ):
        error = np.abs(getattr(ours, name) - getattr(theirs, name)).max()
        assert error <= 6 * step / 2 / theirs.weight * (1 + 1e-9)
        assert error < 1e-3 * np.abs(getattr(theirs, name)).max()
    assert ours.weight == theirs.weight


def test_a_residual_field_comes_through_masked_sums_too(town):
    step = ThenField(60.0, rounds=1)
    public = Public(np.unique(town[1].bs_xyz, axis=0))
    plays = [
        Training(replace(training(town).config, step=step), training(town).recording, public).play(
            exchange
        )
        for exchange in (LocalExchange(town[1], FORMAL, 5), secure(grid_of(town[1])))
    ]
    one, other = (run.radio_map.field.values for run in plays)
    np.testing.assert_array_equal(one, other)
    assert np.abs(one).max() > 0


def test_simulated_dropouts_and_shares_are_those_of_the_process(town):
    crowd = vm.Participation(share=0.9, dropout=0.2)
    reference = training(town, participation=crowd).play(LocalExchange(town[1], FORMAL, 5))
    run = training(town, participation=crowd).play(secure(grid_of(town[1])))
    np.testing.assert_array_equal(run.radio_map.heights, reference.radio_map.heights)
    assert [r.opened for r in run.history] == [r.opened for r in reference.history]
    assert len({r.clients for r in reference.history}) > 1  # else this shows nothing


# ---- Nodes that leave


@pytest.mark.parametrize("stage", STAGES)
def test_a_dropout_within_the_threshold_still_yields_the_sum_of_the_others(stage, town):
    grid = grid_of(town[1])
    grid.handlers[102] = leaving(grid.handlers[102], stage, rounds=(0, 1, 2))
    run = training(town, rounds=1).play(secure(grid))
    # Once its masked vector is in, a node may leave: the others unmask it.
    counted = town[1] if stage in ("agree", "unmask") else without(town[1], 2)
    clients = Clients(counted.users.tolist(), counted.links, FORMAL, 5)
    step = vm.NoiseAwareStep()
    start = step.start(town[0].grid)
    width = step.filter_width(start, 1)
    updates, _ = clients.answer(Broadcast(0, start.radio_map, 6, width))
    total = np.sum([update.height_gradient for update in updates], axis=0)
    seen = run.transcript.rounds[0]
    np.testing.assert_array_equal(
        seen.height_gradient, FORMAL.read(total.astype(float), np.zeros(4), len(updates))[0]
    )
    assert run.history[0].opened
    assert f"2 left at {stage.replace('_', ' ')}: did not answer" in run.history[0].notes


@pytest.mark.parametrize("stage", STAGES)
def test_beyond_the_threshold_the_round_is_abandoned_and_the_next_one_goes_on(stage, town):
    grid = grid_of(town[1])
    for number in (101, 102, 103):
        grid.handlers[number] = leaving(grid.handlers[number], stage)
    run = training(town).play(secure(grid))
    assert [row.opened for row in run.history] == [1, 0, 1]
    assert run.history[1].notes.startswith("round abandoned: ")
    assert "3 left at" in run.history[1].notes
    assert sorted(run.transcript.rounds) == [0, 2]


def test_too_few_for_a_sum_are_not_even_asked(town):
    crowd = vm.Participation(dropout=0.5)
    grid = grid_of(town[1])
    run = training(town, participation=crowd, rounds=4).play(secure(grid))
    shut = [row for row in run.history if not row.opened]
    assert shut
    assert all("of the 4 answers it needs came" in row.notes for row in shut)


# ---- What the server gets


def test_the_server_receives_no_single_upload(town):
    _, data = town
    grid = grid_of(data)
    run = training(town, rounds=1).play(secure(grid))
    masked = [
        np.load(io.BytesIO(part))
        for message in grid.received
        for part in dict(message.content.get(RECORD_KEY_CONFIGS, {})).get("masked_params", [])
    ]
    vectors = [values for values in masked if values.size > 1]
    assert len(vectors) == 6
    clients = Clients(data.users.tolist(), data.links, FORMAL, 5)
    start = vm.NoiseAwareStep().start(town[0].grid).radio_map
    for update in clients.answer(Broadcast(0, start, 6))[0]:
        for vector in vectors:
            # A mask is evenly spread over 2³²: nothing of the upload is left in place.
            seen = (vector[2:-4] - update.height_gradient + 2**31) % MODULUS / MODULUS
            assert abs(seen.mean() - 0.5) < 5 * np.sqrt(1 / 12 / seen.size)
            assert np.abs(np.histogram(seen, 10, (0, 1))[0] / seen.size - 0.1).max() < 0.05
    assert not any(message.content.array_records.get("arrays") for message in grid.received)
    assert {type(seen).__name__ for seen in run.transcript.rounds.values()} == {"SeenSum"}


def test_numbers_of_links_are_masked_too(town):
    _, data = town
    grid = grid_of(data, vm.NoNoise())
    training(town, vm.NoNoise(), rounds=1).play(secure(grid, vm.NoNoise()))
    counts = {int(value) for message in grid.received
              for name, record in message.content.config_records.items() if "fitres" in name
              for value in record.values() if isinstance(value, int)}  # fmt: skip
    assert 30 not in counts


def test_the_ledger_is_written_before_a_sum_is_unmasked(town, tmp_path):
    spent = []

    def watching(handler):
        def handle(message):
            if stage_of(message) == "unmask":
                ledger = json.loads((tmp_path / "run" / "ledger.json").read_text())
                spent.append(ledger["opened"])
            return handler(message)

        return handle

    grid = grid_of(town[1])
    grid.handlers = {number: watching(handler) for number, handler in grid.handlers.items()}
    training(town, rounds=1, out=tmp_path / "run").play(secure(grid))
    assert spent == [[0]] * 6


# ---- Nodes that misbehave


def changed(handler, stage, change):
    def handle(message):
        now, reply = stage_of(message), handler(message)
        return change(message, reply) if now == stage else reply

    return handle


def rubbish(message, reply):
    content = RecordDict({RECORD_KEY_CONFIGS: ConfigRecord({"x": 1})})
    return Message(content, reply_to=message)


def nothing(message, reply):
    return Message(RecordDict(), reply_to=message)


def no_key(message, reply):
    reply.content[RECORD_KEY_CONFIGS]["pk1"] = b"no key"
    return reply


def wrong_shape(message, reply):
    reply.content[RECORD_KEY_CONFIGS]["masked_params"] = [
        ndarray_to_bytes(np.zeros(size, dtype=np.int64)) for size in (1, 7)
    ]
    return reply


def other_nodes_shares(message, reply):
    reply.content[RECORD_KEY_CONFIGS]["nids"] = [1] * len(reply.content[RECORD_KEY_CONFIGS]["nids"])
    return reply


@pytest.mark.parametrize(
    ("stage", "change"),
    [
        *((stage, change) for stage in STAGES for change in (rubbish, nothing)),
        ("setup", no_key),
        ("collect_masked_vectors", wrong_shape),
        ("unmask", other_nodes_shares),
    ],
)
def test_a_node_that_sends_rubbish_is_left_out_and_named(stage, change, town):
    grid = grid_of(town[1])
    grid.handlers[103] = changed(grid.handlers[103], stage, change)
    run = training(town, rounds=2).play(secure(grid))
    assert [row.opened for row in run.history] == [1, 1]
    late = stage in ("agree", "unmask")  # its masked vector is in the sum already
    # Later rounds do without it.
    assert [row.clients for row in run.history] == ([6, 5] if late else [5, 5])
    assert not run.history[1].notes
    assert f"3 left at {stage.replace('_', ' ')}: sent something else" in run.history[0].notes


def test_wrong_shares_are_done_without_and_do_not_spoil_the_map(town):
    def wrong(message, reply):
        record = reply.content[RECORD_KEY_CONFIGS]
        record["shares"] = [share[:4] + bytes(len(share) - 4) for share in record["shares"]]
        return reply

    grid = grid_of(town[1])
    grid.handlers[103] = changed(grid.handlers[103], "unmask", wrong)
    run = training(town, rounds=1).play(secure(grid))
    assert run.history[0].opened
    assert run.history[0].notes == "3 left at unmask: sent wrong shares"
    honest = training(town, rounds=1).play(LocalExchange(town[1], FORMAL, 5))
    np.testing.assert_array_equal(run.radio_map.heights, honest.radio_map.heights)


# ---- What nodes refuse (servers that cheat have tests of their own)


def lying(handler, change):
    """A node whose server says other ranges than ours would."""

    def handle(message):
        if stage_of(message) == "setup":
            message = copy.deepcopy(message)
            message.content[RECORD_KEY_CONFIGS].update(change)
        return handler(message)

    return handle


@pytest.mark.parametrize(
    "change", [{"clipping_range": 8.0}, {"target_range": 2**31}, {"share_num": 3}, {"threshold": 3}]
)
def test_ranges_that_would_cut_numbers_off_are_refused_and_the_node_is_named(change, town):
    grid = grid_of(town[1])
    grid.handlers[103] = lying(grid.handlers[103], change)
    run = training(town, rounds=1).play(secure(grid))
    assert run.history[0].clients == 5
    assert run.history[0].notes.startswith("3 left at setup")


def test_a_server_that_reads_sums_by_another_mechanism_gets_none(town):
    grid, other = grid_of(town[1]), replace(FORMAL, clip=0.5)
    run = training(town, other, rounds=1).play(secure(grid, other))
    assert not run.history[0].opened


def test_a_node_for_sums_sends_no_single_upload(town):
    scene, data = town
    handler = grid_of(data).handlers[103]
    broadcast = Broadcast(0, vm.NoiseAwareStep().start(scene.grid).radio_map, 6)
    with refused(PrivacyError, "upload"):
        handler(Message(records.question(broadcast, [3]), 103, "train"))


def test_a_node_with_several_users_does_not_join_sums(town):
    _, data = town
    grid = FakeGrid({1: node(lambda context: Own(data, FORMAL, 5, enrolment(0)))})
    with refused(ConfigurationError, "node 1", "6 users"):
        training(town).play(secure(grid))


# ---- Whole numbers and masks


@settings(max_examples=60, deadline=None)
@given(
    nodes=st.integers(2, 4000),
    mechanism=st.sampled_from([FORMAL, vm.NoNoise(), vm.GeometryAligned(noise_budget=50)]),
    data=st.data(),
)
def test_sums_of_whole_numbers_never_overflow_and_never_lose_more_than_half_a_step(
    nodes, mechanism, data
):
    scale = Scale.of(mechanism, nodes)
    assert nodes * 2 * scale.largest < MODULUS <= nodes * 2 * scale.largest * 4
    bound = min(scale.largest * scale.heights / 1024, mechanism.largest_upload(cells=1))
    entries = st.lists(st.floats(-bound, bound), min_size=3, max_size=3)
    heights = np.array(data.draw(entries))
    if mechanism.whole_numbers:
        heights = np.rint(heights)
    links = 1 if mechanism.whole_numbers else data.draw(st.integers(1, 1024))
    packed = scale.pack(Update(1, 0, links, heights, np.zeros(4)))
    opened = scale.unpack(packed * 1.0, 1, 3)
    assert opened.weight == links
    error = np.abs(opened.height_gradient - links * heights).max()
    assert error <= (0 if mechanism.whole_numbers else scale.heights / 2 * (1 + 1e-9))


@pytest.mark.parametrize("value", [1e6, np.nan, np.inf, -1e6])
def test_an_answer_that_would_be_cut_off_is_not_sent(value):
    scale = Scale.of(vm.NoNoise(), 100)
    with refused(PrivacyError, "sum's range"):
        scale.pack(Update(1, 0, 30, np.array([0.1, value]), np.zeros(4)))


def test_a_sum_that_is_not_unmasked_properly_is_noticed():
    scale = Scale.of(FORMAL, 5)
    total = np.array([5.0, 5, 17, -3, 0, 0, 0, 0])
    assert scale.unpack(total, 5, 2) is not None
    assert scale.unpack(total, 4, 2) is None
    assert scale.unpack(total + 0.3, 5, 2) is None


def test_masks_depend_on_the_whole_secret_and_are_evenly_spread():
    from importlib import import_module

    one, other = bytes(32), bytes(28) + b"\1\0\0\0"
    swapped = other[4:] + other[:4]  # folds to the same 32 bits
    masks = [masking.pseudo_random(seed, MODULUS, [(4,), (20_000,)]) for seed in (other, swapped)]
    assert not np.array_equal(masks[0][1], masks[1][1])
    again = masking.pseudo_random(one, MODULUS, [(20_000,)])[0]
    np.testing.assert_array_equal(again, masking.pseudo_random(one, MODULUS, [(20_000,)])[0])
    assert again.min() >= 0
    assert again.max() < MODULUS
    for bit in (0, 13, 31):
        assert abs(((again >> bit) & 1).mean() - 0.5) < 5 * 0.5 / np.sqrt(again.size)
    masking.strengthen()
    for side in ("client.mod", "server.workflow"):
        name = "secaggplus_" + ("mod" if "mod" in side else "workflow")
        module = import_module(f"flwr.{side}.secure_aggregation.{name}")
        assert module.pseudo_rand_gen is masking.pseudo_random
    client = import_module("flwr.client.mod.secure_aggregation.secaggplus_mod")
    server = import_module("flwr.server.workflow.secure_aggregation.secaggplus_workflow")
    assert client.create_shares is sharing.create_shares
    assert server.combine_shares is sharing.combine_shares


@settings(max_examples=50, deadline=None)
@given(secret=st.binary(max_size=400), num=st.integers(2, 12), data=st.data())
def test_any_threshold_of_shares_gives_the_secret_back_and_fewer_do_not(secret, num, data):
    threshold = data.draw(st.integers(2, num))
    shares = sharing.create_shares(secret, threshold, num)
    chosen = data.draw(st.permutations(shares))
    enough = data.draw(st.integers(threshold, num))
    assert sharing.combine_shares(chosen[:enough]) == secret
    try:
        wrong = sharing.combine_shares(chosen[: threshold - 1])
    except ValueError:
        wrong = None
    assert wrong != secret


def test_shares_are_random_and_those_of_two_secrets_do_not_mix():
    one, again = (sharing.create_shares(b"secret", 2, 3) for _ in range(2))
    assert one != again
    with pytest.raises(ValueError, match="do not belong together"):
        sharing.combine_shares([one[0], one[0]])
    with pytest.raises(ValueError, match="do not belong together"):
        sharing.combine_shares([one[0], sharing.create_shares(bytes(500), 2, 3)[1]])


def test_a_share_is_evenly_spread_whatever_the_secret():
    count = 800
    shares = [sharing.create_shares(bytes(32), 2, 2)[0][4:] for _ in range(count)]
    numbers = [int.from_bytes(share, "little") for share in shares]
    for bit in (0, 260, 520):
        ones = np.mean([number >> bit & 1 for number in numbers])
        assert abs(ones - 0.5) < 6 * 0.5 / np.sqrt(count)  # once in 10⁸ beyond
