"""Compiled loops over links and cells: plain arrays in, plain arrays out.

Nothing here checks its input or knows our classes; the modules above do both. Kernels
release the interpreter lock, so callers run them on several threads over separate links
or users. They are compiled at the first call and cached on disk.

Two tuples travel together: ``frame`` = (x0, y0, cells per metre, rows, columns) places the
grid, ``terrain`` = (raised, top, datum, sharpness) is the map as `_blockage` needs it.
Positions are in cells from the grid's corner, heights in metres. A link is walked by its
parameter t, 0 at its lower end and 1 at its higher end: low obstacles near a user decide
first, and a walk may stop early.
"""

import math

import numpy as np
from numba import njit

# A chord shorter than this many cells only touches the cell. It also absorbs the rounding
# that makes a link through a corner graze one of the two cells beside it.
TOUCH = 1e-9

# Once the product of (1 + e) passes this, S < 1e-30 is 0 for every purpose.
BLOCKED = 1e30

# An obstacle this far below the link (e = exp(sharpness * (h - z)) under this) changes
# neither S nor a gradient in twelve digits.
CLEAR = 1e-12

# The log-distance law has no meaning nearer than its reference distance, in metres.
NEAREST = 1.0


@njit(inline="always")
def _in_cells(metres, corner, per_metre, count):
    """A coordinate in cells; rounding must not push the grid's own edge off the grid."""
    cells = (metres - corner) * per_metre
    return float(count) if count < cells < count + TOUCH else cells


@njit(inline="always")
def _ends(user, bs, frame):
    """The link's lower end first (ties: west, then south), so both directions agree."""
    x0, y0, per_metre, rows, columns = frame
    ax, ay = _in_cells(user[0], x0, per_metre, columns), _in_cells(user[1], y0, per_metre, rows)
    bx, by = _in_cells(bs[0], x0, per_metre, columns), _in_cells(bs[1], y0, per_metre, rows)
    az, bz = user[2], bs[2]
    swap = az > bz or (az == bz and (ax > bx or (ax == bx and ay > by)))
    if swap:
        return bx, by, bz, ax, ay, az
    return ax, ay, az, bx, by, bz


@njit(inline="always")
def _enter(ax, ay, bx, by, frame):
    """Where the walk over the grid starts, and how it goes on.

    Returns t_in and t_out of the part over the grid (t_in > t_out: none), the first cell,
    t of the next vertical and horizontal grid line, t between such lines, the change of
    cell number at each, and the chord (in t) that counts as a mere touch.
    """
    _, _, _, rows, columns = frame
    dx, dy = bx - ax, by - ay
    t_in, t_out = 0.0, 1.0
    t_x, t_y, every_x, every_y = math.inf, math.inf, math.inf, math.inf
    length = math.hypot(dx, dy)

    if length < TOUCH:  # vertical: one cell, t from 0 to 1
        if ax < 0.0 or ax > columns or ay < 0.0 or ay > rows:
            t_in, t_out = 1.0, 0.0
        cell = min(int(ay), rows - 1) * columns + min(int(ax), columns - 1)
        return t_in, t_out, cell, t_x, t_y, every_x, every_y, 0, 0, 0.0

    if dx != 0.0:
        first, second = -ax / dx, (columns - ax) / dx
        t_in, t_out = max(t_in, min(first, second)), min(t_out, max(first, second))
    elif ax < 0.0 or ax > columns:
        t_out = -1.0
    if dy != 0.0:
        first, second = -ay / dy, (rows - ay) / dy
        t_in, t_out = max(t_in, min(first, second)), min(t_out, max(first, second))
    elif ay < 0.0 or ay > rows:
        t_out = -1.0

    column = min(max(math.floor(ax + t_in * dx), 0), columns - 1)
    row = min(max(math.floor(ay + t_in * dy), 0), rows - 1)
    step_x, step_y = 1, columns
    if dx > 0.0:
        t_x, every_x = (column + 1 - ax) / dx, 1.0 / dx
    elif dx < 0.0:
        t_x, every_x, step_x = (column - ax) / dx, -1.0 / dx, -1
    if dy > 0.0:
        t_y, every_y = (row + 1 - ay) / dy, 1.0 / dy
    elif dy < 0.0:
        t_y, every_y, step_y = (row - ay) / dy, -1.0 / dy, -columns
    cell = row * columns + column
    # Adding up t rounds by at most this much, also on links so long that TOUCH is less.
    rounding = 4e-16 * (rows + columns + 8)
    touch = max(TOUCH / length, rounding)
    return t_in, t_out, cell, t_x, t_y, every_x, every_y, step_x, step_y, touch


@njit(nogil=True, cache=True, error_model="numpy")
def _walk(ax, ay, bx, by, frame, cells, enters, leaves):
    """List the cells under one link with t where it enters and leaves each; their number."""
    t, t_out, cell, t_x, t_y, every_x, every_y, step_x, step_y, touch = _enter(
        ax, ay, bx, by, frame
    )
    n = 0
    while t < t_out:
        along_x = t_x <= t_y
        t_next = min(t_x if along_x else t_y, t_out)
        if t_next - t > touch:
            cells[n], enters[n], leaves[n] = cell, t, t_next
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
def _buffers(frame):
    """Room for the longest possible walk."""
    _, _, _, rows, columns = frame
    most = rows + columns + 2
    return np.empty(most, np.int64), np.empty(most), np.empty(most)


@njit(nogil=True, cache=True)
def count_cells(user, bs, frame, counts):
    """Number of cells under each link."""
    cells, enters, leaves = _buffers(frame)
    for j in range(len(user)):
        ax, ay, _, bx, by, _ = _ends(user[j], bs[j], frame)
        counts[j] = _walk(ax, ay, bx, by, frame, cells, enters, leaves)


@njit(nogil=True, cache=True)
def list_cells(user, bs, frame, offsets, cells, chords, heights):
    """Cell, chord (m) and link height (m) of every crossing of every link."""
    _, enters, leaves = _buffers(frame)
    for j in range(len(user)):
        ax, ay, az, bx, by, bz = _ends(user[j], bs[j], frame)
        first = offsets[j]
        n = _walk(ax, ay, bx, by, frame, cells[first : offsets[j + 1]], enters, leaves)
        length = math.hypot(bx - ax, by - ay) / frame[2]
        for m in range(n):
            chords[first + m] = (leaves[m] - enters[m]) * length
            heights[first + m] = az + 0.5 * (enters[m] + leaves[m]) * (bz - az)


@njit(nogil=True, cache=True)
def clear_of_obstacles(start, stop, user, bs, frame, heights, clear):
    """The segmented model's condition: h_m < z_m for every cell under the link."""
    cells, enters, leaves = _buffers(frame)
    for j in range(start, stop):
        ax, ay, az, bx, by, bz = _ends(user[j], bs[j], frame)
        n = _walk(ax, ay, bx, by, frame, cells, enters, leaves)
        clear[j] = True
        for m in range(n):
            if heights[cells[m]] >= az + 0.5 * (enters[m] + leaves[m]) * (bz - az):
                clear[j] = False
                break


@njit(nogil=True, cache=True, error_model="numpy")
def _blockage(ax, ay, az, bx, by, bz, frame, terrain, cells, e):
    """Π (1 + e_m) = 1/S over the cells under a link, with e_m = exp(sharpness (h_m − z_m)).

    No exponential per cell: ``raised`` holds exp(sharpness (h_m − datum)) for the map, and
    the link's share exp(−sharpness (z_m − datum)) is a product of two running factors. z at
    a chord's middle is linear in t_enter + t_leave, and both are grid-line crossings, whose
    t form two arithmetic progressions: their exponentials are geometric ones.

    The walk ends where S is 0 (more than BLOCKED) or where the link is above ``top``, the
    height that no obstacle comes near. Cells with e > CLEAR are left in ``cells``, ``e``.

    Returns the product and how many cells were kept.
    """
    raised, top, datum, sharpness = terrain
    t, t_out, cell, t_x, t_y, every_x, every_y, step_x, step_y, touch = _enter(
        ax, ay, bx, by, frame
    )
    half = -0.5 * sharpness * (bz - az)
    foot = math.exp(-sharpness * (az - datum))
    f_enter, f_out = math.exp(half * t), math.exp(half * t_out)
    f_x, ratio_x = math.exp(half * t_x), math.exp(half * every_x)
    f_y, ratio_y = math.exp(half * t_y), math.exp(half * every_y)
    t_clear = (top - az) / (bz - az) if bz > az else math.inf
    product = 1.0
    n = 0
    # Selects instead of branches: which grid line comes next cannot be predicted.
    while t < t_out and t <= t_clear:
        along_x = t_x <= t_y
        t_next = t_x if along_x else t_y
        f_leave = f_x if along_x else f_y
        last = t_next >= t_out
        t_next = t_out if last else t_next
        f_leave = f_out if last else f_leave
        if t_next - t > touch:
            value = raised[cell] * (foot * f_enter * f_leave)
            product *= 1.0 + value
            cells[n] = cell
            e[n] = value
            n += value > CLEAR
            if product > BLOCKED:
                break
            t = t_next
            f_enter = f_leave
        elif last:
            break
        cell += step_x if along_x else step_y
        t_x += every_x if along_x else 0.0
        t_y += 0.0 if along_x else every_y
        f_x *= ratio_x if along_x else 1.0
        f_y *= 1.0 if along_x else ratio_y
    return product, n


@njit(inline="always")
def _log_distance(user, bs):
    """log10 of the link's length in metres, no nearer than NEAREST."""
    x, y, z = user[0] - bs[0], user[1] - bs[1], user[2] - bs[2]
    return math.log10(max(math.sqrt(x * x + y * y + z * z), NEAREST))


@njit(nogil=True, cache=True)
def los_weights(start, stop, user, bs, frame, terrain, out):
    """S of links start … stop."""
    cells, e, _ = _buffers(frame)
    for j in range(start, stop):
        ax, ay, az, bx, by, bz = _ends(user[j], bs[j], frame)
        product, _ = _blockage(ax, ay, az, bx, by, bz, frame, terrain, cells, e)
        out[j] = 1.0 / product if product < BLOCKED else 0.0


@njit(nogil=True, cache=True)
def user_gradients(
    start, stop, offsets, user, bs, gain, frame, terrain, theta, losses, by_heights, by_theta
):
    """F_i, ∂F_i/∂h and ∂F_i/∂θ of users start … stop in one pass over their links.

    ∂F_i/∂h_m = 2/J_i Σ_j Γ_j D_jm with Γ = (y − γ)(γ_NLOS − γ_LOS) and
    D_jm = ∂S/∂h_m = −sharpness · S · e_m/(1 + e_m), which is never positive.
    ``by_heights`` must come zeroed.
    """
    sharpness = terrain[3]
    cells, e, _ = _buffers(frame)
    for i in range(start, stop):
        links = offsets[i + 1] - offsets[i]
        row = by_heights[i]
        loss = 0.0
        los_0 = los_1 = nlos_0 = nlos_1 = 0.0
        for j in range(offsets[i], offsets[i + 1]):
            ax, ay, az, bx, by, bz = _ends(user[j], bs[j], frame)
            product, n = _blockage(ax, ay, az, bx, by, bz, frame, terrain, cells, e)
            s = 1.0 / product if product < BLOCKED else 0.0
            log_d = _log_distance(user[j], bs[j])
            los = theta[0] + theta[1] * log_d
            nlos = theta[2] + theta[3] * log_d
            residual = gain[j] - (nlos + (los - nlos) * s)  # y − γ
            loss += residual * residual
            slope = -2.0 * residual / links  # ∂F_i/∂γ
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
        losses[i] = loss / links
        by_theta[i, 0], by_theta[i, 1] = los_0, los_1
        by_theta[i, 2], by_theta[i, 3] = nlos_0, nlos_1


@njit(nogil=True, cache=True)
def total_variation_prox(image, weight, iterations):
    """argmin_x ½‖x − image‖² + weight · TV(x), isotropic TV, by fast gradient projection.

    Beck and Teboulle's accelerated projection of the dual field (p east, q north), whose
    projected gradient has Lipschitz constant 8.
    """
    rows, columns = image.shape
    p, q = np.zeros((rows, columns)), np.zeros((rows, columns))
    p_old, q_old = np.zeros((rows, columns)), np.zeros((rows, columns))
    r, s = np.zeros((rows, columns)), np.zeros((rows, columns))  # the accelerated point
    x = image.copy()
    if weight <= 0.0:
        return x
    momentum = 1.0
    for _ in range(iterations):
        _primal(image, weight, r, s, x)
        p_old, p = p, p_old
        q_old, q = q, q_old
        next_momentum = 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * momentum * momentum))
        ahead = (momentum - 1.0) / next_momentum
        momentum = next_momentum
        for i in range(rows):
            for j in range(columns):
                east = x[i, j] - x[i, j + 1] if j + 1 < columns else 0.0
                north = x[i, j] - x[i + 1, j] if i + 1 < rows else 0.0
                a = r[i, j] + east / (8.0 * weight)
                b = s[i, j] + north / (8.0 * weight)
                size = max(1.0, math.sqrt(a * a + b * b))
                p[i, j], q[i, j] = a / size, b / size
                r[i, j] = p[i, j] + ahead * (p[i, j] - p_old[i, j])
                s[i, j] = q[i, j] + ahead * (q[i, j] - q_old[i, j])
    _primal(image, weight, p, q, x)
    return x


@njit(nogil=True, cache=True)
def _primal(image, weight, p, q, x):
    """X = image − weight · (divergence of the dual field), in place."""
    rows, columns = image.shape
    for i in range(rows):
        for j in range(columns):
            flow = 0.0
            if j + 1 < columns:
                flow += p[i, j]
            if j > 0:
                flow -= p[i, j - 1]
            if i + 1 < rows:
                flow += q[i, j]
            if i > 0:
                flow -= q[i - 1, j]
            x[i, j] = image[i, j] - weight * flow
