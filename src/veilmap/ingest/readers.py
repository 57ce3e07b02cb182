"""From a file to measurements."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilmap.data.antennas import Antennas
from veilmap.data.measurements import BadRowsError, Measurements
from veilmap.errors import ConfigurationError
from veilmap.ingest import columns, doubts
from veilmap.ingest.ends import Ends, ends_of_links
from veilmap.ingest.options import Options
from veilmap.ingest.parsing import Mask
from veilmap.ingest.positions import Values
from veilmap.ingest.results import LeftOut, Reading, Sieve, nothing_left, refuse
from veilmap.ingest.rows import LinkValues, Rows, link_values, parsed
from veilmap.ingest.stations import listed_stations
from veilmap.ingest.tables import BROKEN, TableFile, opened


def read_measurements(path: str | Path, **options: Any) -> Reading:
    """Measurements out of a CSV, Parquet or GeoPackage file of any shape.

    Parameters
    ----------
    path : path
        .csv, .tsv or .txt (separated by commas, semicolons or tabs), .parquet, or .gpkg with a
        layer of points.
    **options
        How to read it: the parameters of `Options`.
    """
    return read(path, Options(**options))


def read(path: str | Path, options: Options) -> Reading:
    """`read_measurements` with its options as one object."""
    file = opened(Path(path), options.encoding, options.layer)
    listing = None if options.stations is None else opened(options.stations)
    wide = columns.of_wide(file, options.wide)
    names = _used_names(file, listing, options, wide)
    raw = file.load(
        list(dict.fromkeys([*names.values(), *wide])),
        text=[names[name] for name in columns.IDS if name in names],
    )
    rows = parsed(raw, names, options.columns, with_bs=listing is None)
    listed = None if listing is None else listed_stations(listing, options.columns)
    values = link_values(rows, wide)
    sieve = Sieve(values.spread(raw.numbers))
    values.sift(sieve, options.missing)
    for reason, mask in rows.problems():
        sieve.take_out(reason, values.spread(mask))
    _require_any(rows, values, sieve, options)
    ends = ends_of_links(rows, listed, values, sieve, options)
    data = {
        "user": values.spread(_users_of(rows, ends, options)),
        "user_xyz": ends.user_xyz,
        "bs_xyz": ends.bs_xyz,
        "gain_db": values.gain_db(options),
    }
    if values.bs is not None:
        data["bs"] = values.bs.rows()
    if "device" in rows.ids:
        data["device"] = values.spread(rows.ids["device"].rows())
    # A list of stations stands in for all that the file itself says of them.
    antennas = raw.antennas if ends.stations is None else ends.stations.antennas
    measurements = _measurements(data, ends.crs, antennas, sieve)
    return _account(measurements, rows, values, sieve, ends, options)


def _used_names(
    file: TableFile, listing: TableFile | None, options: Options, wide: list[str]
) -> dict[str, str]:
    """The columns to read: not those that a list of stations or other columns stand in for."""
    names = columns.of_table(file, options.columns, listing)
    unused: set[str] = set()
    if listing is not None:
        unused |= set(columns.BS_PLACE)
    if wide:
        unused |= {"gain", "bs"}
    if options.split_gap is not None or options.user_per is not None:
        unused |= {"user"}
    names = {ours: theirs for ours, theirs in names.items() if ours not in unused}
    lacking = _lacking(names, listing, options, wide)
    if lacking is not None:
        parameter, message = lacking
        has = columns.listed(file.names)
        raise ConfigurationError(f"{file.path} {message}; it has {has}", parameter)
    return names


def _lacking(
    names: Mapping[str, str], listing: TableFile | None, options: Options, wide: list[str]
) -> tuple[str, str] | None:
    """The parameter that would mend what a file does not say, and what that is; None: nothing."""
    if not wide and "gain" not in names:
        return "columns", (
            "has no column 'gain'; name it in columns, or the base stations' columns of a wide"
            " table in wide"
        )
    if listing is not None and not wide and "bs" not in names:
        return "columns", (
            "has no column 'bs' that says which of the stations was heard; name it in columns"
        )
    if wide and listing is None:
        return "stations", (
            "is a wide table and needs its base stations' positions from a file, stations"
        )
    if options.split_gap is not None and "time" not in names:
        return "columns", "has no column 'time' to find gaps in; name it in columns"
    if options.split_gap is None and options.user_per is None and "user" not in names:
        return "columns", (
            "does not say who measured: name user in columns, start a new user after a gap of"
            " split_gap seconds, or take every row or position as a user with user_per"
        )
    return None


def _users_of(rows: Rows, ends: Ends, options: Options) -> NDArray:
    """Who measured each row."""
    if options.user_per == "row":
        return rows.raw.numbers
    if options.user_per == "position":
        x, y = ends.user.xyz[:, 0], ends.user.xyz[:, 1]
        return _by_position(x, y, np.isfinite(x) & np.isfinite(y))
    if options.split_gap is not None:
        device = rows.ids.get("device")
        way = np.zeros(len(rows.raw), np.int64) if device is None else device.codes
        return _by_gaps(rows.numbers["time"].values, options.split_gap, way)
    return rows.ids["user"].rows()


def _by_gaps(time: Values, gap: float, device: NDArray[np.int64]) -> NDArray[np.int64]:
    """A user for each stretch of time without a gap longer than ``gap`` seconds.

    Each device is on a way of its own. Rows without a time (NaN) are anybody's.
    """
    order = np.lexsort((time, device))
    with np.errstate(invalid="ignore"):
        starts = (np.diff(time[order]) > gap) | (np.diff(device[order]) != 0)
    users = np.empty(len(time), dtype=np.int64)
    users[order] = np.concatenate([[0], np.cumsum(starts)])[: len(time)]
    return users


def _by_position(x: Values, y: Values, usable: Mask) -> NDArray[np.int64]:
    """A user for each distinct place among the usable rows, numbered as they first appear.

    Numbers in the order of places would tell a server where its clients are.
    """
    users = np.full(len(x), -1, dtype=np.int64)
    order = np.flatnonzero(usable)
    order = order[np.lexsort((y[order], x[order]))]
    if len(order) == 0:
        return users
    moved = (np.diff(x[order]) != 0) | (np.diff(y[order]) != 0)
    starts = np.concatenate([[True], moved])
    first_rows = order[starts]  # the sort is stable
    number = np.empty(len(first_rows), dtype=np.int64)
    number[np.argsort(first_rows)] = np.arange(len(first_rows))
    users[order] = number[np.cumsum(starts) - 1]
    return users


def _measurements(
    data: Mapping[str, NDArray], crs: str | None, antennas: Antennas | None, sieve: Sieve
) -> Measurements | None:
    """What is left; None if nothing is."""
    for _ in range(2):  # again without the rows that are found to be bad
        if not sieve.kept.any():
            return None
        try:
            return Measurements(**sieve.sifted(data), crs=crs, antennas=antennas)  # type: ignore[arg-type]
        except BadRowsError as error:
            sieve.take_out_kept(error.bad)
    return None


def _left_out(rows: Rows, values: LinkValues, sieve: Sieve) -> list[LeftOut]:
    """Every row that is not used, also those that were never rows of the table."""
    if len(rows.raw.broken) == 0:
        return sieve.left_out
    return [LeftOut(BROKEN, np.repeat(rows.raw.broken, values.per_row)), *sieve.left_out]


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
