"""Clients that want more in a sum than they may: long vectors, with the best proofs they can make.

A cheat replaces what an honest client says of its vector and keeps everything else, so that proofs
are well-formed. `forged` gives the halves, `taken` says whether both aggregators fall for them.
"""

import os
from contextlib import contextmanager
from unittest import mock

import numpy as np

from veilmap.collection.pine import encoding, field, reports
from veilmap.collection.pine.encoding import bits_of
from veilmap.collection.pine.reports import Verifier
from veilmap.collection.pine.verifying import Unproven
from veilmap.collection.shares import PRIME, centred

Q = PRIME


def squared_norm(vector):
    """Of whole numbers, as they are."""
    return sum(int(one) ** 2 for one in vector)


def root(square):
    """A square root modulo q, larger than its square's own, or None (Tonelli and Shanks)."""
    if pow(square, (Q - 1) // 2, Q) != 1:
        return None
    odd, order = Q - 1, 0
    while odd % 2 == 0:
        odd, order = odd // 2, order + 1
    other = next(one for one in range(2, 100) if pow(one, (Q - 1) // 2, Q) == Q - 1)
    turn, found = pow(other, odd, Q), pow(square, (odd + 1) // 2, Q)
    left = pow(square, odd, Q)
    while left != 1:
        power, least = left, 0
        while power != 1:
            power, least = power * power % Q, least + 1
        step = pow(turn, 1 << (order - least - 1), Q)
        order, turn = least, step * step % Q
        found, left = found * step % Q, left * turn % Q
    return found


# ---- what a cheat says of the norm


def norm_modulo_q(parameters, vector):
    """The squared norm modulo q, which is right where it wraps around to one in range."""
    squared = squared_norm(vector) % Q
    return _with_bits(parameters, vector, squared, (parameters.bound**2 - squared) % Q)


def largest_norm(parameters, vector):
    """The bound itself: everything is right but that the vector has that norm."""
    return _with_bits(parameters, vector, parameters.bound**2, 0)


def norm_in_one_bit(parameters, vector):
    """The true squared norm, and what it lacks, each in a "bit" that is none."""
    squared = squared_norm(vector)
    bits = np.zeros((2, parameters.norm_bits), dtype=np.uint64)
    bits[:, 0] = squared % Q, (parameters.bound**2 - squared) % Q
    return np.concatenate([field.elements(vector), bits.ravel()])


def _with_bits(parameters, vector, *numbers):
    bits = [bits_of(np.array([one]), parameters.norm_bits).ravel() for one in numbers]
    return np.concatenate([field.elements(vector), *bits])


# ---- what a cheat says of the wraparound checks


def claimed(parameters, sums):
    """As many passed as must, those first that did; of the others the bits are not of their sum."""
    passed, shifted = _passing(parameters, sums)
    order = np.argsort(~passed, kind="stable")[: parameters.successes]
    marked = np.zeros(parameters.checks, dtype=bool)
    marked[order] = True
    return _told(parameters, shifted, marked.astype(np.uint64))


def too_few(parameters, sums):
    """Only those that did pass."""
    passed, shifted = _passing(parameters, sums)
    return _told(parameters, shifted, passed.astype(np.uint64))


def weighed(parameters, sums):
    """All that is missing to the count in one success that counts for several."""
    passed, shifted = _passing(parameters, sums)
    marks = passed.astype(np.uint64)
    first = int(np.argmax(passed))
    marks[first] = (parameters.successes - int(passed.sum()) + int(marks[first])) % Q
    return _told(parameters, shifted, marks)


def beyond_bits(parameters, sums):
    """All passed, where the sum is too large in a "bit" that is none."""
    shifted = field.added(sums, np.full(len(sums), parameters.wraparound_bound - 1, np.uint64))
    bits = np.zeros((parameters.checks, parameters.sum_bits + 1), dtype=np.uint64)
    bits[:, 0], bits[: parameters.successes, -1] = shifted, 1
    return bits.ravel()


def _passing(parameters, sums):
    shifted = centred(sums) + parameters.wraparound_bound - 1
    return (shifted >= 0) & (shifted < 2 * parameters.wraparound_bound), shifted


def _told(parameters, shifted, marks):
    return np.column_stack([bits_of(shifted % Q, parameters.sum_bits), marks]).ravel()


# ---- halves


@contextmanager
def lying(norm=None, checks=None):
    """Clients say this of norms and of wraparound checks."""
    said = {"with_norm": norm, "wraparound_bits": checks}
    with mock.patch.multiple(encoding, **{one: how for one, how in said.items() if how}):
        yield


def forged(parameters, vector, digest, report, norm=norm_modulo_q, checks=claimed):
    """Halves with well-formed proofs of what is not so."""
    with lying(norm, checks):
        return reports.prove(parameters, np.asarray(vector), digest, report, os.urandom(32))


def taken(verifier: Verifier, report, halves):
    """Whether both aggregators take it."""
    try:
        verifier.verify(report, halves)
    except Unproven:
        return False
    return True
