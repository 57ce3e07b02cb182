"""Between a map's metres and places on Earth; the only module here with pyproj."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilmap import _checks
from veilmap.errors import VeilmapError
from veilmap.exporting._extras import require

if TYPE_CHECKING:
    import pyproj

_WGS84 = "EPSG:4326"


def to_longitude_latitude(crs: str, xy: ArrayLike) -> NDArray[np.float64]:
    """Points of a projected system as (longitude, latitude) in degrees of WGS 84, (n, 2)."""
    return _moved(_system(crs), _WGS84, _checks.points("xy", xy, 2))


def from_latitude_longitude(crs: str | None, places: ArrayLike) -> NDArray[np.float64]:
    """(latitude, longitude) in degrees of WGS 84 as metres of a projected system, (n, 2)."""
    if crs is None:
        raise VeilmapError(
            "the map has no coordinate system, so latitude and longitude mean nothing on it;"
            " give x and y in metres"
        )
    degrees = _checks.points("latitude and longitude", places, 2)
    if (np.abs(degrees) > [90.0, 180.0]).any():
        raise VeilmapError("latitude lies within ±90 degrees and longitude within ±180")
    found = _moved(_WGS84, _system(crs), degrees[..., ::-1])
    if not np.isfinite(found).all():
        raise VeilmapError(f"a place has no coordinates in {crs}: it is too far from its zone")
    return found


def cf_attributes(crs: str) -> dict[str, Any]:
    """The attributes of a CF grid mapping, crs_wkt among them."""
    return _system(crs).to_cf()


def _moved(source: Any, target: Any, points: NDArray[np.float64]) -> NDArray[np.float64]:
    import pyproj

    transformer = pyproj.Transformer.from_crs(source, target, always_xy=True)
    return np.stack(transformer.transform(points[..., 0], points[..., 1]), axis=-1)


def _system(crs: str) -> "pyproj.CRS":
    """The coordinate system of that name, if x and y are metres in it."""
    require("pyproj", f"a map in {crs}")
    import pyproj

    try:
        system = pyproj.CRS.from_user_input(crs)
    except pyproj.exceptions.CRSError:
        raise VeilmapError(f"no coordinate system {crs!r}; name one such as EPSG:32633") from None
    if not system.is_projected or {axis.unit_name for axis in system.axis_info} != {"metre"}:
        raise VeilmapError(f"{crs} is not a projected coordinate system in metres")
    return system
