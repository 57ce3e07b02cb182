"""Which of its records a user trains on, so that their average place misleads.

After Bakopoulou, Yang, Zhang, Psounis and Markopoulou, "Location leakage in federated signal maps"
(arXiv 2112.03452), who curate batches against a server that finds their average location. Both are
obfuscation: nothing is proven, and places of the records that are left still show.
"""

from dataclasses import dataclass

import numpy as np

from veilmap._util import checks
from veilmap._util.arrays import Ints
from veilmap.model.gradient_models import Records


@dataclass(frozen=True, kw_only=True)
class DiverseBatch:
    """One record of each cluster of places, so that where a user stays counts no more than once.

    Clusters are those of DBSCAN with at least one point: records with a chain of others between
    them whose steps are at most ``radius`` metres.
    """

    radius: float = 50.0

    def __post_init__(self) -> None:
        checks.number("radius", self.radius, above=0)

    def __call__(self, records: Records) -> Records:
        """The record nearest to the middle of each cluster."""
        return records.select(representatives(records, self.radius))


@dataclass(frozen=True, kw_only=True)
class FarthestBatch:
    """Of those records the ``size`` farthest from the mean of all, on one side of it.

    The first is the one farthest from the mean; the others are those nearest to that one.
    """

    radius: float = 50.0
    size: int = 1

    def __post_init__(self) -> None:
        checks.number("radius", self.radius, above=0)
        object.__setattr__(self, "size", checks.whole("size", self.size, least=1))

    def __call__(self, records: Records) -> Records:
        """The far records."""
        rows = representatives(records, self.radius)
        xy = records.xy[rows]
        far = xy[np.linalg.norm(xy - records.xy.mean(axis=0), axis=1).argmax()]
        order = np.argsort(np.linalg.norm(xy - far, axis=1), kind="stable")
        return records.select(rows[order[: self.size]])


def representatives(records: Records, radius: float) -> Ints:
    """The number of the record nearest to the middle of each cluster."""
    from scipy.cluster.hierarchy import fcluster, linkage

    if len(records) == 1:
        return np.zeros(1, dtype=np.int64)
    cluster = fcluster(linkage(records.xy, "single"), radius, "distance")
    chosen = []
    for number in np.unique(cluster):
        own = np.flatnonzero(cluster == number)
        apart = np.linalg.norm(records.xy[own] - records.xy[own].mean(axis=0), axis=1)
        chosen.append(own[apart.argmin()])
    return np.array(chosen, dtype=np.int64)
