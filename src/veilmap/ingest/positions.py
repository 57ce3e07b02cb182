"""Where users and base stations are, in metres of one plane."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from veilmap._util.arrays import Bools, Floats
from veilmap.errors import ConfigurationError
from veilmap.geometry import coordinates
from veilmap.ingest import columns
from veilmap.ingest.parsing import Parsed
from veilmap.ingest.tables import RawTable, about

OFF_EARTH = "a latitude is beyond 90° or a longitude beyond 180° (are they swapped?)"


@dataclass(frozen=True)
class Place:
    """Positions as a file has them.

    x and y are east and north, or longitude and latitude in ``degrees``; ``crs`` is what the file
    names, and ``names`` are the columns they are from.
    """

    x: Floats
    y: Floats
    z: Floats | None
    degrees: bool
    crs: str | None
    names: tuple[str, ...] = ()

    def off_earth(self) -> Bools:
        """Degrees that are none."""
        return self.degrees & ((np.abs(self.y) > 90) | (np.abs(self.x) > 180))

    def at_zero(self) -> Bools:
        """0° north, 0° east: what receivers without a fix say."""
        return np.asarray(self.degrees & (self.x == 0) & (self.y == 0))

    def without(self, rows: Bools) -> "Place":
        """The same with no position at some rows."""
        if not rows.any():
            return self
        return replace(self, x=np.where(rows, np.nan, self.x), y=np.where(rows, np.nan, self.y))


def place(
    raw: RawTable,
    end: Literal["user", "bs"],
    names: Mapping[str, str],
    given: Mapping[str, str],
    numbers: Mapping[str, Parsed],
    points: Floats | None,
) -> Place:
    """Positions of an end: out of columns, or the layer's ``points`` if they are of this end."""
    with about(raw.path):
        chosen = _axes(end, names, given)
    by_hand = any(name in given for name in chosen)
    heights = (f"{end}_z", "bs_altitude" if end == "bs" else "altitude")
    z = next((numbers[name].values for name in heights if name in numbers), None)
    if points is not None and not by_hand:
        if z is None and np.isfinite(points[:, 2]).any():
            z = points[:, 2]
        degrees = raw.crs is not None and coordinates.in_degrees(raw.crs)
        return Place(points[:, 0], points[:, 1], z, degrees, raw.crs, ("points",))
    if not chosen:
        whose, prefix = ("users", "") if end == "user" else ("base stations", "bs_")
        more = ", or list them in a file (stations)" * (end == "bs" and "gain" in names)
        raise ConfigurationError(
            f"{raw.path} does not say where the {whose} are: name, in columns, {end}_x and {end}_y,"
            f" or {prefix}latitude and {prefix}longitude{more};"
            f" read were {columns.listed(raw.columns.column_names)}",
            "columns",
        )
    first, second = (numbers[name].values for name in chosen)
    if chosen[0].endswith("latitude"):
        return Place(second, first, z, True, coordinates.DEGREES, chosen)
    return Place(first, second, z, False, raw.crs if raw.points is None else None, chosen)


def _axes(end: str, names: Mapping[str, str], given: Mapping[str, str]) -> tuple[str, ...]:
    """Our names of the columns with positions: x and y, or latitude and longitude, or none."""
    prefix = "bs_" if end == "bs" else ""
    metres = (f"{end}_x", f"{end}_y")
    degrees = (f"{prefix}latitude", f"{prefix}longitude")
    there = [pair for pair in (metres, degrees) if any(name in names for name in pair)]
    named = [pair for pair in there if any(name in given for name in pair)]
    there = named if len(named) == 1 else there
    if len(there) == 2:
        raise ConfigurationError(
            f"both {' and '.join(metres)} and {' and '.join(degrees)} are there; name those to"
            f" take in columns, such as {metres[0]}={names.get(metres[0], '…')}",
            "columns",
        )
    lacking = [name for pair in there for name in pair if name not in names]
    if lacking:
        raise ConfigurationError(f"no column for {lacking[0]}; name it in columns", "columns")
    return there[0] if there else ()


def common_system(user: Place, bs: Place, wanted: str | None) -> str | None:
    """The coordinate system to have both ends in; None for metres of no known plane."""
    if wanted is not None:
        return coordinates.checked(wanted)
    for one, other in ((user, bs), (bs, user)):
        if one.degrees and not other.degrees and other.crs is None:
            raise ConfigurationError(
                f"{' and '.join(one.names)} are degrees, {' and '.join(other.names)} metres:"
                " give the coordinate system as crs",
                "crs",
            )
    known = next((end.crs for end in (user, bs) if end.crs and not end.degrees), None)
    if known is not None:
        return coordinates.checked(known)
    return coordinates.utm_zone(user.x, user.y) if user.degrees else None


def in_system(end: Place, crs: str | None) -> Place:
    """Positions in metres of ``crs``; NaN where they cannot be had in it."""
    if crs is None or end.crs is None:
        return end
    x, y = coordinates.converted(end.x, end.y, end.crs, crs)
    return replace(end, x=x, y=y, degrees=False, crs=crs)
