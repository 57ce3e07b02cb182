"""Apps and databases whose files are recognised by their header, one declaration each."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

Quantity = Literal["gain", "rss", "rsrp", "path-loss"]

Names = str | tuple[str, ...]
"""A column, or several names of one over an app's versions, the preferred one first."""


@dataclass(frozen=True)
class Exporter:
    """How an app or a database writes its files.

    Parameters
    ----------
    name : str
    source : str
        Where the layout is documented.
    marks : sequence of names
        The columns that tell its files from all others.
    columns : mapping
        Our names of columns to the file's.
    cell : mapping
        What identifies a cell: mcc, mnc (or both as plmn), operator, area, node and cell, to the
        file's columns. A node is the base station that a short cell id counts from.
    radio : names
        The column with the technology, such as LTE.
    quantity : "rss" or "rsrp"
        What the values are; logs of several technologies have RSSI, RSCP or RSRP, hence "rss".
    person : "file" or "column"
        Whether a file is one person's log, or a column says who measured.
    none : sequence of float
        Values that stand for none.
    only : mapping
        Columns, and the value without which a row is no measurement.
    lists : "readings" or "cells"
        What a row is.
    order : sequence of str
        The columns of files that have no line of names, which ``unnamed`` recognises.
    unnamed : str
        A pattern of the first line of a file without a line of names.
    """

    name: str
    source: str
    marks: tuple[Names, ...]
    columns: Mapping[str, Names]
    cell: Mapping[str, Names]
    radio: Names = ()
    quantity: Quantity = "rss"
    person: Literal["file", "column"] = "file"
    none: tuple[float, ...] = ()
    only: Mapping[str, str] = field(default_factory=dict)
    lists: Literal["readings", "cells"] = "readings"
    order: tuple[str, ...] = ()
    unnamed: str = ""

    def wrote(self, names: Collection[str]) -> bool:
        """Whether a file with columns of these ``names`` is one of its own."""
        return all(first_of(mark, names) for mark in self.marks)


def first_of(wanted: Names, names: Collection[str]) -> str:
    """The first of the ``wanted`` columns that is among ``names``; empty if none is."""
    several = (wanted,) if isinstance(wanted, str) else wanted
    return next((name for name in several if name in names), "")


_DEGREES: dict[str, Names] = {"latitude": "lat", "longitude": "lon"}

TOWER_COLLECTOR = Exporter(
    name="Tower Collector",
    # formatHeader of files/formatters/csv/CsvExportFormatter.java; newer files as in issue 203.
    source="https://github.com/zamojski/TowerCollector",
    marks=("mcc", "mnc", "lac", "cell_id", "dbm", "net_type", "measured_at"),
    columns=_DEGREES | {"gain": "dbm", "time": "measured_at", "device": "device"},
    cell={"mcc": "mcc", "mnc": "mnc", "area": "lac", "cell": "cell_id"},
    radio="net_type",
)

OPENCELLID = Exporter(
    name="OpenCelliD measurements",
    source="https://wiki.opencellid.org/wiki/Database_format",
    marks=("mcc", ("mnc", "net"), ("cellid", "cell"), "signal", ("measured_at", "measured"),
           "rating"),
    columns=_DEGREES | {"gain": "signal", "time": ("measured_at", "measured")},
    cell={"mcc": "mcc", "mnc": ("mnc", "net"), "area": ("lac", "area"), "cell": ("cellid", "cell")},
    radio=("act", "radio"),
)  # fmt: skip

CELL_TOWERS = Exporter(
    name="OpenCelliD cell_towers",
    # The format that Mozilla Location Service and OpenCelliD share; older files say mnc, lac, cid.
    # The files of single countries have no line of names.
    source="https://ichnaea.readthedocs.io/en/latest/import_export.html",
    marks=("radio", "mcc", "lon", "lat", "range", "samples", "changeable"),
    columns={"bs_latitude": "lat", "bs_longitude": "lon", "samples": "samples"},
    cell={"mcc": "mcc", "mnc": ("net", "mnc"), "area": ("area", "lac"), "cell": ("cell", "cid")},
    radio="radio",
    lists="cells",
    order=("radio", "mcc", "net", "area", "cell", "unit", "lon", "lat", "range", "samples",
           "changeable", "created", "updated", "averageSignal"),
    unnamed=r"(GSM|UMTS|LTE|CDMA|NR)(,-?[\d.]*){13}",
)  # fmt: skip

NEOSTUMBLER = Exporter(
    name="NeoStumbler",
    # cellExportCursor of db/dao/ExportDao.kt: the file cells.csv of the exported .zip.
    source="https://github.com/mjaakko/NeoStumbler",
    marks=("timestamp", "locationAccuracy", "cellId", "radioType", "signalStrength"),
    columns={"latitude": "latitude", "longitude": "longitude", "gain": "signalStrength",
             "time": "timestamp"},
    cell={"mcc": "mcc", "mnc": "mnc", "area": "lac", "cell": "cellId"},
    radio="radioType",
)  # fmt: skip

GEOSUBMIT = Exporter(
    name="geosubmit version 2",
    # Of Ichnaea, beaconDB and the apps that report to them; `geosubmit.py` makes a table of it.
    source="https://ichnaea.readthedocs.io/en/latest/api/geosubmit2.html",
    marks=("timestamp", "mobileCountryCode", "cellId", "signalStrength"),
    columns=NEOSTUMBLER.columns,
    cell={"mcc": "mobileCountryCode", "mnc": "mobileNetworkCode", "area": "locationAreaCode",
          "cell": "cellId"},
    radio="radioType",
)  # fmt: skip

G_NETTRACK = Exporter(
    name="G-NetTrack",
    # Logs of the app, and the tables made of them in https://github.com/uccmisl/5Gdataset, which
    # say RSRP instead of Level.
    source="https://gyokovsolutions.com/g-nettrack",
    marks=("Timestamp", "Longitude", "Latitude", "Operatorname", "CellID", "NetworkMode"),
    columns={"latitude": "Latitude", "longitude": "Longitude", "gain": ("Level", "RSRP"),
             "time": "Timestamp"},
    cell={"plmn": "Operator", "operator": "Operatorname", "area": "LAC", "node": "Node",
          "cell": ("RAWCELLID", "CellID")},
    radio=("NetworkTech", "NetworkMode"),
    none=(0.0,),
)  # fmt: skip

NETMONITOR = Exporter(
    name="NetMonitor",
    # There is no specification; columns as public readers of its logs take them. rssi is RSRP for
    # LTE and 0 is none, gps is 1 with a fix, cid counts from node_id.
    source="the app's logs of sessions",
    marks=("report", "sys_time", "tech", "mcc", ("cid", "long_cid"), "rssi", "lat", "long"),
    columns={"latitude": "lat", "longitude": "long", "gain": "rssi", "time": "sys_time"},
    cell={"mcc": "mcc", "mnc": "mnc", "area": ("lac_tac", "lac_tac_sid"), "node": "node_id",
          "cell": ("long_cid", "cid")},
    radio="tech",
    none=(0.0, 2147483647.0),
    only={"gps": "1"},
)  # fmt: skip

CELLMAPPER = Exporter(
    name="CellMapper",
    source="https://docs.cellmapper.net/mw/CellMapper_CSV",
    marks=("latitude", "longitude", "MCC", "MNC", "LAC", "CID", ("signal", "Signal"), "type"),
    columns={"latitude": "latitude", "longitude": "longitude", "gain": ("signal", "Signal")},
    cell={"mcc": "MCC", "mnc": "MNC", "area": "LAC", "cell": "CID"},
    radio="type",
    order=("latitude", "longitude", "altitude", "MCC", "MNC", "LAC", "CID", "signal", "type",
           "subtype", "ARFCN", "PSC"),
    unnamed=r"(-?\d+\.\d+,){2}-?[\d.]*(,\d+){4},-\d+,(GSM|UMTS|LTE|CDMA|NR),[^,]*,\d*,\d*",
)  # fmt: skip

RTR_NETTEST = Exporter(
    name="RTR-NetTest or NetMetr",
    # Newer files add the cell that served the test.
    source="https://www.netztest.at/en/OpenDataSpecification.html",
    marks=("open_test_uuid", "cat_technology", "network_type", "lat", "long"),
    columns={"latitude": "lat", "longitude": "long", "gain": ("lte_rsrp", "signal_strength"),
             "time": ("time_utc", "time"), "user": ("open_uuid", "open_test_uuid"),
             "device": "model"},
    cell={"plmn": "network_mcc_mnc", "area": "cell_area_code", "cell": "cell_location_id"},
    radio="cat_technology",
    quantity="rsrp",
    person="column",
)  # fmt: skip

EXPORTERS = (
    TOWER_COLLECTOR,
    OPENCELLID,
    CELL_TOWERS,
    NEOSTUMBLER,
    GEOSUBMIT,
    G_NETTRACK,
    NETMONITOR,
    CELLMAPPER,
    RTR_NETTEST,
)


def of_header(names: Collection[str]) -> Exporter | None:
    """Who wrote a file with columns of these names, if it is known."""
    return next((one for one in EXPORTERS if one.wrote(names)), None)


def unnamed_columns(first_line: str) -> Sequence[str]:
    """The columns of a file whose first line is a row of a known exporter; empty for others."""
    return next(
        (one.order for one in EXPORTERS if one.unnamed and re.fullmatch(one.unnamed, first_line)),
        (),
    )
