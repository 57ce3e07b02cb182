"""The two statements that are proven of an encoded measurement, over it or over a share of it.

*Norm*: the bits of the squared norm are those of Σ x², modulo q. *Main*: all bits are bits; the
squared norm and what it lacks add up to B; of every wraparound check that is marked as passed the
bits are those of its sum; as many are marked as must pass. Constants are divided among shares.
[PINE], figures 1 and 2; draft-chen-cfrg-vdaf-pine, section 4.2.
"""

from dataclasses import dataclass

import numpy as np

from veilmap.collection.pine import field
from veilmap.collection.pine.parameters import NormProofs
from veilmap.collection.pine.proof import Circuit
from veilmap.collection.pine.xof import Field
from veilmap.collection.shares import PRIME

JOINT_RANDOM = 3  # elements that a main circuit takes


@dataclass(frozen=True, eq=False)
class Measurement:
    """An encoded measurement, or a share of it, with the sums of its wraparound checks."""

    parameters: NormProofs
    encoded: Field
    sums: Field
    shares: int  # how many it is divided into: 1 or 2

    @property
    def entries(self) -> Field:
        """x, the vector itself."""
        return self.encoded[: self.parameters.dimension]

    @property
    def bits(self) -> Field:
        """Elements that must be 0 or 1."""
        return self.encoded[self.parameters.dimension :]

    @property
    def squared_norm(self) -> int:
        """What the first bits say."""
        return _number(self.bits[: self.parameters.norm_bits])

    def divided(self, constant: int) -> int:
        """A share of a constant."""
        return constant * pow(self.shares, PRIME - 2, PRIME) % PRIME


def norm_circuit(own: Measurement) -> Circuit:
    """Σ bits 2^k − Σ x²."""
    shape = own.parameters.norm
    rows = _in_rows(own.entries, shape.calls, shape.arity)
    minus = np.full(shape.calls, PRIME - 1, dtype=np.uint64)
    return Circuit(rows, minus, own.squared_norm)


def main_circuit(own: Measurement, random: Field) -> Circuit:
    """Bit checks + s · range of the norm + s² · wraparound checks + s³ · count of successes.

    ``random`` is (r, r', s): powers of r weigh the bits, powers of r' the checks.
    """
    parameters, shape = own.parameters, own.parameters.main
    bit_calls = -(-parameters.bits // parameters.chunk)
    of_bits, of_checks, last = random
    squared = field.multiplied(last, last)
    checks = own.bits[2 * parameters.norm_bits :].reshape(parameters.checks, -1)
    passed = checks[:, -1]
    rows = np.vstack([
        _in_rows(_bit_pairs(own, of_bits), bit_calls, shape.arity),
        _in_rows(_check_pairs(own, checks, of_checks), shape.calls - bit_calls, shape.arity),
    ])  # fmt: skip
    weights = np.ones(shape.calls, dtype=np.uint64)
    weights[bit_calls:] = squared
    lacking = _number(own.bits[parameters.norm_bits : 2 * parameters.norm_bits])
    in_range = own.squared_norm + lacking - own.divided(parameters.bound**2)
    enough = int(passed.sum()) - own.divided(parameters.successes)
    affine = int(last) * in_range + int(squared) * int(last) * enough
    return Circuit(rows, weights, affine % PRIME)


def _bit_pairs(own: Measurement, base: np.uint64) -> Field:
    """(r^i b_i, b_i − 1) of every bit: products that are 0 for bits alone."""
    ones = np.full(len(own.bits), own.divided(1), dtype=np.uint64)
    weighted = field.multiplied(own.bits, field.powers(base, len(own.bits)))
    return np.column_stack([weighted, field.subtracted(own.bits, ones)]).ravel()


def _check_pairs(own: Measurement, checks: Field, base: np.uint64) -> Field:
    """(r^i (sum − told), success) of every check: one of both is 0."""
    shift = np.uint64(own.divided(own.parameters.wraparound_bound - 1))
    powers_of_2 = np.uint64(1) << np.arange(own.parameters.sum_bits, dtype=np.uint64)
    told = field.multiplied(checks[:, :-1], powers_of_2).sum(axis=1) % np.uint64(PRIME)
    wrong = field.subtracted(field.added(own.sums, np.full_like(own.sums, shift)), told)
    weighted = field.multiplied(wrong, field.powers(base, len(wrong)))
    return np.column_stack([weighted, checks[:, -1]]).ravel()


def _in_rows(values: Field, count: int, width: int) -> Field:
    """Values in rows, the last one filled up with 0."""
    rows = np.zeros(count * width, dtype=np.uint64)
    rows[: len(values)] = values
    return rows.reshape(count, width)


def _number(bits: Field) -> int:
    """Σ bits 2^k; of shares, a share of the number."""
    return field.inner(bits, field.powers(np.uint64(2), len(bits)))
