"""Loops over links and the cells under them: crossings, line of sight, gradients.

Positions are in cells from the grid's corner, heights in metres. A link is walked by its
parameter t, 0 at its lower end and 1 at its higher end: low obstacles near a user decide
first, and a walk may stop early. The walk counts t in ticks, whole numbers: comparing and
adding them takes a third of the time that floats take, and adding never rounds.
"""

import math
from typing import NamedTuple

import numpy as np

from veilmap._kernels.arguments import Floats, Ints
from veilmap._kernels.compiling import njit

# A chord shorter than this many cells only touches the cell. It also absorbs the rounding
# that makes a link through a corner graze one of the two cells beside it.
TOUCH = 1e-9

# Ticks in t = 1. Grid lines beyond the link's end are kept below 2, so sums stay below 2^63.
TICKS = float(1 << 60)
_BEYOND = 2.0

# The share of a link that rounding may misplace a crossing by, with room to spare.
_ROUNDING = 2e-14

# Once the product of (1 + e) passes this, S < 1e-30 is 0 for every purpose.
BLOCKED = 1e30

# An obstacle so far below the link that e = exp(sharpness (h − z)) is less than this does not
# count: leaving it out changes S by no more than this share.
CLEAR = 1e-10

# Cells that are marked together: eight floats are what memory hands out at once.
GROUP = 8

# The log-distance law has no meaning nearer than its reference distance, in metres.
NEAREST = 1.0


class Segment(NamedTuple):
    """A link from its lower end a to its higher end b; x and y in cells, z in metres."""

    ax: float
    ay: float
    az: float
    bx: float
    by: float
    bz: float


class Chords(NamedTuple):
    """Room for a walk: cells, and t where the link enters and leaves each."""

    cells: Ints
    enters: Floats
    leaves: Floats


class Walk(NamedTuple):
    """Room for `_blockage`: cells, their e, and pairs of factors between grid lines."""

    cells: Ints
    e: Floats
    factors_x: Floats
    factors_y: Floats


@njit(inline="always")
def _in_cells(metres, corner, per_metre, count):
    """A coordinate in cells; rounding must not push the grid's own edge off the grid."""
    cells = (metres - corner) * per_metre
    if -TOUCH < cells < count + TOUCH:
        return min(max(cells, 0.0), float(count))
    return cells


@njit(inline="always")
def _segment(user, bs, frame):
    """The link's lower end first (ties: west, then south), so both directions agree."""
    x0, y0, per_metre, rows, columns = frame
    ax, ay = _in_cells(user[0], x0, per_metre, columns), _in_cells(user[1], y0, per_metre, rows)
    bx, by = _in_cells(bs[0], x0, per_metre, columns), _in_cells(bs[1], y0, per_metre, rows)
    az, bz = user[2], bs[2]
    swap = az > bz or (az == bz and (ax > bx or (ax == bx and ay > by)))
    if swap:
        return Segment(bx, by, bz, ax, ay, az)
    return Segment(ax, ay, az, bx, by, bz)


@njit(inline="always")
def _enter(link, frame):
    """Where the walk over the grid starts, and how it goes on; all t in ticks.

    t_in and t_out of the part over the grid (t_in > t_out: none), the first cell, t of the next
    vertical and horizontal grid line, t between such lines, the change of cell number at each,
    and the chord that counts as a mere touch.
    """
    rows, columns = frame.rows, frame.columns
    ax, ay, bx, by = link.ax, link.ay, link.bx, link.by
    dx, dy = bx - ax, by - ay
    t_in, t_out = 0.0, 1.0
    t_x, t_y, every_x, every_y = _BEYOND, _BEYOND, _BEYOND, _BEYOND
    step_x, step_y = 1, columns
    # A link that moves less than a touch along an axis crosses no line of it; a vertical one
    # crosses none at all and has one cell, t from 0 to 1.
    crosses_x, crosses_y = abs(dx) >= TOUCH, abs(dy) >= TOUCH
    touch = 0.0
    if crosses_x or crosses_y:
        touch = max(TOUCH / math.sqrt(dx * dx + dy * dy), _ROUNDING)

    if crosses_x:
        per_dx = 1.0 / dx
        first, second = -ax * per_dx, (columns - ax) * per_dx
        t_in, t_out = max(t_in, min(first, second)), min(t_out, max(first, second))
    elif ax < 0.0 or ax > columns:
        t_out = -1.0
    if crosses_y:
        per_dy = 1.0 / dy
        first, second = -ay * per_dy, (rows - ay) * per_dy
        t_in, t_out = max(t_in, min(first, second)), min(t_out, max(first, second))
    elif ay < 0.0 or ay > rows:
        t_out = -1.0

    t_in, t_out = min(t_in, _BEYOND), max(t_out, -_BEYOND)  # links that miss the grid by far
    column = min(max(math.floor(ax + t_in * dx), 0), columns - 1)
    row = min(max(math.floor(ay + t_in * dy), 0), rows - 1)
    if crosses_x:
        ahead = column + 1 if dx > 0.0 else column
        t_x, every_x = min((ahead - ax) * per_dx, _BEYOND), min(abs(per_dx), _BEYOND)
        step_x = 1 if dx > 0.0 else -1
    if crosses_y:
        ahead = row + 1 if dy > 0.0 else row
        t_y, every_y = min((ahead - ay) * per_dy, _BEYOND), min(abs(per_dy), _BEYOND)
        step_y = columns if dy > 0.0 else -columns
    start = int(t_in * TICKS), int(t_out * TICKS), row * columns + column
    ticks = int(t_x * TICKS), int(t_y * TICKS), int(every_x * TICKS), int(every_y * TICKS)
    return *start, *ticks, step_x, step_y, int(touch * TICKS)


@njit(nogil=True, cache=True, error_model="numpy")
def _walk(link, frame, chords):
    """List the cells under one link with t where it enters and leaves each; their number."""
    cells, enters, leaves = chords
    t, t_out, cell, t_x, t_y, every_x, every_y, step_x, step_y, touch = _enter(link, frame)
    n = 0
    while t < t_out:
        along_x = t_x <= t_y
        t_next = min(t_x if along_x else t_y, t_out)
        if t_next - t > touch:
            cells[n], enters[n], leaves[n] = cell, t / TICKS, t_next / TICKS
            n += 1
            t = t_next  # a touched cell's sliver goes to the next chord
        elif t_next == t_out:
            break
        if along_x:
            cell, t_x = cell + step_x, t_x + every_x
        else:
            cell, t_y = cell + step_y, t_y + every_y
    return n


@njit(nogil=True, cache=True)
def _chords(frame):
    """Room for the longest possible walk."""
    most = frame.rows + frame.columns + 2
    return Chords(np.empty(most, np.int64), np.empty(most), np.empty(most))


@njit(nogil=True, cache=True)
def walk_room(frame):
    """What one walk after the other writes into."""
    cells, e, _ = _chords(frame)
    return Walk(cells, e, np.ones(2), np.ones(2))


@njit(nogil=True, cache=True)
def count_cells(ends, frame, counts):
    """Number of cells under each link."""
    chords = _chords(frame)
    for j in range(len(ends.user)):
        counts[j] = _walk(_segment(ends.user[j], ends.bs[j], frame), frame, chords)


@njit(nogil=True, cache=True)
def list_cells(ends, frame, out):
    """Cell, chord (m) and link height (m) of every crossing of every link."""
    _, enters, leaves = _chords(frame)
    for j in range(len(ends.user)):
        link = _segment(ends.user[j], ends.bs[j], frame)
        first, last = out.offsets[j], out.offsets[j + 1]
        n = _walk(link, frame, Chords(out.cells[first:last], enters, leaves))
        length = math.hypot(link.bx - link.ax, link.by - link.ay) / frame.per_metre
        for m in range(n):
            out.chords[first + m] = (leaves[m] - enters[m]) * length
            out.heights[first + m] = _height(link, enters[m], leaves[m])


@njit(inline="always")
def _height(link, enters, leaves):
    """z_m of a link (m), at the middle of its chord over a cell."""
    return link.az + 0.5 * (enters + leaves) * (link.bz - link.az)


@njit(nogil=True, cache=True)
def clear_of_obstacles(start, stop, ends, frame, heights, clear):
    """The segmented model's condition: h_m < z_m for every cell under the link."""
    chords = _chords(frame)
    for j in range(start, stop):
        link = _segment(ends.user[j], ends.bs[j], frame)
        n = _walk(link, frame, chords)
        clear[j] = True
        for m in range(n):
            if heights[chords.cells[m]] >= _height(link, chords.enters[m], chords.leaves[m]):
                clear[j] = False
                break


@njit(nogil=True, cache=True, error_model="numpy")
def _blockage(link, frame, terrain, walk, blocked=BLOCKED):
    """Π (1 + e_m) = 1/S over the cells under a link, with e_m = exp(sharpness (h_m − z_m)).

    No exponential per cell: ``raised`` holds exp(sharpness (h_m − datum)) for the map, and
    the link's share exp(−sharpness (z_m − datum)) is f(t_enter) f(t_leave) with
    f(t) = exp(−½ sharpness (z(t) − datum)), because z_m is taken at the chord's middle. Both
    ends of a chord are grid-line crossings, whose t form two arithmetic progressions: their
    f are two geometric ones.

    The walk ends where S is 0 (more than ``blocked``) or where the link is above ``top``, the
    height that no obstacle comes near. Cells with e > CLEAR are left in ``walk``.

    Returns the product and how many cells were kept.
    """
    raised, top, datum, sharpness = terrain
    cells, e, factors_x, factors_y = walk
    az, bz = link.az, link.bz
    t, t_out, cell, t_x, t_y, every_x, every_y, step_x, step_y, touch = _enter(link, frame)
    low, rise = -0.5 * sharpness * (az - datum), -0.5 * sharpness * (bz - az) / TICKS
    f_enter, f_out = math.exp(low + rise * t), math.exp(low + rise * t_out)
    f_x, ratio_x = math.exp(low + rise * t_x), math.exp(rise * every_x)
    f_y, ratio_y = math.exp(low + rise * t_y), math.exp(rise * every_y)
    t_clear = t_out
    if bz > az and top < bz:
        t_clear = min(t_out, int(max(0.0, (top - az) / (bz - az)) * TICKS) + 1)
    # Which kind of grid line comes next cannot be predicted, so the loop has no branch on it:
    # a flag picks from pairs and masks. As f falls with t, the earliest crossing has the
    # largest f.
    factors_x[1], factors_y[0] = ratio_x, ratio_y
    product = 1.0
    n = 0
    while t < t_clear:
        along_x = int(t_x <= t_y)
        t_next = min(t_x, t_y, t_out)
        f_leave = max(f_x, f_y, f_out)
        if t_next - t > touch:
            value = raised[cell] * (f_enter * f_leave)
            product *= 1.0 + value
            cells[n] = cell
            e[n] = value
            n += value > CLEAR
            if product > blocked:
                break
            t = t_next
            f_enter = f_leave
        elif t_next == t_out:
            break
        cell += step_y + along_x * (step_x - step_y)
        t_x += every_x & -along_x
        t_y += every_y & (along_x - 1)
        f_x *= factors_x[along_x]
        f_y *= factors_y[along_x]
    return product, n


@njit(inline="always")
def _log_distance(user, bs):
    """log10 of the link's length in metres, no nearer than NEAREST."""
    x, y, z = user[0] - bs[0], user[1] - bs[1], user[2] - bs[2]
    return 0.5 * math.log10(max(x * x + y * y + z * z, NEAREST * NEAREST))


@njit(nogil=True, cache=True)
def los_weights(start, stop, ends, model, out):
    """S of links start … stop."""
    users, stations = ends
    frame, terrain, _ = model
    walk = walk_room(frame)
    for j in range(start, stop):
        product, _ = _blockage(_segment(users[j], stations[j], frame), frame, terrain, walk)
        out[j] = 1.0 / product if product < BLOCKED else 0.0


@njit(nogil=True, error_model="numpy")
def add_gradient(first, last, links, model, walk, row, marks, by_theta):
    """One user's F_i; ∂F_i/∂h is added to ``row``, ∂F_i/∂θ is left in ``by_theta``.

    ∂F_i/∂h_m = 2/J_i Σ_j Γ_j D_jm with Γ = (y − γ)(γ_NLOS − γ_LOS) and
    D_jm = ∂S/∂h_m = −sharpness · S · e_m/(1 + e_m), which is never positive. ``marks``, unless
    it is empty, gets a 1 for each group of GROUP cells that is added to.
    """
    # Taken out of their groups here: in the loop it would cost a tenth of the time.
    _, users, stations, gains = links
    frame, terrain, laws = model
    theta, sharpness = laws.theta, terrain.sharpness
    cells, e = walk.cells, walk.e
    marking = len(marks) > 0
    count = last - first
    loss = 0.0
    los_0 = los_1 = nlos_0 = nlos_1 = 0.0
    for j in range(first, last):
        product, n = _blockage(_segment(users[j], stations[j], frame), frame, terrain, walk)
        s = 1.0 / product if product < BLOCKED else 0.0
        log_d = _log_distance(users[j], stations[j])
        los = theta[0] + theta[1] * log_d
        nlos = theta[2] + theta[3] * log_d
        residual = gains[j] - (nlos + (los - nlos) * s)  # y − γ
        loss += residual * residual
        slope = -2.0 * residual / count  # ∂F_i/∂γ
        los_0 += slope * s
        los_1 += slope * s * log_d
        nlos_0 += slope * (1.0 - s)
        nlos_1 += slope * (1.0 - s) * log_d
        if s > 0.0:
            scale = -slope * (los - nlos) * s * sharpness
            for m in range(n):
                e[m] = scale * e[m] / (1.0 + e[m])
            for m in range(n):
                row[cells[m]] += e[m]
            if marking:
                for m in range(n):
                    marks[cells[m] // GROUP] = 1
    by_theta[0], by_theta[1], by_theta[2], by_theta[3] = los_0, los_1, nlos_0, nlos_1
    return loss / count


@njit(nogil=True, cache=True, error_model="numpy")
def user_gradients(start, stop, links, model, out):
    """F_i, ∂F_i/∂h and ∂F_i/∂θ of users start … stop in one pass over their links."""
    walk, no_marks = walk_room(model.frame), np.empty(0, np.uint8)
    for i in range(start, stop):
        row = out.by_heights[i]
        row[:] = 0.0  # here and not before, so that it is in cache when it is added to
        first, last = links.offsets[i], links.offsets[i + 1]
        out.losses[i] = add_gradient(
            first, last, links, model, walk, row, no_marks, out.by_theta[i]
        )
