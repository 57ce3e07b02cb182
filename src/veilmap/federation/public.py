"""What a server knows before any user speaks; it costs no privacy."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from veilmap import offsets as no_offsets
from veilmap._ids import Id
from veilmap.antennas import Antennas
from veilmap.offsets import Offsets


@dataclass(frozen=True, eq=False)
class Public:
    """Public knowledge that a map can start from.

    Attributes
    ----------
    stations : (B, 3) float
        Where base stations are.
    ids : B ids
        Which they are.
    offsets : Offsets
        Whose offsets are to be learned.
    heights : (rows, columns) float, optional
        Of buildings, 0 for open ground.
    antennas : Antennas, optional
        Patterns of base stations.
    """

    stations: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 3)), repr=False)
    ids: tuple[Id, ...] = ()
    offsets: Offsets = no_offsets.NONE
    heights: NDArray[np.float64] | None = field(default=None, repr=False)
    antennas: Antennas | None = field(default=None, repr=False)


NOTHING = Public()
