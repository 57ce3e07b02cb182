"""Random streams of one seed that differ by what they are for."""

from enum import IntEnum

import numpy as np


class Purpose(IntEnum):
    """What a stream is for, beside the buildings and base stations of a city."""

    SHADOWING = 1
    MEASURED = 2
    MEASURED_IN_PARTS = 3
    TRACED = 4
    TURNOUT = 5
    TURNS = 6
    FEW_LINKS = 7
    WALKS = 8
    WALKED = 9
    WHEREABOUTS = 10


def stream(seed: int | None, purpose: Purpose, number: int = 0) -> np.random.Generator:
    """The stream of a seed for one purpose, and for one part, round or station of it.

    A spawn key keeps streams apart from each other and from ``default_rng(seed)``, for all seeds
    of up to 128 bits. A list of seed and purpose would not: NumPy pads it with zeros, so that
    [0, 0] is the same as 0.
    """
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(purpose, number)))
