"""Arithmetic modulo the prime q = 2³² − 2²⁰ + 1, which has a root of 1 of order 2²⁰.

Elements are 64-bit words below q, so that a product of two fits in a word.
"""

import numpy as np

from veilmap._kernels.compiling import njit

PRIME = 2**32 - 2**20 + 1
_Q = np.uint64(PRIME)
_ONE = np.uint64(1)
_PER_BYTE = 4  # entries of a random vector, two bits each
_BLOCK = 8  # bytes whose tables are in use at once: 16 kB, in the nearest cache


@njit(nogil=True)
def power(base, exponent):
    """``base`` to a whole power."""
    result, square, left = _ONE, base % _Q, exponent
    while left > 0:
        if left & 1:
            result = result * square % _Q
        square = square * square % _Q
        left >>= 1
    return result


@njit(nogil=True, cache=True)
def powers(base, count):
    """1, b, b², …: the first ``count`` powers of b."""
    found = np.empty(count, np.uint64)
    now = _ONE
    for k in range(count):
        found[k] = now
        now = now * base % _Q
    return found


@njit(nogil=True, cache=True)
def inner(a, b):
    """Σ a_k b_k."""
    total = np.uint64(0)
    for k in range(len(a)):
        total += a[k] * b[k] % _Q  # fewer than 2³² terms, each below 2³²
    return total % _Q


@njit(nogil=True, cache=True)
def combined(weights, rows):
    """Σ_k w_k · row_k, for each column."""
    totals = np.zeros(rows.shape[1], np.uint64)
    for k in range(rows.shape[0]):
        for j in range(rows.shape[1]):
            totals[j] += weights[k] * rows[k, j] % _Q
    return totals % _Q


@njit(nogil=True)
def _transform(row, root):
    """In place: entry k becomes Σ_j row_j root^(jk), for a root of order len(row), a power of 2."""
    n = len(row)
    reverse = 0
    for k in range(1, n):  # entries into bit-reversed order
        bit = n >> 1
        while reverse & bit:
            reverse ^= bit
            bit >>= 1
        reverse |= bit
        if k < reverse:
            row[k], row[reverse] = row[reverse], row[k]
    half = 1
    while half < n:
        step = power(root, n // (2 * half))
        turn = _ONE
        for j in range(half):
            for k in range(j, n, 2 * half):
                low, high = row[k], row[k + half] * turn % _Q
                row[k] = (low + high) % _Q
                row[k + half] = (low + _Q - high) % _Q
            turn = turn * step % _Q
        half *= 2


@njit(nogil=True, cache=True)
def transform(row, root):
    """Values of a polynomial of coefficients ``row`` at 1, root, root², …, in place."""
    _transform(row, root)


@njit(nogil=True, cache=True)
def product_sum(wires, partners, root):
    """Coefficients of Σ_j f_j g_j, for polynomials that are told by values at the n-th roots of 1.

    ``wires`` holds the values of f_j in column j, (n, J), ``partners`` those of g_j; ``root`` has
    order 2n.
    """
    n, count = wires.shape
    half_root = root * root % _Q
    scale, back = power(np.uint64(n), PRIME - 2), power(half_root, n - 1)
    total, f, g = np.zeros(2 * n, np.uint64), np.empty(2 * n, np.uint64), np.empty(2 * n, np.uint64)
    for j in range(count):
        for wide, values in ((f, wires), (g, partners)):
            for k in range(n):
                wide[k] = values[k, j] * scale % _Q
                wide[n + k] = 0
            _transform(wide[:n], back)
            _transform(wide, root)
        for k in range(2 * n):
            total[k] = (total[k] + f[k] * g[k]) % _Q
    _transform(total, power(root, 2 * n - 1))
    last = power(np.uint64(2 * n), PRIME - 2)
    for k in range(2 * n):
        total[k] = total[k] * last % _Q
    return total


@njit(nogil=True, cache=True)
def lagrange(point, root, n):
    """ℓ_k(t) for k < n: a polynomial of degree below n has Σ_k ℓ_k(t) f(root^k) at t.

    ℓ_k(t) = (tⁿ − 1) root^k / (n (t − root^k)); t must be no power of the root.
    """
    found, apart = np.empty(n, np.uint64), np.empty(n, np.uint64)
    before = np.empty(n, np.uint64)
    node, product = _ONE, _ONE
    for k in range(n):  # all differences are inverted at once, by the product of those before
        found[k] = node
        apart[k] = (point + _Q - node) % _Q
        before[k] = product
        product = product * apart[k] % _Q
        node = node * root % _Q
    top = (power(point, n) + _Q - _ONE) % _Q * power(np.uint64(n), PRIME - 2) % _Q
    inverse = power(product, PRIME - 2)
    for k in range(n - 1, -1, -1):
        found[k] = top * found[k] % _Q * (inverse * before[k] % _Q) % _Q
        inverse = inverse * apart[k] % _Q
    return found


@njit(nogil=True, cache=True)
def signed_sums(stream, values):
    """Σ_i z_i x_i modulo q for each row of random bytes, four z to a byte, lowest bits first.

    Two bits give z: 00 is −1, 11 is 1, others 0, that is z = b₀ + b₁ − 1. All 256 sums that a byte
    can choose are tabulated once and looked up in every row.
    """
    rows, width = stream.shape
    totals = np.zeros(rows, np.int64)
    tables = np.zeros((_BLOCK, 256), np.int64)
    for first in range(0, width, _BLOCK):
        here = min(_BLOCK, width - first)
        for byte in range(here):
            start = (first + byte) * _PER_BYTE
            tables[byte, 0] = 0
            for bit in range(2 * _PER_BYTE):
                entry = start + bit // 2
                x = np.int64(values[entry]) if entry < len(values) else np.int64(0)
                if bit % 2 == 0:
                    for known in range(1 << bit):
                        tables[byte, known] -= x
                for known in range(1 << bit):
                    tables[byte, (1 << bit) + known] = tables[byte, known] + x
        for row in range(rows):
            for byte in range(here):
                totals[row] += tables[byte, stream[row, first + byte]]
    return totals % np.int64(PRIME)
