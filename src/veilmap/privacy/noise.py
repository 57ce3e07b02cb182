"""Where random numbers for privacy noise come from.

With a seed, for research: every draw depends only on (seed, client, round), so the same
seed gives the same bits in whatever order clients answer, and a resumed run needs no state.
Without one, every bit comes from the operating system's cryptographic generator.
"""

import hashlib
import os
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veilmap._kernels import sampling
from veilmap._util.arrays import Floats


@dataclass(frozen=True)
class Draw:
    """The noise source of one client in one round; without a key, the operating system.

    A keyed source always gives the same numbers, so each purpose asks under its own name.
    """

    key: bytes | None = None

    def normals(self, count: int) -> Floats:
        """Standard normal numbers."""
        values = np.zeros(count)
        self.add_noise(values, np.ones(count))
        return values

    def add_noise(self, values: Floats, variances: Floats) -> None:
        """Add noise of these variances; where it is 0, nothing is drawn."""
        if self.key is None:
            normals = system_normals(int(np.count_nonzero(variances)))
            sampling.add_scaled(values=values, variances=variances, normals=normals)
        else:
            sampling.add_normals(seed=self.seed(""), values=values, variances=variances)

    def words(self, count: int, purpose: str) -> NDArray[np.uint64]:
        """Random 64-bit words."""
        if self.key is None:
            return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)
        words = np.empty(count, dtype=np.uint64)
        sampling.fill_words(seed=self.seed(purpose), out=words)
        return words

    def seed(self, purpose: str) -> NDArray[np.uint64]:
        """Three words that depend on the key and on nothing else."""
        if self.key is None:  # a seed made of nothing would give everybody the same noise
            raise ValueError("the operating system's noise has no seed")
        digest = hashlib.blake2b(self.key + purpose.encode(), digest_size=24).digest()
        return np.frombuffer(digest, dtype=np.uint64)


def draw(seed: int | None, client: object, round_number: int) -> Draw:
    """The noise source of one client in one round."""
    return Draw(None if seed is None else f"{seed}/{client}/{round_number}".encode())


def system_normals(count: int) -> Floats:
    """Standard normals from the operating system's random bits, by the inverse of their CDF.

    One bit is the sign. The others choose the probability of a number as far out or farther, which
    floats tell apart to 2⁻⁶⁴.
    """
    from scipy.special import ndtri

    words = np.frombuffer(os.urandom(8 * count), dtype=np.uint64)
    beyond = ndtri(((words >> np.uint64(1)) + 0.5) / 2.0**64)
    return np.where(words & np.uint64(1), beyond, -beyond)
