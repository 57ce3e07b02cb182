"""From a file to measurements."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from veilmap._util import files
from veilmap._util.arrays import Array, Floats, Ints
from veilmap._util.ids import Id
from veilmap.data.measurements import BadRows, BadRowsError, Measurements, describe
from veilmap.errors import ConfigurationError, DataError, VeilmapError
from veilmap.geometry import coordinates
from veilmap.ingest import archives, columns, parsing
from veilmap.ingest.archives import TEXT
from veilmap.ingest.csv_files import CsvFile
from veilmap.ingest.ends import Stations, ends_of_links, in_metres, listed_stations
from veilmap.ingest.exporters import Quantity
from veilmap.ingest.geosubmit import GeosubmitFile
from veilmap.ingest.listings import listing_of
from veilmap.ingest.options import Options
from veilmap.ingest.problems import every_problem
from veilmap.ingest.recognition import Recognised, recognised
from veilmap.ingest.rows import Rows, Sieve, parsed_rows
from veilmap.ingest.tables import GeoPackageFile, ParquetFile, TableFile

_USUAL_LOSS_DB = (60.0, 180.0)  # of links that radios bridge


@dataclass(frozen=True, eq=False)
class Reading:
    """A file's measurements, and an account of its rows: ``rows`` are used or in ``left_out``.

    Each row that is left out is there once, under the first reason that applies: a line of a text
    file, a row (from 0) of others, as ``row_word`` says; in a wide table there is one for each
    value. The measurements have a ``crs`` where positions are on real ground, and ``antennas``
    where azimuths are known.
    """

    path: Path
    measurements: Measurements
    rows: int  # of the file; of a wide table its values
    left_out: tuple[BadRows, ...]
    row_word: str
    columns: Mapping[str, str]  # our names of columns and the file's
    options: Options
    time: Floats | None = None  # of each measurement, (J,), in seconds since 1970 (UTC)
    # Longitude and latitude of user and base station, (J, 4), as far as the file had degrees.
    degrees: Floats | None = None
    stations: Stations | None = None
    notes: tuple[str, ...] = ()  # what was found out or assumed
    mixed: Mapping[str, Id] = field(default_factory=dict)  # columns that cells of one id differ in

    @cached_property
    def distance_m(self) -> Floats:
        """Length of each link along the ground, (J,)."""
        data = self.measurements
        return np.asarray(np.hypot(*(data.user_xyz - data.bs_xyz)[:, :2].T))

    @property
    def time_range(self) -> tuple[str, str] | None:
        """The first and the last moment, as ISO text in UTC."""
        if self.time is None:
            return None
        first, last = (np.datetime64(round(end), "s") for end in (self.time.min(), self.time.max()))
        return f"{first}Z", f"{last}Z"


def read_measurements(path: str | Path, **options: Any) -> Reading:
    """Measurements out of a file of any shape.

    Parameters
    ----------
    path : path
        .csv, .tsv or .txt (separated by commas, semicolons or tabs; also in a .gz or .zip file),
        .json of geosubmit version 2, .parquet, or .gpkg with a layer of points. Files of known
        exporters are recognised by their columns.
    **options
        How to read it: the parameters of `Options`.
    """
    return read(path, Options(**options))


def read(path: str | Path, options: Options) -> Reading:
    """`read_measurements` with its options as one object."""
    try:
        return _read(Path(path), options)
    except VeilmapError as error:
        report = every_problem(Path(path), options, error, lambda tried: _read(Path(path), tried))
    raise report


def _read(path: Path, given: Options) -> Reading:
    """One attempt at a file."""
    file = opened(path, given.encoding, given.layer)
    listing = None if given.stations is None else listing_of(opened(given.stations), given)
    wide = columns.of_wide(file, given.wide)
    known = recognised(file, listing, given, wide)
    options = known.options
    wanted, text = known.columns(file.names)
    raw = file.load(list(dict.fromkeys([*wanted, *wide])), text=text)
    with_bs = listing is None and not known.estimate
    rows = parsed_rows(raw, known, wide, with_bs=with_bs)
    listed = None
    if listing is not None:
        heard = rows.ids["bs"].distinct
        listed = listed_stations(listing.joined_with(known.cell), given.columns, heard)
    sieve = rows.sieve(options.missing)
    _require_any(rows, sieve, options)
    ends = ends_of_links(rows, listed, sieve, options)
    data = {
        "user": _users_of(rows, ends.user_xyz, options),
        "user_xyz": ends.user_xyz,
        "bs_xyz": ends.bs_xyz,
        "gain_db": _gain_db(rows.numbers["gain"].values, options),
        **{name: rows.ids[name].rows() for name in ("bs", "device") if name in rows.ids},
    }
    if ends.bs_error_m is not None:
        data["bs_error_m"] = ends.bs_error_m
    # A list of stations stands in for all that the file itself says of them.
    antennas = raw.antennas if ends.stations is None else ends.stations.antennas
    made = partial(Measurements, crs=ends.crs, antennas=antennas)
    _require_any(rows, sieve, options)
    try:
        measurements = made(**sieve.sifted(data))
    except BadRowsError as error:
        sieve.take_out_kept(error.bad, repeats=known.logged)
        _require_any(rows, sieve, options)
        measurements = made(**sieve.sifted(data))
    total = len(sieve.numbers) + len(rows.raw.broken)
    bad = [one for one in sieve.left_out if not one.expected]
    if bad and options.on_bad == "refuse":
        raise BadRowsError(bad, total, f"{raw.path}: {describe(bad, total, raw.row_word)}")
    account = total, tuple(sieve.left_out), raw.row_word
    time = rows.numbers["time"].values[sieve.kept] if "time" in rows.numbers else None
    degrees = None if ends.degrees is None else ends.degrees[sieve.kept]
    stations, notes = ends.stations, (*known.notes, *raw.notes, *rows.notes, *ends.notes)
    mixed = _mixed(rows, known, sieve)
    return Reading(
        raw.path, measurements, *account, rows.names, options, time, degrees, stations, notes, mixed
    )


def _mixed(rows: Rows, known: Recognised, sieve: Sieve) -> Mapping[str, Id]:
    """Columns in which a base station has several values, and such a base station."""
    found: dict[str, Id] = {}
    for name in known.apart:
        values = parsing.ids(rows.raw.columns.column(name))
        usable = sieve.kept & ~values.missing
        heard = rows.ids["bs"]
        pairs = np.unique(np.column_stack([heard.codes, values.codes])[usable], axis=0)
        station, many = np.unique(pairs[:, 0], return_counts=True)
        if (many > 1).any():
            found[name] = heard.distinct[station[many > 1][0]].item()
    return found


def read_stations(path: str | Path, crs: str | None = None) -> Stations:
    """The base stations of a file, in metres of ``crs``, or of the plane that it has them in."""
    listing = listing_of(opened(Path(path)), Options())
    if listing.of_cells:
        raise DataError(
            f"{path} is a table of cells that somebody heard; list those that take part"
        )
    listed = listed_stations(listing, {})
    if listed.place.z is None:
        raise DataError(f"{path} does not say how high base stations are: it needs a column z")
    if crs is None and listed.place.degrees:
        raise ConfigurationError(
            f"{path} has latitudes and longitudes: name the coordinate system of the metres as crs",
            "crs",
        )
    xyz, lost = in_metres(listed.place, crs and coordinates.checked(crs), None, Path(path))
    if lost.any():
        raise DataError(f"{path}: base station {listed.bs[lost.argmax()]} is too far off for {crs}")
    return listed.at(xyz)


def _require_any(rows: Rows, sieve: Sieve, options: Options) -> None:
    """Complain if no row is left."""
    if not sieve.kept.any():
        reasons = [f"{len(one.rows)} rows: {one.reason}" for one in sieve.left_out]
        hint = about_values(rows.numbers["gain"].values, options.quantity or "gain")
        raise DataError(
            f"{rows.raw.path} has no usable row ({'; '.join(reasons) or 'it has no rows'})"
            + (f"; {hint}" if hint else "")
        )


def about_values(values: Floats, quantity: Quantity) -> str:
    """A doubt about values of ``quantity``, as the file has them."""
    known = values[np.isfinite(values)]
    if len(known) == 0:
        return ""
    if quantity == "path-loss":
        negative = "all path losses are negative; are they gains (quantity='gain')?"
        return negative if (known < 0).all() else ""
    low, high = _USUAL_LOSS_DB
    if quantity == "gain" and np.mean((known >= low) & (known <= high)) > 0.95:
        return (
            f"values of {low:g} … {high:g} look like path losses given as gains;"
            " read them with quantity='path-loss'"
        )
    positive = int((known > 0).sum())
    if not positive:
        return ""
    if quantity == "gain":
        return f"{positive} gains are positive: no passive link amplifies"
    unit = "are positive in dBm; is the sign or the unit wrong?"
    return f"{positive} {quantity.upper()} values {unit}"


def _gain_db(values: Floats, options: Options) -> Floats:
    """What a file has, as gains."""
    if options.quantity == "path-loss":
        return -values
    return values - options.tx_power_dbm if options.quantity in ("rss", "rsrp") else values


def _users_of(rows: Rows, user_xyz: Floats, options: Options) -> Array:
    """Who measured each link."""
    if options.user_per == "row":
        return rows.raw.numbers
    if options.user_per == "file":
        return np.zeros(len(user_xyz), dtype=np.int64)
    if options.user_per == "position":
        return _by_position(user_xyz[:, 0], user_xyz[:, 1])
    if options.split_gap is not None:
        time, device = rows.numbers["time"].values, rows.ids.get("device")
        way = np.zeros(len(time), np.int64) if device is None else device.codes
        return _by_gaps(time, options.split_gap, way)
    return rows.ids["user"].rows()


def _by_gaps(time: Floats, gap: float, device: Ints) -> Ints:
    """A user for each stretch of time without a gap longer than ``gap`` seconds.

    Each device is on a way of its own. Rows without a time (NaN) are anybody's.
    """
    order = np.lexsort((time, device))
    with np.errstate(invalid="ignore"):
        starts = (np.diff(time[order]) > gap) | (np.diff(device[order]) != 0)
    users = np.empty(len(time), dtype=np.int64)
    users[order] = np.concatenate([[0], np.cumsum(starts)])[: len(time)]
    return users


def _by_position(x: Floats, y: Floats) -> Ints:
    """A user for each distinct place, numbered as they first appear; −1 where there is none.

    Numbers in the order of places would tell a server where its clients are.
    """
    usable = np.isfinite(x) & np.isfinite(y)
    users = np.full(len(x), -1, dtype=np.int64)
    both = x[usable] + 1j * y[usable]  # numbers that sort by x, then y
    _, first, place = np.unique(both, return_index=True, return_inverse=True)
    users[usable] = np.argsort(np.argsort(first))[place]
    return users


def opened(path: Path, encoding: str | None = None, layer: str | None = None) -> TableFile:
    """The table in a file, by the file's ending."""
    path = files.existing(path)
    ending = path.suffix.lower()
    if ending in TEXT:
        return CsvFile(path, encoding)
    if ending == ".gz":
        return archives.of_gzip(path, encoding)
    if ending == ".zip":
        return archives.of_zip(path, encoding, layer)
    if ending == ".json":
        return GeosubmitFile(path)
    if ending == ".parquet":
        return ParquetFile(path)
    if ending == ".gpkg":
        return GeoPackageFile(path, layer)
    raise DataError(
        f"{path}: tables are read from {', '.join(TEXT)}, .csv.gz, .zip, .json, .parquet and .gpkg"
    )
