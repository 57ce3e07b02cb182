"""What looks wrong about measurements: units, signs, swapped columns."""

from collections.abc import Callable, Iterator

import numpy as np

from veilmap._util.arrays import Floats
from veilmap.ingest.options import Quantity
from veilmap.ingest.results import Reading

# Losses of links that radios bridge, in dB.
_USUAL_LOSS_DB = (60.0, 180.0)
_FAR_M = 200e3
_FEW_LIVE_BEYOND_DEG = 70.0
_ABOVE_STATIONS_M = 50.0
_BELOW_STATIONS_M = 300.0
_NO_ORIGIN_M = 10e3
# Links beyond a gap in distances belong to another site, if they are many and stronger.
_GAP_RATIO = 1.5
_FEW_BEYOND = 10
_STRONGER_DB = 6.0


def about(reading: Reading) -> list[str]:
    """Every doubt about what was read, one line each."""
    return [doubt for find in _FINDERS for doubt in find(reading)]


def about_values(values: Floats, quantity: Quantity) -> str:
    """A doubt about values of ``quantity``, as the file has them."""
    known = values[np.isfinite(values)]
    if len(known) == 0:
        return ""
    if quantity == "path-loss":
        negative = "all path losses are negative; are they gains (quantity='gain')?"
        return negative if (known < 0).all() else ""
    low, high = _USUAL_LOSS_DB
    if quantity == "gain" and np.mean((known >= low) & (known <= high)) > 0.95:
        return (
            f"values of {low:g} … {high:g} look like path losses given as gains;"
            " read them with quantity='path-loss'"
        )
    positive = int((known > 0).sum())
    if not positive:
        return ""
    if quantity == "gain":
        return f"{positive} gains are positive: no passive link amplifies"
    unit = "are positive in dBm; is the sign or the unit wrong?"
    return f"{positive} {quantity.upper()} values {unit}"


def _values(reading: Reading) -> Iterator[str]:
    gain = reading.measurements.gain_db
    as_read = -gain if reading.quantity == "path-loss" else gain + reading.tx_power_dbm
    doubt = about_values(as_read, reading.quantity)
    if doubt:
        yield doubt
    if len(gain) > 1 and gain.min() == gain.max():
        yield f"all gains are {gain[0]:g} dB"


def _distances(reading: Reading) -> Iterator[str]:
    data = reading.measurements
    distance = reading.distance_m
    far = int((distance > _FAR_M).sum())
    if far:
        yield (
            f"{far} of {len(data)} links are longer than {_FAR_M / 1e3:g} km"
            f" (up to {distance.max() / 1e3:,.0f} km): units, coordinate systems, or latitude and"
            " longitude may be mixed up"
        )


def _same_id(reading: Reading) -> Iterator[str]:
    data = reading.measurements
    distance = reading.distance_m
    order = np.lexsort((distance, data.bs))
    ends = np.flatnonzero(data.bs[order][1:] != data.bs[order][:-1]) + 1
    for rows in np.split(order, ends):
        if len(rows) < 2 * _FEW_BEYOND:
            continue
        start = int(np.diff(distance[rows]).argmax()) + 1
        near, far = rows[:start], rows[start:]
        if min(len(near), len(far)) < _FEW_BEYOND:
            continue
        # As many links this side of the gap: what the far ones should be weaker than.
        stronger = np.median(data.gain_db[far]) - np.median(data.gain_db[near[-len(far) :]])
        edge, beyond = distance[near[-1]], distance[far[0]]
        if beyond > _GAP_RATIO * edge and stronger > _STRONGER_DB:
            yield (
                f"{len(far):,} links of base station {data.bs[far[0]]} are {beyond:,.0f} …"
                f" {distance[far[-1]]:,.0f} m long, beyond a gap from {edge:,.0f} m on, and"
                f" {stronger:.0f} dB stronger than those before it: another site with the same id?"
            )


def _swapped(reading: Reading) -> Iterator[str]:
    if reading.degrees is None:
        return
    user, bs = reading.degrees[:, :2], reading.degrees[:, 2:]
    if np.isfinite(reading.degrees).all():
        apart = np.median(np.abs(user - bs).max(axis=1))
        if np.median(np.abs(user[:, ::-1] - bs).max(axis=1)) < apart / 2 and apart > 1:
            yield "latitude and longitude of users and of base stations seem swapped to each other"
            return
    latitude = float(np.median(user[:, 1])) if np.isfinite(user).all() else 0.0
    if abs(latitude) > _FEW_LIVE_BEYOND_DEG:
        yield f"users are at latitude {latitude:.2f}; are latitude and longitude swapped?"


def _origin(reading: Reading) -> Iterator[str]:
    xy = reading.measurements.user_xyz[:, :2]
    there = int((xy == 0).all(axis=1).sum())
    if there and np.hypot(*np.median(xy, axis=0)) > _NO_ORIGIN_M:
        yield f"{there} users are exactly at (0, 0), far from all others: positions may be missing"


def _one_place(reading: Reading) -> Iterator[str]:
    data = reading.measurements
    if len(data) > 1 and (np.ptp(data.user_xyz[:, :2], axis=0) == 0).all():
        yield "all users are at one place"


def _heights(reading: Reading) -> Iterator[str]:
    data = reading.measurements
    user, bs = (float(np.median(xyz[:, 2])) for xyz in (data.user_xyz, data.bs_xyz))
    if user - bs > _ABOVE_STATIONS_M or bs - user > _BELOW_STATIONS_M:
        yield (
            f"users are {user:,.0f} m up, base stations {bs:,.0f} m: one may be above the sea,"
            " the other above the ground"
        )


def _order(reading: Reading) -> Iterator[str]:
    if reading.time is None:
        return
    back = int((np.diff(reading.time) < 0).sum())
    if back:
        yield f"rows are not in order of time: it goes back at {back} of them"


_FINDERS: tuple[Callable[[Reading], Iterator[str]], ...]
_FINDERS = _values, _distances, _same_id, _swapped, _origin, _one_place, _heights, _order
