"""From a file to measurements."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from veilmap.data.antennas import Antennas
from veilmap.data.measurements import BadRowsError, Measurements, OnBad
from veilmap.errors import DataError
from veilmap.ingest import _ends, _names, _rows, _stations, _users, _values, _wide, doubts
from veilmap.ingest._ends import Ends
from veilmap.ingest._files import opened
from veilmap.ingest._raw import TableFile
from veilmap.ingest._rows import Rows
from veilmap.ingest._sieve import Sieve, nothing_left, refuse
from veilmap.ingest._values import LinkValues
from veilmap.ingest.options import Options, Quantity, UserPer
from veilmap.ingest.results import LeftOut, Reading


def read_measurements(
    path: str | Path,
    *,
    columns: Mapping[str, str] | None = None,
    crs: str | None = None,
    quantity: Quantity = "gain",
    tx_power_dbm: float = 0.0,
    missing: Sequence[float] = (),
    stations: str | Path | None = None,
    wide: str | Sequence[str] = (),
    split_gap: float | None = None,
    user_per: UserPer | None = None,
    user_height: float = 1.5,
    bs_height: float | None = None,
    max_distance: float | None = None,
    layer: str | None = None,
    encoding: str = "utf-8",
    on_bad: OnBad = "refuse",
) -> Reading:
    """Read measurements from a CSV, Parquet or GeoPackage file of any shape.

    Parameters
    ----------
    path : path
        .csv, .tsv or .txt (separated by commas, semicolons or tabs), .parquet, or .gpkg with a
        layer of points.
    columns : mapping, optional
        Our names of columns to the file's: user, user_x, user_y, user_z, latitude, longitude,
        altitude, bs, bs_x, bs_y, bs_z, bs_latitude, bs_longitude, bs_altitude, gain, time,
        device, and azimuth and beam_width of a file of stations. Columns that have our names
        need not be mapped.
    crs : str, optional
        The projected coordinate system to have positions in: for latitudes and longitudes the
        default is the UTM zone of their median, for x and y it says what they are in (metres
        of a plane of their own by default).
    quantity : "gain", "rss", "rsrp" or "path-loss"
        What the values are: gains in dB, powers in dBm of a sender of ``tx_power_dbm``, or
        losses in dB.
    missing : sequence of float
        Values that stand for none; they are left out and counted.
    stations : path, optional
        A file with the base stations' ids (bs) and positions, once for each, and perhaps where
        their antennas look (azimuth, clockwise from north) and how wide their beams are
        (beam_width), in degrees; without an azimuth a station is isotropic.
    wide : str or sequence of str
        The columns of a table with a column for each base station: names, or patterns such as
        "site-*". The column's name is the base station's id.
    split_gap : float, optional
        Where no column says who measured: rows further apart than this many seconds are of
        different users.
    user_per : "row" or "position", optional
        Where no column says who measured: every row or every position is a user.
    user_height, bs_height : float
        In metres, where the file has no heights; for base stations there is no default.
    max_distance : float, optional
        In metres along the ground: longer links are left out and counted.
    layer : str, optional
        Of a GeoPackage file with several.
    encoding : str
        Of a text file.
    on_bad : "refuse" or "drop"
        What to do about rows that cannot be used.
    """
    options = Options(
        columns or {}, crs, quantity, tx_power_dbm, missing,
        None if stations is None else Path(stations), wide, split_gap, user_per, user_height,
        bs_height, max_distance, layer, encoding, on_bad,
    )  # fmt: skip
    return read(path, options)


def read(path: str | Path, options: Options) -> Reading:
    """`read_measurements` with its options as one object."""
    file = opened(Path(path), options.encoding, options.layer)
    listing = None if options.stations is None else opened(options.stations)
    wide = _wide.columns(file, options.wide)
    names = _used_names(file, listing, options, wide)
    raw = file.load(
        list(dict.fromkeys([*names.values(), *wide])),
        text=[names[name] for name in _names.IDS if name in names],
    )
    rows = _rows.parsed(raw, names, options.columns, with_bs=listing is None)
    listed = None if listing is None else _stations.listed(listing, options.columns)
    values = _values.of_rows(rows, wide)
    sieve = Sieve(values.spread(raw.numbers))
    values.sift(sieve, options.missing)
    for reason, mask in rows.problems():
        sieve.take_out(reason, values.spread(mask))
    _require_any(rows, values, sieve, options)
    ends = _ends.of_links(rows, listed, values, sieve, options)
    columns = {
        "user": values.spread(_users_of(rows, ends, options)),
        "user_xyz": ends.user_xyz,
        "bs_xyz": ends.bs_xyz,
        "gain_db": values.gain_db(options),
    }
    if values.bs is not None:
        columns["bs"] = values.bs.rows()
    if "device" in rows.ids:
        columns["device"] = values.spread(rows.ids["device"].rows())
    # A list of stations stands in for all that the file itself says of them.
    antennas = raw.antennas if ends.stations is None else ends.stations.antennas
    measurements = _measurements(columns, ends.crs, antennas, sieve)
    return _account(measurements, rows, values, sieve, ends, options)


def _used_names(
    file: TableFile, listing: TableFile | None, options: Options, wide: list[str]
) -> dict[str, str]:
    """The columns to read: not those that a list of stations or other columns stand in for."""
    names = _names.of_table(file, options.columns, listing)
    unused: set[str] = set()
    if listing is not None:
        unused |= set(_names.BS_PLACE)
    if wide:
        unused |= {"gain", "bs"}
    if options.split_gap is not None or options.user_per is not None:
        unused |= {"user"}
    names = {ours: theirs for ours, theirs in names.items() if ours not in unused}
    has = _names.listed(file.names)
    if not wide and "gain" not in names:
        raise DataError(
            f"{file.path} has no column 'gain'; name it (--column gain=COLUMN), or the base"
            f" stations' columns of a wide table (--wide); it has {has}"
        )
    if listing is not None and not wide and "bs" not in names:
        raise DataError(
            f"{file.path} has no column 'bs' that says which of the stations was heard;"
            f" name it (--column bs=COLUMN); it has {has}"
        )
    if wide and listing is None:
        raise DataError(
            f"{file.path}: a wide table needs its base stations' positions from a file (--stations)"
        )
    if options.split_gap is not None and "time" not in names:
        raise DataError(
            f"{file.path} has no column 'time' to find gaps in; name it (--column time=COLUMN);"
            f" it has {has}"
        )
    if options.split_gap is None and options.user_per is None and "user" not in names:
        raise DataError(
            f"{file.path} does not say who measured: name a column (--column user=COLUMN), or split"
            " a track at gaps in time (--split-gap SECONDS), or take every row or position as a"
            f" user (--user-per row); it has {has}"
        )
    return names


def _users_of(rows: Rows, ends: Ends, options: Options) -> NDArray:
    """Who measured each row."""
    if options.user_per == "row":
        return rows.raw.numbers
    if options.user_per == "position":
        x, y = ends.user.xyz[:, 0], ends.user.xyz[:, 1]
        return _users.by_position(x, y, np.isfinite(x) & np.isfinite(y))
    if options.split_gap is not None:
        device = rows.ids.get("device")
        way = np.zeros(len(rows.raw), np.int64) if device is None else device.codes
        return _users.by_gaps(rows.numbers["time"].values, options.split_gap, way)
    return rows.ids["user"].rows()


def _measurements(
    columns: Mapping[str, NDArray], crs: str | None, antennas: Antennas | None, sieve: Sieve
) -> Measurements | None:
    """What is left; None if nothing is."""
    for _ in range(2):  # again without the rows that are found to be bad
        if not sieve.kept.any():
            return None
        try:
            return Measurements(**sieve.sifted(columns), crs=crs, antennas=antennas)  # type: ignore[arg-type]
        except BadRowsError as error:
            sieve.take_out_kept(error.bad)
    return None


def _left_out(rows: Rows, values: LinkValues, sieve: Sieve) -> list[LeftOut]:
    """Every row that is not used, also those that were never rows of the table."""
    if len(rows.raw.broken) == 0:
        return sieve.left_out
    reason = "the line does not have as many fields as line 1"
    return [LeftOut(reason, np.repeat(rows.raw.broken, values.per_row)), *sieve.left_out]


def _require_any(rows: Rows, values: LinkValues, sieve: Sieve, options: Options) -> None:
    if not sieve.kept.any():
        hint = doubts.about_values(values.values, options.quantity)
        raise nothing_left(str(rows.raw.path), _left_out(rows, values, sieve), hint)


def _account(
    measurements: Measurements | None,
    rows: Rows,
    values: LinkValues,
    sieve: Sieve,
    ends: Ends,
    options: Options,
) -> Reading:
    """Everything said about the file, or a complaint in one line."""
    _require_any(rows, values, sieve, options)
    assert measurements is not None
    raw, left_out = rows.raw, _left_out(rows, values, sieve)
    total = len(values.values) + len(raw.broken) * values.per_row
    if options.on_bad == "refuse":
        refuse(str(raw.path), left_out, total, raw.row_word)
    time = rows.time
    return Reading(
        raw.path, measurements, total, tuple(left_out), raw.row_word, dict(rows.names),
        options.quantity, options.tx_power_dbm,
        None if time is None else values.spread(time.values)[sieve.kept],
        None if ends.degrees is None else ends.degrees[sieve.kept],
        ends.stations, (*raw.notes, *ends.notes),
    )  # fmt: skip
