"""Dense rows: their length, their weighted sum, and their entries that count, as sparse rows."""

import math

import numpy as np

from veilmap._kernels.compiling import njit


@njit(nogil=True, cache=True)
def length(row):
    """‖row‖, added in order."""
    total = 0.0
    for value in row:
        total += float(value) * float(value)
    return math.sqrt(total)


@njit(nogil=True, cache=True)
def lengths(start, stop, rows, out):
    """‖row‖ of rows start … stop."""
    for i in range(start, stop):
        out[i] = length(rows[i])


@njit(nogil=True)
def listed(row, cells, values):
    """List the entries that are not 0, in order; how many there are."""
    n = 0
    for cell in range(len(row)):
        cells[n], values[n] = cell, row[cell]
        n += row[cell] != 0.0
    return n


@njit(nogil=True, cache=True)
def add_weighted(row, weight, total):
    """Total += weight · row."""
    for m in range(len(row)):
        total[m] += weight * row[m]


@njit(nogil=True, cache=True)
def _least(row, share):
    """What an entry must exceed: a share of the row's largest."""
    largest = np.float32(0.0)
    for value in row:
        largest = max(largest, abs(value))
    return share * largest


@njit(nogil=True, cache=True)
def count_large(start, stop, rows, share, counts):
    """How many entries of each row exceed ``share`` of its largest."""
    for i in range(start, stop):
        least = _least(rows[i], share)
        count = 0
        for value in rows[i]:
            if abs(value) > least:
                count += 1
        counts[i] = count


@njit(nogil=True, cache=True)
def take_large(start, stop, rows, share, out):
    """Those entries and their columns, row after row where their offsets say."""
    for i in range(start, stop):
        least = _least(rows[i], share)
        at = out.offsets[i]
        for column in range(rows.shape[1]):
            if abs(rows[i, column]) > least:
                out.columns[at], out.values[at] = column, rows[i, column]
                at += 1


@njit(nogil=True, cache=True, fastmath=True)
def products(start, stop, sparse, rows, out):
    """Products of dense rows with some of the sparse ones, out[i, k] = Σ_m rows[i, m] s[k, m]."""
    offsets, columns, values = sparse
    for k in range(start, stop):
        for i in range(len(rows)):
            total = np.float32(0.0)
            for at in range(offsets[k], offsets[k + 1]):
                total += rows[i, columns[at]] * values[at]
            out[i, k] = total
