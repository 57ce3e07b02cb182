"""Proofs that a sum of products comes out as 0, on shares: the fully linear proofs of [BBCGGI19].

A circuit says Σ_k w_k G(row_k) + affine = 0 over the encoded measurement, where the gadget G sums
products of pairs: Σ_j a_j b_j, or squares: Σ_j a_j². Column j of the rows, with a random value
before it, are the values of a polynomial f_j at roots of 1; the proof is these random values and
the coefficients of P = G(f_1, f_2, …). P has the gadget's outputs at the roots, which makes the sum
linear in measurement and proof. Verifiers compare P with G(f_1, f_2, …) at one random point.

Layouts are those of draft-irtf-cfrg-vdaf-11, section 7.3 (FlpBBCGGI19, gadget ParallelSum).
"""

from dataclasses import dataclass

import numpy as np

from veilmap.collection.pine import field
from veilmap.collection.pine.xof import Field
from veilmap.collection.shares import PRIME


@dataclass(frozen=True)
class Shape:
    """How large the proofs of a circuit are.

    Parameters
    ----------
    calls : int
        Of the gadget.
    arity : int
        Entries that go into each.
    squares : bool
        Whether the gadget sums squares of entries, or products of an entry and the next.
    """

    calls: int
    arity: int
    squares: bool

    @property
    def size(self) -> int:
        """Points that polynomials are told at: calls and the random value, as a power of 2."""
        return 1 << self.calls.bit_length()

    @property
    def proof(self) -> int:
        """Elements of a proof."""
        return self.arity + 2 * self.size - 1

    @property
    def verifier(self) -> int:
        """Elements of a verifier's message."""
        return self.arity + 2


@dataclass(frozen=True, eq=False)
class Circuit:
    """Σ_k w_k G(row_k) + affine, of a measurement or of a share of it."""

    rows: Field  # (calls, arity)
    weights: Field  # (calls,)
    affine: int


class UnluckyPoint(Exception):  # noqa: N818
    """The random point is a root of 1, where wires would show: one in 2³² / size is."""


def proven(shape: Shape, rows: Field, random: Field) -> Field:
    """The proof of a circuit that comes out as 0; of another one it is none."""
    wires = np.zeros((shape.size, shape.arity), dtype=np.uint64)
    wires[0] = random
    wires[1 : shape.calls + 1] = rows
    if shape.squares:
        products = field.product_sum(wires, wires)
    else:
        products = field.product_sum(
            np.ascontiguousarray(wires[:, ::2]), np.ascontiguousarray(wires[:, 1::2])
        )
    return np.concatenate([random, products])


def queried(shape: Shape, circuit: Circuit, proof: Field, point: np.uint64) -> Field:
    """A verifier's message from shares of measurement and proof: output, f_j(t) of all j, P(t)."""
    if pow(int(point), shape.size, PRIME) == 1:
        raise UnluckyPoint
    random, products = proof[: shape.arity], proof[shape.arity :]
    outputs = field.at_roots(products, shape.size)[1 : shape.calls + 1]
    output = field.element(field.inner(circuit.weights, outputs) + circuit.affine)
    weights = field.lagrange(point, shape.size)[: shape.calls + 1]
    wires = field.combined(weights, np.vstack([random, circuit.rows]))
    return np.concatenate([[output], wires, [field.element(field.evaluated(products, point))]])


def holds(shape: Shape, message: Field) -> bool:
    """Whether the sum of both verifiers' messages convinces: output 0, and P(t) = G(f(t))."""
    output, wires, product = message[0], message[1:-1], message[-1]
    pairs = (wires, wires) if shape.squares else (wires[::2], wires[1::2])
    return int(output) == 0 and field.inner(*pairs) == int(product)
