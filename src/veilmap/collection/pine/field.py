"""Arrays of elements of the field of q = 2³² − 2²⁰ + 1; loops are compiled in `_kernels`."""

from collections.abc import Sequence

import numpy as np

from veilmap._kernels import prime_field
from veilmap._util.arrays import Ints
from veilmap.collection.pine.xof import Field
from veilmap.collection.shares import PRIME

_ROOT = 3925978153  # of order 2²⁰, as the draft has it
_ORDER = 2**20
LARGEST_TRANSFORM = _ORDER // 2  # a product of two polynomials needs twice the length
_Q = np.uint64(PRIME)


def element(whole: int) -> np.uint64:
    """A whole number modulo q."""
    return np.uint64(whole % PRIME)


def elements(whole: Ints | Sequence[int]) -> Field:
    """Whole numbers modulo q."""
    return (np.asarray(whole, dtype=np.int64) % PRIME).astype(np.uint64)


def added(a: Field, b: Field) -> Field:
    """Sums a + b, entry by entry."""
    return (a + b) % _Q


def subtracted(a: Field, b: Field) -> Field:
    """Differences a − b, entry by entry."""
    return (a + (_Q - b)) % _Q


def multiplied(a: Field, b: Field | np.uint64) -> Field:
    """Products a · b, entry by entry."""
    return a * b % _Q


def root_of_unity(order: int) -> np.uint64:
    """A root of 1 of an order that is a power of 2, at most 2²⁰."""
    return np.uint64(pow(_ROOT, _ORDER // order, PRIME))


def powers(base: np.uint64, count: int) -> Field:
    """The first ``count`` powers 1, b, b², … of an element."""
    return prime_field.powers(base=base, count=count)


def inner(a: Field, b: Field) -> int:
    """Σ a_k b_k."""
    return int(prime_field.inner(a=a, b=b))


def at_roots(coefficients: Field, size: int) -> Field:
    """Values of a polynomial at the ``size``-th roots of 1, in the order of their powers."""
    padded = np.zeros(-(-len(coefficients) // size) * size, dtype=np.uint64)
    padded[: len(coefficients)] = coefficients
    folded = padded.reshape(-1, size).sum(axis=0) % _Q  # x^size = 1 at all of them
    prime_field.transform(row=folded, root=root_of_unity(size))
    return folded


def evaluated(coefficients: Field, point: np.uint64) -> int:
    """Value of a polynomial at one point."""
    return inner(coefficients, powers(point, len(coefficients)))


def lagrange(point: np.uint64, size: int) -> Field:
    """Weights that give a polynomial's value at a point from those at the ``size``-th roots."""
    return prime_field.lagrange(point=point, root=root_of_unity(size), n=size)


def product_sum(wires: Field, partners: Field) -> Field:
    """Coefficients of Σ_j f_j g_j from the values of f_j and g_j at roots of 1, (size, J) each."""
    size = len(wires)
    root = root_of_unity(2 * size)
    found = prime_field.product_sum(wires=wires, partners=partners, root=root)
    return found[: 2 * size - 1]


def combined(weights: Field, rows: Field) -> Field:
    """Σ_k w_k · row_k."""
    return prime_field.combined(weights=weights, rows=rows)


def signed_sums(stream: bytes, values: Field, rows: int) -> Field:
    """Σ_i z_i x_i of each of ``rows`` vectors z over −1, 0, 0, 1, by two random bits an entry."""
    width = -(-len(values) // 4)
    pairs = np.frombuffer(stream, dtype=np.uint8).reshape(rows, width)
    found = prime_field.signed_sums(stream=pairs, values=values)
    return found.astype(np.uint64)
