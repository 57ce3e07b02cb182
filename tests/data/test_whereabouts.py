"""Places of users, against a plain count."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import veilmap as vm
from veilmap.data.whereabouts import Whereabouts


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=30))
def test_places_are_distinct_positions_counted(rows):
    user, x = (np.array(column) for column in zip(*rows, strict=True))
    xyz = np.column_stack([x, -x, np.full(len(x), 1.5)]).astype(float)
    masts = np.column_stack([np.arange(len(x)), np.zeros((len(x), 2))]).astype(float)
    data = vm.Measurements(10 * user, xyz, masts, np.full(len(x), -80.0))
    where = Whereabouts.of(data)
    plain = {}
    for one in rows:
        plain[one] = plain.get(one, 0) + 1
    names = zip(data.users[where.user] // 10, where.xy[:, 0], strict=True)
    assert dict(zip(names, where.links, strict=True)) == plain
    np.testing.assert_array_equal(where.xy[where.place], xyz[:, :2])
    np.testing.assert_array_equal(data.users[where.user[where.place]], data.user)
    for rank in range(5):
        found = where.most_visited(rank)
        for own, row in zip(data.users // 10, found, strict=True):
            counts = sorted((n for (who, _), n in plain.items() if who == own), reverse=True)
            if rank < len(counts):
                assert plain[own, row[0]] == counts[rank]
            else:
                assert np.isnan(row).all()
