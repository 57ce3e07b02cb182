"""What looks wrong about measurements: units, signs, swapped columns, people mixed up."""

from collections.abc import Callable, Iterator

import numpy as np

from veilmap.ingest.readers import Reading, about_values

_FAR_M = 200e3
_FEW_LIVE_BEYOND_DEG = 70.0
_ABOVE_STATIONS_M = 50.0
_BELOW_STATIONS_M = 300.0
_NO_ORIGIN_M = 10e3
# Links beyond a gap in distances belong to another site, if they are many and stronger.
_GAP_RATIO = 1.5
_FEW_BEYOND = 10
_STRONGER_DB = 6.0
# Nobody on the ground is faster, and no receiver is farther off.
_FASTEST_M_S, _OFF_M = 150.0, 200.0


def found_in(reading: Reading) -> Iterator[str]:
    """All doubts about what was read, one sentence each."""
    for find in _FINDERS:
        yield from find(reading)


def _values(reading: Reading) -> Iterator[str]:
    gain = reading.measurements.gain_db
    quantity, sent = reading.options.quantity, reading.options.tx_power_dbm
    doubt = about_values(-gain if quantity == "path-loss" else gain + sent, quantity or "gain")
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


def _two_places(reading: Reading) -> Iterator[str]:
    """Users who would have to be several people: every id is promised its own ε."""
    if reading.time is None:
        return
    data, time = reading.measurements, reading.time
    # Times to the second or the minute leave as much open.
    unknown = 60.0 if (time % 60 == 0).all() else 1.0
    _, user = np.unique(data.user, return_inverse=True)
    order = np.lexsort((time, user.reshape(-1)))
    same = np.diff(user.reshape(-1)[order]) == 0
    apart = np.hypot(*np.diff(data.user_xyz[order, :2], axis=0).T)
    limit = _OFF_M + _FASTEST_M_S * (np.diff(time[order]) + unknown)
    there = np.flatnonzero(same & (apart > limit))
    if len(there) == 0:
        return
    whose = np.unique(user.reshape(-1)[order][there])
    worst = there[np.argmax((apart - limit)[there])]
    who = data.user[order[worst]]
    yield (
        f"{len(whose):,} of {len(np.unique(user)):,} users are at two places at once, such as {who}"
        f" at places {apart[worst]:,.0f} m apart within {np.diff(time[order])[worst]:,.0f} s: are"
        " they several people? A promise is for one id; name a column that tells people apart as"
        " user"
    )


def _mixed(reading: Reading) -> Iterator[str]:
    for name, bs in reading.mixed.items():
        id_column = reading.columns.get("bs", "bs")
        yield (
            f"base station {bs} has several values of {name}: are they several cells? columns with"
            f" bs={id_column}+{name} keep them apart"
        )


_FINDERS: tuple[Callable[[Reading], Iterator[str]], ...] = (
    _values, _distances, _same_id, _swapped, _origin, _one_place, _heights, _order, _two_places,
    _mixed,
)  # fmt: skip
