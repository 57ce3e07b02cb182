"""What nodes reply in a session, read whole before anything is made of it.

Each reader takes a reply and what was asked, and raises `UnreadableError` where they do not fit:
neither Flower's SecAgg+ nor another node then gets what could make it fail.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from flwr.app import RecordDict
from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_CONFIGS, Key, Stage
from flwr.compat.common.recorddict_compat import recorddict_to_fitres
from flwr.supercore.primitives.asymmetric import bytes_to_public_key, public_key_to_bytes

from veilmap.flower.fields import Fields, UnreadableError, array_in
from veilmap.flower.secagg.enrolment import is_node_key
from veilmap.flower.secagg.session import AGREE, RECORD, UNOPENED
from veilmap.flower.secagg.whole_numbers import MODULUS

LONGEST_NAME = 200
_LONGEST_KEY = 1000  # bytes, as PEM
_LONGEST_SIGNATURE = 200
_LONGEST_SHARES = 4000  # two of them, encrypted
_LONGEST_SHARE = 1000
_LONGEST_VECTOR = 2**33
_DIGEST = 32


@dataclass(frozen=True)
class Asked:
    """A message of a session, as far as its reply depends on it."""

    node: int
    stage: str
    request: Mapping[str, Any]
    numbers: int  # in a masked vector

    @classmethod
    def of(cls, node: int, content: RecordDict, numbers: int) -> "Asked":
        """What a node is asked by these records."""
        request: dict[str, Any] = dict(content.config_records[RECORD_KEY_CONFIGS])
        return cls(node, request[Key.STAGE], request, numbers)

    @property
    def nodes(self) -> list[int]:
        """The nodes that the request names: whose keys it shows, or who is here and gone."""
        if self.stage == Stage.SHARE_KEYS:
            return [int(name) for name in self.request if name != Key.STAGE]
        return [*self.request[Key.ACTIVE_NODE_ID_LIST], *self.request[Key.DEAD_NODE_ID_LIST]]


def check(content: RecordDict, asked: Asked) -> None:
    """Refuse a reply that its stage has no use for."""
    try:
        _READERS[asked.stage](content, asked)
    except UnreadableError:
        raise
    except Exception as error:  # whatever a stranger's bytes make Flower's readers say
        raise UnreadableError(f"cannot be read ({type(error).__name__})") from error


def complaint(content: RecordDict, asked: Asked) -> list[int]:
    """The peers whose shares a node could not open, instead of its masked vector; or none."""
    record = content.config_records.get(RECORD)
    if asked.stage != Stage.COLLECT_MASKED_VECTORS or record is None or UNOPENED not in record:
        return []
    peers, told = set(asked.request[Key.SOURCE_LIST]), cast("Any", record[UNOPENED])
    if not isinstance(told, list) or not all(type(node) is int for node in told):
        raise UnreadableError(f"has {UNOPENED} that are no nodes")
    if not told or len(set(told)) < len(told) or not set(told) <= peers:
        raise UnreadableError(f"has {UNOPENED} that are not its peers")
    return [*told]


def _keys(content: RecordDict, asked: Asked) -> None:
    fields, signed = Fields.of(content, RECORD_KEY_CONFIGS), Fields.of(content, RECORD)
    for name in (Key.PUBLIC_KEY_1, Key.PUBLIC_KEY_2):
        text = fields.blob(name, _LONGEST_KEY)
        key = bytes_to_public_key(text)
        # A key of another kind, or written in another way, would make every other node fail.
        if not is_node_key(key) or public_key_to_bytes(key) != text:
            raise UnreadableError(f"has a {name} that is no key for masks")
    signed.text("name", LONGEST_NAME)
    signed.blob("signature", _LONGEST_SIGNATURE)


def _shares(content: RecordDict, asked: Asked) -> None:
    fields, peers = Fields.of(content, RECORD_KEY_CONFIGS), set(asked.nodes) - {asked.node}
    to = fields.wholes(Key.DESTINATION_LIST, len(peers), 0, 2**64)
    # A node that left some out, or had two for one, would give them another view than the others.
    if set(to) != peers:
        raise UnreadableError("has shares that are not for its peers, one for each")
    fields.blobs(Key.CIPHERTEXT_LIST, len(peers), _LONGEST_SHARES)
    if len(Fields.of(content, RECORD).blob("seed", _DIGEST)) != _DIGEST:
        raise UnreadableError("has no digest of its seed")


def _vector(content: RecordDict, asked: Asked) -> None:
    recorddict_to_fitres(content, True)  # which Flower reads too
    parts = Fields.of(content, RECORD_KEY_CONFIGS).blobs(Key.MASKED_PARAMETERS, 2, _LONGEST_VECTOR)
    for part, count in zip(parts, (1, asked.numbers), strict=True):
        numbers = array_in("masked numbers", part, "<i8", 1)
        if numbers.shape != (count,) or numbers.min() < 0 or numbers.max() >= MODULUS:
            raise UnreadableError(f"has other than {count} masked numbers below {MODULUS}")


def _signature(content: RecordDict, asked: Asked) -> None:
    Fields.of(content, RECORD).blob("signature", _LONGEST_SIGNATURE)


def _opening(content: RecordDict, asked: Asked) -> None:
    fields, wanted = Fields.of(content, RECORD_KEY_CONFIGS), asked.nodes
    if fields.wholes(Key.NODE_ID_LIST, len(wanted), 0, 2**64) != wanted:
        raise UnreadableError("has shares of others than were asked for")
    fields.blobs(Key.SHARE_LIST, len(wanted), _LONGEST_SHARE)


_READERS: dict[str, Callable[[RecordDict, Asked], None]] = {
    Stage.SETUP: _keys,
    Stage.SHARE_KEYS: _shares,
    Stage.COLLECT_MASKED_VECTORS: _vector,
    AGREE: _signature,
    Stage.UNMASK: _opening,
}
