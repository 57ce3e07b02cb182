"""A round over a divided area: one sum for each tile, and one gradient of the whole map."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from veilmap.federation.messages import Broadcast, ClientId
from veilmap.geometry.tiling import Tiles
from veilmap.privacy.mechanisms import Mechanism
from veilmap.privacy.mechanisms.sums import RunningSum


@dataclass
class TiledSum:
    """The sums of a round's tiles; each opens by itself, once enough of its users answered.

    Parameters
    ----------
    broadcast : Broadcast
        What the users answer; its cohort is that of all tiles together.
    tiles : Tiles
    tile_of : (N,) int
        What each user says of its place.
    cohorts, least_answers : (T,) int
        How many users of each tile were asked, and how many answers its sum needs.
    """

    broadcast: Broadcast
    tiles: Tiles
    tile_of: NDArray[np.int64]
    cohorts: NDArray[np.int64]
    least_answers: NDArray[np.int64]
    refused: dict[ClientId, str] = field(default_factory=dict, init=False)
    _answered: list[ClientId] = field(default_factory=list, init=False)
    _tiles_answered: NDArray[np.int64] = field(init=False)
    _running: RunningSum | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._tiles_answered = np.empty(0, dtype=np.int64)

    def take(
        self, clients: Sequence[ClientId], answers: NDArray[np.bool_], running: RunningSum
    ) -> None:
        """Take in those users who answered, added up where they are."""
        self._answered, self._tiles_answered = list(clients), self.tile_of[answers]
        self._running = running

    @property
    def _came(self) -> NDArray[np.int64]:
        """How many answered, (T,)."""
        return np.bincount(self._tiles_answered, minlength=len(self.tiles))

    @property
    def _open(self) -> NDArray[np.bool_]:
        """Which tiles' sums may be seen, (T,)."""
        return (self._came > 0) & (self._came >= self.least_answers)

    @property
    def opens(self) -> bool:
        """Whether any sum may be seen."""
        return bool(self._open.any())

    @property
    def clients(self) -> list[ClientId]:
        """The users in sums that open."""
        among = self._open[self._tiles_answered]
        return [client for client, taken in zip(self._answered, among, strict=True) if taken]

    @property
    def links(self) -> int:
        """The weight of all sums that open."""
        return 0 if self._running is None else int(self._running.weights[self._open].sum())

    @property
    def why_shut(self) -> str:
        """Which tiles are not seen, and why."""
        shut = np.flatnonzero((self.cohorts > 0) & ~self._open)
        came, least = self._came, self.least_answers
        return "; ".join(
            f"tile {tile} stays shut: {came[tile]} of the {least[tile]} answers it needs came"
            for tile in shut
        )

    def unseal(self) -> None:
        """Nothing is masked here."""

    def means(self, mechanism: Mechanism) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The mean gradients over all users whose sums open, of the whole map."""
        radio_map = self.broadcast.radio_map
        heights, theta = np.zeros(radio_map.grid.shape), np.zeros(len(radio_map.theta))
        assert self._running is not None  # somebody has answered
        for tile in np.flatnonzero(self._open).tolist():
            weight = int(self._running.weights[tile])
            by_cells, by_theta = mechanism.read(
                *self._running.total(tile), weight, radio_map.propagation.laws
            )
            self.tiles.add_window(tile, weight / self.links * by_cells, heights)
            theta += weight / self.links * by_theta
        return heights.ravel(), theta

    def upload_bytes(self, mechanism: Mechanism) -> int:
        """What those whose sums open sent: each as much as its tile's window."""
        parameters = len(self.broadcast.radio_map.theta)
        sizes = [mechanism.upload_bytes(int(cells), parameters) for cells in self.tiles.cells]
        return int((self._came * self._open) @ np.array(sizes))
