"""Both ends of every link, in metres."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from veilmap.data.antennas import BEAM_WIDTH_DEG
from veilmap.errors import ConfigurationError
from veilmap.ingest import positions
from veilmap.ingest.options import Options
from veilmap.ingest.parsing import Ids, Mask
from veilmap.ingest.positions import Place
from veilmap.ingest.results import Sieve, Stations, Values
from veilmap.ingest.rows import LinkValues, Rows
from veilmap.ingest.stations import StationList
from veilmap.ingest.tables import about


@dataclass(frozen=True)
class End:
    """One end of links: where it is in metres, and in degrees if the file had them."""

    xyz: Values
    degrees: Values
    too_far: Mask


@dataclass(frozen=True)
class Ends:
    """Both ends of every link."""

    crs: str | None
    user: End
    user_xyz: Values
    bs_xyz: Values
    degrees: Values | None
    stations: Stations | None
    notes: tuple[str, ...]


def ends_of_links(
    rows: Rows, listed: StationList | None, values: LinkValues, sieve: Sieve, options: Options
) -> Ends:
    """Positions of both ends; links with an end that cannot be placed are left out."""
    place = rows.user.without(rows.user.off_earth() | rows.user.at_zero())
    bs_place = _known(rows.bs) if listed is None else listed.place
    crs = _system(rows, place, bs_place, options)
    user = _end(place, crs, _heights(place, options.user_height, "user", rows.raw.path))
    source = options.stations or rows.raw.path
    bs = _end(bs_place, crs, _heights(bs_place, options.bs_height, "bs", source))
    far = f"a position is too far off for {crs}"
    sieve.take_out(far, values.spread(user.too_far))
    if listed is None:
        bs_xyz, bs_degrees = values.spread(bs.xyz), values.spread(bs.degrees)
        sieve.take_out(far, values.spread(bs.too_far))
    else:
        number = _numbers(values.bs, listed)
        sieve.take_out("the base station is not in the list of stations", number < 0)
        bs_xyz, bs_degrees = bs.xyz[number], bs.degrees[number]
        sieve.take_out(far, bs.too_far[number])
    user_xyz = values.spread(user.xyz)
    _leave_out_long(user_xyz, bs_xyz, options.max_distance, sieve)
    degrees = None
    if place.degrees or bs_place.degrees:
        degrees = np.hstack([values.spread(user.degrees), bs_degrees])
    return Ends(
        crs, user, user_xyz, bs_xyz, degrees,
        None if listed is None else listed.stations(bs.xyz),
        (*_assumed(place, bs_place, crs, options), *_assumed_of(listed)),
    )  # fmt: skip


def _leave_out_long(user_xyz: Values, bs_xyz: Values, limit: float | None, sieve: Sieve) -> None:
    if limit is None:
        return
    rows = np.flatnonzero(sieve.kept)  # others may have no place
    east, north = (user_xyz[rows, :2] - bs_xyz[rows, :2]).T
    long = np.zeros(len(user_xyz), dtype=bool)
    long[rows] = np.hypot(east, north) > limit
    sieve.take_out(f"the base station is more than {limit:,g} m away", long, expected=True)


def _known(place: Place | None) -> Place:
    assert place is not None  # rows have positions of base stations where no list has
    return place


def _numbers(bs: Ids | None, listed: StationList) -> NDArray[np.int64]:
    """Which listed station each link is to, −1 for none."""
    assert bs is not None  # asked for when the columns were named
    return listed.matched(bs.distinct)[bs.codes]


def _system(rows: Rows, user: Place, bs: Place, options: Options) -> str | None:
    with about(rows.raw.path):
        return positions.common_system(user, bs, options.crs)


def _end(place: Place, crs: str | None, z: Values) -> End:
    flat = positions.in_system(place, crs)
    degrees = np.column_stack([place.x, place.y])
    if not place.degrees:
        degrees = np.full_like(degrees, np.nan)
    lost = (np.isnan(flat.x) | np.isnan(flat.y)) & np.isfinite(place.x) & np.isfinite(place.y)
    return End(np.column_stack([flat.x, flat.y, z]), degrees, lost)


def _heights(place: Place, default: float | None, end: str, path: Path) -> Values:
    if place.z is not None:
        return place.z
    if default is None:
        raise ConfigurationError(
            f"{path} does not say how high the base stations are: name bs_z in columns, or give"
            " one height for all as bs_height",
            "bs_height",
        )
    return np.full(len(place.x), default)


def _assumed(user: Place, bs: Place, crs: str | None, options: Options) -> tuple[str, ...]:
    notes = []
    if crs is not None and options.crs is None and user.degrees:
        notes.append(f"positions are converted to {crs}, the UTM zone of their median")
    if user.z is None:
        notes.append(f"users are taken to be {options.user_height:g} m up: no column says")
    if bs.z is None:
        notes.append(f"base stations are taken to be {options.bs_height:g} m up: no column says")
    if options.quantity in ("rss", "rsrp"):
        notes.append(f"gain is {options.quantity} less {options.tx_power_dbm:g} dBm sent")
    return tuple(notes)


def _assumed_of(listed: StationList | None) -> tuple[str, ...]:
    """What is taken for granted about antennas."""
    if listed is None or listed.azimuth_deg is None:
        return ()
    known = np.isfinite(listed.azimuth_deg)
    if listed.beam_width_deg is not None:
        known &= np.isnan(listed.beam_width_deg)
    count = int(known.sum())
    said = f"{count:,} antennas are taken to have beams of {BEAM_WIDTH_DEG:g}°: no column says"
    return (said,) if count else ()
