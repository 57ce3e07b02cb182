"""Noise: drawing from a discrete distribution by its table, adding normals to a gradient."""

import math

from numba import njit


@njit(nogil=True, cache=True)
def add_scaled(values, variances, normals):
    """Values += √variances · normals, in one pass."""
    for m in range(len(values)):
        values[m] += math.sqrt(variances[m]) * normals[m]


@njit(nogil=True, cache=True)
def from_table(words, spare, high, low, guide, shift, first, out):
    """Out = first + the least k with word < table[k], a 128-bit table in two halves.

    A word is the upper half of the random number. Only if it equals an entry's upper half
    does the lower half matter; then it is taken from ``spare``. ``guide`` holds where to
    begin for the word's leading bits. Returns how many spare words were needed.
    """
    used = 0
    for i in range(len(out)):
        word = words[i]
        k = guide[word >> shift]
        while word > high[k]:
            k += 1
        if word == high[k]:
            if used == len(spare):
                return used + 1
            rest = spare[used]
            used += 1
            while word == high[k] and rest >= low[k]:
                k += 1
        out[i] = first + k
    return used
