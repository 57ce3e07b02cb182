"""Arithmetic modulo q against Python's whole numbers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilmap._kernels import prime_field
from veilmap.collection.pine import field
from veilmap.collection.pine.xof import Usage, expanded, expanded_bytes
from veilmap.collection.shares import PRIME as Q

LARGE = st.sampled_from([0, 1, Q // 2, Q - 2, Q - 1])
ELEMENTS = st.integers(0, Q - 1) | LARGE
SIZES = st.sampled_from([1, 2, 4, 8, 32])
SEEDS = st.integers(0, 2**32 - 1)


def some(seed, *shape):
    """Elements, many of them as large as they can be."""
    rng = np.random.default_rng(seed)
    found = rng.integers(0, Q, shape).astype(np.uint64)
    found[rng.random(shape) < 0.3] = Q - 1
    return found


def value(coefficients, point):
    return sum(int(one) * pow(int(point), k, Q) for k, one in enumerate(coefficients)) % Q


def roots(size):
    return [pow(int(field.root_of_unity(size)), k, Q) for k in range(size)]


def test_the_field_is_one_and_its_root_has_the_order_that_it_should():
    assert all(Q % divisor for divisor in range(2, 66_000))
    root = int(field.root_of_unity(2**20))
    assert pow(root, 2**20, Q) == 1
    assert pow(root, 2**19, Q) == Q - 1


@given(ELEMENTS, ELEMENTS, st.integers(0, 2**40))
def test_single_operations(a, b, exponent):
    x, y = np.array([a], dtype=np.uint64), np.array([b], dtype=np.uint64)
    for ours, wanted in (
        (field.added(x, y), a + b), (field.subtracted(x, y), a - b), (field.multiplied(x, y), a * b)
    ):  # fmt: skip
        assert int(ours[0]) == wanted % Q
    assert int(prime_field.power(np.uint64(a), exponent)) == pow(a, exponent, Q)
    assert int(field.element(-a)) == -a % Q


@given(SEEDS, ELEMENTS, st.integers(0, 40))
def test_sums_of_products(seed, base, count):
    a, rows = some(seed, count), some(seed, count, 3)
    wanted = [sum(int(x) * int(y) for x, y in zip(a, column, strict=True)) % Q for column in rows.T]
    assert field.combined(a, rows).tolist() == wanted
    assert field.inner(a, rows[:, 0]) == wanted[0]
    assert field.powers(np.uint64(base), count).tolist() == [pow(base, k, Q) for k in range(count)]


@given(SEEDS, SIZES, st.integers(1, 70), ELEMENTS)
def test_polynomials_from_coefficients(seed, size, length, point):
    coefficients = some(seed, length)
    wanted = [value(coefficients, one) for one in roots(size)]
    assert field.at_roots(coefficients, size).tolist() == wanted
    assert field.evaluated(coefficients, np.uint64(point)) == value(coefficients, point)


@given(SEEDS, SIZES, ELEMENTS)
def test_polynomials_from_values(seed, size, point):
    coefficients = some(seed, size)
    if pow(point, size, Q) == 1:
        point = (point + 1) % Q
    weights = field.lagrange(np.uint64(point), size)
    assert field.inner(weights, field.at_roots(coefficients, size)) == value(coefficients, point)


@given(SEEDS, SIZES, st.integers(1, 4))
def test_products_of_polynomials(seed, size, count):
    f, g = some(seed, size, count), some(seed + 1, size, count)
    wanted = np.zeros(2 * size - 1, dtype=object)
    for j in range(count):
        wanted += np.convolve(f[:, j].astype(object), g[:, j].astype(object))
    at = np.array(
        [[[value(one[:, j], root) for j in range(count)] for root in roots(size)] for one in (f, g)]
    )
    assert field.product_sum(*at.astype(np.uint64)).tolist() == (wanted % Q).tolist()


@given(SEEDS, st.integers(1, 90), st.integers(1, 5))
def test_random_signs(seed, dimension, rows):
    """Two bits an entry, the lowest first: 00 is −1, 11 is 1, and others are 0."""
    values = some(seed, dimension)
    width = -(-dimension // 4)
    stream = np.random.default_rng(seed).bytes(rows * width)
    wanted = []
    for row in range(rows):
        own = stream[row * width : (row + 1) * width]
        pairs = [own[i // 4] >> 2 * (i % 4) & 3 for i in range(dimension)]
        signs = [{0: -1, 3: 1}.get(pair, 0) for pair in pairs]
        wanted.append(sum(z * int(x) for z, x in zip(signs, values, strict=True)) % Q)
    assert field.signed_sums(stream, values, rows).tolist() == wanted


def test_expanding_skips_what_is_no_element_and_longer_begins_as_shorter_does():
    """20,000 words of the stream hold some five that are not below q."""
    seed, count = bytes(32), 20_000
    stream = expanded_bytes(seed, Usage.PROOF_SHARE, b"x", 4 * (count + 100))
    words = np.frombuffer(stream, dtype="<u4")
    assert (words[:count] >= Q).any()
    ours = expanded(seed, Usage.PROOF_SHARE, b"x", count)
    assert ours.tolist() == words[words < Q][:count].tolist()
    assert expanded(seed, Usage.PROOF_SHARE, b"x", 7).tolist() == ours[:7].tolist()


@pytest.mark.parametrize("changed", [(bytes(31) + b"\1", Usage.JOINT_PART, b"x"),
                                     (bytes(32), Usage.JOINT_SEED, b"x"),
                                     (bytes(32), Usage.JOINT_PART, b"y")])  # fmt: skip
def test_seed_usage_and_binder_all_count(changed):
    usual = expanded_bytes(bytes(32), Usage.JOINT_PART, b"x", 32)
    assert expanded_bytes(*changed, 32) != usual
