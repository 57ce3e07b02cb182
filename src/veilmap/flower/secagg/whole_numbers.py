"""A user's answer as whole numbers that can be masked: nothing is cut off, no sum overflows."""

from dataclasses import dataclass

import numpy as np

from veilmap._util.arrays import Floats
from veilmap.errors import PrivacyError
from veilmap.federation.messages import Update
from veilmap.federation.server import OpenedSum
from veilmap.privacy.mechanisms import Mechanism

MODULUS = 2**32  # the masks' and so the sums'

# What honest users stay below, where a mechanism sends real numbers: J_i, and ∂F_i/∂θ.
_LARGEST_LINKS = 1024
_LARGEST_SLOPE = 4096.0


@dataclass(frozen=True)
class Scale:
    """How numbers become whole ones; the server and every node compute the same one."""

    largest: int  # R: entries lie within ±R, and nodes · 2R < 2³², so that no sum wraps around
    heights: float  # what one step is worth; 1 where the mechanism sends whole numbers anyway
    propagation: float

    @classmethod
    def of(cls, mechanism: Mechanism, nodes: int) -> "Scale":
        """The finest scale with which ``nodes`` answers can be summed."""
        largest = 1 << (((MODULUS - 1) // (2 * nodes)).bit_length() - 1)
        if mechanism.whole_numbers:
            return cls(largest, 1.0, 1.0)
        heights = _LARGEST_LINKS * mechanism.largest_upload(cells=1) / largest
        return cls(largest, heights, _LARGEST_LINKS * _LARGEST_SLOPE / largest)

    def pack(self, update: Update) -> Floats:
        """One vector (1, J_i, J_i · heights, J_i · θ's gradient), in steps.

        J_i is among the numbers that are masked: it would tell users apart.
        """
        heights = update.weight * update.height_gradient / self.heights
        propagation = update.weight * update.theta_gradient / self.propagation
        numbers = np.concatenate([[1.0, update.weight], heights, propagation])
        whole: Floats = np.rint(numbers)
        if not np.abs(whole).max() <= self.largest:
            raise PrivacyError(
                f"an answer of {np.abs(whole).max():.3g} steps does not fit the sum's range of"
                f" {self.largest}: it is not sent, for it would be cut off"
            )
        return whole

    def unpack(self, total: Floats, nodes: int, cells: int) -> OpenedSum | None:
        """The sum over ``nodes`` vectors, or None if they were not unmasked properly."""
        whole = np.rint(total)
        # Every node counts itself: a mask that is left over shows here.
        if whole[0] != nodes or np.abs(whole - total).max() > 0.01:
            return None
        heights = whole[2 : 2 + cells] * self.heights
        propagation = whole[2 + cells :] * self.propagation
        return OpenedSum(int(whole[1]), heights, propagation)
