"""The same people in two runs under other pseudonyms, recognised by their homes and works."""

import numpy as np

from veilmap._util.arrays import Floats
from veilmap.attacks.found_places import APART, FoundPlaces
from veilmap.federation.messages import ClientId


def linked(first: FoundPlaces, second: FoundPlaces) -> dict[ClientId, ClientId]:
    """For each user of one run the user of another who is taken to be the same person.

    The assignment is the one of least total distance between homes and between works. Distances
    count as d/(d + 25 m): one place that was found wrongly outweighs no other that agrees. Where
    two places may have changed ranks, the better of both readings counts.
    """
    from scipy.optimize import linear_sum_assignment

    straight = _apart(first.home, second.home) + _apart(first.work, second.work)
    crossed = _apart(first.home, second.work) + _apart(first.work, second.home)
    rows, columns = linear_sum_assignment(np.minimum(straight, crossed))
    pairs = zip(rows.tolist(), columns.tolist(), strict=True)
    return {first.clients[row]: second.clients[column] for row, column in pairs}


def _apart(one: Floats, other: Floats) -> Floats:
    distance = np.linalg.norm(one[:, None] - other[None], axis=2)
    return distance / (distance + APART)
