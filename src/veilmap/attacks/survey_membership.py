"""The adversary of the promise: knows exactly what everybody else added to a survey's sum."""

import numpy as np

from veilmap.surveys.aggregate import OpenedSum
from veilmap.surveys.contribution import Entries


def membership_score(left: OpenedSum, own: Entries) -> float:
    """How much more likely the sum is with the target's contribution than without, as a statistic.

    ``left`` is what the others' contributions leave of the opened sum. With v the target's own
    contribution, ⟨left, v⟩ / (σ ‖v‖) is normal with deviation 1 around ‖v‖ / σ if the target took
    part, and around 0 if not. It orders sums as their likelihood ratio does, so that by the lemma
    of Neyman and Pearson no test finds more participants at as many false alarms.
    """
    length = float(np.linalg.norm(own.values))
    return float(left.total[own.numbers] @ own.values) / (left.deviation * length)
