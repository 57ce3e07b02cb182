"""A server that does as it likes with nodes that run the product's own code.

It speaks to each node by itself and keeps all that it is sent. `Server.openable` says which sums
it could work out from that, whatever it does with it.
"""

from dataclasses import asdict, dataclass, field
from itertools import chain, combinations

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_CONFIGS as CONFIGS
from flwr.supercore.primitives.asymmetric import generate_key_pairs, public_key_to_bytes

import veilmap as vm
from fakegrid import enrolment_in, node
from veilmap._util import files
from veilmap.federation.messages import Broadcast
from veilmap.flower import records
from veilmap.flower.client import Own
from veilmap.flower.secagg.account import NodeAccount
from veilmap.flower.secagg.session import RECORD, Announcement
from veilmap.flower.secagg.whole_numbers import MODULUS, Scale
from veilmap.privacy.accounting import calibrated

MECHANISM = calibrated(vm.AggregateGaussian(epsilon=8, delta=1e-3, dropout=0.4), 40)
INVENTED = 900  # number of a peer that only the server knows


@dataclass
class Answer:
    """A masked vector that a node sent, and what it masked and computed it with."""

    node: int
    session: int
    threshold: int
    peers: frozenset
    broadcast: int


@dataclass
class Server:
    """Nodes 100, 101, … of users 0, 1, …, and all that they ever sent."""

    folder: object
    data: vm.Measurements
    maps: list
    mechanism: vm.AggregateGaussian = MECHANISM
    nodes: dict = field(default_factory=dict)
    announced: dict = field(default_factory=dict)  # node → Announcement it accepted
    adverts: list = field(default_factory=list)  # (session, node, keys, [name, signature])
    shares: list = field(default_factory=list)  # (session, source, destination, ciphertext)
    partners: dict = field(default_factory=dict)  # node → nodes whose keys it accepted
    answers: list = field(default_factory=list)
    signatures: list = field(default_factory=list)  # (session, node, signature)
    secrets: dict = field(default_factory=dict)  # (session, owner, kind) → who gave a share
    refusals: list = field(default_factory=list)

    def __post_init__(self):
        for user in self.data.users.tolist():
            enrolment = enrolment_in(self.folder, f"node-{user}")
            files.write_json(asdict(NodeAccount(enrolment.owner)), enrolment.account)
            own = Own(self.data.select(self.data.user == user), self.mechanism, None, enrolment)
            self.nodes[100 + user] = node(lambda context, own=own: own, 100 + user)
        invented = [generate_key_pairs()[1] for _ in range(2)]
        self.invented_keys = [public_key_to_bytes(key) for key in invented]

    def ask(self, to, stage, content, record=None):
        """One message to one node: its reply, or None and a line in ``refusals``."""
        told = RecordDict({CONFIGS: ConfigRecord({**content, "stage": stage})})
        if record is not None:
            told.config_records[RECORD] = ConfigRecord(record)
        return self.deliver(to, told)

    def deliver(self, to, content):
        try:
            return self.nodes[to](Message(content, to, "train")).content
        except Exception as error:
            self.refusals.append(f"{to}: {type(error).__name__}: {error}")
            return None

    def question(self, to, which, session_round=0, cohort=None):
        cohort = cohort or len(self.nodes)
        broadcast = Broadcast(session_round, self.maps[which], cohort)
        return records.question(broadcast, [to - 100], self.mechanism)

    def set_up(self, to, session, *, which=0, threshold=None, nodes=None, cohort=None):
        nodes, cohort = nodes or len(self.nodes), cohort or len(self.nodes)
        threshold = threshold or self.mechanism.least_answers(cohort)
        digest = records.digest(self.question(to, which, cohort=cohort))
        told = Announcement(session, 0, cohort, nodes, threshold, digest)
        largest = Scale.of(self.mechanism, nodes).largest
        parameters = {
            "sample_num": nodes, "share_num": nodes, "threshold": threshold,
            "clipping_range": float(largest), "target_range": 2 * largest, "mod_range": MODULUS,
            "max_weight": 1.0,
        }  # fmt: skip
        reply = self.ask(to, "setup", parameters, dict(told.record()))
        if reply is not None:
            keys, signed = dict(reply[CONFIGS]), dict(reply[RECORD])
            self.announced[to] = told
            self.adverts.append((
                session, to, [keys["pk1"], keys["pk2"]],
                [signed["name"].encode(), signed["signature"]],
            ))  # fmt: skip
        return reply

    def share_keys(self, to, adverts):
        """Show a node these adverts, (node, keys, [name, signature]) each."""
        keys = {str(number): pair for number, pair, _ in adverts}
        signed = {str(number): told for number, _, told in adverts}
        reply = self.ask(to, "share_keys", keys, signed)
        if reply is not None:
            session = self.announced[to].session
            sent = dict(reply[CONFIGS])
            self.partners[to] = {int(number) for number, _, _ in adverts}
            for destination, text in zip(sent["dsts"], sent["ctxts"], strict=True):
                self.shares.append((session, to, destination, text))
                if destination >= INVENTED:  # the server has that key: it reads both shares
                    for kind in ("seed", "key"):
                        self._learn(session, to, kind, destination)
        return reply

    def collect(self, to, shares, *, which=0, question=None):
        """Forward shares, (source, ciphertext) each, with a broadcast."""
        content = question or self.question(to, which, cohort=self.announced[to].cohort)
        content.config_records[CONFIGS] = ConfigRecord(
            {
                "stage": "collect_masked_vectors",
                "srcs": [source for source, _ in shares],
                "ctxts": [text for _, text in shares],
            }
        )
        reply = self.deliver(to, content)
        if reply is not None:
            told = self.announced[to]
            peers = frozenset(source for source, _ in shares)
            self.answers.append(Answer(to, told.session, told.threshold, peers, which))
        return reply

    def agree(self, to, here, gone):
        reply = self.ask(to, "agree", {"active_nids": list(here), "dead_nids": list(gone)})
        if reply is not None:
            signature = reply[RECORD]["signature"]
            self.signatures.append((self.announced[to].session, to, signature))
        return reply

    def unmask(self, to, here, gone, signatures):
        """Ask for shares with these signatures, by node."""
        lists = {"active_nids": list(here), "dead_nids": list(gone)}
        record = {str(number): signature for number, signature in signatures.items()}
        reply = self.ask(to, "unmask", lists, record)
        if reply is not None:
            session = self.announced[to].session
            for owner in dict(reply[CONFIGS])["nids"]:
                self._learn(session, owner, "seed" if owner in here else "key", to)
        return reply

    def _learn(self, session, owner, kind, giver):
        self.secrets.setdefault((session, owner, kind), set()).add(giver)

    def shares_for(self, to):
        """The newest shares for a node in its session, (source, ciphertext) each."""
        session = self.announced[to].session
        newest = {
            source: text
            for own, source, destination, text in self.shares
            if own == session and destination == to
        }
        return list(newest.items())

    def adverts_of(self, session):
        return [
            (number, keys, signed) for own, number, keys, signed in self.adverts if own == session
        ]

    def signed_in(self, session):
        return {number: signature for own, number, signature in self.signatures if own == session}

    def openable(self):
        """All sets of answers whose sum the server can unmask, smallest first.

        A sum is bare if every answer's own seed is known, and if every pairwise mask in it is
        either known or there from both sides.
        """
        found = []
        for session in {answer.session for answer in self.answers}:
            own = [answer for answer in self.answers if answer.session == session]
            subsets = chain.from_iterable(combinations(own, k) for k in range(1, len(own) + 1))
            found += [subset for subset in subsets if self._is_bare(session, subset)]
        return sorted(found, key=len)

    def _knows(self, session, owner, kind, threshold):
        return owner >= INVENTED or len(self.secrets.get((session, owner, kind), ())) >= threshold

    def _is_bare(self, session, subset):
        within = {answer.node: answer for answer in subset}
        if not all(self._knows(session, a.node, "seed", a.threshold) for a in subset):
            return False
        for answer in subset:
            for peer in answer.peers:
                known = self._knows(session, peer, "key", answer.threshold) or self._knows(
                    session, answer.node, "key", answer.threshold
                )
                cancels = peer in within and answer.node in within[peer].peers
                if not known and not cancels:
                    return False
        return True

    def play(self, session, nodes=None, *, which=0, gone=()):
        """The whole protocol as an honest server would, with nodes that leave at the vectors."""
        nodes = list(nodes or self.nodes)
        for to in nodes:
            self.set_up(to, session, which=which)
        for to in nodes:
            self.share_keys(to, self.adverts_of(session))
        here = [to for to in nodes if to not in gone]
        for to in here:
            self.collect(to, self.shares_for(to), which=which)
        for to in here:
            self.agree(to, here, gone)
        for to in here:
            self.unmask(to, here, gone, self.signed_in(session))
