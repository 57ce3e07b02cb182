"""Files as apps and databases write them, made for tests: one writer beside each declaration.

Every writer takes the same readings, so that what is read back can be compared with them.
"""

import csv
import gzip
import io
import json
import zipfile
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np

START = datetime(2026, 3, 14, 9, 26, 53, tzinfo=UTC)
CITY = (48.137, 11.575)  # latitude, longitude; UTM zone 32 north
CRS = "EPSG:32632"
MCC, MNC, AREA = 262, 2, 40211
# Two sectors of one base station and one of another, as 28-bit LTE cells.
CELLS = (5001 * 256 + 1, 5001 * 256 + 2, 5002 * 256 + 1)
SITES = ((48.141, 11.571), (48.141, 11.571), (48.133, 11.581))


@dataclass(frozen=True)
class Drive:
    """What a phone read on its way: one reading a row."""

    latitude: np.ndarray
    longitude: np.ndarray
    cell: np.ndarray  # a number into CELLS
    dbm: np.ndarray
    seconds: np.ndarray  # since START

    def __len__(self):
        return len(self.dbm)

    @property
    def times(self):
        return [START + timedelta(seconds=int(one)) for one in self.seconds]

    @property
    def ids(self):
        return [f"{MCC}-{MNC}-{AREA}-{CELLS[one]}" for one in self.cell]

    def xy(self):
        from pyproj import Transformer

        to_metres = Transformer.from_crs("EPSG:4326", CRS, always_xy=True)
        return np.column_stack(to_metres.transform(self.longitude, self.latitude))


def site_xy():
    from pyproj import Transformer

    to_metres = Transformer.from_crs("EPSG:4326", CRS, always_xy=True)
    latitude, longitude = np.array(SITES).T
    return np.column_stack(to_metres.transform(longitude, latitude))


def drive(rows=240, seed=0):
    """A way there and back through the city; levels fall by 35 dB per decade."""
    rng = np.random.default_rng(seed)
    turn = np.linspace(0, 2 * np.pi, rows)
    latitude = np.round(CITY[0] + 0.006 * np.sin(turn) + 0.002 * np.sin(3 * turn), 6)
    longitude = np.round(CITY[1] + 0.009 * np.cos(turn), 6)
    cell = np.arange(rows) % len(CELLS)
    seconds = 10 * np.arange(rows)
    here = Drive(latitude, longitude, cell, np.zeros(rows), seconds)
    apart = np.hypot(*(here.xy() - site_xy()[cell]).T)
    dbm = np.round(-10 - 35 * np.log10(np.maximum(apart, 30)) + rng.normal(0, 4, rows))
    return Drive(latitude, longitude, cell, dbm.astype(int), seconds)


def table(header, rows, separator=",", end="\n"):
    out = io.StringIO()
    csv.writer(out, delimiter=separator, lineterminator=end).writerows(
        [header.split(separator), *rows]
    )
    return out.getvalue().encode()


def tower_collector(way):
    header = (
        "mcc,mnc,lac,cell_id,short_cell_id,rnc,psc,asu,dbm,ta,lat,lon,accuracy,speed,bearing,"
        "altitude,measured_at,net_type,neighboring,discovered_at,device,rsrp,rsrq,rssi"
    )
    rows = [
        [MCC, MNC, AREA, CELLS[c], CELLS[c] % 256, "", 74, 30, dbm, 1, lat, lon, 4.2, 11, 90, 540,
         f"{when:%Y-%m-%dT%H:%M:%S}.000Z", "LTE", "false", "", "maker model", dbm, -11, -70]
        for lat, lon, c, dbm, when in _rows(way)
    ]  # fmt: skip
    # Neighbours have no id, and some readings no value.
    rows.insert(3, ["", "", "", "", "", "", 74, "", -101, "", *rows[3][10:17], "LTE", "true",
                    *[""] * 5])  # fmt: skip
    rows.insert(7, [*rows[7][:8], "", *rows[7][9:]])
    return table(header, rows, end="\r\n"), [5, 9]


def opencellid(way):
    header = ("mcc,mnc,lac,cellid,lat,lon,signal,measured_at,rating,speed,direction,act,ta,psc,tac,"
              "pci,sid,nid,bid")  # fmt: skip
    rows = [
        [MCC, MNC, AREA, CELLS[c], lat, lon, dbm, int(when.timestamp() * 1000), 7.0, 3.2, 329.6,
         "LTE+", 2, "", AREA, 373, "", "", ""]
        for lat, lon, c, dbm, when in _rows(way)
    ]  # fmt: skip
    return table(header, rows), []


def neostumbler(way):
    header = (
        "timestamp,latitude,longitude,locationAccuracy,locationAge,speed,cellId,radioType,mcc,mnc,"
        "lac,psc,signalStrength,asu,arfcn,cellScanAge"
    )
    rows = [
        [int(when.timestamp() * 1000), lat, lon, 4.5, 900, 12.5, CELLS[c], "LTE", f"{MCC}",
         f"{MNC:02}", AREA, 74, dbm, "", 1300, 400]
        for lat, lon, c, dbm, when in _rows(way)
    ]  # fmt: skip
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("beacons.csv", "timestamp,latitude,longitude,macAddress\n")
        archive.writestr("cells.csv", table(header, rows, end="\r\n"))
        archive.writestr("wifis.csv", "timestamp,latitude,longitude,macAddress,ssid\n")
    return content.getvalue(), []


def geosubmit(way):
    items = [
        {
            "timestamp": int(when.timestamp() * 1000),
            "position": {"latitude": float(lat), "longitude": float(lon), "accuracy": 4.0,
                         "altitude": 540.0, "source": "gps"},
            "cellTowers": [
                {"radioType": "lte", "mobileCountryCode": MCC, "mobileNetworkCode": MNC,
                 "locationAreaCode": AREA, "cellId": CELLS[c], "serving": 1,
                 "signalStrength": int(dbm)}
            ],
            "wifiAccessPoints": [{"macAddress": "01:23:45:67:89:ab", "signalStrength": -77}],
        }
        for lat, lon, c, dbm, when in _rows(way)
    ]  # fmt: skip
    items[2]["cellTowers"].append({"radioType": "lte", "serving": 0, "signalStrength": -99})
    items[4]["cellTowers"].append({"radioType": "lte", **items[4]["cellTowers"][0]})
    items[4]["cellTowers"][-1].pop("signalStrength")
    return json.dumps({"items": items}).encode(), [2, 4]


def g_nettrack(way):
    header = (
        "Timestamp,Longitude,Latitude,Speed,Operatorname,Operator,CGI,Cellname,Node,CellID,LAC,"
        "NetworkTech,NetworkMode,Level,Qual,SNR,CQI,LTERSSI,ARFCN,DL_bitrate,UL_bitrate"
    ).replace(",", "\t")
    rows = [
        [f"{when:%Y.%m.%d_%H.%M.%S}", lon, lat, 40, "Operator", f"{MCC}{MNC:02}", "-", "-",
         CELLS[c] // 256, CELLS[c] % 256, AREA, "4G", "LTE", dbm, -10, 12, "-", -70, 1300, 5, 1]
        for lat, lon, c, dbm, when in _rows(way)
    ]  # fmt: skip
    rows.insert(5, [*rows[5][:13], "-", *rows[5][14:]])
    return table(header, rows, separator="\t"), [7]


def netmonitor(way):
    header = (
        "report;sys_time;sim_state;net_op_name;net_op_code;roaming;net_type;tech;mcc;mnc;lac_tac;"
        "node_id;cid;psc_pci;rssi;rsrq;rssnr;slev;gps;accuracy;lat;long;band;arfcn;site_name;"
    )
    rows = [
        [n, f"{when:%Y%m%d%H%M%S}", "READY", "Operator", f"{MCC}{MNC:02}", 0, "LTE", "LTE", MCC,
         MNC, AREA, CELLS[c] // 256, CELLS[c] % 256, 40, dbm, -8, 150, 4, 1, 2, lat, lon, 800, 6200,
         "null", ""]
        for n, (lat, lon, c, dbm, when) in enumerate(_rows(way))
    ]  # fmt: skip
    rows.insert(2, [*rows[2][:14], 0, 0, 2147483647, *rows[2][17:]])  # nothing was measured
    rows.insert(6, [*rows[6][:18], 0, *rows[6][19:]])  # no fix
    return table(header, rows, separator=";"), [4, 8]


def cellmapper(way):
    header = "latitude,longitude,altitude,MCC,MNC,LAC,CID,signal,type,subtype,ARFCN,PSC"
    rows = [
        [f"{lat:.6f}", f"{lon:.6f}", 540, MCC, MNC, AREA, CELLS[c], dbm, "LTE", "LTE-A", 1300, 74]
        for lat, lon, c, dbm, _ in _rows(way)
    ]
    return table(header, rows), []


def rtr_nettest(way, people=4):
    header = (
        "open_uuid;open_test_uuid;time_utc;cat_technology;network_type;lat;long;loc_src;"
        "loc_accuracy;zip_code;download_kbit;upload_kbit;ping_ms;lte_rsrp;server_name;platform;"
        "model;network_mcc_mnc;network_name;cell_area_code;cell_location_id"
    )
    rows = [
        [f"P{n % people}", f"O{n}", f"{when:%Y-%m-%d %H:%M}", "4G", "LTE", lat, lon, "gps", 6.0,
         1010, 22180, 22409, 31.9, dbm, "RTR", "Android", "model", f"{MCC}-{MNC:02}", "Operator",
         AREA, CELLS[c]]
        for n, (lat, lon, c, dbm, when) in enumerate(_rows(way))
    ]  # fmt: skip
    rows.insert(1, ["P9", "O9999", "2026-03-14 09:00", "WLAN", "WLAN", *[""] * 8, "", *[""] * 7])
    return table(header, rows, separator=";"), [3]


def cell_towers(cells=CELLS, sites=SITES, header=True):
    """OpenCelliD's table, with cells that nobody here hears."""
    names = ("radio,mcc,net,area,cell,unit,lon,lat,range,samples,changeable,created,updated,"
             "averageSignal")  # fmt: skip
    rows = [
        ["LTE", MCC, MNC, AREA, cell, 0, lon, lat, 1000, 7, 1, 1282569574, 1300155341, 0]
        for cell, (lat, lon) in zip(cells, sites, strict=True)
    ]
    rows.append(
        ["GSM", MCC, MNC, 801, 1795, 0, 13.27, 52.52, 5716, 9, 1, 1282569574, 1300155341, 0]
    )
    rows.append([*rows[0][:6], 0.0, 10.0, 9000, 2, *rows[0][10:]])  # again, from fewer samples
    written = table(names, rows)
    return written if header else written.split(b"\n", 1)[1]


def _rows(way):
    columns = way.latitude, way.longitude, way.cell.tolist(), way.dbm.tolist(), way.times
    return zip(*columns, strict=True)


# Of every format the name of a file, its writer, and whether it knows times and people.
FORMATS = {
    "Tower Collector": ("log.csv", tower_collector),
    "OpenCelliD measurements": ("log.csv", opencellid),
    "NeoStumbler": ("export.zip", neostumbler),
    "geosubmit version 2": ("reports.json", geosubmit),
    "G-NetTrack": ("log.txt", g_nettrack),
    "NetMonitor": ("session.csv", netmonitor),
    "CellMapper": ("cells.csv", cellmapper),
    "RTR-NetTest or NetMetr": ("opendata.csv", rtr_nettest),
}


def write(folder, name, way):
    """The file of a format, and the numbers of its rows that hold no measurement."""
    file, writer = FORMATS[name]
    content, gaps = writer(way)
    path = folder / file
    path.write_bytes(content)
    return path, gaps


def write_towers(folder, *, header=True, packed=True, **which):
    """OpenCelliD's table as it is downloaded."""
    content = cell_towers(header=header, **which)
    path = folder / ("cell_towers.csv.gz" if packed else "cell_towers.csv")
    path.write_bytes(gzip.compress(content) if packed else content)
    return path
