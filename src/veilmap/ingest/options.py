"""How a file is to be read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from veilmap._util import checks
from veilmap.data.measurements import OnBad
from veilmap.errors import DataError
from veilmap.ingest import _names

Quantity = Literal["gain", "rss", "rsrp", "path-loss"]
UserPer = Literal["row", "position"]


@dataclass(frozen=True)
class Options:
    """What `read_measurements` is told beside the file; see there."""

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
            "columns": _names.checked(self.columns),
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
        for name, allowed in (
            ("quantity", get_args(Quantity)),
            ("user_per", (None, *get_args(UserPer))),
            ("on_bad", get_args(OnBad)),
        ):
            if getattr(self, name) not in allowed:
                choices = ", ".join(str(choice) for choice in allowed if choice)
                raise DataError(f"{name} must be one of {choices}, not {getattr(self, name)!r}")
        ways = {
            "a column for user": "user" in self.columns,
            "split_gap": self.split_gap is not None,
            "user_per": self.user_per is not None,
        }
        given = [way for way, used in ways.items() if used]
        if len(given) > 1:
            raise DataError(f"{' and '.join(given)} both say who measured; give one")
        antenna = [name for name in _names.ANTENNA if name in self.columns]
        if antenna and self.stations is None:
            raise DataError(f"{antenna[0]} is a column of a file of stations (--stations)")
        if self.wide and "gain" in self.columns:
            raise DataError("wide names the columns with gains already; name no other for gain")
