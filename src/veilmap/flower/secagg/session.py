"""What the nodes of a masked sum sign, so that no server can show them different things.

A sum is opened in one *session* of five stages (Bonawitz and others, "Practical Secure
Aggregation for Privacy-Preserving Machine Learning", CCS 2017, the protocol against active
adversaries, on top of SecAgg+):

1. setup: the server *announces* the session; every node signs the announcement with its keys.
2. share keys: nodes check all peers' signatures, then share their secrets with these peers.
3. collect masked vectors: nodes check that the broadcast is the announced one, and answer it.
4. agree: every node signs its *view*: who is who, who masked, who is in the sum, who is gone.
5. unmask: nodes help only if at least the threshold of peers signed the very same view.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, fields
from typing import Any

from flwr.app import ConfigRecord, RecordDict

from veilmap.errors import PrivacyError

RECORD = "veilmap.session"  # beside Flower's own records of SecAgg+
AGREE = "agree"
UNOPENED = "unopened"  # peers whose shares a node could not open, in place of its masked vector

_PURPOSE = "veilmap secure sum 1"  # no signature of ours can be taken for another's


@dataclass(frozen=True)
class Announcement:
    """What a session is about; the same for everybody."""

    session: int  # larger than all before it
    round: int  # of the training, from 0
    cohort: int  # how many users were asked: shares of noise depend on it
    nodes: int
    threshold: int  # with how many nodes the sum may be opened
    broadcast: str  # digest of the map, θ and the mechanism

    def record(self) -> ConfigRecord:
        """For a message."""
        return ConfigRecord(asdict(self))

    @classmethod
    def read(cls, content: RecordDict) -> "Announcement":
        """What a message announces; every field with its own type."""
        given: dict[str, Any] = dict(content.config_records.get(RECORD, ConfigRecord()))
        for field in fields(cls):
            if type(given.get(field.name)) is not field.type:
                raise PrivacyError(f"the server announces a session without its {field.name}")
        return cls(**{field.name: given[field.name] for field in fields(cls)})


@dataclass(frozen=True)
class Advert:
    """A node's keys for one session: for masks, and for shares of its secrets."""

    node: int
    name: str
    mask_key: bytes
    share_key: bytes

    def message(self, announced: Announcement) -> bytes:
        """What its node signs."""
        return _message("keys", astuple(announced), self.plain())

    def plain(self) -> list[Any]:
        """For a signature, or for a node's own state."""
        return [self.node, self.name, self.mask_key.hex(), self.share_key.hex()]


@dataclass(frozen=True)
class View:
    """All that a node was told in a session.

    ``masked`` are the nodes whose shares arrived: everybody masks with all of these. The masked
    vectors of those ``here`` are in the sum; the others are ``gone``.
    """

    announced: Announcement
    adverts: Mapping[int, Advert]
    masked: Sequence[int]
    here: Sequence[int]
    gone: Sequence[int]

    def message(self) -> bytes:
        """What every node signs before it helps to unmask."""
        adverts = [self.adverts[node].plain() for node in sorted(self.adverts)]
        nodes = (sorted(self.masked), sorted(self.here), sorted(self.gone))
        return _message("view", astuple(self.announced), adverts, *nodes)


def introduction(node: int, users: Sequence[int | str]) -> bytes:
    """What a node signs when it says whom it speaks for."""
    return _message("speaks for", node, list(users))


def seed_digest(seed: bytes) -> bytes:
    """What a node says of the seed of its own mask when it shares it, to know it again by."""
    return hashlib.sha256(b"veilmap seed" + seed).digest()


def _message(kind: str, *parts: Any) -> bytes:
    """A digest to sign: of what it is for, and of all parts in their order."""
    text = json.dumps([_PURPOSE, kind, *parts], separators=(",", ":"))
    return hashlib.sha256(text.encode()).digest()
