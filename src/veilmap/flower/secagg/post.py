"""The messages of one session as the server sends them, and what it makes of the replies.

Replies that cannot be used are left out and their nodes noted; SecAgg+ takes these for gone. Those
who sent what no node of ours sends are *blamed*: the server asks them no more.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_CONFIGS, Key, Stage

from veilmap.flower.exchange import silence
from veilmap.flower.fields import UnreadableError
from veilmap.flower.secagg import replies
from veilmap.flower.secagg.enrolment import Roster
from veilmap.flower.secagg.replies import Asked
from veilmap.flower.secagg.session import AGREE, RECORD, Advert, Announcement, View

Ask = Callable[[str, Mapping[int, RecordDict]], dict[int, Message]]


@dataclass
class Post:
    """Flower's grid as SecAgg+ uses it, for one session, with what nodes sign in it."""

    ask: Ask
    deadline: float
    roster: Roster
    announced: Announcement
    numbers: int  # in a masked vector
    problems: dict[int, str] = field(default_factory=dict)
    blamed: dict[int, str] = field(default_factory=dict)
    adverts: dict[int, Advert] = field(default_factory=dict, init=False)
    seeds: dict[int, bytes] = field(default_factory=dict, init=False)  # digests of nodes' own
    _signatures: dict[int, bytes] = field(default_factory=dict, init=False)
    _masked: list[int] = field(default_factory=list, init=False)
    _complaints: Counter[int] = field(default_factory=Counter, init=False)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        """The sound replies to one stage; before the last one, nodes agree on what they saw."""
        contents = {message.metadata.dst_node_id: message.content for message in messages}
        if not contents:
            return []
        stage = str(next(iter(contents.values())).config_records[RECORD_KEY_CONFIGS][Key.STAGE])
        if stage == Stage.UNMASK:
            agreed = self._agreed(contents)
            contents = {node: contents[node] for node in contents if node in agreed}
            beside = ConfigRecord({str(node): signature for node, signature in agreed.items()})
        elif stage == Stage.SHARE_KEYS:
            beside = ConfigRecord()
            for node, advert in self.adverts.items():
                beside[str(node)] = [advert.name.encode(), self._signatures[node]]
        else:
            beside = self.announced.record()
            self._masked = list(contents)
        for content in contents.values():
            content.config_records[RECORD] = beside
        return self._sound(stage, contents)

    def note(self, node: int, stage: str, problem: str, *, blame: bool = False) -> None:
        """Note why a node left, and whether it is to be asked again."""
        self.problems.setdefault(node, f"left at {stage.replace('_', ' ')}: {problem}")
        if blame:
            self.blamed.setdefault(node, self.problems[node])

    def _agreed(self, contents: Mapping[int, RecordDict]) -> dict[int, bytes]:
        """The signatures of those who were told the same, by node."""
        questions = {}
        for node, content in contents.items():
            asked = ConfigRecord(dict(content.config_records[RECORD_KEY_CONFIGS]))
            asked[Key.STAGE] = AGREE
            questions[node] = RecordDict({RECORD_KEY_CONFIGS: asked})
        told: Any = next(iter(questions.values())).config_records[RECORD_KEY_CONFIGS]
        here, gone = told[Key.ACTIVE_NODE_ID_LIST], told[Key.DEAD_NODE_ID_LIST]
        view = View(self.announced, self.adverts, self._masked, here, gone).message()
        agreed: dict[int, bytes] = {}
        for reply in self._sound(AGREE, questions):
            node = reply.metadata.src_node_id
            signature: Any = reply.content.config_records[RECORD]["signature"]
            if self.roster.signed(self.adverts[node].name, signature, view):
                agreed[node] = signature
            else:
                self.note(node, AGREE, "signed another view than everybody was told", blame=True)
        return agreed

    def _sound(self, stage: str, contents: Mapping[int, RecordDict]) -> list[Message]:
        """The replies that can be used."""
        came = self.ask(MessageType.TRAIN, contents)
        sound = []
        for node, content in contents.items():
            reply = came.get(node)
            if reply is None or reply.has_error():
                self.note(node, stage, silence(reply, self.deadline))
                continue
            try:
                self._take(reply.content, Asked.of(node, content, self.numbers))
                sound.append(reply)
            except _UnopenedError as error:
                self.note(node, stage, str(error))
            except UnreadableError as error:
                why = f"sent something else than was asked: {error}"
                self.note(node, stage, why, blame=True)
        self._judge(stage)
        return sound

    def _take(self, content: RecordDict, asked: Asked) -> None:
        """Keep what others need of a reply, or say why it cannot be used."""
        unopened = replies.complaint(content, asked)
        if unopened:
            self._complaints.update(unopened)
            names = ", ".join(self.adverts[peer].name for peer in unopened)
            raise _UnopenedError(f"could not open the shares that it was sent by {names}")
        replies.check(content, asked)
        if asked.stage == Stage.SETUP:
            self._take_advert(asked.node, content)
        elif asked.stage == Stage.SHARE_KEYS:
            seed: Any = content.config_records[RECORD]["seed"]
            self.seeds[asked.node] = seed

    def _take_advert(self, node: int, content: RecordDict) -> None:
        """Keep a node's keys, if its peers would not refuse them."""
        keys: Any = content.config_records[RECORD_KEY_CONFIGS]
        told: Any = content.config_records[RECORD]
        advert = Advert(node, told["name"], keys[Key.PUBLIC_KEY_1], keys[Key.PUBLIC_KEY_2])
        if not self.roster.signed(advert.name, told["signature"], advert.message(self.announced)):
            raise UnreadableError("has keys that no enrolled node signed")
        others = self.adverts.values()
        if advert.name in {other.name for other in others}:
            raise UnreadableError(f"says that it is {advert.name}, who is there already")
        used = [key for other in others for key in (other.mask_key, other.share_key)]
        if len({*used, advert.mask_key, advert.share_key}) < len(used) + 2:
            raise UnreadableError("has a key that is there already")
        self.adverts[node], self._signatures[node] = advert, told["signature"]

    def _judge(self, stage: str) -> None:
        """Blame those whose shares more nodes could not open than may be dishonest."""
        trusted = self.announced.nodes - self.announced.threshold
        for node, count in self._complaints.items():
            if count > trusted:
                why = f"sent shares that {count} peers could not open"
                self.note(node, Stage.SHARE_KEYS, why, blame=True)


class _UnopenedError(Exception):
    """A node names peers whose shares it could not open."""
