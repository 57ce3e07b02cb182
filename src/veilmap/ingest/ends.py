"""Both ends of every link, in metres; base stations may be in a file of their own."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from veilmap._util.arrays import Array, Bools, Floats
from veilmap._util.ids import in_order, places
from veilmap.data.antennas import BEAM_WIDTH_DEG, Antennas, impossible_widths
from veilmap.errors import ConfigurationError, DataError
from veilmap.ingest import columns, parsing, positions
from veilmap.ingest.options import Options
from veilmap.ingest.positions import OFF_EARTH, Place
from veilmap.ingest.rows import Rows, Sieve
from veilmap.ingest.tables import BROKEN, RawTable, TableFile, about


@dataclass(frozen=True, eq=False)
class Stations:
    """Base stations of a file of their own.

    Positions, (B, 3), are in metres of the measurements' coordinate system; azimuths (clockwise
    from north), beam widths and the nominal gains 100 m away are NaN where the file does not say.
    """

    bs: Array
    xyz: Floats
    azimuth_deg: Floats
    beam_width_deg: Floats
    level_db: Floats

    @property
    def antennas(self) -> Antennas | None:
        """The antennas whose azimuths are known; None if there are none."""
        return Antennas.where_known(self.bs, self.azimuth_deg, self.beam_width_deg)


@dataclass(frozen=True)
class StationList:
    """Base stations as their file has them."""

    bs: Array
    place: Place
    azimuth_deg: Floats
    beam_width_deg: Floats
    level_db: Floats

    def at(self, xyz: Floats) -> Stations:
        """The same at positions in metres, (B, 3)."""
        return Stations(self.bs, xyz, self.azimuth_deg, self.beam_width_deg, self.level_db)


def listed_stations(file: TableFile, given: Mapping[str, str]) -> StationList:
    """The base stations of a file; nothing in it may be missing or wrong."""
    names = columns.of_stations(file, given)
    if "bs" not in names:
        raise ConfigurationError(
            f"{file.path} has no column for the base stations' ids; name it in columns as bs;"
            f" it has {columns.listed(file.names)}",
            "columns",
        )
    raw = file.load([*dict.fromkeys(names.values())], text=[names["bs"]])
    if len(raw.broken):
        raise DataError(f"{raw.path}, {raw.row_word} {raw.broken[0]}: {BROKEN}")
    if len(raw) == 0:
        raise DataError(f"{raw.path} lists no base station")
    ids = parsing.ids(raw.columns.column(names["bs"]))
    _refuse(raw, ids.missing, f"{names['bs']} is missing")
    bs, again = ids.rows(), np.ones(len(raw), dtype=bool)
    again[np.unique(ids.codes, return_index=True)[1]] = False
    _refuse(raw, again, f"base station {bs[again.argmax()]} is listed twice")
    numbers = {
        ours: parsing.numbers(raw.columns.column(theirs), raw.decimal)
        for ours, theirs in names.items()
        if ours != "bs"
    }
    for ours, parsed in numbers.items():
        _refuse(raw, parsed.unreadable, f"{names[ours]} is not a number")
    place = positions.place(raw, "bs", names, given, numbers, raw.points)
    known = np.isfinite(place.x) & np.isfinite(place.y)
    known &= True if place.z is None else np.isfinite(place.z)
    _refuse(raw, ~known, "a position or height is missing")
    _refuse(raw, place.off_earth(), OFF_EARTH)
    unknown = np.full(len(raw), np.nan)
    azimuth, width, level = (
        numbers[name].values if name in numbers else unknown
        for name in (*columns.ANTENNA, columns.LEVEL)
    )
    _refuse(raw, np.isinf(azimuth), f"{names.get('azimuth')} is not finite")
    reason = f"{names.get('beam_width')} is not over 0° and at most 360°"
    _refuse(raw, impossible_widths(width), reason)
    _refuse(raw, np.isinf(level), f"{names.get(columns.LEVEL)} is not finite")
    return StationList(bs, place, azimuth, width, level)


def _refuse(raw: RawTable, wrong: Bools, reason: str) -> None:
    """Complain about the first wrong row, if there is one."""
    if wrong.any():
        raise DataError(f"{raw.path}, {raw.row_word} {raw.numbers[wrong][0]}: {reason}")


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
    user_xyz, user_lost = in_metres(user, crs, options.user_height, path)
    bs_xyz, bs_lost = in_metres(bs, crs, options.bs_height, options.stations or path)
    degrees, bs_degrees = _degrees(user), _degrees(bs)
    far, stations = f"a position is too far off for {crs}", None
    sieve.take_out(far, user_lost)
    if listed is not None:
        stations = listed.at(bs_xyz)
        heard = rows.ids["bs"]
        number = places(heard.distinct, in_order(listed.bs.tolist()))[heard.codes]
        sieve.take_out("the base station is not in the list of stations", number < 0)
        bs_xyz, bs_lost, bs_degrees = bs_xyz[number], bs_lost[number], bs_degrees[number]
    sieve.take_out(far, bs_lost)
    if options.max_distance is not None:
        _leave_out_long(user_xyz, bs_xyz, options.max_distance, sieve)
    known = np.hstack([degrees, bs_degrees]) if user.degrees or bs.degrees else None
    notes = tuple(_assumed(user, bs, crs, options, stations))
    return Ends(crs, user_xyz, bs_xyz, known, stations, notes)


def _leave_out_long(user_xyz: Floats, bs_xyz: Floats, limit: float, sieve: Sieve) -> None:
    rows = np.flatnonzero(sieve.kept)  # others may have no place
    east, north = (user_xyz[rows, :2] - bs_xyz[rows, :2]).T
    long = np.zeros(len(user_xyz), dtype=bool)
    long[rows] = np.hypot(east, north) > limit
    sieve.take_out(f"the base station is more than {limit:,g} m away", long, expected=True)


def in_metres(
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


def _assumed(
    user: Place, bs: Place, crs: str | None, options: Options, stations: Stations | None
) -> Iterator[str]:
    """What is taken for granted."""
    if crs is not None and options.crs is None and user.degrees:
        yield f"positions are converted to {crs}, the UTM zone of their median"
    if user.z is None:
        yield f"users are taken to be {options.user_height:g} m up: no column says"
    if bs.z is None:
        yield f"base stations are taken to be {options.bs_height:g} m up: no column says"
    if options.quantity in ("rss", "rsrp"):
        yield f"gain is {options.quantity} less {options.tx_power_dbm:g} dBm sent"
    if stations is not None:
        usual = int((np.isfinite(stations.azimuth_deg) & np.isnan(stations.beam_width_deg)).sum())
        if usual:
            beams = f"beams of {BEAM_WIDTH_DEG:g}°"
            yield f"{usual:,} antennas are taken to have {beams}: no column says"
