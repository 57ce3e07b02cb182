"""A vector as PINE proves it: entries, bits of its squared norm, and of every wraparound check.

    x (d) | bits of Σ x² | bits of B − Σ x² | for each check: bits of ⟨z, x⟩ + W − 1, success

Bits go from the lowest. [PINE], section 3; draft-chen-cfrg-vdaf-pine, section 4.1.
"""

import numpy as np

from veilmap._util.arrays import Ints
from veilmap.collection import shares
from veilmap.collection.pine import field
from veilmap.collection.pine.parameters import NormProofs
from veilmap.collection.pine.xof import SEED_BYTES, Field, Usage, expanded_bytes
from veilmap.collection.shares import PRIME
from veilmap.errors import ConfigurationError


class ChecksFailed(Exception):  # noqa: N818
    """Too few wraparound checks passed, by chance: draw other randomness and prove again."""


def with_norm(parameters: NormProofs, vector: Ints) -> Field:
    """The first part of an encoded measurement, which the wraparound checks depend on."""
    if vector.shape != (parameters.dimension,):
        raise ConfigurationError(
            f"vector must have {parameters.dimension:,} entries, not {vector.size:,}", "vector"
        )
    squared, most = sum(int(one) ** 2 for one in vector[vector != 0]), parameters.bound**2
    if squared > most:
        raise ConfigurationError(
            f"vector has a norm of {squared**0.5:,.1f}, more than {parameters.bound:,}: clip it",
            "vector",
        )
    bits = [bits_of(np.array([one]), parameters.norm_bits) for one in (squared, most - squared)]
    return np.concatenate([field.elements(vector), *(one.ravel() for one in bits)])


def bits_of(whole: Ints, count: int) -> Field:
    """The lowest bits of whole numbers, (len(whole), count)."""
    return (whole[:, None] >> np.arange(count) & 1).astype(np.uint64)


def wraparound_sums(parameters: NormProofs, entries: Field, seed: bytes) -> Field:
    """⟨z, x⟩ modulo q of every check, for x or a share of it: z depends on the seed alone."""
    size = parameters.checks * -(-parameters.dimension // 4)
    stream = expanded_bytes(seed, Usage.WRAPAROUND_RANDOMNESS, b"", size)
    assert len(seed) == SEED_BYTES
    return field.signed_sums(stream, entries, parameters.checks)


def wraparound_bits(parameters: NormProofs, sums: Field) -> Field:
    """The second part of an encoded measurement.

    As many checks as must pass are marked as passed, the first ones; of others, bits say nothing.
    """
    shifted = shares.centred(sums.astype(np.uint32)) + parameters.wraparound_bound - 1
    within = (shifted >= 0) & (shifted < 2 * parameters.wraparound_bound)
    passed = within & (np.cumsum(within) <= parameters.successes)
    if passed.sum() < parameters.successes:
        raise ChecksFailed
    bits = bits_of(shifted % PRIME, parameters.sum_bits)
    return np.column_stack([bits, passed.astype(np.uint64)]).ravel()
