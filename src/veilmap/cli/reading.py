"""How commands read tables: the options, the account of what was read, the command that helps."""

import shlex
from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from veilmap.cli.options import option, pairs
from veilmap.cli.output import console, sentence
from veilmap.errors import VeilmapError

if TYPE_CHECKING:
    from veilmap.ingest import Options, Reading


def _reading(
    columns: list[str] | None = option(
        None,
        "NAME=COLUMN: which column is which, such as gain=rsrp (may be repeated). Names:"
        " user, user_x, user_y, user_z, latitude, longitude, altitude, bs, bs_x, bs_y, bs_z,"
        " bs_latitude, bs_longitude, bs_altitude, gain, time, device, azimuth, beam_width."
        " An id of several columns: bs=mcc+mnc+cell.",
        "--column",
    ),
    where: list[str] | None = option(
        None, "COLUMN=VALUE, or COLUMN=ONE|OTHER: only rows with that value (may be repeated)."
    ),
    crs: str | None = option(None, "Projected coordinate system; default: the UTM zone."),
    quantity: str | None = option(
        None,
        "What the values are: gain, rss, rsrp (dBm) or path-loss; default: by the column's name.",
    ),
    tx_power: float = option(0.0, "Power sent in dBm, taken off rss and rsrp."),
    missing: list[float] | None = option(None, "A missing-value sentinel (may be repeated)."),
    stations: Path | None = option(
        None, "File of base stations: ids, positions, azimuths; or OpenCelliD's cell_towers."
    ),
    station_columns: list[str] | None = option(
        None,
        "NAME=COLUMN: which column of --stations is which (may be repeated).",
        "--station-column",
    ),
    estimate_stations: bool | None = option(
        None,
        "Estimate where base stations are from the measurements; default: where an app's log does"
        " not say.",
        "--estimate-stations/--no-estimate-stations",
    ),
    wide: list[str] | None = option(
        None,
        "A column of values for one base station, or a pattern such as 'site-*' (may be repeated).",
    ),
    split_gap: float | None = option(
        None, "Without user ids: start a new user after a gap of this many seconds."
    ),
    user_per: str | None = option(
        None, "Without user ids: each row, each position, or the whole file, is a user."
    ),
    user_height: float = option(1.5, "Of users in metres, if no column says."),
    bs_height: float | None = option(None, "Of base stations in metres, if no column says."),
    max_distance: float | None = option(None, "Drop and count links that are longer, in metres."),
    layer: str | None = option(None, "Of a .gpkg or .zip file with several."),
    encoding: str | None = option(None, "Of a text file, such as latin-1; default: found out."),
    dates: str | None = option(None, "Of 01/02/2026: day-first or month-first, if in doubt."),
    drop_bad: bool = option(False, "Drop and count rows that cannot be used.", "--drop-bad"),
) -> "Options":
    """How a table is read: the options that `check` and `convert` share."""
    given: dict[str, Any] = dict(locals())
    from veilmap.ingest import Options

    named = "NAME=COLUMN such as gain=rsrp"
    given |= {
        "columns": pairs("--column", columns, named),
        "station_columns": pairs("--station-column", station_columns, named),
        "where": pairs("--where", where, "COLUMN=VALUE such as network=LTE"),
        "missing": missing or (),
        "wide": wide or (),
    }
    given["tx_power_dbm"] = given.pop("tx_power")
    given["on_bad"] = "drop" if given.pop("drop_bad") else "refuse"
    return Options(**given)


def reads_a_table(command: Callable[..., None]) -> Callable[..., None]:
    """A command that takes the options of `_reading` in place of its first parameter."""
    shared, own = signature(_reading).parameters, signature(command)

    @wraps(command)
    def filled(**given: Any) -> None:
        command(_reading(**{name: given.pop(name) for name in shared}), **given)

    merged = [*shared.values(), *list(own.parameters.values())[1:]]
    filled.__signature__ = own.replace(parameters=merged)  # type: ignore[attr-defined]
    filled.__annotations__ = {one.name: one.annotation for one in merged}
    return filled


def account(found: "Reading") -> None:
    """Say what was found out about a file, what was left out, and what looks wrong."""
    from veilmap import ingest
    from veilmap.cli import tables

    for note in found.notes:
        console.print(sentence(note))
    for one in found.left_out:
        console.print(f"Left out {len(one.rows):,} rows: {one.reason}")
    result = ingest.check(found)
    if result.doubts:
        console.print(tables.doubts(result), end="")


def with_command(error: VeilmapError) -> str:
    """The message of an error about a table, with the command that reads it, if one was found."""
    from veilmap.ingest.problems import Remedy, TableError

    message = error.summary if isinstance(error, TableError) else str(error)
    if not isinstance(error.remedy, Remedy):
        return message
    remedy = error.remedy
    words = ["veilmap", "data", "convert", str(remedy.path), "links.parquet"]
    command = shlex.join([*words, *flags_of(remedy.options)])
    return f"{message}; this command reads it: {command}"


def flags_of(options: "Options") -> list[str]:
    """The flags that give these options to a command."""
    flags: list[str] = []
    for own in fields(options):
        value = getattr(options, own.name)
        flag = "--" + own.name.replace("_", "-")
        if own.name == "on_bad":
            flags += ["--drop-bad"] * (value == "drop")
        elif own.name in _MAPPINGS:
            for name, column in value.items():
                flags += [_MAPPINGS[own.name], f"{name}={column}"]
        elif own.name in ("missing", "wide"):
            for one in value:
                flags += [flag, str(one)]
        elif own.name == "estimate_stations":
            flags += [] if value is None else [flag if value else "--no-estimate-stations"]
        elif value != own.default:
            text = f"{value:g}" if isinstance(value, float) else str(value)
            flags += [_RENAMED.get(own.name, flag), text]
    return flags


_MAPPINGS = {"columns": "--column", "station_columns": "--station-column", "where": "--where"}
_RENAMED = {"tx_power_dbm": "--tx-power"}
