"""Servers that cheat: nodes refuse them, and nothing smaller than the promised sum opens."""

import os
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest

pytest.importorskip("flwr", reason="the Flower engine is an optional extra")

from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_CONFIGS as CONFIGS
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

import veilmap as vm
from cheating import INVENTED, MECHANISM, Server
from fakegrid import enrol, enrolment_in
from veilmap.federation.client import Clients
from veilmap.federation.messages import Broadcast
from veilmap.flower import client, records
from veilmap.flower.secagg import account, masking
from veilmap.flower.secagg.session import RECORD, UNOPENED, Announcement

NODES = [100, 101, 102, 103, 104]
VICTIM, OTHER = 100, 101
LEAST = MECHANISM.least_answers(len(NODES))


@pytest.fixture(scope="module")
def enrolled(tmp_path_factory):
    folder = tmp_path_factory.mktemp("enrolled")
    enrol(folder, [f"node-{number}" for number in range(len(NODES))])
    return folder


@pytest.fixture(scope="module")
def town():
    scene = vm.Scene.synthetic(1, cell_size=60.0)
    data = scene.measure(users=len(NODES), links_per_user=20, seed=0)
    start = vm.NoiseAwareStep().start(scene.grid).radio_map
    # So far below ground that no obstacle matters: nobody has a gradient of h.
    bare = start.moved_to(np.full(scene.grid.shape, -1000.0), start.theta)
    return data, [start, bare]


@pytest.fixture
def server(enrolled, town):
    return Server(enrolled, *town)


def spent(server, node):
    own = enrolment_in(server.folder, f"node-{node - 100}")
    return account.load(own.account, own.owner).answers


def shared(server, session=1, **options):
    """All nodes up to the shares of their keys."""
    for to in NODES:
        server.set_up(to, session, **options)
    for to in NODES:
        server.share_keys(to, server.adverts_of(session))
    assert not server.refusals


def answered(server, session=1):
    shared(server, session)
    for to in NODES:
        server.collect(to, server.shares_for(to))
    assert not server.refusals


def sets(server):
    return [{answer.node for answer in subset} for subset in server.openable()]


def test_an_honest_server_opens_the_sum_of_all_and_nothing_else(server):
    server.play(1)
    assert sets(server) == [set(NODES)]
    server.play(2, gone=(103,))
    assert sets(server) == [set(NODES) - {103}, set(NODES)]
    assert not server.refusals


# ---- Single uploads


def test_a_peer_named_many_times_counts_once(server):
    shared(server)
    (text,) = [text for source, text in server.shares_for(VICTIM) if source == OTHER]
    assert server.collect(VICTIM, [(OTHER, text)] * (LEAST - 1)) is None
    for to in NODES[1:]:
        server.collect(to, server.shares_for(to))
    assert spent(server, VICTIM) == 0
    rest = NODES[2:]
    for to in rest:
        server.agree(to, [VICTIM, *rest], [OTHER])
    for to in rest:
        server.unmask(to, [VICTIM, *rest], [OTHER], server.signed_in(1))
    assert all(VICTIM not in found for found in sets(server))


@pytest.mark.parametrize("alias", ["0101", "+101", " 101", "１０１"])
def test_a_peer_under_several_spellings_of_its_number_is_refused(server, alias):
    for to in NODES:
        server.set_up(to, 1)
    keys = {str(number): pair for number, pair, _ in server.adverts_of(1)}
    signed = {str(number): told for number, _, told in server.adverts_of(1)}
    keys[alias], signed[alias] = keys["101"], signed["101"]
    assert server.ask(VICTIM, "share_keys", keys, signed) is None


def test_nodes_told_different_things_do_not_unmask(server):
    """The victim is gone to one group and here to the other, each as large as can be."""
    answered(server)
    rest, groups = NODES[1:], (NODES[1:3], [VICTIM, *NODES[3:]])
    for to in groups[0]:
        server.agree(to, rest, [VICTIM])
    for to in groups[1]:
        server.agree(to, NODES, [])
    for to in groups[0]:
        assert server.unmask(to, rest, [VICTIM], server.signed_in(1)) is None
    for to in groups[1]:
        server.unmask(to, NODES, [], server.signed_in(1))
    assert sets(server) in ([], [set(NODES)])


def test_peers_who_are_gone_to_some_and_here_to_others_do_not_bare_the_victim(server):
    """Every list is sound by itself; together they would give all masks of one upload."""
    shared(server)
    peers = NODES[1:LEAST]
    few = [share for share in server.shares_for(VICTIM) if share[0] in peers]
    server.collect(VICTIM, few)
    for to in NODES[1:]:
        server.collect(to, server.shares_for(to))
    gone = {to: [peer for peer in peers if peer != to] for to in NODES[1:]}
    for to in NODES[1:]:
        assert server.agree(to, [n for n in NODES if n not in gone[to]], gone[to]) is not None
    for to in NODES[1:]:
        here = [n for n in NODES if n not in gone[to]]
        assert server.unmask(to, here, gone[to], server.signed_in(1)) is None
    assert sets(server) == []


def test_a_node_signs_one_view_only_and_unmasks_no_other(server):
    answered(server)
    rest = NODES[1:]
    assert server.agree(102, NODES, []) is not None
    assert server.agree(102, rest, [VICTIM]) is None
    for to in (101, 103, 104):
        server.agree(to, rest, [VICTIM])
    assert server.unmask(102, rest, [VICTIM], server.signed_in(1)) is None
    for to in (101, 103, 104):
        server.unmask(to, rest, [VICTIM], server.signed_in(1))
    assert all(len(found) >= LEAST for found in sets(server))


@pytest.mark.parametrize(
    ("here", "gone"),
    [
        (NODES, [VICTIM]),  # both ways
        ([VICTIM, 102], [101, 103, 104]),  # too few
        (NODES[1:], [VICTIM]),  # asked of the victim itself
        ([*NODES, 102], []),  # twice
        (NODES[:4], []),  # one is neither
        ([*NODES, 777], []),  # a stranger
    ],
)
def test_no_sum_is_agreed_to_that_would_show_an_upload(server, here, gone):
    answered(server)
    assert server.agree(VICTIM, here, gone) is None


# ---- Peers, keys, sessions


def test_peers_that_the_server_invents_are_refused(server):
    for to in NODES:
        server.set_up(to, 1)
    real = server.adverts_of(1)
    name_of_another = real[1][2]
    for told in (name_of_another, [b"node-9", b"x"], [b"node-1", b""]):
        invented = [(INVENTED + k, server.invented_keys, told) for k in range(4)]
        assert server.share_keys(VICTIM, [real[0], *invented]) is None
    # Keys of the server's own under the numbers and names of those who are enrolled.
    swapped = [
        (number, [key[:-1] + bytes([number]) for key in server.invented_keys], told)
        for number, _, told in real[1:]
    ]
    assert server.share_keys(VICTIM, [real[0], *swapped]) is None
    assert not server.shares


@pytest.mark.parametrize("change", ["number", "keys", "signature"])
def test_keys_are_bound_to_their_node_and_session(server, change):
    for session in (1, 2):
        for to in NODES:
            server.set_up(to, session)
    adverts = {number: [number, keys, told] for number, keys, told in server.adverts_of(2)}
    old = {number: (keys, told) for number, keys, told in server.adverts_of(1)}
    if change == "number":
        adverts[102][0], adverts[103][0] = 103, 102
    elif change == "keys":
        adverts[102][1] = old[102][0]
    else:
        adverts[102][1:] = old[102]  # a whole advert of the session before
    assert server.share_keys(VICTIM, [tuple(advert) for advert in adverts.values()]) is None


def test_a_node_joins_no_session_twice_and_none_that_is_older(server):
    server.play(5)
    assert server.set_up(VICTIM, 5) is None
    assert server.set_up(VICTIM, 4) is None
    assert server.set_up(VICTIM, 6) is not None


def test_no_stage_is_answered_twice_or_out_of_turn(server):
    answered(server)
    before = spent(server, VICTIM)
    assert server.collect(VICTIM, server.shares_for(VICTIM)) is None
    assert server.share_keys(VICTIM, server.adverts_of(1)) is None
    assert server.unmask(VICTIM, NODES, [], {}) is None
    assert spent(server, VICTIM) == before == 1
    for to in NODES:
        assert server.agree(to, NODES, []) is not None
    for _ in range(2):
        replies = [server.unmask(to, NODES, [], server.signed_in(1)) for to in NODES]
    assert replies == [None] * len(NODES)
    assert sets(server) == [set(NODES)]


@pytest.mark.parametrize(
    "told",
    [
        {"threshold": 2},  # two fifths could open it
        {"nodes": 3, "threshold": 2},  # less than the noise needs
        {"threshold": 6},  # nobody could open it
        {"nodes": 6, "cohort": 6},  # more than are enrolled
        {"cohort": 60},  # shares of noise as for sixty
        {"nodes": 1, "cohort": 1, "threshold": 1},
        {"nodes": 5, "cohort": 4},
    ],
)
def test_a_session_whose_sum_would_lack_noise_is_refused(server, told):
    assert server.set_up(VICTIM, 1, **told) is None


@pytest.mark.parametrize("nodes", [2, 3, 4, 5, 20])
def test_half_of_the_nodes_never_suffice(nodes):
    mechanism = vm.NoNoise()  # whose sums need no noise
    for threshold in range(2, nodes + 1):
        told = Announcement(1, 0, nodes, nodes, threshold, "")
        if 2 * threshold > nodes:
            masking._check_announced(told, mechanism, nodes)
        else:
            with pytest.raises(vm.VeilmapError):
                masking._check_announced(told, mechanism, nodes)


def test_fewer_signatures_than_the_threshold_unmask_nothing(server):
    answered(server)
    for to in NODES:
        server.agree(to, NODES, [])
    few = dict(list(server.signed_in(1).items())[: LEAST - 1])
    repeated = {**few, 103: few[NODES[0]], 104: few[NODES[1]]}  # others' under more numbers
    for to in NODES:
        assert server.unmask(to, NODES, [], repeated) is None
    assert sets(server) == []


# ---- Different maps, and maps as questions


def test_another_map_than_the_peers_were_told_is_noticed_before_anything_is_shared(server):
    server.set_up(VICTIM, 1, which=0)
    for to in NODES[1:]:
        server.set_up(to, 1, which=1)
    for to in NODES:
        assert server.share_keys(to, server.adverts_of(1)) is None
    assert not server.shares


def test_another_map_than_was_announced_is_refused_before_it_is_paid_for(server):
    shared(server)
    for to in NODES[1:]:
        server.collect(to, server.shares_for(to))
    assert server.collect(VICTIM, server.shares_for(VICTIM), which=1) is None
    changed = server.question(VICTIM, 0, cohort=len(NODES))
    changed.config_records["facts"]["round"] = 7
    assert server.collect(VICTIM, server.shares_for(VICTIM), question=changed) is None
    assert spent(server, VICTIM) == 0


WILD = {
    "steep": {"sharpness": 100.0},
    "no law": {"theta": [1e200, -20.0, -35.0, -30.0]},
    "no slope": {"theta": [-35.0, -1e5, -35.0, -30.0]},
    "no height": {"heights": 1e5},
}


@pytest.mark.parametrize("kind", WILD)
def test_a_map_that_no_training_comes_to_is_refused_without_a_look_at_data(server, town, kind):
    wild = {"heights": None, "theta": town[1][0].theta, "sharpness": None} | WILD[kind]
    grid = town[1][0].grid
    heights = np.full(grid.shape, wild["heights"]) if wild["heights"] else town[1][0].heights
    server.maps = [town[1][0].moved_to(heights, np.array(wild["theta"]), wild["sharpness"])]
    shared(server)
    with patch.object(client, "_updates", side_effect=AssertionError("data were touched")):
        for to in NODES:
            assert server.collect(to, server.shares_for(to)) is None
    assert [spent(server, to) for to in NODES] == [0] * len(NODES)


def test_every_answer_costs_and_looks_the_same_whatever_fails_inside(server):
    """A gradient that is not finite, or an error of any kind, gives noise alone."""
    shared(server)
    honest = server.collect(OTHER, server.shares_for(OTHER))
    for to, failure in ((VICTIM, vm.VeilmapError("not finite")), (102, ZeroDivisionError())):
        with patch.object(client, "_updates", side_effect=failure):
            reply = server.collect(to, server.shares_for(to))
        assert reply is not None
        assert spent(server, to) == 1
        assert set(reply[CONFIGS]) == set(honest[CONFIGS])
        sizes = [[len(part) for part in r[CONFIGS]["masked_params"]] for r in (reply, honest)]
        assert sizes[0] == sizes[1]
    for to in (103, 104):
        server.collect(to, server.shares_for(to))
    for to in NODES:
        server.agree(to, NODES, [])
    for to in NODES:
        server.unmask(to, NODES, [], server.signed_in(1))
    assert sets(server) == [set(NODES)]


def test_the_answer_is_paid_for_before_it_is_computed(server):
    shared(server)
    seen = []

    def watching(mine, asked):
        seen.append(spent(server, VICTIM))
        raise KeyboardInterrupt  # the process dies here

    with patch.object(client, "_updates", watching), pytest.raises(KeyboardInterrupt):
        server.collect(VICTIM, server.shares_for(VICTIM))
    assert seen == [1]
    assert spent(server, VICTIM) == 1


def test_noise_alone_has_the_deviation_of_any_other_answer(town):
    data, maps = town
    clients = Clients(data.users.tolist(), data.links, MECHANISM, None)
    broadcast = Broadcast(0, maps[0], len(NODES))
    sent = np.concatenate(
        [update.height_gradient for _ in range(40) for update in clients.noise_alone(broadcast)]
    )
    expected = MECHANISM.share_deviation(maps[0].grid.cells, 4, len(NODES))
    # Relative deviation of a sample deviation: 1/√(2n).
    assert abs(sent.std() / expected - 1) < 5 / np.sqrt(2 * sent.size)


def test_shares_that_cannot_be_opened_cost_nothing(server):
    shared(server)
    spoilt = [(source, text[:-4] + b"AAAA") for source, text in server.shares_for(VICTIM)]
    complaint = server.collect(VICTIM, spoilt)  # it names who sent them, and sends nothing else
    assert list(complaint.config_records[RECORD]) == [UNOPENED]
    assert not complaint.array_records
    assert server.collect(VICTIM, server.shares_for(VICTIM)[:1]) is None
    assert spent(server, VICTIM) == 0


def test_a_digest_covers_all_that_is_broadcast_but_for_who_is_asked(town):
    data, maps = town
    one = Broadcast(0, maps[0], 5)
    known = records.digest(records.question(one, [0], MECHANISM))
    assert records.digest(records.question(one, [1], MECHANISM)) == known
    others = [
        replace(one, round=1),
        replace(one, cohort=6),
        replace(one, radio_map=maps[0].moved_to(maps[0].heights + 1e-12, maps[0].theta)),
        replace(one, radio_map=maps[0].moved_to(maps[0].heights, maps[0].theta + 1e-12)),
        replace(one, radio_map=maps[0].moved_to(maps[0].heights, maps[0].theta, 0.5)),
    ]
    digests = {records.digest(records.question(other, [0], MECHANISM)) for other in others}
    assert len(digests | {known}) == 6
    more = replace(MECHANISM, clip=0.4)
    assert records.digest(records.question(one, [0], more)) != known


# ---- Any protocol a server can think of


def subset(nodes=NODES):
    """Mostly everybody, else some."""
    return st.one_of(st.just(list(nodes)), st.lists(st.sampled_from(nodes), unique=True))


class CheatingServer(RuleBasedStateMachine):
    """Sends any message to any node in any order, made of all that it was ever sent."""

    def __init__(self):
        super().__init__()
        self.server = Server(self.enrolled, *self.town)
        self.session = 0

    def nodes_in_session(self, nodes):
        return [to for to in nodes if to in self.server.announced]

    @rule(
        groups=st.lists(subset(), min_size=1, max_size=2),
        fresh=st.booleans(),
        which=st.lists(st.integers(0, 1), min_size=2, max_size=2),
        threshold=st.one_of(st.none(), st.integers(2, 5)),
    )
    def set_up(self, groups, fresh, which, threshold):
        self.session += fresh
        for group, broadcast in zip(groups, which, strict=False):
            for to in group:
                self.server.set_up(to, max(1, self.session), which=broadcast, threshold=threshold)

    @rule(nodes=subset(), shown=subset(), mixed=st.booleans(), invented=st.integers(0, 2))
    def share_keys(self, nodes, shown, mixed, invented):
        for to in self.nodes_in_session(nodes):
            session = self.server.announced[to].session
            pool = self.server.adverts_of(session - mixed) or self.server.adverts_of(session)
            adverts = {number: advert for number, *advert in pool if number in shown}
            adverts |= {own: a for own, *a in self.server.adverts_of(session) if own == to}
            strangers = [
                (INVENTED + k, self.server.invented_keys, [b"node-1", b"x"])
                for k in range(invented)
            ]
            told = [(number, *advert) for number, advert in adverts.items()]
            self.server.share_keys(to, told + strangers)

    @rule(nodes=subset(), sources=subset(), repeated=st.integers(1, 3), which=st.integers(0, 1))
    def collect(self, nodes, sources, repeated, which):
        for to in self.nodes_in_session(nodes):
            shares = [share for share in self.server.shares_for(to) if share[0] in sources]
            if repeated > 1:
                shares = shares[:1] * repeated * 2
            self.server.collect(to, shares, which=which)

    @rule(nodes=subset(), here=subset())
    def agree(self, nodes, here):
        for to in self.nodes_in_session(nodes):
            gone = [node for node in self.partners(to) if node not in here]
            self.server.agree(to, [node for node in self.partners(to) if node in here], gone)

    @rule(nodes=subset(), here=subset(), signers=subset())
    def unmask(self, nodes, here, signers):
        for to in self.nodes_in_session(nodes):
            session = self.server.announced[to].session
            known = self.server.signed_in(session)
            self.server.unmask(
                to,
                [node for node in self.partners(to) if node in here],
                [node for node in self.partners(to) if node not in here],
                {number: known[number] for number in signers if number in known},
            )

    @rule(gone=st.one_of(st.just([]), st.lists(st.sampled_from(NODES), max_size=2, unique=True)))
    def play_on(self, gone):
        """A whole session as an honest server would play it."""
        self.session += 1
        self.server.play(self.session, gone=gone)

    @rule(data=st.data())
    def play_apart(self, data):
        """One node masks with few peers, who are then gone to all others, or to some of them."""
        self.session += 1
        server, session = self.server, self.session
        victim = data.draw(st.sampled_from(NODES))
        others = [to for to in NODES if to != victim]
        one, some = data.draw(st.sampled_from(others)), data.draw(st.permutations(others))
        peers = data.draw(st.sampled_from([[one] * LEAST, some[: LEAST - 1], some]))
        lie = data.draw(st.sampled_from(["peers", "peers", "announced map", "map"]))
        announced = int(lie == "announced map")  # to the victim alone
        for to in NODES:
            server.set_up(to, session, which=announced if to == victim else 0)
        for to in NODES:
            server.share_keys(to, server.adverts_of(session))
        for to in NODES:
            shares = dict(server.shares_for(to))
            if to == victim:
                few = [(peer, shares[peer]) for peer in peers if peer in shares]
                server.collect(to, few, which=int("map" in lie))
            else:
                server.collect(to, list(shares.items()))
        told = data.draw(st.sampled_from(["all the same", "each but itself", "nobody is gone"]))
        gone = {to: sorted(set(peers) - {to}) for to in others}
        if told != "each but itself":
            gone = dict.fromkeys(others, sorted(set(peers)) if told == "all the same" else [])
        views = {to: ([node for node in NODES if node not in gone[to]], gone[to]) for to in others}
        for to in others:
            server.agree(to, *views[to])
        for to in others:
            server.unmask(to, *views[to], server.signed_in(session))

    def partners(self, to):
        answers = [a for a in self.server.answers if a.node == to]
        return sorted(answers[-1].peers | {to}) if answers else [to]

    @invariant()
    def no_small_sum_is_open(self):
        for answers in self.server.openable():
            assert len({answer.node for answer in answers}) >= LEAST
            assert len({answer.broadcast for answer in answers}) == 1

    @invariant()
    def nobody_answers_more_than_it_pays_for(self):
        for to in NODES:
            given = [answer for answer in self.server.answers if answer.node == to]
            assert len({answer.session for answer in given}) == len(given)
            assert spent(self.server, to) >= len(given)


def test_no_protocol_opens_a_sum_over_fewer_than_the_threshold(enrolled, town):
    CheatingServer.enrolled, CheatingServer.town = enrolled, town
    with patch.object(os, "fsync"):  # durability is tested elsewhere, thousands of times slower
        run_state_machine_as_test(
            CheatingServer,
            settings=settings(
                max_examples=100,
                stateful_step_count=8,
                deadline=None,
                derandomize=True,
                suppress_health_check=list(HealthCheck),
                print_blob=False,
                database=None,
            ),
        )
