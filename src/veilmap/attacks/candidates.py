"""Places where a user might be, and what a user there would upload."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from veilmap._kernels import rows as row_kernels
from veilmap._kernels import templates as kernels
from veilmap._kernels.arguments import Expected, Sites, SparseRows
from veilmap._util.arrays import Array, Floats, Ints
from veilmap._util.threads import even_groups, even_parts, run_parts
from veilmap.errors import ConfigurationError
from veilmap.federation.transcript import Transcript
from veilmap.geometry.grid import Grid, offsets_of
from veilmap.model.radio_map import RadioMap

if TYPE_CHECKING:
    from scipy.sparse import csr_array

# More candidates or stations than this cost time and tell an attacker little more.
_MOST_PLACES = 10_000
_MOST_STATIONS = 500
_TEMPLATE_BYTES = 64e6  # of the templates that are in memory at a time
_BLOCK_SIDE = 5  # cells
# Of a template's largest entry: smaller ones are not remembered. Even 10,000 of them together
# hold at most a ten-thousandth of its energy.
_FAINT = 1e-4


@dataclass(frozen=True)
class Candidates:
    """A grid of places, and the gains to the public base stations expected there.

    The places are the centres of ``grid``, by default as fine as the map up to 10,000 of them;
    ``stations`` (B, 3) are all public base stations, or every k-th of very many, and ``bs`` their
    ids, where maps have offsets for them. Which kind of device a user has is not known: devices
    are taken to be calibrated. ``best_map`` is the server's best knowledge of the city, which says
    what users there measure; ``remembered`` a broadcast and what answers it, see `answering`.
    """

    grid: Grid
    altitude: float
    stations: Floats = field(repr=False)
    best_map: RadioMap = field(repr=False)
    bs: Array | None = field(default=None, repr=False)
    remembered: "tuple[RadioMap, Templates] | None" = field(default=None, repr=False)

    @classmethod
    def of(cls, transcript: Transcript, altitude: float, most: int = _MOST_PLACES) -> "Candidates":
        """The candidates that a transcript's public facts give, ``most`` at most."""
        if len(transcript.base_stations) == 0:
            raise ConfigurationError(
                "this run does not say where base stations are, and attacks that compare places"
                " need to know: give them to train (stations), or the truth as Measurements",
                "stations",
            )
        every = -(-len(transcript.base_stations) // _MOST_STATIONS)
        stations = np.ascontiguousarray(transcript.base_stations[::every])
        bs = None if transcript.bs is None else transcript.bs[::every]
        return cls(coarser(transcript.grid, most), altitude, stations, transcript.best_map, bs)

    def answering(self, broadcast: RadioMap) -> "Candidates":
        """The same candidates with their templates of one broadcast, made once and kept sparse.

        A gradient is large in few cells: of the 10,000 × 10,000 entries on the paper's grid one
        to four in a hundred are kept, and comparing an upload with all places takes
        milliseconds rather than seconds.
        """
        made = replace(self, remembered=(broadcast, _sparse(self.templates(broadcast))))
        vars(made)["gains_at_centres"] = self.gains_at_centres  # the same for every broadcast
        return made

    def remembers(self, broadcast: RadioMap) -> bool:
        """Whether the templates of a broadcast are kept."""
        return self.remembered is not None and self.remembered[0] is broadcast

    def places(self, xy: Floats) -> Floats:
        """Points on the ground lifted to the users' altitude, (n, 3)."""
        return np.column_stack([xy, np.full(len(xy), self.altitude)])

    def gains(self, places: Floats) -> Floats:
        """Expected gain from every place to every station, (n, B), in dB."""
        ends = np.repeat(places, len(self.stations), axis=0)
        stations = np.tile(self.stations, (len(places), 1))
        predicted = self.best_map.predict(ends, stations).reshape(len(places), -1)
        return predicted + self._offsets(self.best_map)

    def less_offsets(self, gains: Floats, broadcast: RadioMap) -> Floats:
        """What clients leave of ``gains`` for a broadcast's laws to explain."""
        return gains - self._offsets(broadcast)

    def _offsets(self, radio_map: RadioMap) -> Floats | float:
        """What a map has learned of the stations' offsets, (B,), in dB; 0 without any."""
        if self.bs is None or not radio_map.offsets.stations:
            return 0.0
        return radio_map.offsets.of(self.bs)

    @cached_property
    def gains_at_centres(self) -> Floats:
        """`gains` of all candidates, (K, B)."""
        return self.gains(self.places(self.grid.centres))

    def sites(self, broadcast: RadioMap) -> Sites:
        """All candidates with what their gains leave for a broadcast's laws to explain."""
        gains = self.less_offsets(self.gains_at_centres, broadcast)
        return Sites(places=self.places(self.grid.centres), stations=self.stations, gains=gains)

    def templates(self, broadcast: RadioMap) -> "Iterator[Templates]":
        """What users at all candidates would upload in answer to a broadcast, some at a time."""
        if self.remembered is not None and self.remembers(broadcast):
            yield self.remembered[1]
            return
        places, stations, gains = self.sites(broadcast)
        size = max(1, int(_TEMPLATE_BYTES / (8 * broadcast.grid.cells)))
        for first in range(0, len(places), size):
            own = slice(first, min(first + size, len(places)))
            yield expected_gradients(broadcast, places[own], stations, gains[own], first)


@dataclass(frozen=True)
class Templates:
    """Expected gradients of some candidates; real ones are near a mix of both kinds."""

    own: slice  # which candidates
    expected: NDArray[np.float32]  # (k, M): the gradient if the best map is right,
    shifted: NDArray[np.float32]  # and what it adds if all gains are 1 dB higher
    products: NDArray[np.float32]  # (k, 3, blocks): sums of expected², shifted², and of both's

    @staticmethod
    def along(kept: NDArray[np.float32], rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """Products of rows (n, M) with ``expected`` or ``shifted``, (n, k)."""
        return rows @ kept.T


@dataclass(frozen=True)
class _SparseTemplates(Templates):
    """Templates whose large entries alone are kept, as compressed rows."""

    @staticmethod
    def along(kept: "csr_array", rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """Products of rows (n, M) with ``expected`` or ``shifted``, (n, k)."""
        result = np.empty((len(rows), kept.shape[0]), dtype=np.float32)
        entries = SparseRows(offsets=kept.indptr, columns=kept.indices, values=kept.data)

        def part(start: int, stop: int) -> None:
            row_kernels.products(start=start, stop=stop, sparse=entries, rows=rows, out=result)

        run_parts(part, even_groups(kept.indptr))
        return result


def expected_gradients(
    broadcast: RadioMap, places: Floats, stations: Floats, gains: Floats, first: int = 0
) -> Templates:
    """What users at ``places``, the candidates from ``first`` on, would upload before clipping.

    ``gains`` (n, B) is what they measure less the offsets of the broadcast.
    """
    grid, count = broadcast.grid, len(places)
    block_of = block_of_cell(grid)
    expected, shifted = np.empty((2, count, grid.cells), dtype=np.float32)
    products = np.empty((count, 3, block_of[-1] + 1), dtype=np.float32)
    sites = Sites(places=places, stations=stations, gains=gains)
    out = Expected(expected=expected, shifted=shifted, products=products)

    def part(start: int, stop: int) -> None:
        kernels.expected_gradients(
            start=start, stop=stop, sites=sites, model=broadcast.kernel_model,
            block_of=block_of, out=out,
        )  # fmt: skip

    run_parts(part, even_parts(count))
    return Templates(slice(first, first + count), expected, shifted, products)


def block_of_cell(grid: Grid) -> Ints:
    """The block of five by five cells of every cell, (M,): noise hardly changes within one."""
    rows, columns = (np.arange(n) // _BLOCK_SIDE for n in grid.shape)
    return (rows[:, None] * (columns[-1] + 1) + columns).ravel()


def _sparse(blocks: Iterable[Templates]) -> Templates:
    """All blocks in one, without entries that do not count."""
    from scipy.sparse import vstack

    kept = [(_without_faint(b.expected), _without_faint(b.shifted), b.products) for b in blocks]
    expected, shifted, products = zip(*kept, strict=True)
    together = np.concatenate(products)
    own = slice(0, len(together))
    return _SparseTemplates(own, vstack(expected, "csr"), vstack(shifted, "csr"), together)


def _without_faint(dense: NDArray[np.float32]) -> "csr_array":
    from scipy.sparse import csr_array

    counts = np.empty(len(dense), dtype=np.int64)
    parts = even_parts(len(dense))

    def measure(start: int, stop: int) -> None:
        row_kernels.count_large(start=start, stop=stop, rows=dense, share=_FAINT, counts=counts)

    def take(start: int, stop: int) -> None:
        row_kernels.take_large(start=start, stop=stop, rows=dense, share=_FAINT, out=large)

    run_parts(measure, parts)
    offsets = offsets_of(counts)
    columns, values = np.empty(offsets[-1], dtype=np.int32), np.empty(offsets[-1], np.float32)
    large = SparseRows(offsets=offsets, columns=columns, values=values)
    run_parts(take, parts)
    return csr_array((values, columns, offsets), shape=dense.shape)


def coarser(grid: Grid, most: int) -> Grid:
    """The grid, or one over the same ground whose larger cells are at most so many."""
    rows, columns = grid.shape
    times = next(n for n in count(1) if -(-rows // n) * -(-columns // n) <= most)
    shape = -(-rows // times), -(-columns // times)
    return grid if times == 1 else Grid(grid.cell_size * times, shape, grid.origin, grid.crs)
