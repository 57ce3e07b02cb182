"""Ids of base stations and devices, found by their text."""

from collections.abc import Sequence

import numpy as np

from veilmap._util.arrays import Array, Ints

Id = int | str

Known = tuple[Array, Ints]
"""Ids as text in order, and the place that each had before."""


def in_order(ids: Sequence[Id]) -> Known:
    """Ids ready to be found among."""
    texts = np.array([str(one) for one in ids], dtype=np.str_)
    order = np.argsort(texts, kind="stable")
    return texts[order], order


def places(ids: Array, known: Known) -> Ints:
    """The place of each id among the known ones, or −1."""
    texts, order = known
    if len(texts) == 0:
        return np.full(len(ids), -1)
    distinct, inverse = np.unique(np.asarray(ids), return_inverse=True)
    named = distinct.astype(np.str_)
    found = np.minimum(np.searchsorted(texts, named), len(texts) - 1)
    numbers = np.where(texts[found] == named, order[found], -1)
    return numbers[inverse.reshape(-1)]
