"""What a radio map says about every place on the ground."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilmap import _checks
from veilmap.antennas import Antennas
from veilmap.errors import VeilmapError
from veilmap.geometry import Grid
from veilmap.layers.layer import Layer, Values
from veilmap.radiomap import RadioMap


def gain(
    radio_map: RadioMap,
    bs_xyz: ArrayLike,
    altitude: float = 1.5,
    *,
    azimuth: float | None = None,
    beam_width: float | None = None,
) -> Layer:
    """Gain from one base station to every cell's centre, in dB.

    Its antenna looks to ``azimuth``, in degrees clockwise from north, with a beam of
    ``beam_width`` degrees (65 by default); without an azimuth it is isotropic, whatever
    antennas the map knows.
    """
    bs, altitude, grid = station(bs_xyz), _checks.number("altitude", altitude), radio_map.grid
    antennas, known = None, {"base_station_m": bs.tolist()}
    if azimuth is not None:
        given = () if beam_width is None else (_checks.number("beam_width", beam_width),)
        antennas = Antennas(("0",), (_checks.number("azimuth", azimuth),), given)
        known |= {"azimuth_deg": antennas.azimuths[0], "beam_width_deg": antennas.beam_widths[0]}
    elif beam_width is not None:
        raise VeilmapError("a beam of some width looks somewhere: name its azimuth")

    def exact(places: Values) -> Values:
        return _gain_from(radio_map, 0, bs, antennas, places)

    return Layer(
        "gain", exact(centres(grid, altitude)).reshape(grid.shape), "dB",
        "gain from the base station", grid, altitude, known, exact=exact,
    )  # fmt: skip


def los_probability(radio_map: RadioMap, bs_xyz: ArrayLike, altitude: float = 1.5) -> Layer:
    """S, from 0 (blocked) to 1 (clear), of the link from one base station to every cell."""
    bs, altitude = station(bs_xyz), _checks.number("altitude", altitude)
    places = centres(radio_map.grid, altitude)
    return Layer(
        "los", radio_map.los_weight(places, bs).reshape(radio_map.grid.shape), "1",
        "probability of line of sight to the base station", radio_map.grid, altitude,
        {"base_station_m": bs.tolist()}, exact=lambda places: radio_map.los_weight(places, bs),
    )  # fmt: skip


def best_server(
    radio_map: RadioMap,
    stations: ArrayLike,
    altitude: float = 1.5,
    *,
    azimuths: ArrayLike | None = None,
    beam_widths: ArrayLike | None = None,
) -> tuple[Layer, Layer]:
    """Which of ``stations``, (B, 3), every place hears best, and with which gain.

    Stations count from 0; of equal ones the first is taken. ``azimuths`` and ``beam_widths``,
    (B,), are those of `gain`, NaN where a station is isotropic or its beam 65° wide; without
    them all are isotropic, whatever antennas the map knows.
    """
    places_of = _checks.points("stations", stations)
    if places_of.ndim != 2 or len(places_of) == 0:
        raise VeilmapError(f"stations must have shape (B, 3), not {places_of.shape}")
    altitude, grid = _checks.number("altitude", altitude), radio_map.grid
    antennas, known = None, {"base_stations_m": places_of.ravel().tolist()}
    if azimuths is not None:
        antennas = Antennas.where_known(np.arange(len(places_of)), azimuths, beam_widths)
        known["azimuths_deg"] = np.ravel(azimuths).tolist()
    elif beam_widths is not None:
        raise VeilmapError("beams of some width look somewhere: name their azimuths")
    server, best = _best(radio_map, places_of, antennas, centres(grid, altitude))
    return (
        Layer(
            "best_server", server.reshape(grid.shape), "1",
            "number of the base station with the highest gain, from 0", grid, altitude, known,
            categories=True, exact=lambda places: _best(radio_map, places_of, antennas, places)[0],
        ),
        Layer(
            "best_gain", best.reshape(grid.shape), "dB",
            "gain from the base station with the highest gain", grid, altitude, known,
            exact=lambda places: _best(radio_map, places_of, antennas, places)[1],
        ),
    )  # fmt: skip


def obstacle_heights(radio_map: RadioMap) -> Layer:
    """Height of the virtual obstacles, in metres."""
    return Layer(
        "heights", radio_map.heights, "m", "height of virtual obstacles above ground",
        radio_map.grid,
    )  # fmt: skip


def station(bs_xyz: ArrayLike) -> NDArray[np.float64]:
    """One base station's position, checked."""
    bs = _checks.points("bs_xyz", bs_xyz)
    if bs.shape != (3,):
        raise VeilmapError(f"one base station is needed: bs_xyz of shape (3,), not {bs.shape}")
    return bs


def centres(grid: Grid, altitude: float) -> NDArray[np.float64]:
    """Every cell's centre, ``altitude`` metres above ground, (M, 3)."""
    return np.column_stack([grid.centres, np.full(grid.cells, altitude)])


def _gain_from(
    radio_map: RadioMap, number: int, bs: Values, antennas: Antennas | None, places: Values
) -> Values:
    """Gain at each place from a station; ``antennas`` know stations by their numbers."""
    gains = radio_map.predict(places, bs)
    if antennas is None:
        return gains
    return gains + antennas.of(np.full(len(places), number), places, bs)


def _best(
    radio_map: RadioMap, stations: Values, antennas: Antennas | None, places: Values
) -> tuple[Values, Values]:
    """The best station's number and gain at each place, one station in memory at a time."""
    best = _gain_from(radio_map, 0, stations[0], antennas, places)
    server = np.zeros(len(places))
    for number, bs in enumerate(stations[1:], start=1):
        found = _gain_from(radio_map, number, bs, antennas, places)
        better = found > best
        server[better], best[better] = number, found[better]
    return server, best
