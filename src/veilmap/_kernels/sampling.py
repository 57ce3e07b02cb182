"""Noise: random words, normals made of them, drawing from a discrete distribution by its table."""

import math

import numpy as np

from veilmap._kernels.compiling import njit

_WARM_UP = 12  # words that SFC64's author throws away after seeding

# Marsaglia and Tsang's ziggurat for the normal distribution, with Doornik's constants for 128
# layers: where the tail begins, and the area of each layer.
_LAYERS = 128
_TAIL, _AREA = 3.442619855899, 9.91256303526217e-3


def _layers():
    """Right ends x of the ziggurat's layers, each of the same area under exp(−x²/2), and 0."""
    ends = [_AREA * math.exp(0.5 * _TAIL**2), _TAIL]
    while len(ends) < _LAYERS:
        ends.append(math.sqrt(-2 * math.log(_AREA / ends[-1] + math.exp(-0.5 * ends[-1] ** 2))))
    return np.array([*ends, 0.0])


_ENDS = _layers()
_INSIDE = _ENDS[1:] / _ENDS[:-1]  # the share of each layer that lies under the curve as a whole


@njit(nogil=True, cache=True)
def add_scaled(values, variances, normals):
    """Values += √variances · normals, of which there is one for each variance above 0."""
    at = 0
    for m in range(len(values)):
        if variances[m] > 0.0:
            values[m] += math.sqrt(variances[m]) * normals[at]
            at += 1


@njit(inline="always")
def _next_state(a, b, c, counter):
    """One step of SFC64 (Doty-Humphrey, PractRand): the word, and the state after it."""
    word = a + b + counter
    turned = (c << np.uint64(24)) | (c >> np.uint64(40))
    return word, b ^ (b >> np.uint64(11)), c + (c << np.uint64(3)), turned + word


@njit(inline="always")
def _share(word):
    """In (−1, 1), from a word's upper bits; its lower seven choose a layer."""
    return (np.float64(np.int64(word >> np.uint64(11))) + 0.5) * 2.0**-52 - 1.0


@njit(nogil=True, cache=True)
def _under(layer, x, other):
    """Whether x, in the part of its layer that the curve crosses, lies under the curve."""
    high = math.exp(-0.5 * (_ENDS[layer] ** 2 - x * x))
    low = math.exp(-0.5 * (_ENDS[layer + 1] ** 2 - x * x))
    return low + other * (high - low) < 1.0


@njit(nogil=True, cache=True)
def _rare(word, a, b, c, count):
    """A normal number from a word that does not settle it at once, and the state after it."""
    while True:
        layer, share = np.int64(word & np.uint64(_LAYERS - 1)), _share(word)
        x = share * _ENDS[layer]
        if abs(share) < _INSIDE[layer]:
            return x, a, b, c, count
        word, a, b, c = _next_state(a, b, c, count)
        other, count = 0.5 * (_share(word) + 1.0), count + np.uint64(1)
        if layer == 0:
            # The tail: an exponential beyond its start, taken or thrown away (Marsaglia 1964).
            word, a, b, c = _next_state(a, b, c, count)
            beyond, count = -math.log(other) / _TAIL, count + np.uint64(1)
            if -2.0 * math.log(0.5 * (_share(word) + 1.0)) >= beyond * beyond:
                return math.copysign(_TAIL + beyond, share), a, b, c, count
        elif _under(layer, x, other):
            return x, a, b, c, count
        word, a, b, c = _next_state(a, b, c, count)
        count += np.uint64(1)


@njit(nogil=True, cache=True)
def add_normals(seed, values, variances):
    """Values += √variances · normals; where the variance is 0, none is drawn."""
    a, b, c, count = seed[0], seed[1], seed[2], np.uint64(1)
    for _ in range(_WARM_UP):
        _, a, b, c = _next_state(a, b, c, count)
        count += np.uint64(1)
    for m in range(len(values)):
        if variances[m] > 0.0:
            word, a, b, c = _next_state(a, b, c, count)
            count += np.uint64(1)
            layer, share = np.int64(word & np.uint64(_LAYERS - 1)), _share(word)
            x = share * _ENDS[layer]
            if abs(share) >= _INSIDE[layer]:  # once in eighty
                x, a, b, c, count = _rare(word, a, b, c, count)
            values[m] += math.sqrt(variances[m]) * x


@njit(nogil=True, cache=True)
def fill_words(seed, out):
    """Random words from a seed of three; NumPy's SFC64 gives the same, but holds Python's lock."""
    a, b, c = seed[0], seed[1], seed[2]
    for i in range(-_WARM_UP, len(out)):
        word, a, b, c = _next_state(a, b, c, np.uint64(i + _WARM_UP + 1))
        if i >= 0:
            out[i] = word


@njit(nogil=True, cache=True)
def add_from_table(words, spare, table, total):
    """Total += first + the least k with word < table[k]; how many spare words were needed.

    A word is the upper half of the random number. Only if it equals an entry's upper half
    does the lower half matter; then it is taken from ``spare``.
    """
    high, low, guide, shift, first = table
    used = 0
    for i in range(len(total)):
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
        total[i] += first + k
    return used
