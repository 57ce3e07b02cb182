"""A report: what a participant sends to each aggregator, byte for byte.

    id 16 | leader's hash 32 | helper's hash 32 | length of the credential 2 | credential | share

Numbers are big-endian. The leader's share is a blind of 32 bytes and the masked vector, the
helper's a seed of 32 bytes; where contributions are proven both are as in `pine/reports.py`, whose
blinds do the same. The hash of a share is SHA-256 over its role, the task's digest, the id
and the share. Both halves have both hashes: an aggregator checks its own, and both compare them
before they add anything, so that halves which are altered, swapped, or not of one report are
refused. Without the blind the helper, which knows the mask, could try vectors until one has the
leader's hash.
"""

import hashlib
import hmac
from dataclasses import dataclass

from veilmap._util.arrays import Ints
from veilmap.collection import shares
from veilmap.collection.pine import reports as proven
from veilmap.collection.task import ROLES, Role, Task

ID_BYTES = 16
HASH_BYTES = 32
SECRET_BYTES = 32  # of a participant, who keeps it to itself
_BLIND_BYTES = 32
_HEAD = ID_BYTES + 2 * HASH_BYTES + 2


class Refusal(Exception):  # noqa: N818
    """A report, or a request for something else, is not taken.

    Parameters
    ----------
    reason : str
        One word for programs, see docs/reference/protocol.md.
    line : str
        What is wrong and what to do, for people.
    status : int
        Of HTTP.
    """

    def __init__(self, reason: str, line: str, status: int = 400) -> None:
        super().__init__(line)
        self.reason = reason
        self.line = line
        self.status = status


@dataclass(frozen=True)
class Half:
    """One half of a report."""

    id: bytes
    hashes: bytes  # of the leader's share and the helper's, 64 bytes
    credential: bytes
    share: bytes

    @property
    def content(self) -> bytes:
        """As it travels."""
        length = len(self.credential).to_bytes(2)
        return b"".join([self.id, self.hashes, length, self.credential, self.share])


def share_bytes(task: Task, role: Role) -> int:
    """Length of an aggregator's share."""
    if task.proofs is not None:
        return proven.share_bytes(task.proofs, ROLES.index(role))
    if role == "helper":
        return shares.SEED_BYTES
    return _BLIND_BYTES + shares.ELEMENT_BYTES * task.survey.numbers


def elements_of(task: Task, share: bytes) -> shares.Elements:
    """The masked vector in a leader's share; ValueError where there is none."""
    if task.proofs is not None:
        return proven.elements_of(task.proofs, share)
    return shares.from_bytes(share[_BLIND_BYTES:])


def half_bytes(task: Task, role: Role) -> int:
    """Length of an aggregator's half of a report: all have the same."""
    return _HEAD + task.admission.credential_bytes + share_bytes(task, role)


def share_hash(role: Role, digest: bytes, report: bytes, share: bytes) -> bytes:
    """The hash of a share, which both halves have."""
    return hashlib.sha256(f"veilmap {role} share\0".encode() + digest + report + share).digest()


def halves(
    task: Task, vector: Ints, report: bytes, credential: bytes, secret: bytes
) -> tuple[Half, Half]:
    """The leader's half and the helper's of a contribution.

    The same secret, report and vector give the same halves, so that a report that is made again
    counts once. Seed and blind depend on the vector: no two vectors ever have the same mask, from
    which their difference could be told.
    """
    digest = task.digest_bytes
    if task.proofs is not None:
        masked, seed = proven.prove(task.proofs, vector, digest, report, secret)
    else:
        masked, seed = _unproven(vector, digest, report, secret)
    hashes = share_hash("leader", digest, report, masked) + share_hash(
        "helper", digest, report, seed
    )
    return Half(report, hashes, credential, masked), Half(report, hashes, credential, seed)


def _unproven(vector: Ints, digest: bytes, report: bytes, secret: bytes) -> tuple[bytes, bytes]:
    """Both shares of a contribution without a proof."""
    about = digest + report + vector.astype("<i4").tobytes()
    seed, blind = (
        hmac.digest(secret, f"veilmap {name}\0".encode() + about, "sha256")
        for name in ("seed", "blind")
    )
    return blind + shares.to_bytes(shares.split(vector, digest, report, seed)), seed


def parsed(content: bytes, task: Task, role: Role) -> Half:
    """The half of a report that came from outside, fully checked."""
    if len(content) != half_bytes(task, role):
        raise Refusal(
            "malformed",
            f"a report of this survey has {half_bytes(task, role)} bytes for the {role}, not"
            f" {len(content)}: make it anew from the survey's task",
        )
    credential_ends = _HEAD + task.admission.credential_bytes
    report = content[:ID_BYTES]
    half = Half(
        report,
        content[ID_BYTES : _HEAD - 2],
        content[_HEAD:credential_ends],
        content[credential_ends:],
    )
    if int.from_bytes(content[_HEAD - 2 : _HEAD]) != len(half.credential):
        raise Refusal("malformed", "the credential has another length than this survey's")
    own = half.hashes[:HASH_BYTES] if role == "leader" else half.hashes[HASH_BYTES:]
    if share_hash(role, task.digest_bytes, report, half.share) != own:
        raise Refusal(
            "altered",
            f"the {role}'s share does not match its hash: it was altered, or is for another survey"
            " or aggregator; send the report again as it was made",
        )
    if not task.admission.admits(half.credential, task.digest_bytes, report):
        raise Refusal(
            "not admitted",
            "the report shows neither a token of this survey for its id nor the work that is"
            " asked for; take part with an invitation of this survey",
            403,
        )
    if role == "leader":
        try:
            elements_of(task, half.share)
        except ValueError as error:
            raise Refusal("malformed", f"the leader's share is malformed: {error}") from None
    return half
