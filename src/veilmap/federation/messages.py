"""What travels between the server and its clients: these two messages, nothing else."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from veilmap.radiomap import RadioMap

ClientId = int | str


@dataclass(frozen=True)
class Broadcast:
    """Server to clients: the map as it is before round ``round`` (from 0)."""

    round: int
    radio_map: RadioMap = field(repr=False)


@dataclass(frozen=True)
class Update:
    """Client to server: one user's protected gradients.

    Attributes
    ----------
    client : int or str
    round : int
        The broadcast it answers.
    links : int
        J_i: how many measurements stand behind it, its weight in the mean.
    heights : (M,) float
        g̃: what the mechanism made of ∂F_i/∂h.
    propagation : (4,) float
        ∂F_i/∂θ, as it is: the paper protects only h.
    """

    client: ClientId
    round: int
    links: int
    heights: NDArray[np.float64] = field(repr=False)
    propagation: NDArray[np.float64] = field(repr=False)
