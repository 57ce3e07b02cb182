"""Usual names of columns, for files of no known exporter."""

import re
from collections.abc import Collection, Sequence

from veilmap.ingest.exporters import Names, Quantity
from veilmap.ingest.problems import FixableError

# In small letters, without blanks, signs and units. One column may fit.
_ONE = {
    "latitude": ("lat", "latitude", "gpslat", "gpslatitude", "userlat", "userlatitude"),
    "longitude": ("lon", "long", "lng", "longitude", "gpslon", "gpslong", "gpslongitude", "userlon",
                  "userlongitude"),
    "user_x": ("x", "easting", "utmeasting", "east"),
    "user_y": ("y", "northing", "utmnorthing", "north"),
    "user": ("user", "userid", "participant", "participantid", "subscriber", "subscriberid"),
}  # fmt: skip
# The first that is there counts.
_FIRST = {
    "time": ("time", "timestamp", "timeutc", "datetime", "datetimeutc", "measuredat", "gpstime"),
    "bs_latitude": ("bslat", "bslatitude", "sitelat", "sitelatitude", "stationlat", "towerlat"),
    "bs_longitude": ("bslon", "bslong", "bslongitude", "sitelon", "sitelong", "sitelongitude",
                     "stationlon", "towerlon"),
    "bs": ("bs", "bsid", "station", "stationid", "basestation", "site", "siteid", "enodebid",
           "enbid", "gnbid"),
}  # fmt: skip
_VALUES: dict[str, Quantity] = {
    "gain": "gain", "gaindb": "gain", "pathgain": "gain", "pathloss": "path-loss",
    "rsrp": "rsrp", "ssrsrp": "rsrp", "ltersrp": "rsrp", "nrrsrp": "rsrp",
    "rscp": "rss", "rss": "rss", "rssi": "rss", "rxlev": "rss", "rxlevel": "rss", "dbm": "rss",
    "signalstrength": "rss", "signal": "rss", "signallevel": "rss",
}  # fmt: skip
_CELLS: dict[str, tuple[str, ...]] = {
    "mcc": ("mcc", "mobilecountrycode"),
    "mnc": ("mnc", "mobilenetworkcode"),
    "plmn": ("plmn", "mccmnc", "networkmccmnc"),
    "operator": ("operator", "operatorname", "carrier", "provider"),
    "area": ("lac", "tac", "lactac", "locationareacode", "trackingareacode"),
    "cell": ("nci", "eci", "cellid", "cellidentity", "cid", "ci", "cell"),
}
# Cells that have no number of their own in the file: their numbers repeat from place to place.
_LOCAL: dict[str, tuple[str, ...]] = {
    "area": ("earfcn", "nrarfcn", "uarfcn", "arfcn", "band", "frequency"),
    "cell": ("pci", "psc", "pcipsc"),
}
_STATIONS = {
    "bs_latitude": _ONE["latitude"],
    "bs_longitude": _ONE["longitude"],
    "bs_x": _ONE["user_x"],
    "bs_y": _ONE["user_y"],
    "bs_z": ("z", "height", "heightm", "antennaheight", "bsheight", "bsz"),
    "bs": (*_FIRST["bs"], "id", "name", "sitename", "cellname"),
    "azimuth": ("azimuth", "azimuthdeg"),
    "beam_width": ("beamwidth", "beamwidthdeg", "hbw", "hpbw", "horizontalbeamwidth"),
}
_APART = (*_LOCAL["area"], *_CELLS["operator"], "mcc", "mnc", "plmn")
_ENDS = (
    ({"latitude", "longitude"}, {"user_x", "user_y"}),
    ({"bs_latitude", "bs_longitude"}, {"bs_x", "bs_y"}),
)


def simple(name: str) -> str:
    """A name in small letters, without blanks, signs and what stands in brackets."""
    return re.sub(r"[^a-z0-9]", "", re.sub(r"[(\[].*[)\]]", "", name.lower()))


def of_readings(names: Sequence[str], own: Collection[str] = ()) -> dict[str, str]:
    """Our names and those of a table of readings that are usual for them.

    ``own`` are the names of ours that are known already; positions are completed, not doubled.
    """
    found = {ours: _only(ours, names, usual) for ours, usual in _ONE.items() if ours not in own}
    found |= {ours: _first(names, usual) for ours, usual in _FIRST.items()}
    found["gain"] = _first(names, tuple(_VALUES))
    found = {ours: theirs for ours, theirs in found.items() if theirs and ours not in own}
    for degrees, metres in _ENDS:
        unused = (degrees | metres) - _way({*own}, {*own, *found}, degrees, metres)
        found = {ours: theirs for ours, theirs in found.items() if ours not in unused}
    return found


def _way(own: set[str], known: set[str], degrees: set[str], metres: set[str]) -> set[str]:
    """The names of ours that say a position: those that somebody named, or a whole pair."""
    if own & metres:
        return metres
    if own & degrees or degrees <= known:
        return degrees
    return metres if metres <= known else set()


def of_stations(names: Sequence[str]) -> dict[str, str]:
    """Our names and those of a table of base stations that are usual for them."""
    found = {ours: _first(names, usual) for ours, usual in _STATIONS.items()}
    return {ours: theirs for ours, theirs in found.items() if theirs}


def cell(names: Sequence[str]) -> dict[str, Names]:
    """The columns that identify a cell; empty where none does."""
    parts = {part: _first(names, usual) for part, usual in _CELLS.items()}
    if not parts["cell"]:
        local = {part: _first(names, usual) for part, usual in _LOCAL.items()}
        parts |= {part: column for part, column in local.items() if column}
    return {part: column for part, column in parts.items() if column} if parts["cell"] else {}


def quantity(column: str) -> Quantity:
    """What a column of this name holds."""
    return _VALUES.get(simple(column), "gain")


def apart(names: Sequence[str]) -> list[str]:
    """Columns whose values tell cells apart: bands, carriers and operators."""
    return [name for name in names if simple(name) in _APART]


def _fitting(names: Sequence[str], usual: Sequence[str]) -> list[str]:
    return [name for wanted in usual for name in names if simple(name) == wanted]


def _first(names: Sequence[str], usual: Sequence[str]) -> str:
    return next(iter(_fitting(names, usual)), "")


def _only(ours: str, names: Sequence[str], usual: Sequence[str]) -> str:
    if ours in names:
        return ours
    fitting = list(dict.fromkeys(_fitting(names, usual)))
    if len(fitting) > 1:
        shown = " and ".join(repr(name) for name in fitting)
        raise FixableError(
            f"{shown} may both be {ours}: name one in columns", "columns",
            columns={ours: fitting[0]},
        )  # fmt: skip
    return fitting[0] if fitting else ""
