"""The server's side: whom to ask, how long to wait, what to make of what comes back."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from flwr.app import Message, MessageType, RecordDict
from flwr.serverapp import Grid as FlowerGrid

from veilmap._util.arrays import Ints
from veilmap.errors import ConfigurationError
from veilmap.federation.config import RunConfig
from veilmap.federation.engine import Gathered
from veilmap.federation.messages import ClientId, Update
from veilmap.federation.participation import Turnout
from veilmap.federation.server import RoundSum
from veilmap.flower import records
from veilmap.flower.fields import UnreadableError
from veilmap.geometry.tiling import Tiles

_AFTER_DEADLINE = 5.0
_LONGEST_REASON = 200  # characters of what a node says of its failure


def check_theta(config: RunConfig) -> None:
    """Refuse gradients of θ that are to be covered where nodes send single updates."""
    if config.server_sees == "uploads" and config.mechanism.covers_theta:
        raise ConfigurationError(
            "theta='sum' is for training in process: on Flower nodes send their gradients of θ with"
            " their uploads, so let the server see only sums (server_sees='sums') instead",
            "theta",
        )


@dataclass
class FlowerExchange:
    """Users on Flower's nodes, which ``grid`` leads to."""

    grid: FlowerGrid
    least_users: int = 2  # to wait for before the first round
    patience: float = 600.0  # seconds to wait for them
    deadline: float = 60.0  # seconds for a round's answers; what comes later is not looked at
    poll: float = 0.5  # seconds between looks
    least_cohort: int = 1  # for later rounds: a run goes on without nodes that it loses
    _homes: dict[ClientId, int] = field(default_factory=dict, init=False)
    _known: set[int] = field(default_factory=set, init=False)
    # Nodes that are asked no more, and why: they sent what would have cost the others a round.
    _blamed: dict[int, str] = field(default_factory=dict, init=False)
    _silent: dict[int, float] = field(default_factory=dict, init=False)
    _last_problem: str = field(default="", init=False)
    _began: bool = field(default=False, init=False)

    def users(self) -> Sequence[ClientId]:
        """Users of the nodes that are there, in the order of their ids.

        Nodes that appear are asked whom they speak for, so that late ones join in.
        """
        until = time.monotonic() + self.patience
        wanted = self.least_cohort if self._began else self.least_users
        while True:
            present = set(self.grid.get_node_ids()) - set(self._blamed)
            self._known &= present
            self._introduce(present - self._known)
            here = [user for user, node in self._homes.items() if node in present]
            if len(here) >= wanted:
                self._began = True
                return sorted(here, key=lambda user: (isinstance(user, str), user))
            if time.monotonic() > until:
                raise ConfigurationError(
                    f"{len(here)} of at least {wanted} users were there after"
                    f" {self.patience:g} s{self._last_problem}: start more nodes, or ask for fewer"
                )
            time.sleep(self.poll)

    def tiles_of(self, tiles: Tiles) -> Ints:
        """Nodes reveal no tiles: `Simulation` says that it does not divide areas."""
        raise NotImplementedError

    def collect(self, total: RoundSum, turnout: Turnout) -> Gathered:
        """Ask the nodes of those who turn out, and add up what came in time."""
        by_node: dict[int, list[ClientId]] = {}
        for user in turnout.answering():
            by_node.setdefault(self._homes[user], []).append(user)
        questions = {node: records.question(total.broadcast, own) for node, own in by_node.items()}
        replies = self._ask(MessageType.TRAIN, questions)
        updates: dict[ClientId, Update] = {}
        absent: dict[ClientId, str] = {}
        for node, own in by_node.items():
            answers, problem = _read(replies.get(node), own, self.deadline)
            updates |= answers
            absent |= {user: problem for user in own if user not in answers}
        total.add(updates[user] for user in turnout.users if user in updates)
        return Gathered(absent=absent)

    def _introduce(self, nodes: Iterable[int]) -> None:
        """Ask new nodes whom they speak for; a user who is known already keeps their node."""
        now = time.monotonic()
        new = [node for node in nodes if now >= self._silent.get(node, 0.0)]
        replies = self._ask(MessageType.QUERY, {node: records.names([]) for node in new})
        for node in new:
            reply = replies.get(node)
            try:
                if reply is None or reply.has_error():
                    raise UnreadableError(silence(reply, self.deadline))
                for user in self._speaks_for(node, reply.content):
                    self._homes.setdefault(user, node)
                self._known.add(node)
            except UnreadableError as error:
                self._silent[node] = now + self.deadline  # ask again, but not at once
                self._last_problem = f" (node {node} {error})"

    def _speaks_for(self, node: int, content: RecordDict) -> list[ClientId]:
        """The users that a node says are its own."""
        return records.read_names(content)

    def _ask(self, kind: str, contents: Mapping[int, RecordDict]) -> dict[int, Message]:
        """Send a message to every node; replies by node, as far as they come in time."""
        # Flower names error replies after itself: they are told apart by what they answer.
        nodes = {}
        for node, content in contents.items():
            # A node that comes back later must not answer a round that is over. The seconds more
            # are so that our deadline comes first, with its own words.
            message = Message(content, node, kind, ttl=self.deadline + _AFTER_DEADLINE)
            for sent in self.grid.push_messages([message]):
                nodes[sent] = node
        replies: dict[int, Message] = {}
        until = time.monotonic() + self.deadline
        while nodes and time.monotonic() < until:
            for reply in self.grid.pull_messages(list(nodes)):
                sent = reply.metadata.reply_to_message_id
                # Nobody answers for another node, whatever a reply says of its sender.
                if sent in nodes and (reply.has_error() or _is_from(nodes[sent], reply)):
                    replies[nodes.pop(sent)] = reply
            if nodes:
                time.sleep(self.poll)
        return replies


def _is_from(node: int, reply: Message) -> bool:
    return bool(reply.metadata.src_node_id == node)


def silence(reply: Message | None, seconds: float) -> str:
    """Why a node sent nothing that could be read."""
    if reply is None:
        return f"did not answer within {seconds:g} s"
    return f"failed on its node: {(reply.error.reason or '')[:_LONGEST_REASON]}"


def _read(
    reply: Message | None, asked: Sequence[ClientId], seconds: float
) -> tuple[dict[ClientId, Update], str]:
    """A node's updates, and why those that are missing are."""
    if reply is None or reply.has_error():
        return {}, silence(reply, seconds)
    try:
        updates = records.read_answer(reply.content)
    except UnreadableError as error:
        return {}, str(error)
    # A node may speak only for its own users, and only for those who were asked.
    return {u.client: u for u in updates if u.client in asked}, "sent no update"
