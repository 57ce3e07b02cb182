"""Which column of a file is which of ours."""

import difflib
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from veilmap.errors import ConfigurationError, DataError
from veilmap.ingest.tables import TableFile, parts_of

IDS = ("user", "bs", "device")
USER_PLACE = ("user_x", "user_y", "user_z", "latitude", "longitude", "altitude")
BS_PLACE = ("bs_x", "bs_y", "bs_z", "bs_latitude", "bs_longitude", "bs_altitude")
BS_GROUND = ("bs_x", "bs_y", "bs_latitude", "bs_longitude")
ANTENNA = ("azimuth", "beam_width")
ERROR = "bs_error_m"
TABLE = (*IDS, *USER_PLACE, *BS_PLACE, ERROR, "gain", "time")
LEVEL = "level"
STATIONS = ("bs", *BS_PLACE, *ANTENNA, LEVEL, ERROR)

# What a column may be called without being named, beside our own name for it.
_IN_TABLES = {"gain": ("gain_db",)}
_IN_STATIONS = {name: (name.removeprefix("bs_"),) for name in (*BS_PLACE, ERROR)}
_IN_STATIONS |= {"azimuth": ("azimuth_deg",), "beam_width": ("beam_width_deg",)}
_IN_STATIONS |= {LEVEL: ("level_db",)}

_COLUMNS_SHOWN = 12


def checked(parameter: str, given: Mapping[str, str] | None) -> dict[str, str]:
    """``given`` if it is about columns of ours."""
    for ours in given or {}:
        if ours not in (*TABLE, *ANTENNA):
            raise ConfigurationError(
                f"{parameter} has {ours!r}, which is none of {', '.join((*TABLE, *ANTENNA))}",
                parameter,
            )
    return dict(given or {})


def of_table(
    file: TableFile, given: Mapping[str, str], stations: TableFile | None
) -> dict[str, str]:
    """Our names of the measurements' columns, and theirs; ``stations`` has some of its own."""
    own = dict(given)
    if stations is not None:
        for ours in (*BS_PLACE, *ANTENNA):
            if ours in own:
                require(stations, own.pop(ours), ours)
        if own.get("bs") in stations.names and own["bs"] not in file.names:
            del own["bs"]  # the measurements call it bs
    return _found(file, own, TABLE, _IN_TABLES)


def of_stations(
    file: TableFile, given: Mapping[str, str], own: Mapping[str, str]
) -> dict[str, str]:
    """Our names of the stations' columns, and theirs; ``own`` are named for this file alone."""
    named = {ours: given[ours] for ours in STATIONS if given.get(ours) in file.names}
    return _found(file, {**named, **own}, STATIONS, _IN_STATIONS)


def _found(
    file: TableFile,
    given: Mapping[str, str],
    known: Sequence[str],
    others: Mapping[str, tuple[str, ...]],
) -> dict[str, str]:
    found: dict[str, str] = {}
    for ours in known:
        called = [name for name in (ours, *others.get(ours, ())) if name in file.names]
        if ours in given or called:
            found[ours] = given[ours] if ours in given else called[0]
            require(file, found[ours], ours)
    return found


def require(file: TableFile, name: str, purpose: str) -> None:
    """Complain unless there is exactly one column of this name, or of each with + between."""
    parts = parts_of(name, file.names)
    if len(parts) > 1 and purpose not in IDS:
        raise ConfigurationError(
            f"only ids are put together of several columns, not {purpose} of {name}", "columns"
        )
    for part in parts:
        _require_one(file, part, purpose)


def _require_one(file: TableFile, name: str, purpose: str) -> None:
    count = file.names.count(name)
    if count > 1:
        raise DataError(f"{file.path} has {count} columns named {name!r}; rename all but one")
    if count == 0:
        near = difflib.get_close_matches(name, file.names, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"it has {listed(file.names)}"
        raise ConfigurationError(
            f"{file.path} has no column {name!r} (for {purpose}); {hint}", "columns"
        )


def listed(names: Sequence[str]) -> str:
    """Names for a message of one line."""
    shown = ", ".join(repr(name)[1:-1] for name in names[:_COLUMNS_SHOWN])
    more = f" and {len(names) - _COLUMNS_SHOWN} more" * (len(names) > _COLUMNS_SHOWN)
    return shown + more


def of_wide(file: TableFile, wanted: Sequence[str]) -> list[str]:
    """The columns that names or patterns such as "site-*" mean, in the file's order."""
    chosen = set()
    for pattern in wanted:
        matching = {name for name in file.names if name == pattern or fnmatchcase(name, pattern)}
        if not matching:
            raise ConfigurationError(
                f"{file.path} has no column {pattern!r} for a base station;"
                f" it has {listed(file.names)}",
                "wide",
            )
        chosen |= matching
    for name in chosen:
        require(file, name, "a base station")
    return [name for name in file.names if name in chosen]
