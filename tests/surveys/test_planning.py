"""What is expected of a survey's map: against dense kriging, and against a survey."""

import math
from dataclasses import replace

import numpy as np
import pytest

import veilmap as vm
from refusals import refused
from veilmap.errors import ConfigurationError
from veilmap.surveys import planning
from veilmap.surveys.design import Survey, stations_of
from veilmap.surveys.planning import Curve, changes, expected
from veilmap.surveys.surroundings import Surroundings

AREA = (0.0, 0.0, 1000.0, 1000.0)
MASTS = stations_of([(200.0, 300.0, 30.0), (700.0, 800.0, 30.0)], ["a", "b"])


def designed(
    participants=4000, epsilon=4.0, surroundings=planning.USUAL, stations=MASTS, **changes
):
    return Survey.design(
        AREA,
        stations,
        participants=participants,
        epsilon=epsilon,
        surroundings=surroundings,
        **changes,
    )


def kriging_variance(spacing, noise_variance, variance, reach, along=7):
    """What averages at points, with noise, leave open of a field in the middle of them, in dB².

    In plain linear algebra, with bilinear averages as sums over 6 × 6 places around a point.
    """
    points = spacing * (np.arange(along) - along // 2)
    offsets = spacing * np.arange(-5, 6, 2) / 6
    weights = 1 - np.abs(offsets) / spacing
    weights /= weights.sum()
    share = np.multiply.outer(weights, weights).ravel()
    x, y = (one.ravel() for one in np.meshgrid(points, points))
    dx, dy = (one.ravel() for one in np.meshgrid(offsets, offsets))
    places = np.column_stack([(x[:, None] + dx).ravel(), (y[:, None] + dy).ravel()])

    def covariance(one, other):
        return variance * np.exp(-np.hypot(*(one[:, None] - other[None]).T) / reach)

    def averaged(rows):
        return rows.reshape(len(x), len(share), -1).transpose(0, 2, 1) @ share

    seen = averaged(averaged(covariance(places, places)).T.reshape(len(places), -1))
    seen = seen + noise_variance * np.eye(len(x))
    wanted = spacing * np.array([(0, 0), (0.5, 0), (0.25, 0.25), (0.5, 0.5)])
    cross = averaged(covariance(places, wanted).T)
    told = np.einsum("pi,pi->i", cross, np.linalg.solve(seen, cross))
    return float(variance - told.mean())


@pytest.mark.parametrize(("participants", "epsilon"), [(1000, 1.0), (4000, 2.0), (15_000, 8.0)])
def test_it_expects_what_dense_kriging_leaves_open(participants, epsilon):
    told = Surroundings(occupied=1.0, reading_noise_db=0.5, shadowing_db=8.0)
    survey = designed(participants, epsilon, told, MASTS[:1])
    spacing = survey.grid.cell_size
    variance, reach = planning._shadowing(survey, told, planning.CURVE)
    found = (expected(survey, told).error_db / planning._TAILS) ** 2
    within = kriging_variance(spacing, 0.0, variance, reach, along=1)  # between points
    noise = survey.noise_db(1e6, told) / spacing**2
    shortened = math.exp(-((2 * math.pi / 80) ** 2) * within / 2)
    read = within * 1e6 / participants / spacing**2
    open_ = kriging_variance(spacing, (noise / shortened) ** 2 + read, variance, reach)
    # The law costs a little more, and waves beyond the area are missing.
    assert 0.85 * open_ < found < 1.35 * open_


@pytest.mark.parametrize("masts", [1, 2, 40])
def test_what_masts_have_in_common_leaves_each_its_variance(masts):
    places = np.random.default_rng(0).uniform(0, 1000, (masts, 3))
    survey = designed(stations=stations_of(np.repeat(places, 2, axis=0), range(2 * masts)))
    k = np.geomspace(1e-3, 1.0, 20)
    (share, common), (rest, own) = planning._alike(survey, k)
    np.testing.assert_allclose(share + rest, 1.0)
    np.testing.assert_allclose(share * common + rest * own, 1.0)
    assert (np.diff(share) >= 0).all()  # of shorter waves less is common
    assert share[0] == pytest.approx(1 / masts)


def test_more_people_a_larger_epsilon_and_calmer_ground_are_better():
    now = expected(designed()).error_db
    assert expected(designed(8000)).error_db < now
    assert expected(designed(epsilon=8.0)).error_db < now
    for better in (
        Surroundings(reading_noise_db=3.0),
        Surroundings(shadowing_db=3.0),
        Surroundings(occupied=0.3),
    ):
        assert expected(designed(), better).error_db < now


def test_a_crowd_without_shadows_leaves_the_noise_of_readings():
    calm = Surroundings(reading_noise_db=3.0, shadowing_db=0.0)
    what = expected(designed(10**8, 8.0), calm)
    assert what.deviation_db == pytest.approx(3.0, abs=0.01)
    assert 0.7 * what.deviation_db < what.error_db < 0.8 * what.deviation_db


def test_next_to_nobody_leaves_what_laws_do():
    told = Surroundings(reading_noise_db=3.0, shadowing_db=8.0)
    what = expected(designed(2, 0.5, told, coarsest=True), told)
    assert what.deviation_db == pytest.approx(math.sqrt(9 + 64 + 15**2), rel=0.05)


def test_it_says_what_a_participant_sends():
    survey = designed()
    what = expected(survey)
    assert what.upload_bytes == 4 * survey.numbers
    assert what.participants_per_point == 4000 / survey.grid.cells
    assert what.spacing == survey.grid.cell_size


def test_what_would_change_it_is_what_those_designs_expect():
    survey = designed()
    found = {change.what: change.error_db for change in changes(survey)}
    now = expected(survey).error_db
    assert found["8,000 participants"] == pytest.approx(
        expected(designed(8000)).error_db - now, abs=0.02
    )
    assert found["ε = 8"] == pytest.approx(expected(designed(epsilon=8.0)).error_db - now, abs=0.02)
    finer = designed(spacing=0.7 * survey.grid.cell_size)
    assert list(found.values())[2] == pytest.approx(expected(finer).error_db - now, abs=0.02)
    assert found["8,000 participants"] < -0.1 < 0.1 < list(found.values())[2]


def test_a_survey_measures_about_what_is_expected():
    """A city that the constants were not fitted to, with fewer base stations."""
    scene = vm.Scene.synthetic(24, base_stations=30)
    told = Surroundings(heard=30, occupied=1.0, reading_noise_db=3.0)
    west, east, south, north = scene.grid.extent
    survey = Survey.design(
        (west, south, east, north),
        stations_of(scene.base_stations, range(30)),
        participants=3000,
        epsilon=4.0,
        surroundings=told,
    )
    radio_map = vm.survey(scene.measure(users=3000, links_per_user=30, seed=0), survey, 0).radio_map
    unseen = scene.measure(users=200, links_per_user=30, seed=1)
    measured = np.abs(radio_map.predict_links(unseen) - unseen.gain_db).mean()
    # Cities differ by more than that from each other, see docs/survey.md.
    assert expected(survey, told).error_db == pytest.approx(measured, abs=1.0)


def test_a_curve_of_larger_differences_expects_larger_errors():
    survey = designed()
    usual = expected(survey).error_db
    assert expected(survey, curve=Curve(40.0, 0.28, 1.6)).error_db > usual
    assert expected(survey, curve=replace(planning.CURVE, reach=0.1)).error_db > usual
    assert expected(survey, curve=replace(planning.CURVE, laws=9.0)).error_db > usual


@pytest.mark.parametrize(
    ("name", "wrong"),
    [("heard", 0), ("occupied", 0), ("occupied", 1.1), ("reading_noise_db", -1),
     ("shadowing_db", "x")],
)  # fmt: skip
def test_surroundings_that_cannot_be_are_refused(name, wrong):
    with refused(ConfigurationError, parameter=name):
        Surroundings(**{name: wrong})
