"""A Gaussian filter over a map, for one row of the map after the other.

Edges reflect: d c b a | a b c d | d c b a. So the filter is symmetric, and what is outside the map
takes nothing away.
"""

import numpy as np

from veilmap._kernels.arguments import Floats
from veilmap._kernels.compiling import njit

_REACH = 4.0  # standard deviations, as scipy.ndimage cuts it


def taps(width: float) -> Floats:
    """Weights of a cell and of those 1, 2, … cells away; none for a width of 0."""
    if width <= 0.0:
        return np.empty(0)
    weights = np.exp(-0.5 * (np.arange(int(_REACH * width + 0.5) + 1) / width) ** 2)
    return weights / (weights[0] + 2 * weights[1:].sum())


@njit(nogil=True)
def _reflected(at, count):
    """The cell that stands for ``at`` on a line of so many."""
    at %= 2 * count
    return at if at < count else 2 * count - 1 - at


@njit(nogil=True)
def filter_image(image, taps, line, room):
    """Filter an image (rows, columns) in place; ``room`` is as large, ``line`` a long line.

    Inner loops run over whole lines, which the compiler turns into vector instructions.
    """
    rows, columns = image.shape
    reach = len(taps) - 1
    for r in range(rows):
        own, to = image[r], room[r]
        for c in range(columns):
            to[c] = taps[0] * own[c]
        for k in range(1, reach + 1):
            tap = taps[k]
            below, above = image[_reflected(r - k, rows)], image[_reflected(r + k, rows)]
            for c in range(columns):
                to[c] += tap * (below[c] + above[c])
    for r in range(rows):
        own, to = room[r], image[r]
        line[reach : reach + columns] = own
        for k in range(1, reach + 1):
            line[reach - k] = own[_reflected(-k, columns)]
            line[reach + columns - 1 + k] = own[_reflected(columns - 1 + k, columns)]
        for c in range(columns):
            to[c] = taps[0] * own[c]
        for k in range(1, reach + 1):
            tap = taps[k]
            left, right = line[reach - k :], line[reach + k :]
            for c in range(columns):
                to[c] += tap * (left[c] + right[c])


@njit(nogil=True)
def filter_room(rows, columns, taps):
    """Room for `filter_image`: a line with its reflected ends, and an image in one line."""
    return np.empty(columns + 2 * max(len(taps) - 1, 0)), np.empty(rows * columns)


@njit(nogil=True, cache=True)
def filter_rows(start, stop, rows, shape, taps):
    """Filter each of some rows of the map in place."""
    line, room = filter_room(shape[0], shape[1], taps)
    for i in range(start, stop):
        filter_image(rows[i].reshape(shape), taps, line, room.reshape(shape))


@njit(nogil=True, error_model="numpy")
def filter_listed(n, cells, values, window, taps, line, room, dense):
    """Filter a listed gradient over its window, and list what is not 0 then; how many cells."""
    first_row, after_row, first_column, after_column, start = window
    size = after_row - first_row, after_column - first_column
    count = size[0] * size[1]
    own = dense[:count]
    own[:] = 0.0
    for at in range(n):
        own[cells[at] - start] = values[at]
    filter_image(own.reshape(size), taps, line, room[:count].reshape(size))
    n = 0
    for at in range(count):
        cells[n], values[n] = start + at, own[at]
        n += own[at] != 0.0
    return n
