"""How a file is to be read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from veilmap._util import checks
from veilmap.data.measurements import OnBad
from veilmap.errors import ConfigurationError
from veilmap.ingest import columns as names

Quantity = Literal["gain", "rss", "rsrp", "path-loss"]
UserPer = Literal["row", "position"]


@dataclass(frozen=True)
class Options:
    """How a file is to be read.

    Parameters
    ----------
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
        Missing-value sentinels; such values are left out and counted.
    stations : path, optional
        A file with the base stations' ids (bs) and positions, once for each, and perhaps where
        their antennas look (azimuth, clockwise from north) and how wide their beams are
        (beam_width), in degrees; without an azimuth a station is isotropic.
    wide : str or sequence of str
        The columns of a table with a column for each base station: names, or patterns such as
        "site-*". The column's name is the base station's id.
    split_gap : float, optional
        Where no column says who measured: start a new user after a gap of this many seconds.
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

    columns: Mapping[str, str] = field(default_factory=dict)
    crs: str | None = None
    quantity: Quantity = "gain"
    tx_power_dbm: float = 0.0
    missing: Sequence[float] = ()
    stations: Path | None = None
    wide: Sequence[str] = ()
    split_gap: float | None = None
    user_per: UserPer | None = None
    user_height: float = 1.5
    bs_height: float | None = None
    max_distance: float | None = None
    layer: str | None = None
    encoding: str = "utf-8"
    on_bad: OnBad = "refuse"

    def __post_init__(self) -> None:
        checked: dict[str, object] = {
            "columns": names.checked(self.columns),
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
        for name, kind in (("quantity", Quantity), ("user_per", UserPer), ("on_bad", OnBad)):
            value, allowed = getattr(self, name), get_args(kind)
            if value not in allowed and not (value is None and name == "user_per"):
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
        if antenna and self.stations is None:
            raise ConfigurationError(
                f"{antenna[0]} is a column of a file of base stations: give stations", "stations"
            )
        if self.wide and "gain" in self.columns:
            raise ConfigurationError(
                "wide names the columns with gains already; name no other for gain", "wide"
            )
