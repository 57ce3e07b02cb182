"""Beliefs about places that are made finer where it matters: cells that are divided in four."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from veilmap._util.arrays import Floats, Ints

# Of each user's cells so many are divided, time and again.
WIDTHS = (16, 8, 4, 2, 1, 1, 1, 1)
# Centres of a cell's four parts from its own, in sides, as a grid of rows and columns.
_PARTS = np.array([[(-0.25, -0.25), (0.25, -0.25)], [(-0.25, 0.25), (0.25, 0.25)]])
# A cell that is so much less likely than another, as a logarithm, is not divided.
_HOPELESS = 20.0
_STEPS = 40  # of Weiszfeld's algorithm
_NEAR = 1e-3  # metres: nothing is divided by a distance of 0

_FINEST = 0.02  # metres
# A log-likelihood that differs by less between the parts of a cell has nothing to say of smaller
# ones.
_FLAT = 0.1

LogLikelihood = Callable[[Ints, Floats], Floats]
"""Of small grids of cells, centres (n, 2, 2, 2), each for one user (n,): (n, 2, 2)."""


@dataclass(frozen=True)
class Leaves:
    """Cells of any size, L for each of N users: centres, and log-probability up to constants."""

    xy: Floats  # (N, L, 2), or (1, L, 2) for the same cells
    log_probability: Floats  # (N, L)

    def modes(self) -> Floats:
        """The centre of the most probable cell, (N, 2)."""
        best = self.log_probability.argmax(axis=1)
        return np.take_along_axis(self.xy, best[:, None, None], axis=1)[:, 0]

    def held_by_best(self, count: int) -> Floats:
        """The probability of the ``count`` most probable cells together, (N,)."""
        weight = np.exp(self.log_probability - self.log_probability.max(axis=1, keepdims=True))
        count = min(count, weight.shape[1])
        best = np.partition(weight, -count, axis=1)[:, -count:]
        return best.sum(axis=1) / weight.sum(axis=1)

    def medians(self) -> Floats:
        """The place of least expected distance from the user, (N, 2): the geometric median.

        If one place has half of the probability, it is there; if all are alike, in their middle.
        """
        weight = np.exp(self.log_probability - self.log_probability.max(axis=1, keepdims=True))
        x, y = self.xy[..., 0], self.xy[..., 1]
        total = weight.sum(axis=1)
        found = (weight * x).sum(axis=1) / total, (weight * y).sum(axis=1) / total
        for _ in range(_STEPS):
            apart = np.sqrt((x - found[0][:, None]) ** 2 + (y - found[1][:, None]) ** 2)
            pull = weight / (apart + _NEAR)
            total = pull.sum(axis=1)
            found = (pull * x).sum(axis=1) / total, (pull * y).sum(axis=1) / total
        return np.column_stack(found)


def refined(
    cells: Leaves, side: float, log_likelihood: LogLikelihood, widths: Sequence[int] = WIDTHS
) -> Leaves:
    """The same with the most probable of the cells, of one ``side``, divided in four repeatedly.

    ``cells.log_probability`` is their log-likelihood, as every cell is as likely before.
    """
    users, count = cells.log_probability.shape
    all_xy = [np.broadcast_to(cells.xy, (users, count, 2))]
    everything = [cells.log_probability.copy()]
    for level, most in enumerate(widths, start=1):
        xy, log_probability = all_xy[-1], everything[-1]
        width = min(most, xy.shape[1])
        best = np.argpartition(-log_probability, width - 1, axis=1)[:, :width]
        chosen = np.take_along_axis(xy, best[..., None], axis=1)
        before = np.take_along_axis(log_probability, best, axis=1)
        worth = before > before.max(axis=1, keepdims=True) - _HOPELESS
        parts = chosen[:, :, None, None] + side * _PARTS  # (N, width, 2, 2, 2)
        found = np.full(parts.shape[:-1], -np.inf)
        found[worth] = log_likelihood(np.nonzero(worth)[0], parts[worth]) - level * np.log(4)
        # Their parts take their place.
        np.put_along_axis(log_probability, best, np.where(worth, -np.inf, before), axis=1)
        side *= 0.5
        all_xy.append(parts.reshape(users, -1, 2))
        everything.append(found.reshape(users, -1))
    return Leaves(np.concatenate(all_xy, axis=1), np.concatenate(everything, axis=1))


def climbed(xy: Floats, side: float, shrink: float, *terms: LogLikelihood) -> Floats:
    """From places (N, 2) to the best nearby: to one of four cells around, then smaller ones.

    Cells overlap from step to step, as they ``shrink`` to more than half. The log-likelihood is the
    sum of ``terms``. Of each user those that hardly differ between the cells are not asked again;
    where none is left the user stays.
    """
    xy, telling = xy.copy(), np.ones((len(terms), len(xy)), dtype=bool)
    while side > _FINEST and telling.any():
        users = np.flatnonzero(telling.any(axis=0))
        parts = _around(xy, side)
        total = np.zeros((len(xy), 4))
        for term, asked in zip(terms, telling, strict=True):
            own = np.flatnonzero(asked)
            if len(own) == 0:
                continue
            found = term(own, parts[own]).reshape(-1, 4)
            total[own] += found
            asked[own] = np.ptp(found, axis=1) > _FLAT
        xy[users] = parts.reshape(-1, 4, 2)[users, total[users].argmax(axis=1)]
        side *= shrink
    return xy


def best_of_parts(users: Ints, xy: Floats, side: float, log_likelihood: LogLikelihood) -> Floats:
    """The log-likelihood of the likeliest of four cells of this side around each place, (n,)."""
    return log_likelihood(users, _around(xy, side)).reshape(-1, 4).max(axis=1)


def _around(xy: Floats, side: float) -> Floats:
    """Four cells of this side around each place (n, 2): (n, 2, 2, 2)."""
    return xy[:, None, None] + 2 * side * _PARTS
