"""Where random numbers for privacy noise come from.

With a seed, for research: every draw depends only on (seed, client, round), so the same
seed gives the same bits in whatever order clients answer, and a resumed run needs no state.
Without one, every bit comes from the operating system's cryptographic generator.
"""

import hashlib
import os
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Draw = Callable[[int], NDArray[np.float64]]
"""Standard normal numbers, as many as asked for."""

_BITS = 53  # a float64's


def draw(seed: int | None, client: object, round_number: int) -> Draw:
    """The noise source of one client in one round."""
    if seed is None:
        return system_normals

    def normals(count: int) -> NDArray[np.float64]:
        name = f"{seed}/{client}/{round_number}".encode()
        key = np.frombuffer(hashlib.blake2b(name, digest_size=16).digest(), dtype=np.uint32)
        return np.random.Generator(np.random.SFC64(key)).standard_normal(count)

    return normals


def system_normals(count: int) -> NDArray[np.float64]:
    """Standard normals from the operating system's random bits, by the inverse of their CDF."""
    from scipy.special import ndtri

    bits = np.frombuffer(os.urandom(8 * count), dtype=np.uint64) >> np.uint64(64 - _BITS)
    return ndtri((bits + 0.5) / 2.0**_BITS)
