"""The adversary of the promise: knows exactly what everybody else added to the opened sums."""

import numpy as np

from veilmap._util.arrays import Floats


def membership_score(match: Floats, squares: Floats) -> Floats:
    """How much more likely sums are with a target's contribution than without, as a statistic.

    With v the target's contribution to all sums, in deviations of their noise, ``match`` is the
    product of v with what the others' contributions leave of the sums, and ``squares`` is ‖v‖².
    The score is normal with deviation 1 around ‖v‖ if the target took part, and around 0 if not.
    It orders sums as their likelihood ratio does, so that by the lemma of Neyman and Pearson no
    test finds more targets at as many false alarms.
    """
    return match / np.sqrt(squares)
