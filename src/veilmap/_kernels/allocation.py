"""Where a user's noise goes: the plane over the map that best misleads a centroid attacker.

Everything is without units (docs/allocation.md derives it). Cell m has c_m = (x_j, y_r),
centred, in units of the area's longer side; q_m is the clipped gradient's energy and
z_m = max(q_m, a·c_m + b) the energy after noise, both in units of the mean energy, so that
mean z = 1 once the budget is spent. The objective is |e|² − κ · mean z² with the attacker's
bias e = mean(z c) − p; at its maximum a = e/κ.
"""

import math

import numpy as np
from numba import njit

from veilmap._kernels.rows import listed

_MOST_STEPS = 100
_MOST_OFFSETS = 200
_STILL = 1e-9  # a step of v this short changes the objective by its square
_LONGEST_STEP = 0.5

# Cells with less energy than this share of the mean noise count as empty: where the plane is
# looked for, and where the budget is spent, which all such energy together moves by 1e-13.
_LISTED, _SPENT = 1e-6, 1e-13


@njit(inline="always")
def _add_rows(ax, ay, b, x, y, sum_x, sum_xx):
    """Count, Σx, Σy, Σxx, Σxy, Σyy over the cells where the plane is above 0.

    In each row of the grid they form an interval, whose sums come from running totals.
    """
    columns = len(x)
    spacing = x[1] - x[0] if columns > 1 else 1.0
    n = s_x = s_y = s_xx = s_xy = s_yy = 0.0
    for r in range(len(y)):
        level = ay * y[r] + b
        first, last = 0, columns
        if ax > 0.0:
            place = (-level / ax - x[0]) / spacing
            first = int(min(max(math.floor(place) + 1.0, 0.0), float(columns)))
        elif ax < 0.0:
            place = (-level / ax - x[0]) / spacing
            last = int(min(max(math.ceil(place), 0.0), float(columns)))
        elif level <= 0.0:
            last = 0
        count = float(last - first)
        own = sum_x[last] - sum_x[first]
        n += count
        s_x += own
        s_y += count * y[r]
        s_xx += sum_xx[last] - sum_xx[first]
        s_xy += own * y[r]
        s_yy += count * y[r] * y[r]
    return n, s_x, s_y, s_xx, s_xy, s_yy


@njit(inline="always")
def _moments(ax, ay, b, x, y, sum_x, sum_xx, own, listed):
    """The same sums over active cells (plane above q), then Σq, Σqx, Σqy, Σq² over them.

    ``own`` has x, y and q of the cells where q is not 0, of which there are ``listed``.
    """
    n, s_x, s_y, s_xx, s_xy, s_yy = _add_rows(ax, ay, b, x, y, sum_x, sum_xx)
    own_x, own_y, q, _ = own
    s_q = s_qx = s_qy = s_qq = 0.0
    for k in range(listed):
        cx, cy = own_x[k], own_y[k]
        plane = ax * cx + ay * cy + b
        if plane > q[k]:
            s_q += q[k]
            s_qx += q[k] * cx
            s_qy += q[k] * cy
            s_qq += q[k] * q[k]
        elif plane > 0.0:  # counted as active above, but its own energy is higher
            n -= 1.0
            s_x -= cx
            s_y -= cy
            s_xx -= cx * cx
            s_xy -= cx * cy
            s_yy -= cy * cy
    return n, s_x, s_y, s_xx, s_xy, s_yy, s_q, s_qx, s_qy, s_qq


@njit(nogil=True, cache=True, error_model="numpy")
def _best_plane(px, py, kappa, spent, x, y, sum_x, sum_xx, own, listed):
    """The plane a·c + b that maximises the objective; ``spent`` = M μ/(1+μ) is to be placed.

    Ascends Φ(v) = 2 v·e − |v|² − κ mean z² at a = v/κ by Newton steps. Φ is concave where
    κ ≥ 1/12, its gradient is 2(e − v) and its Hessian 2(S_A/(Mκ) − I), with S_A the scatter
    of the active cells.
    """
    size = float(len(x) * len(y))
    own_x, own_y, q, _ = own
    all_qx = all_qy = all_qq = 0.0
    for k in range(listed):
        all_qx += q[k] * own_x[k]
        all_qy += q[k] * own_y[k]
        all_qq += q[k] * q[k]

    far = 1.0 - 1.0 / (12.0 * kappa)
    reach = 1.0 / far if far > 0.3 else 1.0
    vx, vy = -px * reach, -py * reach
    best_vx, best_vy, best_b, best = vx, vy, 1.0, -math.inf
    b = 1.0
    for _ in range(_MOST_STEPS):
        ax, ay = vx / kappa, vy / kappa
        # What is placed is convex in b: Newton's first step, from the b of the plane before,
        # ends right of the root, and all others only move left.
        for step in range(_MOST_OFFSETS):
            n, s_x, s_y, s_xx, s_xy, s_yy, s_q, s_qx, s_qy, s_qq = _moments(
                ax, ay, b, x, y, sum_x, sum_xx, own, listed
            )
            if n < 0.5:  # no cell is active: start again from right of the root
                b = 1.0
                continue
            new = (spent + s_q - ax * s_x - ay * s_y) / n
            moved = b - new
            b = new
            if abs(moved) <= 1e-14 * (1.0 + abs(b)) or (step > 0 and moved <= 0.0):
                break
        ex = (ax * s_xx + ay * s_xy + b * s_x + all_qx - s_qx) / size - px
        ey = (ax * s_xy + ay * s_yy + b * s_y + all_qy - s_qy) / size - py
        square = ax * ax * s_xx + 2.0 * ax * ay * s_xy + ay * ay * s_yy
        square += 2.0 * b * (ax * s_x + ay * s_y) + b * b * n + all_qq - s_qq
        height = 2.0 * (vx * ex + vy * ey) - vx * vx - vy * vy - kappa * square / size
        dx, dy = ex - vx, ey - vy
        if height >= best:
            best_vx, best_vy, best_b, best = vx, vy, b, height
        else:  # a Newton step too far: go back half of it
            vx, vy = best_vx + 0.5 * (vx - best_vx), best_vy + 0.5 * (vy - best_vy)
            if abs(vx - best_vx) + abs(vy - best_vy) < _STILL:
                break
            continue
        if abs(dx) + abs(dy) < _STILL:
            break
        # (I − S_A/(Mκ)) step = e − v
        h_xx = 1.0 - (s_xx - s_x * s_x / n) / (size * kappa)
        h_yy = 1.0 - (s_yy - s_y * s_y / n) / (size * kappa)
        h_xy = -(s_xy - s_x * s_y / n) / (size * kappa)
        determinant = h_xx * h_yy - h_xy * h_xy
        if h_xx > 1e-9 and determinant > 1e-9:
            dx, dy = (h_yy * dx - h_xy * dy) / determinant, (h_xx * dy - h_xy * dx) / determinant
        length = math.hypot(dx, dy)
        if length > _LONGEST_STEP:
            dx, dy = dx * _LONGEST_STEP / length, dy * _LONGEST_STEP / length
        vx, vy = vx + dx, vy + dy
    return best_vx / kappa, best_vy / kappa, best_b


@njit(nogil=True, error_model="numpy")
def _offset(ax, ay, b, spent, x, y, sum_x, sum_xx, own, n):
    """The offset b that spends the budget on all cells, by Newton from a near guess, and n_A.

    Also Σ max(0, a·c + b − q), what it spends.
    """
    total = 0.0
    for _ in range(_MOST_OFFSETS):
        active, s_x, s_y, _, _, _, s_q, _, _, _ = _moments(ax, ay, b, x, y, sum_x, sum_xx, own, n)
        if active < 0.5:
            b = 1.0
            continue
        total = ax * s_x + ay * s_y + b * active - s_q
        moved = (total - spent) / active
        if abs(moved) <= 1e-14 * (1.0 + abs(b)):
            break
        b -= moved
    return b, total


@njit(nogil=True)
def aligned_room(x, y):
    """What `allocate` works in: running totals of x and x², and lists of cells."""
    columns, size = len(x), len(x) * len(y)
    sum_x, sum_xx = np.zeros(columns + 1), np.zeros(columns + 1)
    sum_x[1:], sum_xx[1:] = np.cumsum(x), np.cumsum(x * x)
    return sum_x, sum_xx, _room_for(size)


@njit(nogil=True)
def _room_for(cells):
    """For x, y, q and number of so many cells."""
    return np.empty(cells), np.empty(cells), np.empty(cells), np.empty(cells, np.int64)


@njit(nogil=True, error_model="numpy")
def allocate(cells, values, n, px, py, x, y, budget, kappa, energy, room, variances):
    """σ² of every cell for a clipped gradient of n ``values`` in ``cells``, 0 elsewhere.

    ``cells`` are in order. ``energy`` is ‖ḡ‖², above 0; Σσ² = budget · energy.
    """
    sum_x, sum_xx, own = room
    columns, size = len(x), len(x) * len(y)
    spent = size * budget / (1.0 + budget)
    per_unit = size / ((1.0 + budget) * energy)  # 1 / the mean energy after noise
    large, listed = _list_large_first(cells, values, n, x, y, per_unit, spent / size, own)
    ax, ay, b = _best_plane(px, py, kappa, spent, x, y, sum_x, sum_xx, own, large)
    b, total = _offset(ax, ay, b, spent, x, y, sum_x, sum_xx, own, listed)
    scale = budget * energy / total
    for r in range(len(y)):
        level, row = ay * y[r] + b, variances[r * columns : (r + 1) * columns]
        for j in range(columns):
            row[j] = scale * max(ax * x[j] + level, 0.0)
    own_x, own_y, q, own_cell = own
    for k in range(listed):
        above = ax * own_x[k] + (ay * own_y[k] + b) - q[k]
        variances[own_cell[k]] = scale * max(above, 0.0)


@njit(nogil=True)
def _list_large_first(cells, values, n, x, y, per_unit, mean_noise, own):
    """Fill ``own`` with x, y, q and number of cells that are not empty, those large in q first.

    How many are large, and how many there are.
    """
    own_x, own_y, q, own_cell = own
    large = listed = 0
    row, line = 0, 0  # that a cell lies in, and its first cell: dividing would take longer
    for at in range(n):
        value = values[at] * values[at] * per_unit
        if value < _SPENT * mean_noise:
            continue
        while cells[at] >= line + len(x):
            row, line = row + 1, line + len(x)
        place = listed
        listed += 1
        if value > _LISTED * mean_noise:  # changes places with the first that is not large
            own_x[place], own_y[place] = own_x[large], own_y[large]
            q[place], own_cell[place] = q[large], own_cell[large]
            place = large
            large += 1
        own_x[place], own_y[place] = x[cells[at] - line], y[row]
        q[place], own_cell[place] = value, cells[at]
    return large, listed


@njit(nogil=True, cache=True, error_model="numpy")
def aligned_variances(start, stop, gradients, positions, x, y, budget, kappa, energies, variances):
    """σ² of every cell for dense gradients of users start … stop."""
    room = aligned_room(x, y)
    cells, values = np.empty(gradients.shape[1], np.int64), np.empty(gradients.shape[1])
    for i in range(start, stop):
        n = listed(gradients[i], cells, values)
        allocate(
            cells, values, n, positions[i, 0], positions[i, 1], x, y, budget, kappa, energies[i],
            room, variances[i],
        )  # fmt: skip


@njit(nogil=True, cache=True, error_model="numpy")
def planes_with_centroids(centroids, kappa, x, y, slopes):
    """The v whose plane max(0, v·c/κ + b), of mean 1, has each centroid: an allocation undone.

    Newton's method; the centroid's derivative in v is S_A/(Mκ). Centroids that no plane
    reaches end at a steep one that leans their way.
    """
    columns, size = len(x), float(len(x) * len(y))
    sum_x, sum_xx = np.zeros(columns + 1), np.zeros(columns + 1)
    sum_x[1:], sum_xx[1:] = np.cumsum(x), np.cumsum(x * x)
    nothing = _room_for(0)
    for i in range(len(centroids)):
        vx = vy = 0.0
        for _ in range(_MOST_STEPS):
            ax, ay = vx / kappa, vy / kappa
            b = 1.0
            for _ in range(_MOST_OFFSETS):
                n, s_x, s_y, s_xx, s_xy, s_yy, _, _, _, _ = _moments(
                    ax, ay, b, x, y, sum_x, sum_xx, nothing, 0
                )
                new = (size - ax * s_x - ay * s_y) / n
                moved = b - new
                b = new
                if moved <= 1e-14 * (1.0 + abs(b)):
                    break
            dx = centroids[i, 0] - (ax * s_xx + ay * s_xy + b * s_x) / size
            dy = centroids[i, 1] - (ax * s_xy + ay * s_yy + b * s_y) / size
            if abs(dx) + abs(dy) < _STILL:
                break
            h_xx = (s_xx - s_x * s_x / n) / (size * kappa) + 1e-6
            h_yy = (s_yy - s_y * s_y / n) / (size * kappa) + 1e-6
            h_xy = (s_xy - s_x * s_y / n) / (size * kappa)
            determinant = h_xx * h_yy - h_xy * h_xy
            dx, dy = (h_yy * dx - h_xy * dy) / determinant, (h_xx * dy - h_xy * dx) / determinant
            length = math.hypot(dx, dy)
            if length > 0.1:  # small steps: planes change their active cells on the way
                dx, dy = 0.1 * dx / length, 0.1 * dy / length
            vx, vy = vx + dx, vy + dy
            steep = math.hypot(vx, vy)
            if steep > 1.0:
                vx, vy = vx / steep, vy / steep
        slopes[i, 0], slopes[i, 1] = vx, vy
