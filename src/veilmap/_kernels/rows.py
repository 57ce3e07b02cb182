"""Dense rows, one a user: their length, and their weighted sum."""

import math

from numba import njit


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


@njit(nogil=True, cache=True)
def add_weighted(row, weight, total):
    """Total += weight · row."""
    for m in range(len(row)):
        total[m] += weight * row[m]
