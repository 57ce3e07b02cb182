"""A small town for surveys: three base stations and people who stand somewhere."""

import numpy as np

import veilmap as vm
from veilmap.surveys.design import Survey, stations_of

SIDE = 1000.0
MASTS = np.array([(200.0, 300.0, 25.0), (850.0, 400.0, 25.0), (450.0, 900.0, 25.0)])
NAMES = np.array(["east", "north", "west"])


def crowd(users, seed=0, noise_db=3.0, low=0.0, high=SIDE):
    """People between ``low`` and ``high`` of each axis; each reads two base stations or three."""
    generator = np.random.default_rng(seed)
    xy = generator.uniform(low, high, (users, 2))
    read = np.ones((users, 3), dtype=bool)
    read[np.arange(users), generator.integers(0, 3, users)] = generator.random(users) < 0.5
    user, station = np.nonzero(read)
    apart = np.hypot(*(xy[user] - MASTS[station, :2]).T)
    gain = -70 - 32 * np.log10(np.maximum(apart, 20) / 100) + 4 * np.sin(xy[user, 0] / 90 + station)
    gain += generator.normal(0, noise_db, len(user))
    user_xyz = np.column_stack([xy[user], np.full(len(user), 1.5)])
    return vm.Measurements(user, user_xyz, MASTS[station], gain, NAMES[station])


def designed(participants, epsilon=2.0, **changes):
    """A survey of the town."""
    stations = stations_of(MASTS, NAMES)
    area = (0.0, 0.0, SIDE, SIDE)
    return Survey.design(area, stations, participants=participants, epsilon=epsilon, **changes)
