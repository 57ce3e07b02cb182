"""Figures of what was read, and what looks wrong about it."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from veilmap._util.arrays import Floats, Ints
from veilmap.data.measurements import DUPLICATE, Measurements
from veilmap.ingest.doubts import found_in
from veilmap.ingest.readers import Reading

PERCENTILES = (0, 5, 50, 95, 100)
_ROWS_SHOWN = 5


@dataclass(frozen=True)
class LeftOutRows:
    """How many rows were left out for a reason, and the first of them."""

    reason: str
    count: int
    first: tuple[int, ...]
    expected: bool


@dataclass(frozen=True)
class StationCoverage:
    """What is known of one base station's links; distances along the ground, in metres.

    ``position_error_m`` is None where the position is known.
    """

    bs: str
    rows: int
    users: int
    gain_median_db: float
    nearest_m: float
    farthest_m: float
    position_error_m: float | None


@dataclass(frozen=True)
class Check:
    """What `veilmap data check` reports.

    ``rows`` is ``used`` and the counts of ``left_out``. Lengths are in metres: ``extent`` is (west,
    east, south, north) of users and base stations, ``heights_m`` (low, high) of either. Of
    ``gain_db`` and ``distance_m`` there are percentiles 0, 5, 50, 95 and 100, of
    ``rows_per_user`` the least, the median and the most. ``azimuths`` counts base stations whose
    antennas' azimuths are known.
    """

    file: str
    rows: int
    used: int
    left_out: tuple[LeftOutRows, ...]
    duplicates: int
    users: int
    rows_per_user: tuple[float, float, float]
    devices: int
    stations: tuple[StationCoverage, ...]
    azimuths: int
    gain_db: tuple[float, ...]
    distance_m: tuple[float, ...]
    extent: tuple[float, float, float, float]
    heights_m: tuple[tuple[float, float], tuple[float, float]]
    crs: str | None
    time_range: tuple[str, str] | None
    columns: dict[str, str]
    row_word: str
    notes: tuple[str, ...]
    doubts: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def lines(self) -> list[tuple[str, str]]:
        """Figures in words: what, and how much."""
        west, east, south, north = self.extent
        least, median, most = self.rows_per_user
        looking = f", {self.azimuths:,} with an azimuth" if self.azimuths else ""
        users, stations = (f"{low:g} … {high:g} m" for low, high in self.heights_m)
        lines = [
            ("rows", f"{self.rows:,}"),
            ("used", f"{self.used:,}"),
            *((f"left out: {one.count:,}", self._where(one)) for one in self.left_out),
            ("duplicates", f"{self.duplicates:,}"),
            ("users", f"{self.users:,}, each {least:,} … {most:,} rows (median {median:,g})"),
            ("base stations", f"{len(self.stations):,}{looking}"),
            ("kinds of devices", f"{self.devices:,}"),
            ("gain (dB)", _spread(self.gain_db, 1)),
            ("distance (m)", _spread(self.distance_m, 0)),
            (
                "extent",
                f"{(east - west) / 1e3:,.2f} km east × {(north - south) / 1e3:,.2f} km north",
            ),
            ("west, south", f"{west:,.1f}, {south:,.1f} m"),
            ("heights", f"users {users}, base stations {stations}"),
            ("coordinates", self.crs or "metres of a plane of their own"),
        ]
        if self.time_range is not None:
            lines.append(("time", " … ".join(self.time_range)))
        lines.append(("columns", ", ".join(f"{a} = {b}" for a, b in self.columns.items())))
        return lines + [("note", note) for note in self.notes]

    def _where(self, left_out: LeftOutRows) -> str:
        first = ", ".join(str(row) for row in left_out.first)
        more = " …" * (left_out.count > len(left_out.first))
        return f"{left_out.reason} ({self.row_word} {first}{more})"


def check(reading: Reading) -> Check:
    """Figures of what was read, and what looks wrong about it."""
    data = reading.measurements
    distance = reading.distance_m
    left_out = tuple(
        LeftOutRows(one.reason, len(one.rows), _first(one.rows), one.expected)
        for one in reading.left_out
    )
    per_user = np.unique(data.user, return_counts=True)[1]
    ground = np.vstack([data.user_xyz[:, :2], data.bs_xyz[:, :2]])
    (west, south), (east, north) = ground.min(axis=0), ground.max(axis=0)
    return Check(
        file=str(reading.path),
        rows=reading.rows,
        used=len(data),
        left_out=left_out,
        duplicates=sum(one.count for one in left_out if one.reason == DUPLICATE),
        users=len(per_user),
        rows_per_user=(int(per_user.min()), float(np.median(per_user)), int(per_user.max())),
        devices=len(np.unique(data.device)),
        stations=_coverage(data, distance),
        azimuths=0 if data.antennas is None else int(data.antennas.known(np.unique(data.bs)).sum()),
        gain_db=_percentiles(data.gain_db),
        distance_m=_percentiles(distance),
        extent=(float(west), float(east), float(south), float(north)),
        heights_m=(_range(data.user_xyz[:, 2]), _range(data.bs_xyz[:, 2])),
        crs=data.crs,
        time_range=reading.time_range,
        columns=dict(reading.columns),
        row_word=reading.row_word,
        notes=reading.notes,
        doubts=tuple(found_in(reading)),
    )


def _first(rows: Ints) -> tuple[int, ...]:
    return tuple(np.unique(rows)[:_ROWS_SHOWN].tolist())


def _coverage(data: Measurements, distance: Floats) -> tuple[StationCoverage, ...]:
    stations, number = np.unique(data.bs, return_inverse=True)
    order = np.argsort(number, kind="stable")
    groups = np.split(order, np.cumsum(np.bincount(number))[:-1])
    return tuple(
        StationCoverage(
            bs=str(bs),
            rows=len(rows),
            users=len(np.unique(data.user[rows])),
            gain_median_db=float(np.median(data.gain_db[rows])),
            nearest_m=float(distance[rows].min()),
            farthest_m=float(distance[rows].max()),
            position_error_m=data.station_errors.get(str(bs)),
        )
        for bs, rows in zip(stations, groups, strict=True)
    )


def _percentiles(values: Floats) -> tuple[float, ...]:
    return tuple(np.percentile(values, PERCENTILES).tolist())


def _range(values: Floats) -> tuple[float, float]:
    return float(values.min()), float(values.max())


def _spread(values: tuple[float, ...], digits: int) -> str:
    low, *inner, high = (f"{value:,.{digits}f}" for value in values)
    return f"{low} … {high}; 5 %, median, 95 %: {', '.join(inner)}"
