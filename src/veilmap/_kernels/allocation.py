"""Where a user's noise goes: the plane over the map that best misleads a centroid attacker.

Everything is without units (docs/allocation.md derives it). Cell m has c_m = (x_j, y_r),
centred, in units of the area's longer side; q_m is the clipped gradient's energy and
z_m = max(q_m, a·c_m + b) the energy after noise, both in units of the mean energy, so that
mean z = 1 once the budget is spent. The objective is |e|² − κ · mean z² with the attacker's
bias e = mean(z c) − p; at its maximum a = e/κ.
"""

import math
from typing import NamedTuple

import numpy as np

from veilmap._kernels.arguments import Floats, Ints
from veilmap._kernels.compiling import njit
from veilmap._kernels.rows import listed

_MOST_STEPS = 100
_MOST_OFFSETS = 200
_STILL = 1e-9  # a step of v this short changes the objective by its square
_LONGEST_STEP = 0.5

# Cells with less energy than this share of the mean noise count as empty: where the plane is
# looked for, and where the budget is spent, which all such energy together moves by 1e-13.
_LISTED, _SPENT = 1e-6, 1e-13


class Area(NamedTuple):
    """The cells' places: columns' x, rows' y, running totals of x and of x²."""

    x: Floats
    y: Floats
    sum_x: Floats
    sum_xx: Floats


class Listed(NamedTuple):
    """Cells with energy of their own: x, y, q, and their numbers."""

    x: Floats
    y: Floats
    q: Floats
    cell: Ints


class Plane(NamedTuple):
    """The plane a·c + b."""

    ax: float
    ay: float
    b: float


class Sums(NamedTuple):
    """Over some cells: their number, Σx, Σy, Σxx, Σxy, Σyy, then Σq, Σqx, Σqy, Σq²."""

    n: float
    x: float
    y: float
    xx: float
    xy: float
    yy: float
    q: float
    qx: float
    qy: float
    qq: float


@njit(inline="always")
def _add_rows(plane, area):
    """Sums over the cells where the plane is above 0, without those of q.

    In each row of the grid they form an interval, whose sums come from running totals.
    """
    ax, ay, b = plane
    x, y, sum_x, sum_xx = area
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
def _sums(plane, area, own, listed):
    """Sums over the active cells (plane above q); ``own`` has ``listed`` cells with q above 0."""
    n, s_x, s_y, s_xx, s_xy, s_yy = _add_rows(plane, area)
    ax, ay, b = plane
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
    return Sums(n, s_x, s_y, s_xx, s_xy, s_yy, s_q, s_qx, s_qy, s_qq)


@njit(inline="always")
def _balanced(plane, spent, area, own, listed):
    """The plane with the offset that places ``spent``, and its sums.

    What is placed is convex in b: Newton's first step, from the b of the plane before, ends
    right of the root, and all others only move left.
    """
    ax, ay, b = plane
    for step in range(_MOST_OFFSETS):
        sums = _sums(Plane(ax, ay, b), area, own, listed)
        if sums.n < 0.5:  # no cell is active: start again from right of the root
            b = 1.0
            continue
        new = (spent + sums.q - ax * sums.x - ay * sums.y) / sums.n
        moved = b - new
        b = new
        if abs(moved) <= 1e-14 * (1.0 + abs(b)) or (step > 0 and moved <= 0.0):
            break
    return Plane(ax, ay, b), sums


@njit(inline="always")
def _scatter(sums, per):
    """S_A/per: xx, yy and xy of the active cells' scatter."""
    xx = (sums.xx - sums.x * sums.x / sums.n) / per
    yy = (sums.yy - sums.y * sums.y / sums.n) / per
    return xx, yy, (sums.xy - sums.x * sums.y / sums.n) / per


@njit(inline="always")
def _shortened(dx, dy, longest):
    """A step, no longer than ``longest``."""
    length = math.hypot(dx, dy)
    if length > longest:
        return dx * longest / length, dy * longest / length
    return dx, dy


@njit(nogil=True, cache=True, error_model="numpy")
def _best_plane(place, kappa, spent, area, own, listed):
    """The plane a·c + b that maximises the objective; ``spent`` = M μ/(1+μ) is to be placed.

    Ascends Φ(v) = 2 v·e − |v|² − κ mean z² at a = v/κ by Newton steps. Φ is concave where
    κ ≥ 1/12, its gradient is 2(e − v) and its Hessian 2(S_A/(Mκ) − I), with S_A the scatter
    of the active cells.
    """
    px, py = place[0], place[1]
    size = float(len(area.x) * len(area.y))
    all_qx = all_qy = all_qq = 0.0
    for k in range(listed):
        all_qx += own.q[k] * own.x[k]
        all_qy += own.q[k] * own.y[k]
        all_qq += own.q[k] * own.q[k]
    far = 1.0 - 1.0 / (12.0 * kappa)
    reach = 1.0 / far if far > 0.3 else 1.0
    vx, vy = -px * reach, -py * reach
    best_vx, best_vy, best_b, best = vx, vy, 1.0, -math.inf
    b = 1.0
    for _ in range(_MOST_STEPS):
        plane, sums = _balanced(Plane(vx / kappa, vy / kappa, b), spent, area, own, listed)
        ax, ay, b = plane
        ex = (ax * sums.xx + ay * sums.xy + b * sums.x + all_qx - sums.qx) / size - px
        ey = (ax * sums.xy + ay * sums.yy + b * sums.y + all_qy - sums.qy) / size - py
        square = ax * ax * sums.xx + 2.0 * ax * ay * sums.xy + ay * ay * sums.yy
        square += 2.0 * b * (ax * sums.x + ay * sums.y) + b * b * sums.n + all_qq - sums.qq
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
        s_xx, s_yy, s_xy = _scatter(sums, size * kappa)
        h_xx, h_yy, h_xy = 1.0 - s_xx, 1.0 - s_yy, -s_xy
        determinant = h_xx * h_yy - h_xy * h_xy
        if h_xx > 1e-9 and determinant > 1e-9:
            dx, dy = (h_yy * dx - h_xy * dy) / determinant, (h_xx * dy - h_xy * dx) / determinant
        dx, dy = _shortened(dx, dy, _LONGEST_STEP)
        vx, vy = vx + dx, vy + dy
    return Plane(best_vx / kappa, best_vy / kappa, best_b)


@njit(nogil=True, error_model="numpy")
def _spending(plane, spent, area, own, listed):
    """The plane with the offset that spends the budget on all cells, by Newton from a near guess.

    Also Σ max(0, a·c + b − q), what it spends.
    """
    ax, ay, b = plane
    total = 0.0
    for _ in range(_MOST_OFFSETS):
        sums = _sums(Plane(ax, ay, b), area, own, listed)
        if sums.n < 0.5:
            b = 1.0
            continue
        total = ax * sums.x + ay * sums.y + b * sums.n - sums.q
        moved = (total - spent) / sums.n
        if abs(moved) <= 1e-14 * (1.0 + abs(b)):
            break
        b -= moved
    return Plane(ax, ay, b), total


@njit(nogil=True)
def _area(axes):
    """The cells' places with running totals."""
    columns = len(axes.x)
    sum_x, sum_xx = np.zeros(columns + 1), np.zeros(columns + 1)
    sum_x[1:], sum_xx[1:] = np.cumsum(axes.x), np.cumsum(axes.x * axes.x)
    return Area(axes.x, axes.y, sum_x, sum_xx)


@njit(nogil=True)
def _room_for(cells):
    """For a list of so many cells."""
    return Listed(np.empty(cells), np.empty(cells), np.empty(cells), np.empty(cells, np.int64))


@njit(nogil=True)
def allocation_room(axes):
    """What `allocate` works in: an `Area`, and room for a list of all its cells."""
    return _area(axes), _room_for(len(axes.x) * len(axes.y))


@njit(nogil=True, error_model="numpy")
def allocate(cells, values, place, shape, energy, room, variances):
    """σ² of every cell for a clipped gradient, given by its cells that are not 0, in order.

    The user is at ``place``; ``energy`` is ‖ḡ‖², above 0; Σσ² = budget · energy.
    """
    area, own = room
    budget, x, y = shape.budget, area.x, area.y
    columns, size = len(x), len(x) * len(y)
    spent = size * budget / (1.0 + budget)
    per_unit = size / ((1.0 + budget) * energy)  # 1 / the mean energy after noise
    large, listed = _list_large_first(cells, values, area, per_unit, spent / size, own)
    plane = _best_plane(place, shape.kappa, spent, area, own, large)
    (ax, ay, b), total = _spending(plane, spent, area, own, listed)
    scale = budget * energy / total
    for r in range(len(y)):
        level, row = ay * y[r] + b, variances[r * columns : (r + 1) * columns]
        for j in range(columns):
            row[j] = scale * max(ax * x[j] + level, 0.0)
    for k in range(listed):
        above = ax * own.x[k] + (ay * own.y[k] + b) - own.q[k]
        variances[own.cell[k]] = scale * max(above, 0.0)


@njit(nogil=True)
def _list_large_first(cells, values, area, per_unit, mean_noise, own):
    """Fill ``own`` with the cells that are not empty, those large in q first.

    How many are large, and how many there are.
    """
    own_x, own_y, q, own_cell = own
    large = listed = 0
    row, line = 0, 0  # that a cell lies in, and its first cell: dividing would take longer
    for at in range(len(cells)):
        value = values[at] * values[at] * per_unit
        if value < _SPENT * mean_noise:
            continue
        while cells[at] >= line + len(area.x):
            row, line = row + 1, line + len(area.x)
        place = listed
        listed += 1
        if value > _LISTED * mean_noise:  # changes places with the first that is not large
            own_x[place], own_y[place] = own_x[large], own_y[large]
            q[place], own_cell[place] = q[large], own_cell[large]
            place = large
            large += 1
        own_x[place], own_y[place] = area.x[cells[at] - line], area.y[row]
        q[place], own_cell[place] = value, cells[at]
    return large, listed


@njit(nogil=True, cache=True, error_model="numpy")
def aligned_variances(start, stop, gradients, energies, positions, shape, variances):
    """σ² of every cell for dense gradients of users start … stop."""
    room = allocation_room(shape.axes)
    cells, values = np.empty(gradients.shape[1], np.int64), np.empty(gradients.shape[1])
    for i in range(start, stop):
        n = listed(gradients[i], cells, values)
        allocate(cells[:n], values[:n], positions[i], shape, energies[i], room, variances[i])


@njit(nogil=True, cache=True, error_model="numpy")
def planes_with_centroids(centroids, kappa, axes, slopes):
    """The v whose plane max(0, v·c/κ + b), of mean 1, has each centroid: an allocation undone.

    Newton's method; the centroid's derivative in v is S_A/(Mκ). Centroids that no plane
    reaches end at a steep one that leans their way.
    """
    area, nothing = _area(axes), _room_for(0)
    size = float(len(axes.x) * len(axes.y))
    for i in range(len(centroids)):
        vx = vy = 0.0
        for _ in range(_MOST_STEPS):
            ax, ay = vx / kappa, vy / kappa
            b = 1.0
            for _ in range(_MOST_OFFSETS):
                sums = _sums(Plane(ax, ay, b), area, nothing, 0)
                new = (size - ax * sums.x - ay * sums.y) / sums.n
                moved = b - new
                b = new
                if moved <= 1e-14 * (1.0 + abs(b)):
                    break
            dx = centroids[i, 0] - (ax * sums.xx + ay * sums.xy + b * sums.x) / size
            dy = centroids[i, 1] - (ax * sums.xy + ay * sums.yy + b * sums.y) / size
            if abs(dx) + abs(dy) < _STILL:
                break
            s_xx, s_yy, h_xy = _scatter(sums, size * kappa)
            h_xx, h_yy = s_xx + 1e-6, s_yy + 1e-6
            determinant = h_xx * h_yy - h_xy * h_xy
            dx, dy = (h_yy * dx - h_xy * dy) / determinant, (h_xx * dy - h_xy * dx) / determinant
            # Small steps: planes change their active cells on the way.
            dx, dy = _shortened(dx, dy, 0.1)
            vx, vy = vx + dx, vy + dy
            steep = math.hypot(vx, vy)
            if steep > 1.0:
                vx, vy = vx / steep, vy / steep
        slopes[i, 0], slopes[i, 1] = vx, vy
