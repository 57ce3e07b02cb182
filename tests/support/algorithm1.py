"""The paper's Algorithm 1, written literally: nested ascent, numeric gradients, bisection.

The reference the fast allocator has to beat. It works on one user, with every quantity in
the units of the fast one (positions in units of the area's longer side, energies in units of
the mean energy after noise), so that both climb the same objective.
"""

import numpy as np
from numba import njit


class Problem:
    """One user's allocation problem, and the objective P − ρV in unit-free form."""

    def __init__(self, gradient, grid, user_xy, budget, kappa):
        west, east, south, north = grid.extent
        side = max(east - west, north - south)
        middle = np.array([west + east, south + north]) / 2
        self.c = (grid.centres - middle) / side
        self.p = (np.asarray(user_xy) - middle) / side
        self.energy = np.asarray(gradient) ** 2
        self.q = self.energy * len(self.c) / ((1 + budget) * self.energy.sum())
        self.budget = budget
        self.kappa = kappa
        self.spent = len(self.c) * budget / (1 + budget)

    def offset(self, a):
        """b by bisection: Σ max(0, a·c + b − q) = the budget."""
        plane = self.c @ a
        low, high = -np.abs(plane).max() - 1, np.abs(plane).max() + self.q.max() + self.spent + 1
        for _ in range(100):
            middle = 0.5 * (low + high)
            if np.maximum(0, plane + middle - self.q).sum() > self.spent:
                high = middle
            else:
                low = middle
            if high - low < 1e-13:
                break
        return 0.5 * (low + high)

    def energies(self, a):
        """z = q + σ² of the plane with slope a."""
        return np.maximum(self.q, self.c @ a + self.offset(a))

    def objective(self, z):
        """|mean(z c) − p|² − κ mean z²: the attacker's error against the spatial variance."""
        bias = z @ self.c / len(z) - self.p
        return bias @ bias - self.kappa * np.mean(z**2)

    def objective_of_variances(self, variances):
        """The same for an allocation in gradient units."""
        scale = len(self.c) / ((1 + self.budget) * self.energy.sum())
        return self.objective(self.q + variances * scale)

    def at(self, u, r):
        """J(u, r) with b solved for."""
        return self.objective(self.energies(r * u))


def algorithm1(problem, *, steepest=50.0, epsilon=1e-4, tolerance=1e-6, most=60):
    """Slope a of the best plane found by the nested ascent."""
    bias = problem.energy @ problem.c / problem.energy.sum() - problem.p
    length = np.linalg.norm(bias)
    u = bias / length if length > 0 else np.array([1.0, 0.0])
    r = steepest
    rate_u = 0.5
    for _ in range(most):
        r = _inner(problem, u, r, steepest, epsilon, tolerance, most)
        here = problem.at(u, r)
        slope = np.array(
            [
                (problem.at(u + epsilon * e, r) - problem.at(u - epsilon * e, r)) / (2 * epsilon)
                for e in np.eye(2)
            ]
        )
        slope -= (slope @ u) * u  # u stays a direction
        if np.linalg.norm(slope) <= tolerance:
            break
        while rate_u > 1e-9:  # ascend: a step that does not rise is halved
            turned = u + rate_u * slope / np.linalg.norm(slope)
            turned /= np.linalg.norm(turned)
            if problem.at(turned, r) > here:
                u, rate_u = turned, rate_u * 1.5
                break
            rate_u *= 0.5
        else:
            break
    return r * u


def _inner(problem, u, r, steepest, epsilon, tolerance, most):
    """Gradient ascent on r ≥ 0 for a fixed direction."""
    rate = 0.25 * steepest
    here = problem.at(u, r)
    for _ in range(most):
        slope = (problem.at(u, r + epsilon) - problem.at(u, r - epsilon)) / (2 * epsilon)
        if abs(slope) <= tolerance:
            break
        while rate > 1e-9 * steepest:
            moved = min(max(r + rate * np.sign(slope), 0.0), steepest)
            there = problem.at(u, moved)
            if there > here:
                r, here, rate = moved, there, rate * 1.5
                break
            rate *= 0.5
        else:
            break
    return r


def brute_force(problem, directions=360, slopes=60, steepest=50.0):
    """The best objective over a grid of planes."""
    best = -np.inf
    for angle in np.linspace(0, 2 * np.pi, directions, endpoint=False):
        u = np.array([np.cos(angle), np.sin(angle)])
        for r in np.linspace(0, 1, slopes) ** 2 * steepest:
            best = max(best, problem.at(u, r))
    return best


@njit
def _compiled_at(c, p, q, ax, ay, spent, kappa):
    """`Problem.at` in one compiled function: bisection, then the objective."""
    m = len(q)
    plane = np.empty(m)
    steepest = 0.0
    for k in range(m):
        plane[k] = ax * c[k, 0] + ay * c[k, 1]
        steepest = max(steepest, abs(plane[k]))
    low, high = -steepest - 1, steepest + q.max() + spent + 1
    for _ in range(100):
        middle = 0.5 * (low + high)
        total = 0.0
        for k in range(m):
            total += max(0.0, plane[k] + middle - q[k])
        if total > spent:
            high = middle
        else:
            low = middle
        if high - low < 1e-13:
            break
    b = 0.5 * (low + high)
    x = y = square = 0.0
    for k in range(m):
        z = max(q[k], plane[k] + b)
        x += z * c[k, 0]
        y += z * c[k, 1]
        square += z * z
    return (x / m - p[0]) ** 2 + (y / m - p[1]) ** 2 - kappa * square / m


class CompiledProblem(Problem):
    """The same problem with its objective compiled."""

    def at(self, u, r):
        return _compiled_at(self.c, self.p, self.q, r * u[0], r * u[1], self.spent, self.kappa)
