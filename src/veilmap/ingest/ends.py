"""Both ends of every link, in metres; base stations may be in a file of their own."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from veilmap._util.arrays import Array, Bools, Floats, Ints
from veilmap._util.ids import in_order, places
from veilmap.data.antennas import BEAM_WIDTH_DEG, Antennas, impossible_widths
from veilmap.errors import DataError
from veilmap.ingest import cells, columns, parsing, positions
from veilmap.ingest.listings import Listing
from veilmap.ingest.options import Options
from veilmap.ingest.positions import OFF_EARTH, Place
from veilmap.ingest.problems import FixableError
from veilmap.ingest.recognition import BS_HEIGHT_M
from veilmap.ingest.rows import Rows, Sieve
from veilmap.ingest.sites import FEWEST_SQUARES, estimated
from veilmap.ingest.tables import BROKEN, RawTable, about, parts_of


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
    # The root mean square error of an estimated position, in metres; NaN of a known one.
    error_m: Floats

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
    error_m: Floats

    def at(self, xyz: Floats) -> Stations:
        """The same at positions in metres, (B, 3)."""
        own = self.azimuth_deg, self.beam_width_deg, self.level_db, self.error_m
        return Stations(self.bs, xyz, *own)


def listed_stations(
    listing: Listing, given: Mapping[str, str], heard: Array | None = None
) -> StationList:
    """The base stations of a file; nothing in it may be missing or wrong.

    Of a database's table of cells, which has more of everything, only those that are ``heard``.
    """
    file, names, cell = listing.file, listing.names, listing.cell
    own = [
        parts_of(one, file.names) for ours, one in names.items() if ours != "bs" or not cell.parts
    ]
    ids_of = cell.columns or parts_of(names["bs"], file.names)
    raw = file.load(
        list(dict.fromkeys([*(part for parts in own for part in parts), *ids_of])), text=ids_of
    )
    if len(raw.broken) and not listing.of_cells:
        raise DataError(f"{raw.path}, {raw.row_word} {raw.broken[0]}: {BROKEN}")
    if len(raw) == 0:
        raise DataError(f"{raw.path} lists no base station")
    called = cell.shown or names["bs"]
    column = (
        cells.ids(raw.columns, cell.parts, cell.wanted) if cell.parts else raw.column(names["bs"])
    )
    if listing.of_cells:
        raw, column = _best_of_heard(raw, column, names, heard)
    ids = parsing.ids(column)
    _refuse(raw, ids.missing, f"{called} is missing")
    bs, again = ids.rows(), np.ones(len(raw), dtype=bool)
    again[np.unique(ids.codes, return_index=True)[1]] = False
    _refuse(raw, again, f"base station {bs[again.argmax()]} is listed twice")
    numbers = {
        ours: parsing.numbers(raw.columns.column(theirs), raw.decimal)
        for ours, theirs in names.items()
        if ours not in ("bs", "samples")
    }
    for ours, parsed in numbers.items():
        _refuse(raw, parsed.unreadable, f"{names[ours]} is not a number")
    place = positions.place(raw, "bs", names, given, numbers, raw.points)
    known = np.isfinite(place.x) & np.isfinite(place.y)
    known &= True if place.z is None else np.isfinite(place.z)
    _refuse(raw, ~known, "a position or height is missing")
    _refuse(raw, place.off_earth(), OFF_EARTH)
    unknown = np.full(len(raw), np.nan)
    azimuth, width, level, error = (
        numbers[name].values if name in numbers else unknown
        for name in (*columns.ANTENNA, columns.LEVEL, columns.ERROR)
    )
    _refuse(raw, np.isinf(azimuth), f"{names.get('azimuth')} is not finite")
    reason = f"{names.get('beam_width')} is not over 0° and at most 360°"
    _refuse(raw, impossible_widths(width), reason)
    _refuse(raw, np.isinf(level), f"{names.get(columns.LEVEL)} is not finite")
    return StationList(bs, place, azimuth, width, level, error)


def _best_of_heard(
    raw: RawTable, ids: pa.ChunkedArray, names: Mapping[str, str], heard: Array | None
) -> tuple[RawTable, pa.ChunkedArray]:
    """The rows of cells that were heard: of each the one with the most samples."""
    wanted = pa.array([] if heard is None else [str(one) for one in heard.tolist()], pa.string())
    rows = np.flatnonzero(pc.is_in(ids, wanted).to_numpy(zero_copy_only=False))
    if len(rows) == 0:
        raise DataError(f"{raw.path} has none of the cells that were heard")
    samples = parsing.numbers(raw.columns.column(names["samples"])).values[rows]
    rows = rows[np.argsort(-np.nan_to_num(samples), kind="stable")]
    _, first = np.unique(ids.take(rows).to_numpy(zero_copy_only=False).astype(str),
                         return_index=True)  # fmt: skip
    rows = np.sort(rows[first])
    return replace(raw, columns=raw.columns.take(rows), numbers=raw.numbers[rows]), ids.take(rows)


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
    bs_error_m: Floats | None = None  # (J,), NaN where a position is known


def ends_of_links(rows: Rows, listed: StationList | None, sieve: Sieve, options: Options) -> Ends:
    """Positions of both ends; links with an end that cannot be placed are left out."""
    if listed is None and rows.bs is None:
        return _with_estimates(rows, sieve, options)
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
    error = _errors(rows, listed, number if listed is not None else None)
    sieve.take_out(far, bs_lost)
    if options.max_distance is not None:
        _leave_out_long(user_xyz, bs_xyz, options.max_distance, sieve)
    known = np.hstack([degrees, bs_degrees]) if user.degrees or bs.degrees else None
    notes = tuple(_assumed(user, bs, crs, options, stations))
    return Ends(crs, user_xyz, bs_xyz, known, stations, notes, error)


def _errors(rows: Rows, listed: StationList | None, number: Ints | None) -> Floats | None:
    """Errors of the base stations' positions, as far as a file has them."""
    if listed is not None and number is not None:
        return None if np.isnan(listed.error_m).all() else listed.error_m[number]
    return rows.numbers[columns.ERROR].values if columns.ERROR in rows.numbers else None


def _with_estimates(rows: Rows, sieve: Sieve, options: Options) -> Ends:
    """Positions of users, and base stations where the measurements say that they may be."""
    user = rows.user.without(rows.user.off_earth() | rows.user.at_zero())
    nowhere = replace(user, degrees=False, crs=None)
    with about(rows.raw.path):
        crs = positions.common_system(user, nowhere if not user.degrees else user, options.crs)
    user_xyz, lost = in_metres(user, crs, options.user_height, rows.raw.path)
    sieve.take_out(f"a position is too far off for {crs}", lost)
    kept = np.flatnonzero(sieve.kept)
    heard, gain = rows.ids["bs"], rows.numbers["gain"].values
    level = -gain if options.quantity == "path-loss" else gain
    site = sites_of(rows)[heard.codes]
    found = estimated(site[kept], heard.codes[kept], user_xyz[kept, :2], level[kept])
    xyz = np.full((len(heard.codes), 3), options.bs_height or 0.0)
    xyz[:, :2] = np.nan
    xyz[kept, :2] = found.xy[site[kept]]
    sieve.take_out(
        f"the base station was heard in fewer than {FEWEST_SQUARES} places, too few to say where"
        " it is",
        np.isnan(xyz[:, 0]),
        expected=True,
    )
    if options.max_distance is not None:
        _leave_out_long(user_xyz, xyz, options.max_distance, sieve)
    error = np.full(len(xyz), np.nan)
    error[kept] = found.error_m[site[kept]]
    known = np.hstack([_degrees(user), np.full((len(xyz), 2), np.nan)]) if user.degrees else None
    told = found.error_m[np.isfinite(found.error_m)]
    notes = list(_assumed(user, replace(user, z=None), crs, options, None))
    if len(told):
        notes.append(
            f"{len(told):,} sites are estimated from the measurements, with errors of"
            f" {told.min():,.0f} … {told.max():,.0f} m, in the column {columns.ERROR}"
        )
    return Ends(crs, user_xyz, xyz, known, None, tuple(notes), error)


def sites_of(rows: Rows) -> Ints:
    """The site of every distinct base station: cells of one LTE base station share one."""
    heard = rows.ids["bs"]
    lte = np.zeros(len(heard.distinct), dtype=bool)
    if rows.lte is not None:
        lte[heard.codes[rows.lte]] = True
    return cells.sites(heard.distinct, lte)


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
        raise FixableError(
            f"{path} does not say how high the base stations are: name bs_z in columns, or give"
            " one height for all as bs_height",
            "bs_height",
            bs_height=BS_HEIGHT_M,
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
