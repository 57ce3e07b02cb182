"""What two verifiers do with the shares of a report: each makes a message, both messages decide.

One round: the leader's message goes to the helper, who adds its own, decides, and answers with the
seeds of the joint randomness; each of the two takes its share of the vector if the seeds are those
that it used itself.
"""

from dataclasses import dataclass

import numpy as np

from veilmap.collection.pine import encoding, field
from veilmap.collection.pine.circuits import Measurement, main_circuit, norm_circuit
from veilmap.collection.pine.parameters import NormProofs
from veilmap.collection.pine.proof import UnluckyPoint, holds, queried
from veilmap.collection.pine.sharding import (
    VERIFIERS,
    InputShare,
    Parts,
    joint_random,
    numbered,
    part,
)
from veilmap.collection.pine.xof import Field, Usage, expanded


class Unproven(Exception):  # noqa: N818
    """A report does not show that its vector is short enough.

    Parameters
    ----------
    reason : str
        ``malformed``, ``unproven``, ``unlucky`` (the client makes the report anew) or
        ``disagreement`` of both aggregators' randomness.
    line : str
        What is wrong, for people.
    """

    def __init__(self, reason: str, line: str) -> None:
        super().__init__(line)
        self.reason = reason
        self.line = line


@dataclass(frozen=True, eq=False)
class Message:
    """What a verifier tells the other: its share of the checks, and its parts of the hashes."""

    checks: Field
    wraparound_part: bytes
    joint_part: bytes


@dataclass(frozen=True, eq=False)
class State:
    """What a verifier keeps until the other has answered: its share of x, and the seeds used."""

    share: Field
    seeds: tuple[bytes, bytes]


def begun(
    parameters: NormProofs, role: int, key: bytes, nonce: bytes, parts: Parts, own: InputShare
) -> tuple[State, Message]:
    """A verifier's state and message for a report.

    Parameters
    ----------
    parameters : NormProofs
    role : int
        0 of the leader, 1 of the helper.
    key : bytes
        32, which both verifiers know and no client does.
    nonce : bytes
        Of the report; never the same with the same key.
    parts : Parts
        As the client told them; one's own are computed anew.
    own : InputShare
    """
    first = own.measurement[: parameters.dimension + 2 * parameters.norm_bits]
    wraparound = part(role, own.wraparound_blind, first, nonce, Usage.WRAPAROUND_PART)
    joint = part(role, own.joint_blind, own.measurement, nonce, Usage.JOINT_PART)
    seeds = Parts(_with(parts.wraparound, role, wraparound), _with(parts.joint, role, joint)).seeds
    share = own.measurement[: parameters.dimension]
    sums = encoding.wraparound_sums(parameters, share, seeds[0])
    measurement = Measurement(parameters, own.measurement, sums, VERIFIERS)
    points = expanded(
        key, Usage.QUERY_RANDOMNESS, numbered(parameters) + nonce, len(parameters.shapes)
    )
    checks = _checks(measurement, own.proofs, joint_random(parameters, seeds[1]), points)
    return State(share, seeds), Message(checks, wraparound, joint)


def decided(parameters: NormProofs, leader: Message, helper: Message) -> tuple[bytes, bytes]:
    """The seeds that both messages stand for, if they convince; else `Unproven` is raised."""
    checks, at = field.added(leader.checks, helper.checks), 0
    for shape in parameters.shapes:
        if not holds(shape, checks[at : at + shape.verifier]):
            raise Unproven("unproven", "the vector is too long, or its proof is wrong")
        at += shape.verifier
    return Parts(
        (leader.wraparound_part, helper.wraparound_part), (leader.joint_part, helper.joint_part)
    ).seeds


def finished(state: State, seeds: tuple[bytes, bytes]) -> Field:
    """A verifier's share of the vector, which may now be added up."""
    if seeds != state.seeds:
        raise Unproven("disagreement", "leader and helper did not check with the same randomness")
    return state.share


def _checks(own: Measurement, proofs: Field, joint: Field, points: Field) -> Field:
    """Shares of the outcome of all checks, one proof after the other."""
    parameters = own.parameters
    circuits = parameters.norm_proofs * [norm_circuit(own)]
    circuits += [main_circuit(own, one) for one in joint]
    found, at = [], 0
    for shape, circuit, point in zip(parameters.shapes, circuits, points, strict=True):
        try:
            found.append(queried(shape, circuit, proofs[at : at + shape.proof], point))
        except UnluckyPoint:
            raise Unproven(
                "unlucky", "a random point is one that must not be used: make the report anew"
            ) from None
        at += shape.proof
    return np.concatenate(found)


def _with(parts: tuple[bytes, ...], role: int, own: bytes) -> tuple[bytes, ...]:
    """The parts as the client told them, but one's own."""
    return tuple(own if number == role else told for number, told in enumerate(parts))
