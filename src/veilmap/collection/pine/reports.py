"""A contribution with its proof as bytes: what a client sends, and what aggregators exchange.

    leader's share   other's parts 64 | own blinds 64 | encoded measurement | proofs
    helper's share   other's parts 64 | own blinds 64 | seeds of measurement and proofs 64
    message          shares of the outcomes | own parts 64
    decision         both seeds of the joint randomness, 64

Of parts, blinds and seeds the first is for the wraparound checks. Elements are four bytes each,
little-endian. Everything is bound to the task and to the report's id by the nonce.
"""

import hashlib
import hmac
from dataclasses import dataclass

from veilmap._util.arrays import Ints
from veilmap.collection import shares
from veilmap.collection.pine import sharding, verifying
from veilmap.collection.pine.choosing import chosen
from veilmap.collection.pine.encoding import ChecksFailed
from veilmap.collection.pine.parameters import Parameters
from veilmap.collection.pine.sharding import HELPER, LEADER, NONCE_BYTES, SEEDS, InputShare, Parts
from veilmap.collection.pine.verifying import Message, State, Unproven
from veilmap.collection.pine.xof import SEED_BYTES, Field
from veilmap.collection.shares import ELEMENT_BYTES, Elements
from veilmap.surveys.design import Survey

_PAIR = 2 * SEED_BYTES
_TRIES = 20  # an honest vector fails one in 2⁶⁰ at most

DECISION_BYTES = _PAIR


def parameters_of(survey: Survey) -> Parameters:
    """What is proven of a contribution to a survey: its length is at most the design's C."""
    return chosen(survey.numbers, survey.clip)


def share_bytes(parameters: Parameters, role: int) -> int:
    """Length of an aggregator's share."""
    if role == HELPER:
        return 3 * _PAIR
    return 2 * _PAIR + ELEMENT_BYTES * (parameters.measurement + parameters.proof_elements)


def message_bytes(parameters: Parameters) -> int:
    """Length of what an aggregator tells the other about one report."""
    return ELEMENT_BYTES * parameters.message_elements + _PAIR


def prove(
    parameters: Parameters, vector: Ints, digest: bytes, report: bytes, secret: bytes
) -> tuple[bytes, bytes]:
    """The leader's share and the helper's of a contribution, with proofs.

    The same secret, report and vector give the same shares. Seeds depend on the vector: no two
    vectors ever have the same mask, from which their difference could be told.
    """
    nonce = nonce_of(digest, report)
    about = digest + report + vector.astype("<i8").tobytes()
    for attempt in range(_TRIES):
        key = hmac.digest(secret, f"veilmap proof {attempt}\0".encode() + about, "sha256")
        random = b"".join(hmac.digest(key, bytes([one]), "sha256") for one in range(SEEDS))
        try:
            return _content(sharding.sharded(parameters, vector, nonce, random))
        except ChecksFailed:
            continue
    raise AssertionError("the chance of this is below any that counts")


def nonce_of(digest: bytes, report: bytes) -> bytes:
    """What the proofs of a report are bound to: its task and its id."""
    return hashlib.sha256(b"veilmap nonce\0" + digest + report).digest()[:NONCE_BYTES]


def begin(
    parameters: Parameters, role: int, key: bytes, nonce: bytes, share: bytes
) -> tuple[State, bytes]:
    """An aggregator's state and message for a share that came from outside."""
    parts, own = _parsed(parameters, role, share)
    state, message = verifying.begun(parameters, role, key, nonce, parts, own)
    parts_told = message.wraparound_part + message.joint_part
    return state, _to_bytes(message.checks) + parts_told


def decide(parameters: Parameters, leader: bytes, helper: bytes) -> bytes:
    """The decision that both messages lead to; `Unproven` is raised where they do not convince."""
    first, second = verifying.decided(
        parameters, _message(parameters, leader), _message(parameters, helper)
    )
    return first + second


def finish(state: State, decision: bytes) -> Elements:
    """An aggregator's share of the vector, which may now be added up."""
    if len(decision) != DECISION_BYTES:
        raise Unproven("malformed", "the decision is none")
    seeds = decision[:SEED_BYTES], decision[SEED_BYTES:]
    return verifying.finished(state, seeds).astype("uint32")


@dataclass(frozen=True)
class Verifier:
    """Both aggregators in one process, for tests, studies and measurements of speed."""

    parameters: Parameters
    key: bytes
    digest: bytes

    def verify(self, report: bytes, halves: tuple[bytes, bytes]) -> tuple[Elements, Elements]:
        """Both shares of the vector of a report, which is as short as it must be."""
        nonce = nonce_of(self.digest, report)
        begun = [
            begin(self.parameters, role, self.key, nonce, halves[role]) for role in (LEADER, HELPER)
        ]
        decision = decide(self.parameters, begun[LEADER][1], begun[HELPER][1])
        first, second = (finish(state, decision) for state, _ in begun)
        return first, second


def _content(made: sharding.Sharded) -> tuple[bytes, bytes]:
    """Both shares as they travel."""

    def head(own: InputShare, other: int) -> bytes:
        parts = made.parts.wraparound[other] + made.parts.joint[other]
        return parts + own.wraparound_blind + own.joint_blind

    masked = _to_bytes(made.leader.measurement) + _to_bytes(made.leader.proofs)
    return head(made.leader, HELPER) + masked, head(made.helper, LEADER) + b"".join(
        made.helper_seeds
    )


def _parsed(parameters: Parameters, role: int, share: bytes) -> tuple[Parts, InputShare]:
    """Parts and input share in an aggregator's share."""
    if len(share) != share_bytes(parameters, role):
        raise Unproven(
            "malformed",
            f"the share has {len(share)} bytes and not {share_bytes(parameters, role)}",
        )
    others, blinds, rest = share[:_PAIR], share[_PAIR : 2 * _PAIR], share[2 * _PAIR :]
    missing = bytes(SEED_BYTES)  # one's own part, which is computed
    told = [others[:SEED_BYTES], others[SEED_BYTES:]]
    pairs = [(one, missing) if role == HELPER else (missing, one) for one in told]
    first, second = blinds[:SEED_BYTES], blinds[SEED_BYTES:]
    if role == HELPER:
        seeds = rest[:SEED_BYTES], rest[SEED_BYTES:]
        return Parts(*pairs), sharding.expanded_share(parameters, *seeds, first, second)
    elements = _from_bytes(rest)
    measurement, proofs = elements[: parameters.measurement], elements[parameters.measurement :]
    return Parts(*pairs), InputShare(measurement, proofs, first, second)


def _message(parameters: Parameters, content: bytes) -> Message:
    if len(content) != message_bytes(parameters):
        raise Unproven("malformed", "the other aggregator's message has another length")
    told = content[-_PAIR:]
    return Message(_from_bytes(content[:-_PAIR]), told[:SEED_BYTES], told[SEED_BYTES:])


def _to_bytes(elements: Field) -> bytes:
    return shares.to_bytes(elements.astype("uint32"))


def _from_bytes(content: bytes) -> Field:
    try:
        return shares.from_bytes(content).astype("uint64")
    except ValueError as error:
        raise Unproven("malformed", str(error)) from None
