"""Where sites are, out of what was measured: how far off, and whether the stated error says so."""

import numpy as np
import pytest

from veilmap.ingest import sites


def heard(rng, count, *, straight=False, sectors=1):
    """Readings of a site within a kilometre or so of those who hear it, and where it is."""
    place = rng.normal(0, 600, 2)
    xy = rng.uniform(-1000, 1000, (count, 2)) * ([1.0, 0.02] if straight else [1.0, 1.0])
    cell = rng.integers(sectors, size=count)
    x = np.log10(np.maximum(np.hypot(*(xy - place).T), 30))
    db = rng.normal(-30, 10, sectors)[cell] - rng.normal(35, 5) * x + rng.normal(0, 8, count)
    return place, (np.zeros(count, int), cell, xy, db)


@pytest.mark.parametrize(
    ("straight", "sectors"), [(False, 1), (False, 3), (True, 1)], ids=["area", "sectors", "road"]
)
def test_errors_are_no_larger_than_stated(straight, sectors):
    rng = np.random.default_rng(3)
    trials, ratio = 120, []
    for _ in range(trials):
        place, readings = heard(rng, int(rng.integers(20, 80)), straight=straight, sectors=sectors)
        found = sites.estimated(*readings)
        ratio.append(np.hypot(*(found.xy[0] - place)) / found.error_m[0])
    # The stated error is a root mean square and no less than it should be: the mean square of the
    # ratio is at most 1, here with three standard errors of a mean of squares of unit variance.
    assert np.mean(np.square(ratio)) < 1 + 3 * np.sqrt(2 / trials)
    assert np.mean(np.array(ratio) < 2) > 0.95 - 3 * np.sqrt(0.05 * 0.95 / trials)


def test_more_readings_of_a_clear_law_come_nearer():
    rng = np.random.default_rng(5)
    off, said = [], []
    for count in (10, 40, 300):
        trials = [heard(rng, count) for _ in range(40)]
        found = [sites.estimated(*readings) for _, readings in trials]
        off.append(np.median([np.hypot(*(one.xy[0] - place)) for one, (place, _) in
                              zip(found, trials, strict=True)]))  # fmt: skip
        said.append(np.median([one.error_m[0] for one in found]))
    assert off[0] > off[1] > off[2]
    # Beyond some number of squares the law itself is what errs: no error is below that of sectors.
    assert said[0] > 2 * said[1]
    assert said[2] > 100


def test_a_road_leaves_open_on_which_side_a_site_is():
    rng = np.random.default_rng(7)
    x = np.linspace(-1000, 1000, 200)
    xy = np.column_stack([x, np.zeros(200)])
    db = -30 - 35 * np.log10(np.hypot(x, 400)) + rng.normal(0, 2, 200)
    found = sites.estimated(np.zeros(200, int), np.zeros(200, int), xy, db)
    assert abs(found.xy[0, 1]) < 100  # between both sides …
    assert found.error_m[0] > 300  # … and it says so


def test_few_places_say_nothing():
    xy = np.repeat([[0.0, 0.0], [500.0, 0.0], [0.0, 500.0]], 50, axis=0)
    found = sites.estimated(np.zeros(150, int), np.zeros(150, int), xy, np.full(150, -80.0))
    assert found.squares.tolist() == [3]
    assert np.isnan(found.xy).all()
    assert np.isnan(found.error_m).all()


def test_no_error_is_below_what_sectors_do():
    rng = np.random.default_rng(11)
    xy = rng.uniform(-800, 800, (400, 2))
    db = -30 - 35 * np.log10(np.maximum(np.hypot(*(xy - [200, 100]).T), 30))
    found = sites.estimated(np.zeros(400, int), np.zeros(400, int), xy, db)
    np.testing.assert_allclose(found.xy[0], [200, 100], atol=15)
    narrow = np.sqrt(sites._posterior(np.zeros(len(db), int), xy, db, 1.0)[1].sum())
    assert narrow < 60
    assert found.error_m[0] >= np.hypot(100, narrow)


def test_every_site_is_estimated_by_itself():
    rng = np.random.default_rng(9)
    parts = [heard(rng, 60)[1] for _ in range(3)]
    site = np.repeat([2, 0, 1], 60)
    together = sites.estimated(
        site, site, np.vstack([one[2] for one in parts]), np.concatenate([one[3] for one in parts])
    )
    for number, part in zip((2, 0, 1), parts, strict=True):
        alone = sites.estimated(*part)
        np.testing.assert_allclose(together.xy[number], alone.xy[0], atol=1e-6)
        np.testing.assert_allclose(together.error_m[number], alone.error_m[0])


def naive_log_likelihood(place, cell, xy, db):
    """Of one place, by the covariance of all readings: no algebra."""
    x = np.log10(np.maximum(np.hypot(*(xy - place).T), 30))
    member = (cell[:, None] == np.unique(cell)).astype(float)
    # A flat prior on the levels of cells, as a very wide one.
    covariance = 64 * np.eye(len(db)) + 64 * np.outer(x, x) + 1e8 * member @ member.T
    rest = db + 35 * x
    return -0.5 * (rest @ np.linalg.solve(covariance, rest) + np.linalg.slogdet(covariance)[1])


def test_the_likelihood_is_that_of_the_plain_reference():
    rng = np.random.default_rng(1)
    cell = rng.integers(3, size=25)
    xy, db = rng.uniform(-800, 800, (25, 2)), rng.normal(-100, 10, 25)
    places = rng.uniform(-1000, 1000, (6, 2))
    fast = sites._log_likelihood(places, cell, xy, db, 1.0)
    slow = np.array([naive_log_likelihood(place, cell, xy, db) for place in places])
    np.testing.assert_allclose(fast - fast[0], slow - slow[0], atol=1e-4)
