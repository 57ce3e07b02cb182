"""Where users and base stations are, in metres of one plane."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from veilmap.errors import ConfigurationError, DataError
from veilmap.geometry import coordinates
from veilmap.ingest.parsing import Mask, Parsed
from veilmap.ingest.tables import RawTable

Values = NDArray[np.float64]
OFF_EARTH = "a latitude is beyond 90° or a longitude beyond 180° (are they swapped?)"


@dataclass(frozen=True)
class Place:
    """Positions as a file has them.

    Attributes
    ----------
    x, y : (n,) float
        East and north; longitude and latitude in degrees.
    z : (n,) float, optional
        Heights, where the file has any.
    degrees : bool
    crs : str, optional
        The coordinate system that the file names.
    names : tuple of str
        The columns they are from.
    """

    x: Values
    y: Values
    z: Values | None
    degrees: bool
    crs: str | None
    names: tuple[str, ...] = ()

    def off_earth(self) -> Mask:
        """Degrees that are none."""
        if not self.degrees:
            return np.zeros(len(self.x), dtype=bool)
        return (np.abs(self.y) > 90) | (np.abs(self.x) > 180)

    def at_zero(self) -> Mask:
        """0° north, 0° east: what receivers without a fix say."""
        if not self.degrees:
            return np.zeros(len(self.x), dtype=bool)
        return (self.x == 0) & (self.y == 0)

    def without(self, rows: Mask) -> "Place":
        """The same with no position at some rows."""
        if not rows.any():
            return self
        return replace(self, x=np.where(rows, np.nan, self.x), y=np.where(rows, np.nan, self.y))


def axes(
    end: str, names: Mapping[str, str], given: Mapping[str, str], has_points: bool
) -> tuple[str, ...]:
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
    if there and not all(name in names for name in there[0]):
        lacking = next(name for name in there[0] if name not in names)
        raise ConfigurationError(f"no column for {lacking}; name it in columns", "columns")
    if there and (named or not has_points):
        return there[0]
    return ()


def place(raw: RawTable, end: str, chosen: tuple[str, ...], parsed: Mapping[str, Parsed]) -> Place:
    """Positions out of ``chosen`` columns, or out of the layer's points."""
    heights = (f"{end}_z", "bs_altitude" if end == "bs" else "altitude")
    column = next((parsed[name] for name in heights if name in parsed), None)
    z = None if column is None else column.values
    if not chosen:
        if raw.points is None:
            raise DataError(f"{raw.path} has no columns for positions")
        if z is None and np.isfinite(raw.points[:, 2]).any():
            z = raw.points[:, 2]
        degrees = raw.crs is not None and coordinates.in_degrees(raw.crs)
        return Place(raw.points[:, 0], raw.points[:, 1], z, degrees, raw.crs, ("points",))
    first, second = (parsed[name].values for name in chosen)
    if chosen[0].endswith("latitude"):
        return Place(second, first, z, True, coordinates.DEGREES, chosen)
    projected = raw.crs if raw.points is None else None
    return Place(first, second, z, False, projected, chosen)


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
