"""What a server knows before any user speaks; it costs no privacy."""

from collections.abc import Sequence
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


def seen_from(
    stations: NDArray[np.float64], ids: Sequence[Id], offsets: Offsets
) -> tuple[NDArray[np.float64], NDArray | None]:
    """Where attackers look from, and the ids of the base stations there.

    Offsets are known by ids: where they were learned it is every base station, else every place
    with one, once and without ids.
    """
    if offsets.stations:
        return stations, np.array(ids)
    return np.unique(stations, axis=0), None


NOTHING = Public()
