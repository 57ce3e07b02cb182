"""How well a candidate place explains an upload.

One user at place p measures the public base stations b. Its gradient is linear in the
residuals r_b = (measured − predicted gain): g = Σ_b r_b a_b, with
a_bm = (2/J) ∂γ/∂(log S) · sharpness · e_m/(1 + e_m) over the cells m under link b. With two laws
∂γ/∂(log S) = (γ_LOS − γ_NLOS) S. Gains come less the offsets that the client takes off.
"""

import math
from typing import NamedTuple

import numpy as np

from veilmap._kernels.arguments import Floats, Ints
from veilmap._kernels.compiling import njit
from veilmap._kernels.degrees import DEEPEST, _mixture, shares_room
from veilmap._kernels.links import BLOCKED, _blockage, _log_distance, _segment, walk_room

# Cells that carry less than this share of a candidate's evidence are left out.
_FAINT = 1e-4


class StationLinks(NamedTuple):
    """Links of one place: a_b end to end (station b owns offsets[b]:offsets[b + 1]), and r_b."""

    offsets: Ints
    cells: Ints
    shares: Floats
    residuals: Floats


class Weighed(NamedTuple):
    """Cells of the map: expected energy, those it is above 0 in, a number for the chosen ones."""

    energy: Floats
    touched: Ints
    slots: Ints
    chosen: Ints


class Residuals(NamedTuple):
    """A share ``taken`` of links, what each adds, and the spread (dB) of their residuals."""

    taken: float
    per_link: float
    spread: float


# What is called for every link is inlined and stops walks at a constant, and its callers make the
# room of walks themselves: it takes two thirds of the time that it would otherwise.


@njit(inline="always")
def between_two(place, station, frame, terrain, theta, walk):
    """One link under two laws: number of cells, predicted gain, and ∂γ/∂(log S)."""
    product, n = _blockage(_segment(place, station, frame), frame, terrain, walk, BLOCKED)
    s = 1.0 / product if product < BLOCKED else 0.0
    log_d = _log_distance(place, station)
    nlos = theta[2] + theta[3] * log_d
    moved = (theta[0] + theta[1] * log_d - nlos) * s
    return n, nlos + moved, moved


@njit(inline="always")
def among_many(place, station, frame, terrain, laws, walk, shares):
    """The same under more laws, which are felt where S itself is 0 for every purpose."""
    product, n = _blockage(_segment(place, station, frame), frame, terrain, walk, DEEPEST)
    predicted, moved = _mixture(product, _log_distance(place, station), laws, shares)
    return n, predicted, moved


@njit(nogil=True, cache=True, error_model="numpy")
def _list_links(k, sites, model, links):
    """All a_b of place k end to end in ``links``; residuals as expected."""
    offsets, all_cells, all_shares, residuals = links
    frame, terrain, laws = model
    walk, shares = walk_room(frame), shares_room(laws)
    theta, cells, e, between = laws.theta, walk.cells, walk.e, len(laws.powers) > 0
    places, stations, gains = sites
    for b in range(len(stations)):
        if between:
            n, predicted, moved = among_many(
                places[k], stations[b], frame, terrain, laws, walk, shares
            )
        else:
            n, predicted, moved = between_two(places[k], stations[b], frame, terrain, theta, walk)
        scale = moved * terrain.sharpness
        n = n if scale != 0.0 else 0
        for m in range(n):
            e[m] = scale * e[m] / (1.0 + e[m])  # a_b but for the factor 2/J
        residuals[b] = gains[k, b] - predicted
        first = offsets[b]
        for m in range(n):
            all_cells[first + m] = cells[m]
            all_shares[first + m] = e[m]
        offsets[b + 1] = first + n


@njit(nogil=True, cache=True, error_model="numpy")
def _choose_strongest(cells, count, variance, scale):
    """Number the cells whose expected energy stands out most from the noise; how many."""
    energy, touched, slots, chosen = cells
    ratio = np.empty(count)
    for k in range(count):
        ratio[k] = scale * energy[touched[k]] / variance[touched[k]]
    least = _FAINT
    if count > len(chosen):
        least = max(least, np.partition(ratio, count - len(chosen))[count - len(chosen)])
    n = 0
    for k in range(count):
        slots[touched[k]] = -1
        if ratio[k] >= least and n < len(chosen):
            slots[touched[k]] = n
            chosen[n] = touched[k]
            n += 1
    return n


@njit(nogil=True, cache=True, error_model="numpy")
def _log_ratio(n, covariance, excess, upload, variance, chosen):
    """Log N(g; mean, C) − log N(g; 0, Σ) over the chosen cells.

    C is replaced by its Cholesky root, ``excess`` = g − mean by the root's solution. Rows are
    eliminated one after the other, so that the inner loop runs along a row.
    """
    result = 0.0
    for k in range(n):
        noise = variance[chosen[k]]
        result += 0.5 * (upload[chosen[k]] ** 2 / noise + math.log(noise))
        row = covariance[k]
        root = math.sqrt(max(row[k], 1e-300))
        for j in range(k, n):
            row[j] /= root
        excess[k] /= root
        result -= 0.5 * excess[k] ** 2 + math.log(root)
        for i in range(k + 1, n):
            factor = row[i]
            if factor != 0.0:
                below = covariance[i]
                for j in range(i, n):
                    below[j] -= factor * row[j]
                excess[i] -= factor * excess[k]
    return result


@njit(inline="always")
def _moments(residual, expected):
    """Mean and variance of a link's residual when only a share of the links was measured."""
    taken = expected.taken
    varies = max(taken * (1.0 - taken), 0.0) * residual**2
    return taken * residual, taken * expected.spread**2 + varies


@njit(nogil=True, cache=True, error_model="numpy")
def _add_energy(links, expected, energy, touched):
    """Expected squares of a place's gradient, cell by cell; cells touched, and their sum."""
    offsets, cells, shares, residuals = links
    count = 0
    whole = 0.0
    for b in range(len(residuals)):
        mean, other = _moments(residuals[b], expected)
        square = (mean * mean + other) * expected.per_link * expected.per_link
        for m in range(offsets[b], offsets[b + 1]):
            cell = cells[m]
            if energy[cell] == 0.0:
                touched[count] = cell
                count += 1
            share = square * shares[m] ** 2 + 1e-300
            energy[cell] += share
            whole += share
    return count, whole


@njit(nogil=True, cache=True, error_model="numpy")
def _add_moments(links, expected, slots, own, covariance, excess):
    """Add the chosen cells' covariance to its upper half, take their mean off the excess g − mean.

    ``own`` is room for the chosen cells under one link, and the link's a_b there.
    """
    offsets, cells, shares, residuals = links
    own_slots, own_shares = own
    for b in range(len(residuals)):
        mean, other = _moments(residuals[b], expected)
        mean *= expected.per_link
        other *= expected.per_link * expected.per_link
        count = 0
        for m in range(offsets[b], offsets[b + 1]):
            slot = slots[cells[m]]
            if slot >= 0:
                own_slots[count], own_shares[count] = slot, shares[m]
                count += 1
        for i in range(count):
            excess[own_slots[i]] -= mean * own_shares[i]
            for j in range(i + 1):
                low, high = min(own_slots[i], own_slots[j]), max(own_slots[i], own_slots[j])
                covariance[low, high] += other * own_shares[i] * own_shares[j]


@njit(nogil=True)
def _links_room(stations, cells):
    """Room for links to so many stations, each over at most so many cells."""
    most = stations * cells
    offsets = np.zeros(stations + 1, np.int64)
    return StationLinks(offsets, np.empty(most, np.int64), np.empty(most), np.empty(stations))


@njit(nogil=True, cache=True, error_model="numpy")
def log_evidence(start, stop, sites, users, model, uploads, spread, most_cells, out):
    """How much better each place explains the upload of its user than noise alone does.

    The residuals are integrated out: r_b is normal around what the expected gains say, with
    deviation ``spread``. A user who measured only a share f of the stations has each link
    with probability f. Of each place the ``most_cells`` cells that say most are looked at.
    """
    stations, longest = len(sites.stations), len(walk_room(model.frame).cells)
    size = model.frame.rows * model.frame.columns
    links = _links_room(stations, longest)
    touched, slots = np.empty(size, np.int64), np.empty(size, np.int64)
    cells = Weighed(np.zeros(size), touched, slots, np.empty(most_cells, np.int64))
    covariance, excess = np.empty((most_cells, most_cells)), np.empty(most_cells)
    own = np.empty(longest, np.int64), np.empty(longest)
    for k in range(start, stop):
        upload, variance = uploads.values[users[k]], uploads.variances[users[k]]
        count = uploads.counts[users[k]]
        taken, per_link = count / stations, 2.0 / count
        _list_links(k, sites, model, links)
        expected = Residuals(taken, per_link, spread)
        count_touched, whole = _add_energy(links, expected, cells.energy, cells.touched)
        # What clipping left of the energy.
        scale = min(1.0, uploads.clip * uploads.clip / max(whole, 1e-300))
        n = _choose_strongest(cells, count_touched, variance, scale)
        for i in range(n):
            excess[i] = upload[cells.chosen[i]]
            covariance[i, i:n] = 0.0
            covariance[i, i] = variance[cells.chosen[i]]
        clipped = Residuals(taken, per_link * math.sqrt(scale), spread)
        _add_moments(links, clipped, cells.slots, own, covariance, excess)
        out[k] = _log_ratio(n, covariance, excess, upload, variance, cells.chosen)
        for i in range(count_touched):
            cells.energy[cells.touched[i]] = 0.0
