"""What travels between the server and its clients: these two messages, nothing else."""

from dataclasses import dataclass, field

from numpy.typing import NDArray

from veilmap.radiomap import RadioMap

ClientId = int | str


@dataclass(frozen=True)
class Broadcast:
    """Server to clients: the map as it is before round ``round`` (from 0).

    ``cohort`` is how many users are asked: their shares of noise depend on it.
    """

    round: int
    radio_map: RadioMap = field(repr=False)
    cohort: int = 1


@dataclass(frozen=True)
class Update:
    """Client to server: one user's protected gradients.

    Attributes
    ----------
    client : int or str
    round : int
        The broadcast it answers.
    links : int
        Its weight in the mean: J_i, or 1 where the mechanism keeps that to itself.
    heights : (M,)
        g̃: what the mechanism made of ∂F_i/∂h.
    propagation : (P,)
        What it made of ∂F_i/∂θ; the paper's leave it as it is.
    """

    client: ClientId
    round: int
    links: int
    heights: NDArray = field(repr=False)
    propagation: NDArray = field(repr=False)
