"""The server's side of secure aggregation: it sees sums, never a single upload.

Flower has SecAgg+ (Bell et al., CCS 2020) only in its compatibility layer; this is the one
place that touches it. What nodes sign beside it travels in a record of our own (`session`).
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
from cryptography.exceptions import UnsupportedAlgorithm
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
from flwr.common import FitIns, Parameters
from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_CONFIGS, Key, Stage
from flwr.server.workflow import SecAggPlusWorkflow
from flwr.server.workflow.constant import MAIN_CONFIGS_RECORD, MAIN_PARAMS_RECORD
from flwr.server.workflow.constant import Key as WorkflowKey
from flwr.server.workflow.secure_aggregation.secaggplus_workflow import WorkflowState
from flwr.serverapp import Grid as FlowerGrid
from flwr.supercore.primitives.asymmetric import bytes_to_private_key, public_key_to_bytes

from veilmap.errors import ConfigurationError, PrivacyError
from veilmap.federation.engine import Gathered
from veilmap.federation.messages import ClientId
from veilmap.federation.participation import Turnout
from veilmap.federation.rounds import Training
from veilmap.federation.server import OpenedSum, RoundSum
from veilmap.flower import records
from veilmap.flower.exchange import FlowerExchange, check_theta
from veilmap.flower.fields import Fields, UnreadableError
from veilmap.flower.secagg import masking, replies, sharing
from veilmap.flower.secagg.enrolment import Roster
from veilmap.flower.secagg.masking import masks
from veilmap.flower.secagg.post import Post
from veilmap.flower.secagg.session import RECORD, Announcement, introduction, seed_digest
from veilmap.flower.secagg.whole_numbers import MODULUS, Scale
from veilmap.privacy.mechanisms import Mechanism, PrivUnit


@dataclass
class SecureExchange(FlowerExchange):
    """Users on Flower's nodes, one each, of whom only sums are seen.

    Parameters are those of `FlowerExchange`, and what is public: the mechanism, and the roster of
    enrolled nodes. ``deadline`` holds for each of a round's five messages.
    """

    mechanism: Mechanism = field(kw_only=True)
    roster: Roster = field(kw_only=True)
    _session: int = field(default=0, init=False)

    def collect(self, total: RoundSum, turnout: Turnout) -> Gathered:
        """Have those who turn out mask their answers; the sum stays sealed until it is paid for."""
        masking.strengthen()  # both sides must make the same masks
        asked = turnout.answering()
        homes = {self._homes[user]: user for user in asked}
        # More than half, so that no two groups of nodes can open different sums.
        least = max(int(total.least_answers[0]), len(homes) // 2 + 1)
        total.least_answers[0] = least
        if len(homes) < least:
            return Gathered()
        questions = {
            node: records.question(total.broadcast, [user], self.mechanism)
            for node, user in homes.items()
        }
        broadcast, digest = total.broadcast, records.digest(next(iter(questions.values())))
        announced = Announcement(
            self._next_session(), broadcast.round, broadcast.cohort, len(homes), least, digest
        )
        scale = Scale.of(self.mechanism, len(homes))
        numbers = 2 + total.cells + total.parameters
        post = Post(self._ask, self.deadline, self.roster, announced, numbers)
        masked = MaskedSum(post, questions, scale)
        came = masked.collect()
        absent = {homes[node]: why for node, why in post.problems.items() if node not in came}
        remarks: dict[ClientId, str] = {}

        def note_rest() -> None:
            remarks.update({homes[n]: why for n, why in post.problems.items() if n in came})
            self._blamed |= post.blamed

        def unmask() -> OpenedSum | str:
            opened = masked.unmask()
            note_rest()
            return opened

        note_rest()

        total.seal([user for user in asked if self._homes[user] in came], unmask)
        return Gathered(absent=absent, remarks=remarks)

    def _speaks_for(self, node: int, content: RecordDict) -> list[ClientId]:
        """The users that a node says are its own, if it is enrolled, and for them."""
        users = super()._speaks_for(node, content)
        signed = Fields.of(content, RECORD)
        name = signed.text("name", replies.LONGEST_NAME)
        signature = signed.values.get("signature")
        if not self.roster.signed(name, signature, introduction(node, users)):
            raise UnreadableError("did not sign whom it speaks for as a node of the roster")
        others = set(users) - set(self.roster.users.get(name, users))
        if others or len(users) != 1:
            raise UnreadableError(f"{name} is not enrolled to speak for {len(users)} such users")
        return users

    def _next_session(self) -> int:
        """A number that no session before had, in this process or another: milliseconds."""
        self._session = max(self._session + 1, time.time_ns() // 1_000_000)
        return self._session


def exchange_for(
    training: Training, grid: FlowerGrid, roster: Roster | None, **waiting: Any
) -> FlowerExchange:
    """The exchange for what the server of a training is to see.

    ``waiting`` are the parameters of `FlowerExchange` that say for whom and how long to wait.
    """
    if isinstance(training.config.mechanism, PrivUnit):
        raise ConfigurationError(
            "PrivUnit trains in process: nodes on Flower keep accounts of masked sums, and of"
            " uploads they keep none",
            "mechanism",
        )
    check_theta(training.config)
    if training.config.server_sees == "uploads":
        return FlowerExchange(grid, **waiting)
    if roster is None:
        raise PrivacyError("a masked sum needs the roster of the nodes that are enrolled")
    return SecureExchange(grid, mechanism=training.config.mechanism, roster=roster, **waiting)


class MaskedSum:
    """One sum by SecAgg+: collected masked, then unmasked.

    ``post`` carries the messages of one session, ``questions`` are what nodes answer.
    """

    def __init__(self, post: Post, questions: Mapping[int, RecordDict], scale: Scale) -> None:
        self._questions = dict(questions)
        self._scale = scale
        self._post = post
        self._state = WorkflowState()
        # All nodes see all keys, so that they can count them; weights travel inside the vector.
        self._protocol = SecAggPlusWorkflow(
            1.0,
            post.announced.threshold,
            max_weight=1.0,
            clipping_range=float(scale.largest),
            quantization_range=2 * scale.largest,
            modulus_range=MODULUS,
        )

    def collect(self) -> set[int]:
        """The nodes whose masked vectors arrived; none if too few did."""
        protocol, state = self._protocol, self._state
        if not self._play(protocol.setup_stage):
            return set()
        state.nid_to_fitins = self._questions
        if not self._play(protocol.share_keys_stage):
            return set()
        self._forget_missing()
        came = self._play(protocol.collect_masked_vectors_stage)
        return set(state.active_node_ids) if came else set()

    def unmask(self) -> OpenedSum | str:
        """The sum, or why there is none."""
        state = self._state
        here, gone = sorted(state.active_node_ids), state.sampled_node_ids - state.active_node_ids
        lists = {Key.ACTIVE_NODE_ID_LIST: here, Key.DEAD_NODE_ID_LIST: sorted(gone)}
        told = {node: ConfigRecord({Key.STAGE: Stage.UNMASK, **lists}) for node in here}
        messages = [
            Message(RecordDict({RECORD_KEY_CONFIGS: record}), node, MessageType.TRAIN)
            for node, record in told.items()
        ]
        came = self._post.send_and_receive(messages)
        if len(came) < self._post.announced.threshold:
            return "too few nodes helped to unmask the sum"
        secrets = self._recovered(came)
        if len(secrets) < len(here) + len(gone):
            return "the masks of the sum cannot be put together"
        total = state.aggregate_ndarrays[1]
        for mask in masks(secrets, here, self._post.adverts, total.shape):
            total = total - mask
        # Every number was moved up by the range, so that none is negative.
        whole = total % MODULUS - len(here) * self._scale.largest
        asked = records.read_question(next(iter(self._questions.values())))
        cells = asked.broadcast.radio_map.trained_cells
        opened = self._scale.unpack(whole.astype(np.float64), len(here), cells)
        return opened or "the opened sum is not one of so many nodes"

    def _recovered(self, came: Sequence[Message]) -> dict[int, bytes]:
        """The secrets that open the masks, by node; who spoiled one is blamed."""
        given: dict[int, dict[int, bytes]] = {}
        for reply in came:
            parts: Any = reply.content.config_records[RECORD_KEY_CONFIGS]
            for owner, share in zip(parts[Key.NODE_ID_LIST], parts[Key.SHARE_LIST], strict=True):
                given.setdefault(owner, {})[reply.metadata.src_node_id] = share
        post, here = self._post, self._state.active_node_ids
        threshold, wrong = post.announced.threshold, Counter[int]()
        secrets = {}
        for owner, shares in given.items():
            fits = partial(_is_seed, post.seeds[owner])
            if owner not in here:
                fits = partial(_is_key_of, post.adverts[owner].mask_key)
            secret, liars = sharing.recovered(shares, threshold, fits)
            wrong.update(liars)
            if secret is not None:
                secrets[owner] = secret
        # Of no more than may be dishonest: they may have been sent wrong shares themselves.
        dishonest = post.announced.nodes - threshold
        for node in (node for node, count in wrong.items() if count > dishonest):
            post.note(node, Stage.UNMASK, "sent wrong shares", blame=True)
        lost = set(given) - set(secrets)
        if len(lost) <= dishonest:
            for node in lost:
                why = "sent its peers shares that do not fit each other"
                post.note(node, Stage.SHARE_KEYS, why, blame=True)
        return secrets

    def _play(self, stage: Callable[..., bool]) -> bool:
        return stage(self._post, self._context(), self._state)

    def _forget_missing(self) -> None:
        """Nodes that left before any mask depended on them were never there.

        Flower would ask the others for shares of their keys, which nobody has.
        """
        state = self._state
        state.sampled_node_ids = set(state.active_node_ids)
        state.nid_to_neighbours = {
            node: others & state.active_node_ids
            for node, others in state.nid_to_neighbours.items()
            if node in state.active_node_ids
        }

    def _context(self) -> Any:
        """What the protocol wants to know of a legacy server."""
        nothing = FitIns(Parameters([], ""), {})
        proxies = [(SimpleNamespace(node_id=node), nothing) for node in self._questions]

        current = ConfigRecord({WorkflowKey.CURRENT_ROUND: 1})
        return SimpleNamespace(
            state=RecordDict({MAIN_CONFIGS_RECORD: current, MAIN_PARAMS_RECORD: ArrayRecord()}),
            strategy=SimpleNamespace(configure_fit=lambda *_: proxies),
            client_manager=SimpleNamespace(num_available=lambda: len(proxies)),
        )


def _is_seed(digest: bytes, secret: bytes) -> bool:
    return seed_digest(secret) == digest


def _is_key_of(public: bytes, secret: bytes) -> bool:
    """Whether a secret is the private half of a node's key for masks."""
    try:
        key = bytes_to_private_key(secret)
        return public_key_to_bytes(key.public_key()) == public
    except (AttributeError, TypeError, ValueError, UnsupportedAlgorithm):
        return False
