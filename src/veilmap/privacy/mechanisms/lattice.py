"""Gaussian noise on whole numbers, without a float in what leaves a client.

Noise made from floats has gaps and patterns that can give the noiseless value away (Mironov,
"On significance of the least significant bits for differential privacy", CCS 2012). Whole
numbers with the discrete Gaussian's probabilities have none (Canonne, Kamath and Steinke,
"The discrete Gaussian for differential privacy", NeurIPS 2020). Secure aggregation adds
whole numbers anyway.
"""

import math
from dataclasses import dataclass, field
from decimal import Decimal, localcontext
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from veilmap._kernels import sampling
from veilmap._kernels.arguments import SamplingTable
from veilmap._util.arrays import Ints
from veilmap.errors import ConfigurationError
from veilmap.privacy.noise import Draw

_BITS = 128  # of the cumulative table: no value's probability is off by more than 2⁻¹²⁸
_GUIDE_BITS = 12
_SPARE = 64  # words for the lower halves; needed about once in 2⁵⁰ numbers
LARGEST_DEVIATION = 20_000.0
"""Larger ones make tables of more than half a million entries."""

# A discrete Gaussian of deviation σ around a whole x is x + N(0, σ² − s²) whose coordinates are
# rounded at random, each by a discrete Gaussian of deviation s around it (the convolution theorem
# of lattice Gaussians: Peikert, "An efficient and parallel Gaussian sampler for lattices", CRYPTO
# 2010, Theorem 3.1), but for a factor below 1 ± 8 exp(−2π²s²(1 − s²/σ²)): under 1e-100 here.
# Rounding is post-processing: ε and δ are those of the Gaussian mechanism of variance σ² − s².
ROUNDING = 4.0  # s
LEAST_ON_SUM = 4 * ROUNDING
"""σ above which that holds."""


@dataclass(frozen=True)
class DiscreteGaussian:
    """P(k) ∝ exp(−k²/2σ²) on the whole numbers, by inversion of a 128-bit table."""

    deviation: float  # σ
    _high: NDArray[np.uint64] = field(repr=False)
    _low: NDArray[np.uint64] = field(repr=False)
    _guide: Ints = field(repr=False)

    def sample(self, count: int, draw: Draw) -> Ints:
        """Independent numbers."""
        out = np.zeros(count, dtype=np.int64)
        self.add_to(out, draw)
        return out

    def add_to(self, total: Ints, draw: Draw) -> None:
        """Add independent numbers to those in ``total``."""
        count = len(total)
        words = draw.words(count + _SPARE, "noise")
        table = SamplingTable(
            high=self._high, low=self._low, guide=self._guide,
            shift=np.uint64(64 - _GUIDE_BITS), first=-(len(self._high) // 2),
        )  # fmt: skip
        used = sampling.add_from_table(
            words=words[:count], spare=words[count:], table=table, total=total
        )
        if used > _SPARE:
            raise RuntimeError("the random source repeats itself")


def unevenness(deviation: float, shares: int) -> float:
    """How far a sum of such discrete Gaussians is from one: a bound of |log of the ratio|.

    The sum of k of them and one more is discrete Gaussian but for the factor Σ_y exp(−(y − c)²/2s²)
    over its mean over c, with s² = σ²k/(k + 1). By Poisson's summation formula that factor is
    within (1 ± e)/(1 ∓ e), e = 2 exp(−2π²s²) + …; here k = 1 stands alone, and k ≥ 2 all alike.
    """
    first, later = (math.exp(-2 * (math.pi * deviation) ** 2 * part) for part in (1 / 2, 2 / 3))
    return 4.1 * (first + shares * later)


@lru_cache(maxsize=1024)
def discrete_gaussian(deviation: float) -> DiscreteGaussian:
    """The sampler for σ = ``deviation``, with its table."""
    if not 0 < deviation <= LARGEST_DEVIATION:
        raise ConfigurationError(
            f"noise of deviation {deviation:.3g} on the lattice is not between 0 and"
            f" {LARGEST_DEVIATION:g}: choose fewer levels or a larger cohort"
        )
    table = _cumulative(deviation)
    high = np.array([entry >> 64 for entry in table], dtype=np.uint64)
    low = np.array([entry & (2**64 - 1) for entry in table], dtype=np.uint64)
    starts = np.arange(2**_GUIDE_BITS, dtype=np.uint64) << np.uint64(64 - _GUIDE_BITS)
    return DiscreteGaussian(deviation, high, low, np.searchsorted(high, starts))


def _cumulative(deviation: float) -> list[int]:
    """⌊2¹²⁸ P(X ≤ k)⌋ for k from −K to K; what lies beyond K has less than 2⁻¹²⁸."""
    reach = math.ceil(deviation * math.sqrt(2 * math.log(2) * (_BITS + 2))) + 1
    with localcontext() as context:
        context.prec = 60
        scale = -1 / (2 * Decimal(deviation) ** 2)
        half = [(scale * k * k).exp() for k in range(reach + 1)]
        total = 2 * sum(half) - half[0]
        running, table = Decimal(0), []
        for k in range(-reach, reach + 1):
            running += half[abs(k)]
            table.append(int(running / total * 2**_BITS))
    table[-1] = 2**_BITS - 1
    return [min(entry, 2**_BITS - 1) for entry in table]
