"""How a file is to be read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from veilmap._util import checks
from veilmap.data.measurements import OnBad
from veilmap.errors import ConfigurationError
from veilmap.ingest import columns as names
from veilmap.ingest.exporters import Quantity

UserPer = Literal["row", "position", "file"]
Dates = Literal["day-first", "month-first"]


@dataclass(frozen=True)
class Options:
    """How a file is to be read.

    Parameters
    ----------
    columns : mapping, optional
        Our names of columns to the file's: user, user_x, user_y, user_z, latitude, longitude,
        altitude, bs, bs_x, bs_y, bs_z, bs_latitude, bs_longitude, bs_altitude, gain, time,
        device, and azimuth and beam_width of a file of stations. Columns that have our names or
        usual ones (lat, lon, rsrp, timestamp, …), and those of known exporters, need not be mapped.
        Several columns make one id: ``{"bs": "mcc+mnc+cell"}``.
    station_columns : mapping, optional
        The same for the file of ``stations``, where its columns have names of their own.
    where : mapping, optional
        Columns of the file and the value that rows must have there, or several with | between.
    crs : str, optional
        The projected coordinate system to have positions in: for latitudes and longitudes the
        default is the UTM zone of their median, for x and y it says what they are in (metres
        of a plane of their own by default).
    quantity : "gain", "rss", "rsrp" or "path-loss", optional
        What the values are: gains in dB, powers in dBm of a sender of ``tx_power_dbm``, or
        losses in dB. The default follows from the exporter or the column's name, else it is gain.
    missing : sequence of float
        Missing-value sentinels; such values are left out and counted.
    stations : path, optional
        A file with the base stations' ids (bs) and positions, once for each, and perhaps where
        their antennas look (azimuth, clockwise from north) and how wide their beams are
        (beam_width), in degrees; without an azimuth a station is isotropic. Or a table of cells
        from OpenCelliD.
    estimate_stations : bool, optional
        Whether to estimate where base stations are from the measurements, if nothing says; by
        default for files of known exporters.
    wide : str or sequence of str
        The columns of a table with a column for each base station: names, or patterns such as
        "site-*". The column's name is the base station's id.
    split_gap : float, optional
        Where no column says who measured: start a new user after a gap of this many seconds.
    user_per : "row", "position" or "file", optional
        Where no column says who measured: every row, every position or all of the file is a user.
    user_height, bs_height : float
        In metres, where the file has no heights; for base stations there is no default but 30 m
        where positions are estimated or from OpenCelliD.
    max_distance : float, optional
        In metres along the ground: longer links are left out and counted.
    layer : str, optional
        Of a GeoPackage file with several; of a .zip file the name of the file in it.
    encoding : str, optional
        Of a text file; by default found out.
    dates : "day-first" or "month-first", optional
        How dates such as 01/02/2026 are written, where the file does not show it.
    on_bad : "refuse" or "drop"
        What to do about rows that cannot be used.
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    crs: str | None = None
    quantity: Quantity | None = None
    tx_power_dbm: float = 0.0
    missing: Sequence[float] = ()
    stations: Path | None = None
    station_columns: Mapping[str, str] = field(default_factory=dict)
    where: Mapping[str, str] = field(default_factory=dict)
    estimate_stations: bool | None = None
    wide: Sequence[str] = ()
    split_gap: float | None = None
    user_per: UserPer | None = None
    user_height: float = 1.5
    bs_height: float | None = None
    max_distance: float | None = None
    layer: str | None = None
    encoding: str | None = None
    dates: Dates | None = None
    on_bad: OnBad = "refuse"

    def __post_init__(self) -> None:
        checked: dict[str, object] = {
            "columns": names.checked("columns", self.columns),
            "station_columns": names.checked("station_columns", self.station_columns),
            "where": dict(self.where),
            "missing": tuple(checks.number("missing", value) for value in self.missing),
            "wide": (self.wide,) if isinstance(self.wide, str) else tuple(self.wide),
            "tx_power_dbm": checks.number("tx_power_dbm", self.tx_power_dbm),
            "user_height": checks.number("user_height", self.user_height),
        }
        if self.bs_height is not None:
            checked["bs_height"] = checks.number("bs_height", self.bs_height)
        for name in ("split_gap", "max_distance"):
            if getattr(self, name) is not None:
                checked[name] = checks.number(name, getattr(self, name), above=0)
        if self.stations is not None:
            checked["stations"] = Path(self.stations)
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        self._check_choices()

    def _check_choices(self) -> None:
        kinds = {"quantity": Quantity, "user_per": UserPer, "on_bad": OnBad, "dates": Dates}
        for name, kind in kinds.items():
            value, allowed = getattr(self, name), get_args(kind)
            if value not in allowed and not (value is None and name != "on_bad"):
                choices = ", ".join(allowed)
                raise ConfigurationError(f"{name} must be one of {choices}, not {value!r}", name)
        ways = {
            "a column for user": "user" in self.columns,
            "split_gap": self.split_gap is not None,
            "user_per": self.user_per is not None,
        }
        given = [way for way, used in ways.items() if used]
        if len(given) > 1:
            raise ConfigurationError(
                f"{' and '.join(given)} both say who measured; give one", given[-1]
            )
        antenna = [name for name in names.ANTENNA if name in self.columns]
        if self.station_columns and self.stations is None:
            raise ConfigurationError(
                "station_columns are of a file of base stations: give stations", "stations"
            )
        if self.estimate_stations and self.stations is not None:
            raise ConfigurationError(
                "stations says where base stations are; leave out estimate_stations",
                "estimate_stations",
            )
        if antenna and self.stations is None:
            raise ConfigurationError(
                f"{antenna[0]} is a column of a file of base stations: give stations", "stations"
            )
        if self.wide and "gain" in self.columns:
            raise ConfigurationError(
                "wide names the columns with gains already; name no other for gain", "wide"
            )
