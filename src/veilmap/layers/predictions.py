"""What a radio map says about every place on the ground."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilmap import _checks
from veilmap.errors import VeilmapError
from veilmap.geometry import Grid
from veilmap.layers.layer import Layer, Values
from veilmap.radiomap import RadioMap


def gain(radio_map: RadioMap, bs_xyz: ArrayLike, altitude: float = 1.5) -> Layer:
    """Gain from one base station to every cell's centre, in dB."""
    bs, altitude = station(bs_xyz), _checks.number("altitude", altitude)
    return Layer(
        "gain", radio_map.predict_area(bs, altitude=altitude), "dB",
        "gain from the base station", radio_map.grid, altitude, {"base_station_m": bs.tolist()},
        exact=lambda places: radio_map.predict(places, bs),
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
    radio_map: RadioMap, stations: ArrayLike, altitude: float = 1.5
) -> tuple[Layer, Layer]:
    """Which of ``stations``, (B, 3), every place hears best, and with which gain.

    Stations count from 0; of equal ones the first is taken.
    """
    places_of = _checks.points("stations", stations)
    if places_of.ndim != 2 or len(places_of) == 0:
        raise VeilmapError(f"stations must have shape (B, 3), not {places_of.shape}")
    altitude, grid = _checks.number("altitude", altitude), radio_map.grid
    server, best = _best(radio_map, places_of, centres(grid, altitude))
    known = {"base_stations_m": places_of.ravel().tolist()}
    return (
        Layer(
            "best_server", server.reshape(grid.shape), "1",
            "number of the base station with the highest gain, from 0", grid, altitude, known,
            categories=True, exact=lambda places: _best(radio_map, places_of, places)[0],
        ),
        Layer(
            "best_gain", best.reshape(grid.shape), "dB",
            "gain from the base station with the highest gain", grid, altitude, known,
            exact=lambda places: _best(radio_map, places_of, places)[1],
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


def _best(radio_map: RadioMap, stations: Values, places: Values) -> tuple[Values, Values]:
    """The best station's number and gain at each place, one station in memory at a time."""
    best = radio_map.predict(places, stations[0])
    server = np.zeros(len(places))
    for number, bs in enumerate(stations[1:], start=1):
        found = radio_map.predict(places, bs)
        better = found > best
        server[better], best[better] = number, found[better]
    return server, best
