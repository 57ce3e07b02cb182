"""The server's side of secure aggregation: it sees sums, never a single upload.

Flower has SecAgg+ (Bell et al., CCS 2020) only in its compatibility layer; this is the one
place that touches it. What nodes sign beside it travels in a record of our own (`session`).
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
from flwr.common import FitIns, FitRes, Parameters, bytes_to_ndarray, parameters_to_ndarrays
from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_CONFIGS, Key, Stage
from flwr.compat.common.recorddict_compat import recorddict_to_fitres
from flwr.server.workflow import SecAggPlusWorkflow
from flwr.server.workflow.constant import MAIN_CONFIGS_RECORD, MAIN_PARAMS_RECORD
from flwr.server.workflow.constant import Key as WorkflowKey
from flwr.server.workflow.secure_aggregation.secaggplus_workflow import WorkflowState
from flwr.serverapp import Grid as FlowerGrid
from flwr.supercore.primitives.asymmetric import bytes_to_public_key
from numpy.typing import NDArray

from veilmap.errors import ConfigurationError, PrivacyError
from veilmap.federation.engine import Gathered
from veilmap.federation.messages import ClientId
from veilmap.federation.participation import Turnout
from veilmap.federation.rounds import Training
from veilmap.federation.server import OpenedSum, RoundSum
from veilmap.flower import records
from veilmap.flower.exchange import FlowerExchange, check_theta, silence
from veilmap.flower.secagg import masking
from veilmap.flower.secagg.enrolment import Roster
from veilmap.flower.secagg.session import AGREE, RECORD, Advert, Announcement, View
from veilmap.flower.secagg.whole_numbers import MODULUS, Scale
from veilmap.privacy.mechanisms import Mechanism, PrivUnit

Ask = Callable[[str, Mapping[int, RecordDict]], dict[int, Message]]


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
        post = _Post(self._ask, self.deadline, self.roster, announced)
        masked = MaskedSum(post, questions, scale)
        came = masked.collect()
        absent = {homes[node]: why for node, why in masked.problems.items()}
        remarks: dict[ClientId, str] = {}

        def unmask() -> OpenedSum | None:
            opened = masked.unmask()
            remarks.update({homes[n]: why for n, why in masked.problems.items() if n in came})
            return opened

        total.seal([user for user in asked if self._homes[user] in came], unmask)
        return Gathered(absent=absent, remarks=remarks)

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

    def __init__(self, post: "_Post", questions: Mapping[int, RecordDict], scale: Scale) -> None:
        self.problems = post.problems
        self._questions = dict(questions)
        self._scale = scale
        self._post = post
        self._state = WorkflowState()
        self._results: list[tuple[Any, FitRes]] = []
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

    def unmask(self) -> OpenedSum | None:
        """The sum, or None if too few nodes helped."""
        nodes = len(self._state.active_node_ids)
        try:
            with np.errstate(all="ignore"):  # shares that do not fit give nonsense, seen below
                if not self._play(self._protocol.unmask_stage):
                    return None
        except ValueError:  # shares that do not fit each other
            return None
        (mean,) = parameters_to_ndarrays(self._results[0][1].parameters)
        asked = records.read_question(next(iter(self._questions.values())))
        return self._scale.unpack(mean * nodes, nodes, asked.broadcast.radio_map.trained_cells)

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

        def keep(_: int, results: list[Any], __: list[Any]) -> tuple[None, dict[str, Any]]:
            self._results = results
            return None, {}

        current = ConfigRecord({WorkflowKey.CURRENT_ROUND: 1})
        return SimpleNamespace(
            state=RecordDict({MAIN_CONFIGS_RECORD: current, MAIN_PARAMS_RECORD: ArrayRecord()}),
            strategy=SimpleNamespace(configure_fit=lambda *_: proxies, aggregate_fit=keep),
            client_manager=SimpleNamespace(num_available=lambda: len(proxies)),
        )


@dataclass
class _Post:
    """Flower's grid as SecAgg+ uses it, for one session, with what nodes sign in it.

    Replies that SecAgg+ could not read are left out and noted; it takes their nodes for gone.
    """

    ask: Ask
    deadline: float
    roster: Roster
    announced: Announcement
    problems: dict[int, str] = field(default_factory=dict)
    _adverts: dict[int, Advert] = field(default_factory=dict, init=False)
    _signatures: dict[int, bytes] = field(default_factory=dict, init=False)
    _masked: list[int] = field(default_factory=list, init=False)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        """The sound replies to one stage; before the last one, nodes agree on what they saw."""
        contents = {message.metadata.dst_node_id: message.content for message in messages}
        stage = str(next(iter(contents.values())).config_records[RECORD_KEY_CONFIGS][Key.STAGE])
        if stage == Stage.UNMASK:
            agreed = self._agreed(contents)
            contents = {node: contents[node] for node in contents if node in agreed}
            beside = ConfigRecord({str(node): signature for node, signature in agreed.items()})
        elif stage == Stage.SHARE_KEYS:
            beside = ConfigRecord()
            for node, advert in self._adverts.items():
                beside[str(node)] = [advert.name.encode(), self._signatures[node]]
        else:
            beside = self.announced.record()
            self._masked = list(contents)
        for content in contents.values():
            content.config_records[RECORD] = beside
        return self._sound(stage, contents)

    def _agreed(self, contents: Mapping[int, RecordDict]) -> dict[int, bytes]:
        """The signatures of those who were told the same, by node."""
        questions = {}
        for node, content in contents.items():
            asked = ConfigRecord(dict(content.config_records[RECORD_KEY_CONFIGS]))
            asked[Key.STAGE] = AGREE
            questions[node] = RecordDict({RECORD_KEY_CONFIGS: asked})
        told: Any = next(iter(questions.values())).config_records[RECORD_KEY_CONFIGS]
        here, gone = told[Key.ACTIVE_NODE_ID_LIST], told[Key.DEAD_NODE_ID_LIST]
        view = View(self.announced, self._adverts, self._masked, here, gone).message()
        agreed: dict[int, bytes] = {}
        for reply in self._sound(AGREE, questions):
            node = reply.metadata.src_node_id
            signature: Any = reply.content.config_records[RECORD]["signature"]
            if self.roster.signed(self._adverts[node].name, signature, view):
                agreed[node] = signature
            else:
                self._note(node, AGREE, "signed another view than everybody was told")
        return agreed

    def _sound(self, stage: str, contents: Mapping[int, RecordDict]) -> list[Message]:
        """The replies that can be used."""
        replies = self.ask(MessageType.TRAIN, contents)
        sound = []
        for node, content in contents.items():
            problem = _problem(replies.get(node), self.deadline, content)
            if not problem and stage == Stage.SETUP:
                problem = self._take_advert(node, replies[node].content)
            if problem:
                self._note(node, stage, problem)
            else:
                sound.append(replies[node])
        return sound

    def _take_advert(self, node: int, content: RecordDict) -> str:
        """Keep a node's keys, or say why its peers would refuse them."""
        keys: Any = content.config_records[RECORD_KEY_CONFIGS]
        told: Any = content.config_records.get(RECORD, {})
        name, signature = told.get("name"), told.get("signature")
        if not isinstance(name, str):
            return "sent keys without its name"
        advert = Advert(node, name, keys[Key.PUBLIC_KEY_1], keys[Key.PUBLIC_KEY_2])
        if not self.roster.signed(name, signature, advert.message(self.announced)):
            return "sent keys that no enrolled node signed"
        if name in {other.name for other in self._adverts.values()}:
            return f"says that it is {name}, who is there already"
        self._adverts[node], self._signatures[node] = advert, signature
        return ""

    def _note(self, node: int, stage: str, problem: str) -> None:
        self.problems.setdefault(node, f"left at {stage.replace('_', ' ')}: {problem}")


def _problem(reply: Message | None, seconds: float, asked: RecordDict) -> str:
    """Why SecAgg+ cannot use a reply, or nothing."""
    if reply is None or reply.has_error():
        return silence(reply, seconds)
    try:
        return "" if _is_readable(reply.content, asked) else "sent something else than was asked"
    except Exception as error:  # whatever a stranger's bytes make the readers say
        return f"sent something else than was asked: {error}"


def _is_readable(content: RecordDict, asked: RecordDict) -> bool:
    """Whether a reply has what its stage of SecAgg+ needs, so that no reader of it fails."""
    request: dict[str, Any] = dict(asked.config_records[RECORD_KEY_CONFIGS])
    if request[Key.STAGE] == AGREE:
        return isinstance(content.config_records[RECORD]["signature"], bytes)
    reply: dict[str, Any] = dict(content.config_records[RECORD_KEY_CONFIGS])
    if request[Key.STAGE] == Stage.SETUP:
        # A key that is none would make every other node fail.
        keys = [bytes_to_public_key(reply[k]) for k in (Key.PUBLIC_KEY_1, Key.PUBLIC_KEY_2)]
        return len(keys) == 2
    if request[Key.STAGE] == Stage.SHARE_KEYS:
        # A node that leaves some out would give them another view than the others have.
        named = {int(node) for node in request if node != Key.STAGE}
        sent = reply[Key.DESTINATION_LIST]
        return len(sent) == len(reply[Key.CIPHERTEXT_LIST]) == len(named) - 1 and set(sent) < named
    if request[Key.STAGE] == Stage.UNMASK:
        wanted = [*request[Key.ACTIVE_NODE_ID_LIST], *request[Key.DEAD_NODE_ID_LIST]]
        return reply[Key.NODE_ID_LIST] == wanted and len(reply[Key.SHARE_LIST]) == len(wanted)
    recorddict_to_fitres(content, True)
    factor, masked = (bytes_to_ndarray(part) for part in reply[Key.MASKED_PARAMETERS])
    radio_map = records.read_question(asked).broadcast.radio_map
    count = 2 + radio_map.trained_cells + len(radio_map.theta)
    return _are_masked(factor, 1) and _are_masked(masked, count)


def _are_masked(numbers: NDArray[Any], count: int) -> bool:
    return numbers.dtype == np.int64 and numbers.shape == (count,)
