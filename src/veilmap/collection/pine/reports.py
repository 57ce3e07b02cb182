"""A contribution with its proof as bytes: what a client sends, and what aggregators exchange.

    leader's share   other's parts 64 | own blinds 64 | encoded measurement | proofs
    helper's share   other's parts 64 | own blinds 64 | seeds of measurement and proofs 64
    leader's message shares of the outcomes | own parts 64 | seeds of the joint randomness 64

Of parts, blinds and seeds the first is for the wraparound checks. The helper decides: on outcomes,
and on whether both used the same randomness, so that neither adds what the other does not.
Elements are four bytes each, little-endian. Everything is bound to the task and to the report's id
by the nonce.
"""

import hashlib
import hmac
import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from veilmap._util.arrays import Ints
from veilmap.collection import shares
from veilmap.collection.pine import sharding, verifying
from veilmap.collection.pine.choosing import SOUNDNESS, chosen, errors
from veilmap.collection.pine.encoding import ChecksFailed
from veilmap.collection.pine.parameters import NormProofs
from veilmap.collection.pine.sharding import HELPER, LEADER, NONCE_BYTES, SEEDS, InputShare, Parts
from veilmap.collection.pine.verifying import Message, Unproven
from veilmap.collection.pine.xof import SEED_BYTES, Field
from veilmap.collection.shares import ELEMENT_BYTES, Elements
from veilmap.errors import ConfigurationError
from veilmap.surveys.design import Survey

_PAIR = 2 * SEED_BYTES
_LARGEST_EPSILON = 500.0  # beyond it nothing is private
_TRIES = 20  # an honest vector fails one in 2⁶⁰ at most

_OF_DELTA = 1e-9  # what proofs may add to a survey's δ, of it


def parameters_of(survey: Survey) -> NormProofs:
    """What is proven of a contribution to a survey: its length is at most the design's C.

    What the aggregators learn of it beyond that adds no more than a billionth to the design's δ.
    """
    return _chosen(survey.numbers, survey.clip, _zero_knowledge(survey))


def check_good(parameters: NormProofs, survey: Survey) -> None:
    """Refuse parameters of which more is to be feared than of those that are chosen."""
    found = errors(parameters)
    if found.soundness > SOUNDNESS or found.zero_knowledge > _zero_knowledge(survey):
        raise ConfigurationError(
            f"proofs could be forged with a chance of {found.soundness:.1g}, or tell something with"
            f" {found.zero_knowledge:.1g}: publish the survey with those that are chosen for it",
            "proofs",
        )


def _zero_knowledge(survey: Survey) -> float:
    least = _OF_DELTA * survey.delta / (1 + math.exp(min(survey.epsilon, _LARGEST_EPSILON)))
    return max(min(2.0**-64, least), 2.0**-256)


@lru_cache(maxsize=64)
def _chosen(numbers: int, clip: int, zero_knowledge: float) -> NormProofs:
    return chosen(numbers, clip, zero_knowledge=zero_knowledge)


def share_bytes(parameters: NormProofs, role: int) -> int:
    """Length of an aggregator's share."""
    if role == HELPER:
        return 3 * _PAIR
    return 2 * _PAIR + ELEMENT_BYTES * (parameters.measurement + parameters.proof_elements)


def message_bytes(parameters: NormProofs) -> int:
    """Length of what the leader tells the helper about one report."""
    return ELEMENT_BYTES * parameters.message_elements + 2 * _PAIR


def elements_of(parameters: NormProofs, share: bytes) -> Elements:
    """The share of the vector in a leader's share; ValueError where anything in it is none."""
    return shares.from_bytes(share[2 * _PAIR :])[: parameters.dimension]


def prove(
    parameters: NormProofs, vector: Ints, digest: bytes, report: bytes, secret: bytes
) -> tuple[bytes, bytes]:
    """The leader's share and the helper's of a contribution, with proofs.

    The same secret, report and vector give the same shares. Seeds depend on the vector: no two
    vectors ever have the same mask, from which their difference could be told.
    """
    nonce = nonce_of(digest, report)
    about = digest + report + vector.astype("<i4").tobytes()
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


def message(parameters: NormProofs, key: bytes, nonce: bytes, share: bytes) -> bytes:
    """What the leader tells the helper about a report; always the same with the same key."""
    parts, own = _parsed(parameters, LEADER, share)
    try:
        state, told = verifying.begun(parameters, LEADER, key, nonce, parts, own)
    except Unproven:  # the point must not be used, as the helper finds as well
        return bytes(message_bytes(parameters))
    seeds = b"".join(state.seeds)
    return _to_bytes(told.checks) + told.wraparound_part + told.joint_part + seeds


def judged(
    parameters: NormProofs, key: bytes, nonce: bytes, share: bytes, message: bytes
) -> Elements:
    """The helper's share of a vector that is as short as it must be; else `Unproven` is raised."""
    parts, own = _parsed(parameters, HELPER, share)
    state, told = verifying.begun(parameters, HELPER, key, nonce, parts, own)
    if len(message) != message_bytes(parameters):
        raise Unproven("malformed", "the leader's message has another length")
    theirs, told_seeds = _message(message[:-_PAIR]), message[-_PAIR:]
    seeds = verifying.decided(parameters, theirs, told)
    if told_seeds != b"".join(seeds):
        raise Unproven("disagreement", "the leader did not check with the randomness of the shares")
    return verifying.finished(state, seeds).astype(np.uint32)


@dataclass(frozen=True)
class Verifier:
    """Both aggregators in one process, for tests, studies and measurements of speed."""

    parameters: NormProofs
    key: bytes
    digest: bytes

    def verify(self, report: bytes, halves: tuple[bytes, bytes]) -> tuple[Elements, Elements]:
        """Both shares of the vector of a report, which is as short as it must be."""
        nonce, (leader, helper) = nonce_of(self.digest, report), halves
        told = message(self.parameters, self.key, nonce, leader)
        second = judged(self.parameters, self.key, nonce, helper, told)
        return elements_of(self.parameters, leader), second


def _content(made: sharding.Sharded) -> tuple[bytes, bytes]:
    """Both shares as they travel."""

    def head(own: InputShare, other: int) -> bytes:
        parts = made.parts.wraparound[other] + made.parts.joint[other]
        return parts + own.wraparound_blind + own.joint_blind

    masked = _to_bytes(made.leader.measurement) + _to_bytes(made.leader.proofs)
    return head(made.leader, HELPER) + masked, head(made.helper, LEADER) + b"".join(
        made.helper_seeds
    )


def _parsed(parameters: NormProofs, role: int, share: bytes) -> tuple[Parts, InputShare]:
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


def _message(content: bytes) -> Message:
    told = content[-_PAIR:]
    return Message(_from_bytes(content[:-_PAIR]), told[:SEED_BYTES], told[SEED_BYTES:])


def _to_bytes(elements: Field) -> bytes:
    return shares.to_bytes(elements.astype(np.uint32))


def _from_bytes(content: bytes) -> Field:
    try:
        return shares.from_bytes(content).astype(np.uint64)
    except ValueError as error:
        raise Unproven("malformed", str(error)) from None
