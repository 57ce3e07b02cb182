"""Who measured, where no column says so."""

import numpy as np
from numpy.typing import NDArray

from veilmap.ingest._parsing import Mask

Values = NDArray[np.float64]


def by_gaps(time: Values, gap: float, device: NDArray[np.int64]) -> NDArray[np.int64]:
    """A user for each stretch of time without a gap longer than ``gap`` seconds.

    Each device is on a way of its own. Rows without a time (NaN) are anybody's.
    """
    order = np.lexsort((time, device))
    with np.errstate(invalid="ignore"):
        starts = (np.diff(time[order]) > gap) | (np.diff(device[order]) != 0)
    users = np.empty(len(time), dtype=np.int64)
    users[order] = np.concatenate([[0], np.cumsum(starts)])[: len(time)]
    return users


def by_position(x: Values, y: Values, usable: Mask) -> NDArray[np.int64]:
    """A user for each distinct place among the usable rows, numbered as they first appear.

    Numbers in the order of places would tell a server where its clients are.
    """
    users = np.full(len(x), -1, dtype=np.int64)
    order = np.flatnonzero(usable)
    order = order[np.lexsort((y[order], x[order]))]
    if len(order) == 0:
        return users
    moved = (np.diff(x[order]) != 0) | (np.diff(y[order]) != 0)
    starts = np.concatenate([[True], moved])
    first_rows = order[starts]  # the sort is stable
    number = np.empty(len(first_rows), dtype=np.int64)
    number[np.argsort(first_rows)] = np.arange(len(first_rows))
    users[order] = number[np.cumsum(starts) - 1]
    return users
