"""From one coordinate system to another; the only place with pyproj."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from veilmap._util import checks
from veilmap._util.arrays import Floats
from veilmap._util.extras import require
from veilmap.errors import ConfigurationError, DataError

DEGREES = "EPSG:4326"

_UTM_LATITUDES = (-80.0, 84.0)


def in_degrees(crs: str) -> bool:
    """Whether a coordinate system is one of longitudes and latitudes."""
    return bool(_system(crs).is_geographic)


def checked(crs: str) -> str:
    """``crs`` if maps can be made in it: a plane, in metres."""
    system = _system(crs)
    units = {axis.unit_name for axis in system.axis_info[:2]}
    if not system.is_projected or units != {"metre"}:
        problem = "is in degrees" if system.is_geographic else "is not a plane in metres"
        raise ConfigurationError(
            f"{crs} {problem}; name a projected coordinate system such as EPSG:32633,"
            " or none for the UTM zone of positions in degrees",
            "crs",
        )
    return crs


def utm_zone(longitude: Floats, latitude: Floats) -> str:
    """The UTM zone of the median position."""
    known = np.isfinite(longitude) & np.isfinite(latitude)
    if not known.any():
        raise DataError("no position is a latitude and longitude that can be used")
    east, north = float(np.median(longitude[known])), float(np.median(latitude[known]))
    if not _UTM_LATITUDES[0] <= north <= _UTM_LATITUDES[1]:
        raise ConfigurationError(
            f"UTM has no zone at latitude {north:.2f}; are latitude and longitude swapped?"
            " If not, give a coordinate system as crs",
            "crs",
        )
    zone = min(int((east + 180) // 6) + 1, 60)
    return f"EPSG:{32600 + zone if north >= 0 else 32700 + zone}"


def converted(x: Floats, y: Floats, source: str, target: str) -> tuple[Floats, Floats]:
    """Positions in another coordinate system; NaN where they cannot be had there.

    x is the longitude, y the latitude of positions in degrees.
    """
    if source == target or _system(source) == _system(target):
        return x, y
    transformer = _pyproj().Transformer.from_crs(_system(source), _system(target), always_xy=True)
    east, north = (np.asarray(values) for values in transformer.transform(x, y))
    known = np.isfinite(east) & np.isfinite(north)
    return np.where(known, east, np.nan), np.where(known, north, np.nan)


def to_longitude_latitude(crs: str, xy: ArrayLike) -> Floats:
    """Points of a projected system as (longitude, latitude) in degrees of WGS 84, (n, 2)."""
    points = checks.points("xy", xy, 2)
    return np.stack(converted(points[..., 0], points[..., 1], checked(crs), DEGREES), axis=-1)


def from_latitude_longitude(crs: str | None, places: ArrayLike) -> Floats:
    """(latitude, longitude) in degrees of WGS 84 as metres of a projected system, (n, 2)."""
    if crs is None:
        raise DataError(
            "the map has no coordinate system, so latitude and longitude mean nothing on it;"
            " give x and y in metres"
        )
    degrees = checks.points("latitude and longitude", places, 2)
    if (np.abs(degrees) > [90.0, 180.0]).any():
        raise DataError("latitude lies within ±90 degrees and longitude within ±180")
    found = converted(degrees[..., 1], degrees[..., 0], DEGREES, checked(crs))
    if not np.isfinite(found).all():
        raise DataError(f"a place has no coordinates in {crs}: it is too far from its zone")
    return np.stack(found, axis=-1)


def cf_attributes(crs: str) -> dict[str, Any]:
    """The attributes of a CF grid mapping, crs_wkt among them."""
    return dict(_system(checked(crs)).to_cf())


def _system(crs: str) -> Any:
    pyproj = _pyproj()
    try:
        return pyproj.CRS.from_user_input(crs)
    except pyproj.exceptions.CRSError:
        raise ConfigurationError(
            f"{crs!r} names no coordinate system; take one such as EPSG:32633", "crs"
        ) from None


def _pyproj() -> Any:
    require("pyproj", "a coordinate system")
    import pyproj

    return pyproj
