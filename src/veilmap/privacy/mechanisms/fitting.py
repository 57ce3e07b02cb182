"""How fine a lattice, and how many bits: as few as the noise on the sum allows.

A sum of n answers counts modulo 2^bits. Should a cell's sum leave that range, it would appear on
the other side of 0. Nobody's privacy depends on it, but the map does: so the range must hold
the noise and what the users have in common.
"""

import math
from dataclasses import replace

from veilmap.errors import ConfigurationError
from veilmap.privacy.mechanisms.aggregate import LEAST_DEVIATION, ROOM, AggregateGaussian
from veilmap.privacy.mechanisms.lattice import LEAST_ON_SUM

_WHOLE_BYTES = (16, 24, 32)
# With fewer levels, what rounding adds to gradients that were filtered, and so are small in many
# cells, would have to be allowed for with more noise, or be taken off the gradient.
_FEWEST_LEVELS, _MOST_LEVELS = 256, 1024

# Deviations of the noise that a sum's range holds: one cell in 10⁹ is beyond six.
_DEVIATIONS = 6.0

# The largest mean gradient of a cell, as a share of C, that the range holds. In three synthetic
# cities with 1,000 users, at most 26 of 600,000 means in 60 rounds exceed it, and the maps' errors
# stay within 0.03 dB if those wrap around (`python benchmarks/many_users.py wrapping`).
LARGEST_MEAN = 0.04


def fitted(mechanism: AggregateGaussian, cohort: int) -> AggregateGaussian:
    """The mechanism with levels and bits for sums over ``cohort`` users, where it has none.

    Its noise must be fixed.
    """
    if mechanism.levels is not None:
        needed = 1 + math.log2(max(1.0, mechanism.levels * _range_per_level(mechanism, cohort)))
        bits = mechanism.bits or next((b for b in _WHOLE_BYTES if b >= needed), _WHOLE_BYTES[-1])
        return replace(mechanism, bits=bits)
    choices = (mechanism.bits,) if mechanism.bits is not None else _WHOLE_BYTES
    least = _least_levels(mechanism, cohort)
    for bits in choices:
        levels = int(2.0 ** (bits - 1) / _range_per_level(mechanism, cohort))
        if levels >= least:
            return replace(mechanism, levels=min(levels, max(least, _MOST_LEVELS)), bits=bits)
    raise ConfigurationError(
        f"uploads of {choices[-1]} bits a cell leave {levels} levels for sums over {cohort} users,"
        f" which need {least}: allow more bits"
    )


def _range_per_level(mechanism: AggregateGaussian, cohort: int) -> float:
    """How far from 0 sums reach, over the number of levels."""
    noise = mechanism.noise_on_sum * math.sqrt(1 + ROOM) / math.sqrt(1 - mechanism.dropout)
    return _DEVIATIONS * noise + LARGEST_MEAN * cohort * mechanism.contribute


def _least_levels(mechanism: AggregateGaussian, cohort: int) -> int:
    """Fewer would make each share of the noise too coarse to be proven, or rounding felt."""
    answers = mechanism.least_answers(cohort)
    proven = max(LEAST_DEVIATION * math.sqrt(answers), LEAST_ON_SUM) / mechanism.noise_on_sum
    return max(_FEWEST_LEVELS, math.ceil(proven))
