"""A node's side of a masked sum: Flower's SecAgg+, and checks of what the server says.

Flower's client does what it is told. Here it does so only while its own promise holds: whatever
sum is opened must hold the noise of enough peers, so that a node counts peers that it knows from
enrolment and helps only where they saw what it saw (`session` says who signs what, and when).
"""

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
from cryptography.fernet import InvalidToken
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.client.mod import secaggplus_mod
from flwr.common import Code, FitRes, Status, ndarrays_to_parameters
from flwr.common.secure_aggregation.crypto.symmetric_encryption import (
    decrypt,
    generate_shared_key,
)
from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_CONFIGS, Key, Stage
from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_STATE as STATE
from flwr.common.secure_aggregation.secaggplus_utils import share_keys_plaintext_separate
from flwr.compat.common.recorddict_compat import fitres_to_recorddict
from flwr.supercore.primitives.asymmetric import bytes_to_private_key, bytes_to_public_key

from veilmap._util.arrays import Floats, Ints
from veilmap.errors import PrivacyError
from veilmap.flower import records
from veilmap.flower.fields import UnreadableError
from veilmap.flower.secagg import sharing
from veilmap.flower.secagg.enrolment import Enrolment
from veilmap.flower.secagg.session import (
    AGREE,
    RECORD,
    UNOPENED,
    Advert,
    Announcement,
    View,
    seed_digest,
)
from veilmap.flower.secagg.whole_numbers import MODULUS, Scale
from veilmap.privacy.mechanisms import Mechanism

CallNext = Callable[[Message, Context], Message]


def mask(
    message: Message,
    context: Context,
    call_next: CallNext,
    enrolment: Enrolment,
    mechanism: Mechanism,
) -> Message:
    """Answer one stage of a session, or refuse it; ``call_next`` gives the vector to mask."""
    strengthen()
    if RECORD_KEY_CONFIGS not in message.content:
        raise PrivacyError("this node takes part in sums only, and was asked for a single upload")
    stage = message.content.config_records[RECORD_KEY_CONFIGS].get(Key.STAGE)
    if stage not in _ANSWERS:
        raise PrivacyError(f"a masked sum has no stage {stage!r}")
    return _ANSWERS[stage](_Turn(message, context, call_next, enrolment, mechanism))


def vector(values: Floats) -> RecordDict:
    """A vector as Flower's SecAgg+ takes it; its weight is the same for everybody."""
    result = FitRes(Status(Code.OK, ""), ndarrays_to_parameters([values]), 1, {})
    return fitres_to_recorddict(result, keep_input=False)


@dataclass(frozen=True)
class _Turn:
    """One message of a session, and what this node remembers of those before it."""

    message: Message
    context: Context
    call_next: CallNext
    enrolment: Enrolment
    mechanism: Mechanism

    @property
    def asked(self) -> dict[str, Any]:
        """What the server says in this message."""
        return dict(self.message.content.config_records[RECORD_KEY_CONFIGS])

    @property
    def me(self) -> int:
        """The number that this node was given when the session began."""
        return int(self.context.state.config_records[STATE]["nid"])  # type: ignore[arg-type]

    def whole(self, name: str) -> int:
        """A whole number that the server said."""
        value = self.asked.get(name)
        if type(value) is not int:
            raise PrivacyError(f"the server sent no whole number as {name}")
        return value

    def nodes(self, name: str) -> list[int]:
        """A list of different nodes that the server named."""
        value = self.asked.get(name)
        if not isinstance(value, list) or any(type(node) is not int for node in value):
            raise PrivacyError(f"the server sent no list of nodes as {name}")
        if len(set(value)) < len(value):
            raise PrivacyError("the server names a node twice, so that peers would count twice")
        return value

    @property
    def announced(self) -> Announcement:
        """What this node signed when the session began."""
        return Announcement.read(self.context.state)

    def enter(self, session: int, stage: str) -> None:
        """Note durably that this stage is answered, before anything else changes.

        Each stage is answered once; that of the vectors is noted where it is paid for.
        """
        self.enrolment.enter(session, stage, self.mechanism)

    def proceed(self) -> Message:
        """Let Flower's SecAgg+ answer."""
        return secaggplus_mod(self.message, self.context, self.call_next)

    def remember(self, name: str, value: Any) -> None:
        """Keep something for the stages to come."""
        self.context.state.config_records[RECORD][name] = json.dumps(value)

    def remembered(self, name: str) -> Any:
        """What was kept; nothing is answered without it."""
        stored = self.context.state.config_records[RECORD].get(name)
        if not isinstance(stored, str):
            raise PrivacyError(f"the server asks out of turn: this session has no {name} yet")
        return json.loads(stored)

    @property
    def adverts(self) -> dict[int, Advert]:
        """The keys of everybody in this session, by node."""
        return {
            node: Advert(node, name, bytes.fromhex(mask_key), bytes.fromhex(share_key))
            for node, name, mask_key, share_key in self.remembered("adverts")
        }


def _set_up(turn: _Turn) -> Message:
    """Announce keys of this node's own, signed for this session and no other."""
    announced = Announcement.read(turn.message.content)
    _check_announced(announced, turn.mechanism, len(turn.enrolment.roster.keys))
    numbers = [turn.whole(key) for key in (Key.SAMPLE_NUMBER, Key.SHARE_NUMBER, Key.THRESHOLD)]
    if numbers != [announced.nodes, announced.nodes, announced.threshold]:
        raise PrivacyError(
            f"a sum over {announced.nodes} nodes must show every node all their keys"
        )
    _check_ranges(turn.asked, Scale.of(turn.mechanism, announced.nodes))
    turn.enter(announced.session, Stage.SETUP)
    turn.context.state.config_records[RECORD] = announced.record()
    reply = turn.proceed()
    keys: dict[str, Any] = dict(reply.content.config_records[RECORD_KEY_CONFIGS])
    name = turn.enrolment.name
    advert = Advert(turn.me, name, keys[Key.PUBLIC_KEY_1], keys[Key.PUBLIC_KEY_2])
    signature = turn.enrolment.sign(advert.message(announced))
    reply.content.config_records[RECORD] = ConfigRecord({"name": name, "signature": signature})
    return reply


def _check_announced(announced: Announcement, mechanism: Mechanism, enrolled: int) -> None:
    """Refuse a session whose sum could be opened too early."""
    nodes, threshold, cohort = announced.nodes, announced.threshold, announced.cohort
    least = mechanism.least_answers(cohort)
    if not 2 <= nodes <= min(cohort, enrolled):
        raise PrivacyError(
            f"a sum over {nodes} nodes of a cohort of {cohort} does not fit the {enrolled} nodes"
            " that are enrolled"
        )
    if threshold < least or threshold > nodes:
        raise PrivacyError(
            f"the server says that {cohort} users were asked, whose sum needs {least} answers, but"
            f" it can be opened with {threshold}: nothing is sent"
        )
    if 2 * threshold <= nodes:
        # Else half of the nodes could agree on one view, and the other half on another.
        raise PrivacyError(
            f"{threshold} of {nodes} nodes could open an upload: more than half are needed"
        )


def _check_ranges(asked: Mapping[str, Any], scale: Scale) -> None:
    """Refuse ranges under which numbers would be cut off, or their sum overflow."""
    ranges = [asked.get(k) for k in (Key.CLIPPING_RANGE, Key.TARGET_RANGE, Key.MOD_RANGE)]
    if ranges != [scale.largest, 2 * scale.largest, MODULUS] or asked.get(Key.MAX_WEIGHT) != 1:
        raise PrivacyError(f"with the ranges {ranges} numbers would be cut off or sums overflow")


def _share_keys(turn: _Turn) -> Message:
    """Share this node's secrets, with peers that it knows and that signed this session."""
    announced, roster = turn.announced, turn.enrolment.roster
    signed: Any = dict(turn.message.content.config_records.get(RECORD, ConfigRecord()))
    keys = {node: pair for node, pair in turn.asked.items() if node != Key.STAGE}
    adverts = []
    for node, pair in keys.items():
        told = signed.get(node)
        if not (_is_pair(pair) and _is_pair(told) and node.isascii() and node.isdigit()):
            raise PrivacyError("the server shows keys without the names and signatures to them")
        name, signature = told
        advert = Advert(int(node), name.decode(errors="replace"), *pair)
        if not roster.signed(advert.name, signature, advert.message(announced)):
            raise PrivacyError(
                f"the keys of {advert.name!r} are not signed by a node of this roster for this"
                " session: nothing is shared with them"
            )
        adverts.append(advert)
    _check_adverts(adverts, turn)
    turn.enter(announced.session, Stage.SHARE_KEYS)
    turn.remember("adverts", [advert.plain() for advert in adverts])
    reply = turn.proceed()
    seed: Any = turn.context.state.config_records[STATE]["rd_seed"]
    reply.content.config_records[RECORD] = ConfigRecord({"seed": seed_digest(seed)})
    return reply


def _is_pair(value: Any) -> bool:
    return isinstance(value, list) and [type(part) for part in value] == [bytes, bytes]


def _check_adverts(adverts: Collection[Advert], turn: _Turn) -> None:
    """Everybody stands there once, this node among them, and enough for the sum's noise."""
    announced = turn.announced
    for what in ("node", "name", "mask_key", "share_key"):
        if len({getattr(advert, what) for advert in adverts}) < len(adverts):
            raise PrivacyError(f"the server shows one {what.replace('_', ' ')} twice")
    if turn.enrolment.name not in {advert.name for advert in adverts if advert.node == turn.me}:
        raise PrivacyError("the server shows keys without this node's own")
    if not announced.threshold <= len(adverts) <= announced.nodes:
        raise PrivacyError(
            f"the server shows the keys of {len(adverts)} nodes, not of {announced.threshold} to"
            f" {announced.nodes}"
        )


def _answer(turn: _Turn) -> Message:
    """Mask this node's answer to the announced broadcast; `train` pays for it first."""
    announced, adverts = turn.announced, turn.adverts
    peers = turn.nodes(Key.SOURCE_LIST)
    if not set(peers) <= set(adverts) - {turn.me}:
        raise PrivacyError("the server forwards shares of nodes that have shown no keys")
    if len(peers) + 1 < announced.threshold:
        raise PrivacyError(
            f"the server forwards shares of {len(peers)} peers: with this node they are fewer than"
            f" the {announced.threshold} that the sum needs"
        )
    unopened = _unopened(turn, peers)
    if unopened:  # nothing is paid for, and no data are looked at
        content = RecordDict({RECORD: ConfigRecord({UNOPENED: unopened})})
        return Message(content, reply_to=turn.message)
    try:
        broadcast = records.read_question(turn.message.content).broadcast
        same = records.digest(turn.message.content) == announced.broadcast
    except UnreadableError as error:
        raise PrivacyError(str(error)) from error
    if not same or (broadcast.round, broadcast.cohort) != (announced.round, announced.cohort):
        raise PrivacyError("the server sends another broadcast than it announced to everybody")
    reply = turn.proceed()
    turn.remember("masked", [turn.me, *peers])
    return reply


def _unopened(turn: _Turn, peers: Collection[int]) -> list[int]:
    """The peers whose shares are none; Flower opens them after the answer, and fails then."""
    state: Any = turn.context.state.config_records[STATE]
    secrets = dict(zip(state["ss2_dict:K"], state["ss2_dict:V"], strict=True))
    sizes = [len(state[f"{kind}_share_dict:V"][0]) for kind in ("rd_seed", "sk1")]
    sealed = turn.asked.get(Key.CIPHERTEXT_LIST)
    if not isinstance(sealed, list) or len(sealed) != len(peers):
        raise PrivacyError("the server forwards no share of each peer")
    bad = []
    for peer, text in zip(peers, sealed, strict=True):
        try:
            opened = share_keys_plaintext_separate(decrypt(secrets[peer], text))
        except (InvalidToken, KeyError, TypeError, ValueError):
            opened = (-1, -1, b"", b"")
        *ends, seed, key = opened
        if ends != [peer, turn.me] or [len(seed), len(key)] != sizes:
            bad.append(peer)
    return bad


def _agree(turn: _Turn) -> Message:
    """Sign what this node was told in this session: once, and before anything is unmasked."""
    message = _view(turn).message()
    turn.enter(turn.announced.session, AGREE)
    turn.remember("view", message.hex())
    signature = turn.enrolment.sign(message)
    content = RecordDict({RECORD: ConfigRecord({"signature": signature})})
    return Message(content, reply_to=turn.message)


def _view(turn: _Turn) -> View:
    """The view of this node, with those who the server says are in the sum, and who are gone."""
    here, gone = turn.nodes(Key.ACTIVE_NODE_ID_LIST), turn.nodes(Key.DEAD_NODE_ID_LIST)
    masked = turn.remembered("masked")
    if set(here) & set(gone) or {*here, *gone} != set(masked) or turn.me not in here:
        # Never help to open the masks of one node in both ways: that would open its upload.
        raise PrivacyError("the server asks to unmask nodes in a way that would show an upload")
    if len(here) < turn.announced.threshold:
        raise PrivacyError(
            f"a sum over {len(here)} nodes lacks noise: it needs {turn.announced.threshold}"
        )
    return View(turn.announced, turn.adverts, masked, here, gone)


def _unmask(turn: _Turn) -> Message:
    """Help to open the sum, if enough peers signed the view that this node signed."""
    view = _view(turn)
    message = view.message()
    if message.hex() != turn.remembered("view"):
        raise PrivacyError("the server asks to unmask another sum than this node agreed to")
    signatures: Any = dict(turn.message.content.config_records.get(RECORD, ConfigRecord()))
    agreed = {
        node
        for node in view.here
        if turn.enrolment.roster.signed(view.adverts[node].name, signatures.get(str(node)), message)
    }
    if len(agreed) < turn.announced.threshold:
        raise PrivacyError(
            f"{len(agreed)} nodes agree on what this node was told, and"
            f" {turn.announced.threshold} must: nothing is unmasked"
        )
    turn.enter(turn.announced.session, Stage.UNMASK)
    return turn.proceed()


_ANSWERS: dict[Any, Callable[[_Turn], Message]] = {
    Stage.SETUP: _set_up,
    Stage.SHARE_KEYS: _share_keys,
    Stage.COLLECT_MASKED_VECTORS: _answer,
    AGREE: _agree,
    Stage.UNMASK: _unmask,
}


def pseudo_random(seed: bytes, bound: int, shapes: list[tuple[int, ...]]) -> list[Ints]:
    """Masks below ``bound``, a power of two, out of a secret: AES-256 in counter mode."""
    key = hashlib.sha256(b"veilmap masks" + seed).digest()
    stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
    masks = []
    for shape in shapes:
        count = int(np.prod(shape))
        words = np.frombuffer(stream.update(bytes(8 * count)), dtype="<u8")
        masks.append((words & np.uint64(bound - 1)).astype(np.int64).reshape(shape))
    return masks


def masks(
    secrets: Mapping[int, bytes],
    here: Collection[int],
    adverts: Mapping[int, Advert],
    shape: tuple[int, ...],
) -> Iterator[Ints]:
    """What is left of masks on a sum over the nodes ``here``: their own, and with those gone.

    ``secrets`` are the seeds of the former and the private keys of the latter.
    """
    for node, secret in secrets.items():
        if node in here:
            # The first of two shapes: SecAgg+ masks a factor before the vector.
            yield pseudo_random(secret, MODULUS, [(1,), shape])[1]
            continue
        own = bytes_to_private_key(secret)
        for peer in here:
            shared = generate_shared_key(own, bytes_to_public_key(adverts[peer].mask_key))
            mask = pseudo_random(shared, MODULUS, [(1,), shape])[1]
            yield -mask if node > peer else mask


_CLIENT = "flwr.client.mod.secure_aggregation.secaggplus_mod"
_SERVER = "flwr.server.workflow.secure_aggregation.secaggplus_workflow"


@cache
def strengthen() -> None:
    """Replace what makes Flower's masks weak and its sharing slow, on both sides of a sum.

    Flower 1.41 folds a 256-bit secret to 32 bits and seeds a Mersenne Twister with them: a
    curious server could try all seeds. Version and names are pinned; should they move, this
    fails loudly instead of masking weakly.
    """
    for module, name, part in (
        (_CLIENT, "pseudo_rand_gen", pseudo_random),
        (_SERVER, "pseudo_rand_gen", pseudo_random),
        (_CLIENT, "create_shares", sharing.create_shares),
        (_SERVER, "combine_shares", sharing.combine_shares),
    ):
        target: Any = import_module(module)
        if not hasattr(target, name):
            raise PrivacyError(f"{module} has changed: install flwr >= 1.41, < 1.42")
        setattr(target, name, part)
