"""Users added up without a row of the whole map for each: cost grows with the cells they cross.

A user's gradient is gathered in one scratch row, listed as its few cells that are not 0, and
added to the sum; then the scratch row is cleared for the next user. A user's ``window`` = (first
row, row after the last, first column, column after the last, start) says which part of the map
is added, and where in the sum it starts.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from veilmap._kernels.allocation import allocate, allocation_room
from veilmap._kernels.arguments import Floats, Ints, Words
from veilmap._kernels.compiling import njit
from veilmap._kernels.filtering import filter_listed, filter_room
from veilmap._kernels.links import GROUP, add_gradient, walk_room
from veilmap._kernels.rows import add_weighted, length, listed
from veilmap._kernels.sampling import add_normals

_WORD = 8  # marks looked at together
_TRIES = 40
_SHORTER = 0.9


class Scratch(NamedTuple):
    """A row of the map, marks for its groups of cells (also as words), lists as long as it."""

    row: Floats
    marks: NDArray[np.uint8]
    words: Words
    cells: Ints
    values: Floats


@njit(nogil=True)
def _scratch(size):
    """Room for one user after the other on a map of so many cells."""
    marks = np.zeros(-(-size // (GROUP * _WORD)) * _WORD, np.uint8)
    lists = np.empty(size, np.int64), np.empty(size)
    return Scratch(np.zeros(size), marks, marks.view(np.uint64), *lists)


@njit(nogil=True)
def _listed(scratch, window, columns):
    """List the entries of the window that are not 0, in the order of cells, and clear the row."""
    row, marks, words, cells, values = scratch
    first_row, after_row, first_column, after_column, start = window
    width = after_column - first_column
    here, line = 0, 0  # the row of the map that a cell lies in, and its first cell
    n = 0
    for w in range(len(words)):
        if words[w] == 0:
            continue
        for group in range(w * _WORD, (w + 1) * _WORD):
            if marks[group] == 0:
                continue
            for cell in range(group * GROUP, min((group + 1) * GROUP, len(row))):
                while cell >= line + columns:
                    here, line = here + 1, line + columns
                column = cell - line
                inside = first_row <= here < after_row and first_column <= column < after_column
                cells[n] = start + (here - first_row) * width + column - first_column
                values[n] = row[cell]
                n += inside and row[cell] != 0.0
                row[cell] = 0.0
        words[w] = 0
    return n


@njit(nogil=True)
def _uniform(seed, number):
    """In [0, 1): SplitMix64's hash of a counter. For rounding, which no promise rests on."""
    z = seed + np.uint64(number + 1) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (z ^ (z >> np.uint64(31))) >> np.uint64(11)


@njit(nogil=True)
def on_lattice(values, n, scale, limit, seed):
    """Round scale · values up or down at random, without bias, to a squared norm within limit.

    The limit is what privacy rests on, so it is checked. Where roundings were too long the
    whole is made shorter, and rounded again; after many tries nothing is left of it.
    """
    for attempt in range(_TRIES):
        squares = 0.0
        for at in range(n):
            dither = _uniform(seed, attempt * n + at) * 2.0**-53
            # As a float: the square of a whole number beyond 3·10⁹ would overflow, to below 0.
            squares += float(math.floor(scale * values[at] + dither)) ** 2
        if squares <= limit:
            for at in range(n):
                dither = _uniform(seed, attempt * n + at) * 2.0**-53
                values[at] = math.floor(scale * values[at] + dither)
            return
        scale *= _SHORTER
    values[:n] = 0.0


@njit(nogil=True, error_model="numpy")
def _gathered(i, links, model, window, walk, scratch, out):
    """List user i's gradient, note its loss, norm and gradient of θ; how many cells it has."""
    first, last = links.offsets[i], links.offsets[i + 1]
    out.losses[i] = add_gradient(
        first, last, links, model, walk, scratch.row, scratch.marks, out.by_theta[i]
    )
    n = _listed(scratch, window, model.frame.columns)
    out.lengths[i] = length(scratch.values[:n])  # zeros between them would change no bit
    return n


@njit(nogil=True)
def _add_theta(weight, by_theta, window, total):
    """Gradients of θ come after those of the window's cells."""
    first_row, after_row, first_column, after_column, start = window
    after = start + (after_row - first_row) * (after_column - first_column)
    for p in range(len(by_theta)):
        total[after + p] += weight * by_theta[p]


@njit(nogil=True, cache=True, error_model="numpy")
def add_clipped(first, step, links, model, windows, clip, out, total):
    """Total += Σ J_i (∂F_i/∂h · min(1, C/‖∂F_i/∂h‖), ∂F_i/∂θ) over every ``step``-th user."""
    scratch, walk = _scratch(len(model.terrain.raised)), walk_room(model.frame)
    cells, values = scratch.cells, scratch.values
    for i in range(first, len(windows), step):
        n = _gathered(i, links, model, windows[i], walk, scratch, out)
        weight = float(links.offsets[i + 1] - links.offsets[i])
        factor = clip / max(out.lengths[i], clip)
        for at in range(n):
            total[cells[at]] += weight * (factor * values[at])
        _add_theta(weight, out.by_theta[i], windows[i], total)


@njit(nogil=True, cache=True, error_model="numpy")
def add_noisy(first, step, links, model, windows, clip, least, shape, noise, out, total):
    """The same with noise on each user's gradient of h: a row that is added while it is in cache.

    No energy that the noise is measured by is below ``least``². One window: the map.
    """
    scratch, walk = _scratch(len(model.terrain.raised)), walk_room(model.frame)
    upload, cells, values = np.zeros(len(scratch.row)), scratch.cells, scratch.values
    room, variances = allocation_room(shape.axes), np.empty(len(upload))
    for i in range(first, len(windows), step):
        n = _gathered(i, links, model, windows[i], walk, scratch, out)
        if not math.isfinite(out.lengths[i]):
            continue  # the caller refuses it
        factor = clip / max(out.lengths[i], clip)
        energy = max(min(out.lengths[i], clip), least) ** 2
        upload[:] = 0.0
        for at in range(n):
            values[at] *= factor
            upload[cells[at]] = values[at]
        if shape.kappa > 0.0:
            own = cells[:n], values[:n]
            allocate(*own, noise.positions[i], shape, energy, room, variances)
        else:
            variances[:] = shape.budget * energy / len(upload)
        add_normals(noise.seeds[i], upload, variances)
        weight = float(links.offsets[i + 1] - links.offsets[i])
        add_weighted(upload, weight, total)
        _add_theta(weight, out.by_theta[i], windows[i], total)


@njit(nogil=True)
def _rounded(i, n, values, norm, rounding):
    """The n values of user i, clipped and on the lattice, in place."""
    scale = rounding.scale * (rounding.clip / max(norm, rounding.clip))
    on_lattice(values, n, scale, rounding.limits[i], rounding.seeds[i])


@njit(nogil=True, cache=True, error_model="numpy")
def add_on_lattice(first, step, links, model, windows, taps, rounding, takes_part, out, total):
    """Whole numbers, of h alone: each user counts once, if at all, filtered, clipped and rounded.

    ``taps`` are the filter's, empty for none; lengths are of what is clipped.
    """
    scratch, walk = _scratch(len(model.terrain.raised)), walk_room(model.frame)
    cells, values = scratch.cells, scratch.values
    line, room = filter_room(model.frame.rows, model.frame.columns, taps)
    dense = np.empty(len(scratch.row))
    for i in range(first, len(windows), step):
        n = _gathered(i, links, model, windows[i], walk, scratch, out)
        if len(taps):
            n = filter_listed(n, cells, values, windows[i], taps, line, room, dense)
            out.lengths[i] = length(values[:n])
        if not takes_part[i]:
            continue
        _rounded(i, n, values, out.lengths[i], rounding)
        for at in range(n):
            total[cells[at]] += np.int64(values[at])


@njit(nogil=True, cache=True)
def rows_on_lattice(start, stop, rows, lengths, rounding, out):
    """What `add_on_lattice` adds for each of some dense rows, to the last bit."""
    cells, values = np.empty(rows.shape[1], np.int64), np.empty(rows.shape[1])
    for i in range(start, stop):
        n = listed(rows[i], cells, values)
        _rounded(i, n, values, lengths[i], rounding)
        out[i, : rows.shape[1]] = 0
        for at in range(n):
            out[i, cells[at]] = np.int64(values[at])
