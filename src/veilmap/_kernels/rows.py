"""Dense rows, one a user: their length, their entries that are not 0, their weighted sum."""

import math

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
