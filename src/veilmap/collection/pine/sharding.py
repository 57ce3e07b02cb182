"""What a client makes of a vector: a share of it and of its proofs for each of two verifiers.

Randomness that the checks depend on is a hash of the shares themselves, so that nobody chooses it:
of vector and norm for the wraparound checks, and of the whole encoded measurement for the rest.
"""

from dataclasses import dataclass

import numpy as np

from veilmap._util.arrays import Ints
from veilmap.collection.pine import encoding, field
from veilmap.collection.pine.circuits import (
    JOINT_RANDOM,
    Measurement,
    main_circuit,
    norm_circuit,
)
from veilmap.collection.pine.parameters import NormProofs
from veilmap.collection.pine.proof import proven
from veilmap.collection.pine.xof import SEED_BYTES, Field, Usage, derived_seed, expanded

SEEDS = 7
"""How many seeds of 32 random bytes a report is made from."""

NONCE_BYTES = 16
VERIFIERS = 2
LEADER, HELPER = range(VERIFIERS)


@dataclass(frozen=True)
class Parts:
    """Of a hash that joint randomness comes from: what each verifier contributes, 32 bytes each.

    ``wraparound`` and ``joint`` hold the leader's part and the helper's.
    """

    wraparound: tuple[bytes, ...]
    joint: tuple[bytes, ...]

    @property
    def seeds(self) -> tuple[bytes, bytes]:
        """Of the wraparound checks' randomness, and of that of the main circuit."""
        return (
            derived_seed(bytes(SEED_BYTES), Usage.WRAPAROUND_SEED, b"".join(self.wraparound)),
            derived_seed(bytes(SEED_BYTES), Usage.JOINT_SEED, b"".join(self.joint)),
        )


@dataclass(frozen=True, eq=False)
class InputShare:
    """What one verifier gets: encoded measurement, proofs, and blinds of its two parts."""

    measurement: Field
    proofs: Field
    wraparound_blind: bytes
    joint_blind: bytes


@dataclass(frozen=True, eq=False)
class Sharded:
    """A vector with its proofs, in shares; of the helper's, measurement and proofs are seeds."""

    parts: Parts
    leader: InputShare
    helper: InputShare
    helper_seeds: tuple[bytes, bytes]


def sharded(parameters: NormProofs, vector: Ints, nonce: bytes, random: bytes) -> Sharded:
    """Shares of a vector and of proofs that its norm is at most the bound.

    Raises ``ChecksFailed`` where too few wraparound checks pass: draw other randomness.

    Parameters
    ----------
    parameters : NormProofs
    vector : (d,) array of whole numbers
    nonce : bytes
        16, of this report alone.
    random : bytes
        7 · 32, from a cryptographic generator and for this report alone.
    """
    seeds = [random[at : at + SEED_BYTES] for at in range(0, SEEDS * SEED_BYTES, SEED_BYTES)]
    of_measurement, of_proofs, *blinds, of_prover = seeds
    mask = helper_measurement(parameters, of_measurement)
    wraparound_blinds, joint_blinds = (blinds[2], blinds[0]), (blinds[3], blinds[1])

    def parts_of(encoded: Field, usage: Usage, keys: tuple[bytes, bytes]) -> tuple[bytes, ...]:
        own = mask[: len(encoded)]
        both = (field.subtracted(encoded, own), own)
        return tuple(part(role, keys[role], both[role], nonce, usage) for role in (LEADER, HELPER))

    first = encoding.with_norm(parameters, vector)
    wraparound = parts_of(first, Usage.WRAPAROUND_PART, wraparound_blinds)
    seed, _ = Parts(wraparound, ()).seeds
    sums = encoding.wraparound_sums(parameters, first[: parameters.dimension], seed)
    encoded = np.concatenate([first, encoding.wraparound_bits(parameters, sums)])
    parts = Parts(wraparound, parts_of(encoded, Usage.JOINT_PART, joint_blinds))
    proofs = _proofs(Measurement(parameters, encoded, sums, 1), parts.seeds[1], of_prover)
    masked = field.subtracted(proofs, helper_proofs(parameters, of_proofs))
    leader = InputShare(
        field.subtracted(encoded, mask), masked, wraparound_blinds[LEADER], joint_blinds[LEADER]
    )
    return Sharded(
        parts,
        leader,
        expanded_share(
            parameters, of_measurement, of_proofs, wraparound_blinds[HELPER], joint_blinds[HELPER]
        ),
        (of_measurement, of_proofs),
    )


def part(role: int, blind: bytes, share: Field, nonce: bytes, usage: Usage) -> bytes:
    """What a verifier's share contributes to joint randomness; the blind keeps it from guesses."""
    content = share.astype("<u4").tobytes()
    return derived_seed(blind, usage, role.to_bytes(1) + nonce + content)


def joint_random(parameters: NormProofs, seed: bytes) -> Field:
    """Random elements of the main circuits, one row for each proof."""
    count = parameters.proofs
    found = expanded(seed, Usage.JOINT_RANDOMNESS, count.to_bytes(1), count * JOINT_RANDOM)
    return found.reshape(count, JOINT_RANDOM)


def numbered(parameters: NormProofs) -> bytes:
    """How many proofs there are, which their randomness is bound to."""
    return parameters.norm_proofs.to_bytes(1) + parameters.proofs.to_bytes(1)


def helper_measurement(parameters: NormProofs, seed: bytes) -> Field:
    """The helper's share of an encoded measurement."""
    return expanded(seed, Usage.MEASUREMENT_SHARE, HELPER.to_bytes(1), parameters.measurement)


def helper_proofs(parameters: NormProofs, seed: bytes) -> Field:
    """The helper's share of all proofs."""
    binder = numbered(parameters) + HELPER.to_bytes(1)
    return expanded(seed, Usage.PROOF_SHARE, binder, parameters.proof_elements)


def expanded_share(
    parameters: NormProofs,
    of_measurement: bytes,
    of_proofs: bytes,
    wraparound_blind: bytes,
    joint_blind: bytes,
) -> InputShare:
    """The helper's share, from its seeds."""
    return InputShare(
        helper_measurement(parameters, of_measurement),
        helper_proofs(parameters, of_proofs),
        wraparound_blind,
        joint_blind,
    )


def _proofs(own: Measurement, joint_seed: bytes, prover_seed: bytes) -> Field:
    """All proofs of a measurement, one after the other."""
    parameters = own.parameters
    count = sum(shape.arity for shape in parameters.shapes)
    random = expanded(prover_seed, Usage.PROVE_RANDOMNESS, numbered(parameters), count)
    joint = joint_random(parameters, joint_seed)
    circuits = parameters.norm_proofs * [norm_circuit(own)]
    circuits += [main_circuit(own, one) for one in joint]
    found, used = [], 0
    for shape, circuit in zip(parameters.shapes, circuits, strict=True):
        found.append(proven(shape, circuit.rows, random[used : used + shape.arity]))
        used += shape.arity
    return np.concatenate(found)
