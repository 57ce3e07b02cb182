"""Both ends of every link, in metres."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from veilmap._util.arrays import Bools, Floats
from veilmap.data.antennas import BEAM_WIDTH_DEG
from veilmap.errors import ConfigurationError
from veilmap.ingest import positions
from veilmap.ingest.options import Options
from veilmap.ingest.positions import Place
from veilmap.ingest.results import Sieve, Stations
from veilmap.ingest.rows import Rows
from veilmap.ingest.stations import StationList
from veilmap.ingest.tables import about


@dataclass(frozen=True)
class Ends:
    """Both ends of every link, (J, 3) each; in ``degrees``, (J, 4), as far as the file had them."""

    crs: str | None
    user_xyz: Floats
    bs_xyz: Floats
    degrees: Floats | None
    stations: Stations | None
    notes: tuple[str, ...]


def ends_of_links(rows: Rows, listed: StationList | None, sieve: Sieve, options: Options) -> Ends:
    """Positions of both ends; links with an end that cannot be placed are left out."""
    path, user = rows.raw.path, rows.user.without(rows.user.off_earth() | rows.user.at_zero())
    bs = rows.bs if listed is None else listed.place
    assert bs is not None  # rows have positions of base stations where no list has
    with about(path):
        crs = positions.common_system(user, bs, options.crs)
    user_xyz, user_lost = _in_metres(user, crs, options.user_height, path)
    bs_xyz, bs_lost = _in_metres(bs, crs, options.bs_height, options.stations or path)
    degrees, bs_degrees = _degrees(user), _degrees(bs)
    far, stations = f"a position is too far off for {crs}", None
    sieve.take_out(far, user_lost)
    if listed is not None:
        stations = Stations(listed.bs, bs_xyz, listed.azimuth_deg, listed.beam_width_deg)
        number = listed.numbers_of(rows.ids["bs"])
        sieve.take_out("the base station is not in the list of stations", number < 0)
        bs_xyz, bs_lost, bs_degrees = bs_xyz[number], bs_lost[number], bs_degrees[number]
    sieve.take_out(far, bs_lost)
    if options.max_distance is not None:
        _leave_out_long(user_xyz, bs_xyz, options.max_distance, sieve)
    known = np.hstack([degrees, bs_degrees]) if user.degrees or bs.degrees else None
    notes = (*_assumed(user, bs, crs, options), *_assumed_of(listed))
    return Ends(crs, user_xyz, bs_xyz, known, stations, notes)


def _leave_out_long(user_xyz: Floats, bs_xyz: Floats, limit: float, sieve: Sieve) -> None:
    rows = np.flatnonzero(sieve.kept)  # others may have no place
    east, north = (user_xyz[rows, :2] - bs_xyz[rows, :2]).T
    long = np.zeros(len(user_xyz), dtype=bool)
    long[rows] = np.hypot(east, north) > limit
    sieve.take_out(f"the base station is more than {limit:,g} m away", long, expected=True)


def _in_metres(
    place: Place, crs: str | None, height: float | None, path: Path
) -> tuple[Floats, Bools]:
    """Positions, (n, 3), and where there is one in the file but none in ``crs``."""
    if place.z is None and height is None:
        raise ConfigurationError(
            f"{path} does not say how high the base stations are: name bs_z in columns, or give"
            " one height for all as bs_height",
            "bs_height",
        )
    flat = positions.in_system(place, crs)
    found, known = (np.isfinite(one.x) & np.isfinite(one.y) for one in (flat, place))
    z = np.full(len(flat.x), height) if place.z is None else place.z
    return np.column_stack([flat.x, flat.y, z]), known & ~found


def _degrees(place: Place) -> Floats:
    """Longitudes and latitudes, (n, 2); NaN where the file has metres."""
    return np.where(place.degrees, np.column_stack([place.x, place.y]), np.nan)


def _assumed(user: Place, bs: Place, crs: str | None, options: Options) -> Iterator[str]:
    if crs is not None and options.crs is None and user.degrees:
        yield f"positions are converted to {crs}, the UTM zone of their median"
    if user.z is None:
        yield f"users are taken to be {options.user_height:g} m up: no column says"
    if bs.z is None:
        yield f"base stations are taken to be {options.bs_height:g} m up: no column says"
    if options.quantity in ("rss", "rsrp"):
        yield f"gain is {options.quantity} less {options.tx_power_dbm:g} dBm sent"


def _assumed_of(listed: StationList | None) -> Iterator[str]:
    """What is taken for granted about antennas."""
    if listed is not None and listed.azimuth_deg is not None:
        known = np.isfinite(listed.azimuth_deg)
        if listed.beam_width_deg is not None:
            known &= np.isnan(listed.beam_width_deg)
        if known.any():
            beams = f"beams of {BEAM_WIDTH_DEG:g}°"
            yield f"{known.sum():,} antennas are taken to have {beams}: no column says"
