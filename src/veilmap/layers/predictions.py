"""What a radio map says about every place on the ground."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from veilmap._util import checks
from veilmap._util.arrays import Array, Floats, Ints
from veilmap._util.ids import Id
from veilmap.data.antennas import Antennas
from veilmap.errors import ConfigurationError
from veilmap.geometry.grid import Grid
from veilmap.layers.layer import Attribute, Layer, centres
from veilmap.model.radio_map import RadioMap

if TYPE_CHECKING:
    from scipy.spatial import cKDTree

_IDS_SHOWN = 5
_PLACES_PER_BLOCK = 50_000
_FIRST_ASKED = 16  # stations that a tree names at once; then four times as many
_ROUNDING_DB = 1e-6


def gain(
    radio_map: RadioMap,
    bs_xyz: ArrayLike,
    altitude: float = 1.5,
    *,
    station: Id | None = None,
    azimuth: float | None = None,
    beam_width: float | None = None,
    grid: Grid | None = None,
) -> Layer:
    """Gain from one base station to every cell's centre, in dB.

    ``altitude`` is that of receivers above ground; positions are in metres.

    Parameters
    ----------
    station : id, optional
        Which it is: with the offset, pattern and field that the map has for it, as calibrated
        devices read it. Without an id it is isotropic and without an offset, whatever the map
        knows.
    azimuth, beam_width : float, optional
        Of another antenna than the map's, in degrees: where it looks, clockwise from north, and
        how wide (65 by default).
    grid : Grid, optional
        Other cells than the map's, such as larger ones.
    """
    bs, altitude = place_of(bs_xyz), checks.number("altitude", altitude)
    whose, antennas = "the base station", None
    known: dict[str, Attribute] = {"base_station_m": bs.tolist()}
    if station is not None:
        if azimuth is not None or beam_width is not None:
            raise ConfigurationError(
                "a station is known by its id or has another antenna, not both"
            )
        known |= facts(radio_map, station)
        whose = f"base station {station}"
    elif azimuth is not None:
        given = () if beam_width is None else (checks.number("beam_width", beam_width),)
        antennas = Antennas(("0",), (checks.number("azimuth", azimuth),), given)
        known |= {"azimuth_deg": antennas.azimuths[0], "beam_width_deg": antennas.beam_widths[0]}
    elif beam_width is not None:
        raise ConfigurationError("a beam of some width looks somewhere: name its azimuth")

    def exact(places: Floats) -> Floats:
        gains = radio_map.predict(places, bs, station=station)
        if antennas is None:
            return gains
        return gains + antennas.of(np.zeros(len(places), dtype=np.int64), places, bs)

    about = f"gain from {whose}"
    return Layer.of("gain", exact, "dB", about, grid or radio_map.grid, altitude, known)


def los_probability(
    radio_map: RadioMap,
    bs_xyz: ArrayLike,
    altitude: float = 1.5,
    *,
    station: Id | None = None,
    grid: Grid | None = None,
) -> Layer:
    """S, from 0 (blocked) to 1 (clear), of the link from one base station to every cell.

    ``station`` is its id, for the metadata: S depends on the place alone. ``grid`` as in `gain`.
    """
    bs, altitude = place_of(bs_xyz), checks.number("altitude", altitude)
    known = place_and_name(bs, station, radio_map)
    whose = "the base station" if station is None else f"base station {station}"
    exact = partial(radio_map.los_weight, bs_xyz=bs)
    about = f"probability of line of sight to {whose}"
    return Layer.of("los", exact, "1", about, grid or radio_map.grid, altitude, known)


def best_server(
    radio_map: RadioMap,
    stations: ArrayLike,
    altitude: float = 1.5,
    *,
    ids: Sequence[Id] | None = None,
    azimuths: ArrayLike | None = None,
    beam_widths: ArrayLike | None = None,
    grid: Grid | None = None,
) -> tuple[Layer, Layer]:
    """Which of ``stations``, (B, 3), every place hears best, and with which gain.

    Stations count from 0; of equal ones the first is taken. ``ids`` say which they are: each as
    the map knows it, as in `gain`. Else ``azimuths`` and ``beam_widths``, (B,), are those of
    `gain`, NaN where a station is isotropic or its beam 65° wide; without them all are isotropic,
    whatever the map knows. ``grid`` as in `gain`.
    """
    places_of = checks.points("stations", stations)
    if places_of.ndim != 2 or len(places_of) == 0:
        raise ConfigurationError(f"stations must have shape (B, 3), not {places_of.shape}")
    altitude, grid = checks.number("altitude", altitude), grid or radio_map.grid
    antennas = None
    known: dict[str, Attribute] = {"base_stations_m": places_of.ravel().tolist()}
    if ids is not None:
        if azimuths is not None or beam_widths is not None:
            raise ConfigurationError(
                "stations are known by their ids or have other antennas, not both"
            )
        if len(ids) != len(places_of):
            raise ConfigurationError(f"{len(places_of)} base stations have {len(ids)} ids")
        known["base_stations"] = ", ".join(station_name(station, radio_map) for station in ids)
    elif azimuths is not None:
        antennas = Antennas.where_known(np.arange(len(places_of)), azimuths, beam_widths)
        known["azimuths_deg"] = np.ravel(azimuths).tolist()
    elif beam_widths is not None:
        raise ConfigurationError("beams of some width look somewhere: name their azimuths")

    servers = Servers(radio_map, places_of, ids, antennas)
    found = servers.best(centres(grid, altitude))
    server, gains = (values.reshape(grid.shape) for values in found)
    number = "number of the base station with the highest gain, from 0"
    best = "gain from the base station with the highest gain"
    of_number, of_gain = (lambda xyz: servers.best(xyz)[0]), (lambda xyz: servers.best(xyz)[1])
    return (
        Layer("best_server", server, "1", number, grid, altitude, known, True, of_number),
        Layer("best_gain", gains, "dB", best, grid, altitude, known, False, of_gain),
    )


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
                hopeful = hopeful[self._most(apart[hopeful, rank]) >= gain[rows[hopeful]]]
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


class _Links(NamedTuple):
    """Links of calibrated devices."""

    user_xyz: Floats
    bs_xyz: Floats
    bs: Array | None
    device: None = None


def obstacle_heights(radio_map: RadioMap) -> Layer:
    """Height of the virtual obstacles, in metres."""
    about = "height of virtual obstacles above ground"
    return Layer("heights", radio_map.heights, "m", about, radio_map.grid)


def place_of(bs_xyz: ArrayLike) -> Floats:
    """One base station's position, checked."""
    bs = checks.points("bs_xyz", bs_xyz)
    if bs.shape != (3,):
        raise ConfigurationError(
            f"one base station is needed: bs_xyz of shape (3,), not {bs.shape}"
        )
    return bs


def place_and_name(bs: Floats, station: Id | None, *radio_maps: RadioMap) -> dict[str, Attribute]:
    """What a layer of one base station says of it."""
    known: dict[str, Attribute] = {"base_station_m": bs.tolist()}
    if station is not None:
        known["base_station"] = station_name(station, *radio_maps)
    return known


def station_name(station: Id, *radio_maps: RadioMap) -> str:
    """``station`` as text, unless the maps list their base stations and this is none of them.

    A map without offsets and fields has no such list: there any id may be one.
    """
    trained: set[str] = set()
    for radio_map in radio_maps:
        trained |= {*map(str, radio_map.offsets.stations)}
        if radio_map.field is not None:
            trained |= {*map(str, radio_map.field.ids)}
    if trained and str(station) not in trained:
        raise ConfigurationError(
            f"the map knows no base station {station}; {such_as(sorted(trained))}"
        )
    return str(station)


def such_as(ids: list[str]) -> str:
    """Some of the ids, for a message."""
    more = f" and {len(ids) - _IDS_SHOWN:,} more" if len(ids) > _IDS_SHOWN else ""
    return f"there are {', '.join(ids[:_IDS_SHOWN])}{more}"


def facts(radio_map: RadioMap, station: Id) -> dict[str, Attribute]:
    """What the values of its layers depend on, for their metadata."""
    name = station_name(station, radio_map)
    known: dict[str, Attribute] = {"base_station": name}
    offsets, antennas = radio_map.offsets, radio_map.antennas
    stations = [*map(str, offsets.stations)]
    if name in stations:
        known["offset_db"] = offsets.values[stations.index(name)]
    if antennas is not None and name in antennas.stations:
        number = antennas.stations.index(name)
        known["azimuth_deg"] = antennas.azimuths[number]
        known["beam_width_deg"] = antennas.beam_widths[number]
    return known
