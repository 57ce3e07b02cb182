"""What an attack answers with."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from veilmap.federation.messages import ClientId


@dataclass(frozen=True)
class Estimates:
    """Where an attack places users.

    Attributes
    ----------
    attack : str
    clients : mapping from round to the ids it saw
    xy : mapping from round to (n, 2) positions in metres
    """

    attack: str
    clients: Mapping[int, tuple[ClientId, ...]]
    xy: Mapping[int, NDArray[np.float64]] = field(repr=False)

    def errors(self, true_xy: Mapping[ClientId, NDArray[np.float64]]) -> dict[int, NDArray]:
        """Distance from the truth of every estimate, in metres, by round."""
        return {
            number: np.linalg.norm(
                self.xy[number] - np.array([true_xy[client] for client in clients]), axis=1
            )
            for number, clients in self.clients.items()
        }
