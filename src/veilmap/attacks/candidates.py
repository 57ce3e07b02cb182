"""Places where a user might be, and what a user there would upload."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from veilmap._kernels import candidates as kernels
from veilmap._kernels.arguments import Expected, Sites
from veilmap._util.threads import even_parts, run_parts
from veilmap.attacks.blocks import Blocks
from veilmap.errors import ConfigurationError
from veilmap.federation.transcript import Transcript
from veilmap.geometry.grid import Grid
from veilmap.model.radio_map import RadioMap

# More candidates or stations than this cost time and tell an attacker little more.
_MOST_PLACES = 10_000
_MOST_STATIONS = 500
_BLOCK_BYTES = 64e6


@dataclass(frozen=True)
class Candidates:
    """A grid of places, and the gains to the public base stations expected there.

    Attributes
    ----------
    grid : Grid
        Its cells' centres are the places; as fine as the map where that is at most 10,000.
    altitude : float
        Of users above ground, in metres.
    stations : (B, 3) float
        All public base stations, or every k-th of very many.
    best_map : RadioMap
        The server's best knowledge of the city, which says what users there measure.
    bs : (B,) ids, optional
        Of the stations, where maps have offsets for them. Which kind of device a user has is
        not known: devices are taken to be calibrated.
    """

    grid: Grid
    altitude: float
    stations: NDArray[np.float64] = field(repr=False)
    best_map: RadioMap = field(repr=False)
    bs: NDArray | None = field(default=None, repr=False)

    @classmethod
    def of(cls, transcript: Transcript, altitude: float) -> "Candidates":
        """The candidates that a transcript's public facts give."""
        if len(transcript.base_stations) == 0:
            raise ConfigurationError(
                "this run does not say where base stations are, and attacks that compare places"
                " need to know: give them to train (stations), or the truth as Measurements"
            )
        every = -(-len(transcript.base_stations) // _MOST_STATIONS)
        stations = np.ascontiguousarray(transcript.base_stations[::every])
        bs = None if transcript.bs is None else transcript.bs[::every]
        return cls(_coarse(transcript.grid), altitude, stations, transcript.best_map, bs)

    def places(self, xy: NDArray[np.float64]) -> NDArray[np.float64]:
        """Points on the ground lifted to the users' altitude, (n, 3)."""
        return np.column_stack([xy, np.full(len(xy), self.altitude)])

    def gains(self, places: NDArray[np.float64]) -> NDArray[np.float64]:
        """Expected gain from every place to every station, (n, B), in dB."""
        ends = np.repeat(places, len(self.stations), axis=0)
        stations = np.tile(self.stations, (len(places), 1))
        predicted = self.best_map.predict(ends, stations).reshape(len(places), -1)
        own = self._offsets(self.best_map)
        return predicted if own is None else predicted + own

    def less_offsets(self, gains: NDArray[np.float64], broadcast: RadioMap) -> NDArray[np.float64]:
        """What clients leave of ``gains`` for a broadcast's laws to explain."""
        own = self._offsets(broadcast)
        return gains if own is None else gains - own

    def _offsets(self, radio_map: RadioMap) -> NDArray[np.float64] | None:
        """What a map has learned of the stations' offsets, (B,), in dB."""
        if self.bs is None or not radio_map.offsets.stations:
            return None
        return radio_map.offsets.of(self.bs)

    @cached_property
    def gains_at_centres(self) -> NDArray[np.float64]:
        """`gains` of all candidates, (K, B)."""
        return self.gains(self.places(self.grid.centres))

    def templates(self, broadcast: RadioMap) -> "Iterator[Templates]":
        """What users at all candidates would upload in answer to a broadcast, some at a time.

        Each is overwritten by the next: memory stays bounded, and is paid for once.
        """
        places = self.places(self.grid.centres)
        size = max(1, int(_BLOCK_BYTES / (8 * broadcast.grid.cells)))
        room = Templates.room(min(size, len(places)), broadcast.grid)
        for first in range(0, len(places), size):
            own = slice(first, min(first + size, len(places)))
            gains = self.less_offsets(self.gains_at_centres[own], broadcast)
            yield expected_gradients(broadcast, places[own], self.stations, gains, room.part(own))


@dataclass(frozen=True)
class Templates:
    """Expected gradients of some candidates.

    Attributes
    ----------
    own : slice
        Which candidates.
    expected, shifted : (k, M) float32
        The gradient if the best map is right, and what it adds if all gains are 1 dB higher.
        Real gradients are near a mix of both.
    products : (k, 3, blocks) float32
        Sums of expected², shifted² and expected · shifted over `Blocks` of cells.
    """

    own: slice
    expected: NDArray[np.float32]
    shifted: NDArray[np.float32]
    products: NDArray[np.float32]

    @classmethod
    def room(cls, count: int, grid: Grid) -> "Templates":
        """Room for the templates of ``count`` candidates."""
        expected, shifted = np.empty((2, count, grid.cells), dtype=np.float32)
        products = np.empty((count, 3, Blocks(grid.shape).count), dtype=np.float32)
        return cls(slice(0, count), expected, shifted, products)

    def along_expected(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """Products of rows (n, M) with the expected gradients, (n, k)."""
        return rows @ self.expected.T

    def along_shifted(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """The same with what 1 dB adds to them."""
        return rows @ self.shifted.T

    def part(self, own: slice) -> "Templates":
        """The first rows of this room, for the candidates ``own``."""
        rows = slice(0, own.stop - own.start)
        return Templates(own, self.expected[rows], self.shifted[rows], self.products[rows])


def expected_gradients(
    broadcast: RadioMap,
    places: NDArray[np.float64],
    stations: NDArray[np.float64],
    gains: NDArray[np.float64],
    room: Templates | None = None,
) -> Templates:
    """What users at ``places`` would upload, before clipping.

    ``gains`` (n, B) is what they measure less the offsets of the broadcast.
    """
    made = room or Templates.room(len(places), broadcast.grid)
    block_of = Blocks(broadcast.grid.shape).of_cell
    sites = Sites(places=places, stations=stations, gains=gains)
    out = Expected(expected=made.expected, shifted=made.shifted, products=made.products)

    def part(start: int, stop: int) -> None:
        kernels.expected_gradients(
            start=start, stop=stop, sites=sites, model=broadcast.kernel_model,
            block_of=block_of, out=out,
        )  # fmt: skip

    run_parts(part, even_parts(len(places)))
    return made


def _coarse(grid: Grid) -> Grid:
    """The grid, or one over the same ground with cells so large that there are few enough."""
    times = 1
    while -(-grid.shape[0] // times) * -(-grid.shape[1] // times) > _MOST_PLACES:
        times += 1
    if times == 1:
        return grid
    rows, columns = (-(-n // times) for n in grid.shape)
    return Grid(grid.cell_size * times, (rows, columns), grid.origin, grid.crs)
