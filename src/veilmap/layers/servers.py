"""Which base station every place hears best, without asking all of them everywhere."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from veilmap._util.arrays import Array, Floats, Ints
from veilmap._util.ids import Id
from veilmap.data.antennas import Antennas
from veilmap.model.radio_map import RadioMap

if TYPE_CHECKING:
    from scipy.spatial import cKDTree

_PLACES_PER_BLOCK = 50_000
_FIRST_ASKED = 16  # stations that a tree names at once; then four times as many
_ROUNDING_DB = 1e-6


@dataclass(frozen=True)
class Servers:
    """Base stations that compete.

    Nothing is stronger at a distance than the strongest of the laws. So each place asks its
    nearest station, the next one and so on, until the rest is too far away to be heard better.

    They are at ``places``, (B, 3), and have ``ids`` if the map knows them; ``antennas`` are others
    than the map's, by the stations' numbers.
    """

    radio_map: RadioMap
    places: Floats
    ids: Sequence[Id] | None = None
    antennas: Antennas | None = None

    def best(self, xyz: Floats) -> tuple[Floats, Floats]:
        """The best station's number and gain at each place; of equal ones the first."""
        server, gain = np.zeros(len(xyz)), np.full(len(xyz), -np.inf)
        for first in range(0, len(xyz), _PLACES_PER_BLOCK):
            own = slice(first, first + _PLACES_PER_BLOCK)
            self._near_to_far(xyz[own], server[own], gain[own])
        return server, gain

    def best_number(self, xyz: Floats) -> Floats:
        """The best station's number at each place."""
        return self.best(xyz)[0]

    def best_gain(self, xyz: Floats) -> Floats:
        """The best station's gain at each place, in dB."""
        return self.best(xyz)[1]

    @cached_property
    def _laws(self) -> Floats:
        """Intercepts and slopes, (2, k)."""
        return self.radio_map.propagation.as_array().reshape(-1, 2).T

    @cached_property
    def _tree(self) -> "cKDTree":
        from scipy.spatial import cKDTree

        return cKDTree(self.places)

    def _near_to_far(self, xyz: Floats, server: Floats, gain: Floats) -> None:
        """Ask stations from the nearest to the last one that might be heard better."""
        rows, asked, stations = np.arange(len(xyz)), 0, len(self.places)
        while len(rows) and asked < stations:
            until = min(max(_FIRST_ASKED, 4 * asked), stations)
            ranks = list(range(asked + 1, until + 1))
            apart, numbers = self._tree.query(xyz[rows], k=ranks)
            hopeful = np.arange(len(rows))
            for rank in range(len(ranks)):
                most = self._most(apart[hopeful, rank])
                hopeful = hopeful[most >= gain[rows[hopeful]]]
                if len(hopeful) == 0:
                    break
                self._ask(xyz, rows[hopeful], numbers[hopeful, rank], server, gain)
            rows, asked = rows[hopeful], until

    def _most(self, apart: Floats) -> Floats:
        """No station so far away is heard better than this, in dB."""
        intercepts, slopes = self._laws
        if self.radio_map.field is not None or (slopes > 0).any():
            return np.full(len(apart), np.inf)  # distance rules nothing out
        log_d = np.log10(np.maximum(apart, 1.0))  # as the model counts links under a metre
        laws = intercepts[:, None] + slopes[:, None] * log_d
        most: Floats = laws.max(axis=0) + max((0.0, *self.radio_map.offsets.values)) + _ROUNDING_DB
        return most

    def _ask(self, xyz: Floats, rows: Ints, numbers: Ints, server: Floats, gain: Floats) -> None:
        """One station at each of some places: it takes those where it is heard better."""
        names = None if self.ids is None else np.array(self.ids)[numbers]
        links = _Links(xyz[rows], self.places[numbers], names)
        found = self.radio_map.predict_links(links)
        if self.antennas is not None:
            found = found + self.antennas.of(numbers, links.user_xyz, links.bs_xyz)
        before, best = server[rows], gain[rows]
        better = (found > best) | ((found == best) & (numbers < before))
        server[rows[better]], gain[rows[better]] = numbers[better], found[better]


@dataclass(frozen=True)
class _Links:
    """Links of calibrated devices."""

    user_xyz: Floats
    bs_xyz: Floats
    bs: Array | None
    device: None = None
