"""Templates, what users at candidate places would have uploaded; compared with uploads or kept."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from veilmap._kernels.arguments import Ints
from veilmap._kernels.candidates import among_many, between_two
from veilmap._kernels.compiling import njit
from veilmap._kernels.degrees import shares_room
from veilmap._kernels.links import walk_room


class Template(NamedTuple):
    """Pairs (M, 2) of what a place is expected to send and what 1 dB more adds, cells not empty."""

    pairs: NDArray[np.float32]
    listed: NDArray[np.uint8]
    cells: Ints


@njit(nogil=True)
def _template_room(size):
    """Room for one template after the other on a map of so many cells."""
    pairs = np.zeros((size, 2), np.float32)  # side by side, so that one cell is one place
    return Template(pairs, np.zeros(size, np.uint8), np.empty(size, np.int64))


@njit(nogil=True, error_model="numpy")
def _add_template(i, sites, model, template):
    """Add what a user at place i would send to an empty template; how many cells it has."""
    pairs, listed, cells = template
    frame, terrain, laws = model
    walk, shares = walk_room(frame), shares_room(laws)
    theta, under, e, between = laws.theta, walk.cells, walk.e, len(laws.powers) > 0
    places, stations, gains = sites
    per_link = 2.0 / len(stations)
    count = 0
    for b in range(len(stations)):
        if between:
            n, predicted, moved = among_many(
                places[i], stations[b], frame, terrain, laws, walk, shares
            )
        else:
            n, predicted, moved = between_two(places[i], stations[b], frame, terrain, theta, walk)
        scale = moved * terrain.sharpness
        n = n if scale != 0.0 else 0
        for m in range(n):
            e[m] = scale * e[m] / (1.0 + e[m])  # a_b but for the factor 2/J
        residual = gains[i, b] - predicted
        for m in range(n):
            share, cell = per_link * e[m], under[m]
            pair = pairs[cell]
            pair[0] += residual * share
            pair[1] += share
            if listed[cell] == 0:
                listed[cell] = 1
                cells[count] = cell
                count += 1
    return count


@njit(nogil=True, error_model="numpy")
def _add_products(count, template, block_of, products):
    """Products (3, blocks) of a template: sums of expected², shifted² and of both's product."""
    products[:] = 0.0
    for at in range(count):
        cell = template.cells[at]
        first, second = template.pairs[cell]
        block = block_of[cell]
        products[0, block] += first * first
        products[1, block] += second * second
        products[2, block] += first * second


@njit(nogil=True)
def _clear_template(count, template):
    """Make its cells empty again."""
    for at in range(count):
        cell = template.cells[at]
        template.pairs[cell, 0] = template.pairs[cell, 1] = 0.0
        template.listed[cell] = 0


@njit(nogil=True, cache=True, error_model="numpy")
def expected_gradients(start, stop, sites, model, block_of, out):
    """Gradients of users at places who measure the sites' gains, and what 1 dB more would add."""
    template = _template_room(len(block_of))
    for i in range(start, stop):
        count = _add_template(i, sites, model, template)
        _add_products(count, template, block_of, out.products[i])
        for m in range(len(block_of)):
            out.expected[i, m], out.shifted[i, m] = template.pairs[m]
        _clear_template(count, template)


@njit(nogil=True)
def _largest(count, template):
    """The largest entries of both kinds."""
    first = second = np.float32(0.0)
    for at in range(count):
        pair = template.pairs[template.cells[at]]
        first, second = max(first, abs(pair[0])), max(second, abs(pair[1]))
    return first, second


@njit(nogil=True)
def _add_scaled(factor, row, total):
    for i in range(len(row)):
        total[i] += factor * row[i]


@njit(nogil=True, error_model="numpy")
def _add_matches(count, template, faint, values, along):
    """Products (2, N) of both kinds with all uploads; entries that hardly count are left out."""
    first, second = _largest(count, template)
    least_first, least_second = faint * first, faint * second
    along[:] = 0.0
    for at in range(count):
        cell = template.cells[at]
        first, second = template.pairs[cell]
        if abs(first) > least_first:
            _add_scaled(first, values[cell], along[0])
        if abs(second) > least_second:
            _add_scaled(second, values[cell], along[1])


@njit(nogil=True, cache=True, error_model="numpy")
def matches(start, stop, sites, model, block_of, uploads, faint, out):
    """Products of the templates of places with uploads (·, 2, N), and their norms (·, 3, N).

    Norms are squares and product of the two kinds, weighed by each upload's weights.
    """
    template = _template_room(len(block_of))
    products = np.empty((3, len(uploads.weights)), np.float32)
    for i in range(start, stop):
        count = _add_template(i, sites, model, template)
        _add_products(count, template, block_of, products)
        _add_matches(count, template, faint, uploads.values, out.along[i])
        norms = out.norms[i]
        norms[:] = 0.0
        for block in range(products.shape[1]):
            if products[1, block] != 0.0:
                for kind in range(3):
                    _add_scaled(products[kind, block], uploads.weights[block], norms[kind])
        _clear_template(count, template)
