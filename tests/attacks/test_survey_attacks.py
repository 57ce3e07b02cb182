"""Attacks on an opened sum against references, against almost no noise, and against noise alone."""

import math
from dataclasses import replace

import numpy as np
import pytest

import crowds
from veilmap.attacks.membership import membership_score
from veilmap.attacks.survey_location import (
    Ground,
    SurveyMatchedFilter,
    Templates,
    _bessel,
    crowd_centre,
)
from veilmap.surveys.aggregate import OpenedSum, opened, summed
from veilmap.surveys.contribution import entries
from veilmap.surveys.surveying import survey

USERS = 400


@pytest.fixture(scope="module")
def town():
    """A survey of people in one half of the town: design, map, and each one's contribution."""
    data = crowds.crowd(USERS, seed=1, high=0.6 * crowds.SIDE)
    design = crowds.designed(USERS, epsilon=8.0)
    radio_map = survey(data, design, seed=0).radio_map
    each = []
    for user in range(USERS):
        own = data.of_user(user)
        nobody = np.zeros(len(own), dtype=np.int64)
        each.append(entries(design, nobody, own.user_xyz[:, :2], own.bs, own.gain_db))
    rows = data.user, data.user_xyz[:, :2], data.bs, data.gain_db
    return design, Ground.of(design, radio_map), each, summed(design, *rows), data.mean_positions()


def located(town, noise_of, users, there=1):
    """Errors of the likeliest and of the mean place, and of guessing, (n, 3)."""
    design, ground, each, total, truth = town
    attack, errors = SurveyMatchedFilter(ground), []
    for user in users:
        numbers, values = each[user].numbers, each[user].values
        left, others = noise_of(user), total.copy()
        left.total[numbers] += there * values
        others[numbers] -= values
        places = attack.locate(left, OpenedSum(design, others, USERS, 0.0))
        guess = crowd_centre(ground, OpenedSum(design, others, USERS, 0.0))
        errors.append([np.hypot(*(place - truth[user])) for place in (*places, guess)])
    return np.array(errors)


def test_with_almost_no_noise_users_are_found(town):
    design = town[0]
    silent = np.zeros(design.numbers, dtype=np.int64)
    quiet = OpenedSum(design, silent, 1, design.clip / 50)
    likeliest, mean, guess = np.median(
        located(town, lambda _: replace(quiet, total=silent.copy()), range(40)), axis=0
    )
    assert likeliest < 0.2 * design.grid.cell_size
    assert mean < 0.5 * design.grid.cell_size
    assert guess > 2 * design.grid.cell_size


def test_in_noise_alone_nobody_is_found(town):
    design = town[0]
    nobody = np.zeros(design.numbers, dtype=np.int64)
    errors = located(town, lambda user: opened(design, nobody, 1, user), range(120), there=0)
    likeliest, mean, guess = np.sqrt((errors**2).mean(axis=0))
    # Guessing's RMSE over 120 users has a relative deviation of about 4 %.
    assert mean > 0.85 * guess
    assert likeliest > guess
    area = math.pi * 50**2 / (0.6 * crowds.SIDE) ** 2  # within 50 m by chance
    assert np.mean(errors[:, 0] < 50) < area + 5 * math.sqrt(area * (1 - area) / 120)


def score(left, own):
    match, squares = left.total[own.numbers] @ own.values, own.values @ own.values
    return membership_score(match / left.deviation**2, squares / left.deviation**2)


def test_membership_scores_are_normal_around_what_the_noise_lets_through(town):
    design, _, each, _, _ = town
    nobody, trials = np.zeros(design.numbers, dtype=np.int64), 300
    absent, present = np.empty((2, trials))
    for trial in range(trials):
        own, noise = each[trial], opened(design, nobody, 1, trial)
        absent[trial] = score(noise, own)
        noise.total[own.numbers] += own.values
        present[trial] = score(noise, own)
    length = np.array([np.linalg.norm(own.values) for own in each[:trials]])
    assert (present - absent) == pytest.approx(length / design.deviation)
    assert abs(absent.mean()) < 5 / math.sqrt(trials)
    assert absent.std() == pytest.approx(1, abs=5 / math.sqrt(2 * trials))


def plain_evidence(ground, place, left):
    """The likelihood at one place, integrated over angles and summed over all sets of stations."""
    design, tau = ground.survey, left.noise**2
    cells, shares = (own[0] for own in design.grid.between_centres(place[None]))
    stations = len(design.stations)
    total = 0.0
    heard_counts = [1, 3]
    phi = np.linspace(-np.pi, np.pi, 4001)[:-1]
    for heard in heard_counts:
        amplitude = 1 / math.sqrt(heard * (shares @ shares + design.level_weight**2))
        product = 1.0
        for s in range(stations):
            psi = 2 * np.pi / design.range_db * (ground.residual[s, cells] @ shares)
            kappa = 1 / ((2 * np.pi / design.range_db) ** 2 * (ground.variance[s, cells] @ shares))
            prior = np.exp(kappa * (np.cos(phi - psi) - 1))
            told = sum(
                share * left.angles[s, cell] for cell, share in zip(cells, shares, strict=True)
            )
            level = (np.exp(-1j * psi / 4) * left.levels[s]).real * design.level_weight
            match = (np.exp(-1j * phi) * told).real + level
            ratio = np.exp(amplitude / tau * match - 1 / (2 * tau * heard))
            product *= 1 - heard / stations + heard / stations * (prior @ ratio) / prior.sum()
        total += product / len(heard_counts)
    return math.log(total)


def test_evidence_is_the_integral_that_it_stands_for(town):
    design, ground, each, _, _ = town
    left = opened(design, np.zeros(design.numbers, dtype=np.int64), 1, 5)
    left.total[each[0].numbers] += each[0].values
    places = np.random.default_rng(0).uniform(0, crowds.SIDE, (20, 2))
    found = Templates(ground, places).evidence(left)
    plain = [plain_evidence(ground, place, left) for place in places]
    assert np.ptp(plain) > 0.1
    # Each of three stations has two Bessel functions that are off by less than 0.6 %.
    assert found == pytest.approx(plain, abs=0.03)


def test_the_quick_bessel_function_is_as_exact_as_it_says():
    from scipy.special import i0e

    x = np.concatenate([np.linspace(0, 20, 2001), np.logspace(1, 7, 100)])
    assert np.abs(_bessel(x) / i0e(x) - 1).max() < 6e-3


def test_the_sum_tells_where_the_crowd_is_and_noise_alone_tells_nothing(town):
    design, ground, _, total, truth = town
    found = opened(design, total, USERS, 0)
    density = ground.density(found)
    assert density.sum() == pytest.approx(1)
    assert (density > 0).all()
    there = (ground.survey.grid.centres < 0.6 * crowds.SIDE).all(axis=1)
    assert density[there].mean() > 2 * density[~there].mean()
    middle = crowds.SIDE / 2 * np.ones(2)
    off = np.linalg.norm(crowd_centre(ground, found) - truth.mean(axis=0))
    assert off < 0.5 * np.linalg.norm(middle - truth.mean(axis=0))
    nothing = OpenedSum(design, np.zeros(design.numbers, dtype=np.int64), 0, design.deviation)
    assert np.ptp(ground.density(nothing)) == 0


def test_where_nothing_is_seen_the_mean_place_is_that_of_all_others(town):
    design, ground, _, total, _ = town
    others = OpenedSum(design, total, USERS, 0.0)
    deaf = OpenedSum(design, np.zeros(design.numbers, dtype=np.int64), 1, 1e9)
    likeliest, mean = SurveyMatchedFilter(ground).locate(deaf, others)
    centre = crowd_centre(ground, others)
    assert np.linalg.norm(mean - centre) < 0.2 * design.grid.cell_size
    assert (likeliest < 0.6 * crowds.SIDE + design.grid.cell_size).all()


def test_the_more_noise_the_less_evidence(town):
    design, ground, each, _, _ = town
    own = np.zeros(design.numbers, dtype=np.int64)
    own[each[3].numbers] = each[3].values
    spans = [
        np.ptp(Templates(ground, design.grid.centres).evidence(OpenedSum(design, own, 1, sigma)))
        for sigma in (100.0, 1000.0, 1e4, 1e6)
    ]
    assert spans == sorted(spans, reverse=True)
    assert spans[-1] < 1e-3
