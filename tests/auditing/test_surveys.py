"""Audits of surveys: what the adversary of the promise finds, and which data are refused."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

import crowds
import veilmap as vm
from refusals import refused
from veilmap.auditing import surveys
from veilmap.auditing.membership import (
    FALSE_ALARMS,
    Scored,
    Scores,
    auc_allowed,
    found_allowed,
)
from veilmap.auditing.surveys import _Crowd, _membership, audit_survey, audit_two, check_origin
from veilmap.errors import ConfigurationError
from veilmap.privacy.accounting import composed_epsilon, gaussian_distance, gaussian_epsilon
from veilmap.surveys.aggregate import opened
from veilmap.surveys.contribution import Entries

USERS = 1500
Z = 1.96


@pytest.fixture(scope="module")
def data():
    return crowds.crowd(USERS, seed=2)


@pytest.fixture(scope="module")
def result(data):
    return vm.survey(data, crowds.designed(USERS), seed=0)


@pytest.fixture(scope="module")
def audit(data, result):
    return vm.audit(result, data, users=120, seed=1)


def noise(design, seed):
    return opened(design, np.zeros(design.numbers, dtype=np.int64), 0, seed).total


def opened_with(result, share, seed):
    """The same sum opened with a share of the noise that its design claims."""
    design = result.opened.survey
    epsilon = gaussian_epsilon(share * design.deviation, design.delta, design.clip)
    less = noise(replace(design, epsilon=epsilon), seed)
    return replace(result.opened, total=result.opened.total - noise(design, 0) + less)


def test_an_audit_has_every_attack_and_is_plain_data(audit, result):
    assert audit.survey == result.opened.survey.digest
    assert audit.participants == USERS
    names = [one.attack for one in audit.location]
    assert names[0] == "prior only"
    assert len(set(names)) == 4
    for one in audit.location:
        assert one.users == 120
        for measured in (one.median, one.rmse, one.within_95, *one.found.values()):
            assert measured.low <= measured.value <= measured.high
    content = json.loads(json.dumps(audit.as_dict(), allow_nan=False))
    assert content["study"] == "Study: not for publication"
    assert content["survey"] == audit.survey
    assert set(content["location"][0]["found"]) == {"10", "50", "100"}
    assert content["canaries"]["right"] <= content["canaries"]["guesses"]


def test_only_a_survey_without_a_seed_claims_an_epsilon(audit, data):
    assert math.isnan(audit.epsilon)
    assert audit.as_dict()["epsilon"] is None
    assert "ε" not in audit.as_dict()["promise"]
    claimed = vm.audit(vm.survey(data, crowds.designed(USERS)), data, users=20)
    assert claimed.epsilon == claimed.as_dict()["epsilon"] == pytest.approx(2.0)
    assert "(2, 1e-06)" in claimed.promise.words


def test_power_is_within_what_epsilon_allows_and_near_what_the_noise_allows(result, data):
    told = _membership(_Crowd.of(opened_with(result, 1.0, 7), data, None))
    assert told.users == USERS
    auc, found = told.auc, told.found_at_5_percent
    # Two standard errors are about half of the width of an interval.
    assert auc.high < told.auc_allowed
    assert found.high < told.found_at_5_percent_allowed
    error = (auc.high - auc.low) / (2 * Z)
    assert auc.value == pytest.approx(told.auc_of_noise, abs=4 * error)
    assert error < 0.03


def test_with_half_of_the_noise_more_is_found_than_the_noise_allows(result, data):
    told = _membership(_Crowd.of(opened_with(result, 0.5, 7), data, None))
    assert told.auc.low > told.auc_of_noise
    assert told.found_at_5_percent.value > told.found_at_5_percent_of_noise


def test_intervals_hold_the_truth_about_as_often_as_they_say(result, data):
    """In spite of scores that all see the same noise, of people who stand close together."""
    design, trials = result.opened.survey, 60
    crowd = _Crowd.of(result.opened, data, 300)
    length = np.mean([np.linalg.norm(own.values) for own in crowd.own]) / design.clip
    distance = length * gaussian_distance(design.deviation, design.clip)
    exact = 0.5 * (1 + math.erf(distance / 2))  # Φ(μ/√2)
    held = []
    for seed in range(trials):
        noisy = replace(result.opened, total=crowd.total + noise(design, seed))
        told = _membership(replace(crowd, opened=noisy))
        held.append(told.auc.low <= exact <= told.auc.high)
    # Five deviations of a share of 95 % in so many trials.
    assert np.mean(held) > 0.95 - 5 * math.sqrt(0.95 * 0.05 / trials)


def test_scores_of_people_who_add_nearly_the_same_are_not_taken_for_independent():
    """Half of everybody's contribution is the same: errors of scores have a correlation of ½."""
    generator, count, numbers, distance = np.random.default_rng(1), 60, 200, 3.0
    own = generator.normal(size=(2 * count, numbers)) / math.sqrt(numbers)
    own += generator.normal(size=numbers) / math.sqrt(numbers)
    own /= np.linalg.norm(own, axis=1, keepdims=True)
    added = [Entries(np.arange(numbers), 1e6 * one) for one in own]
    own_of = [surveys.directions(some, numbers) for some in (added[:count], added[count:])]
    held, found = [], []
    for _ in range(300):
        errors = own @ generator.normal(size=numbers)
        there, away = distance + errors[:count], errors[count:]
        kinds = Scored(there, own_of[0]), Scored(away, own_of[1])
        told = Scores(*kinds).distance
        held.append(told.low <= distance <= told.high)
        found.append(told.value)
    # Five deviations of a share of 95 % in so many trials, either way.
    assert np.mean(held) == pytest.approx(0.95, abs=5 * math.sqrt(0.95 * 0.05 / 300))
    assert np.mean(found) == pytest.approx(distance, rel=0.05)


def test_people_who_add_the_same_cannot_be_compared():
    same = [Entries(np.arange(3), np.array([3, 4, 0]))] * 4
    alike = surveys.directions(same, 3)
    told = Scores(Scored(np.ones(4), alike), Scored(np.zeros(4), alike))
    assert math.isnan(told.area_under_curve().value)


def test_what_is_left_and_what_others_added_are_the_opened_sum(result, data):
    crowd = _Crowd.of(result.opened, data, 5)
    for own in crowd.own:
        left, others = crowd.left(own), crowd.others(own)
        assert (left.total + others.total == result.opened.total).all()
        assert ((crowd.total - others.total)[own.numbers] == own.values).all()
        assert others.noise == 0 < left.noise


def test_whoever_sees_the_sum_without_noise_finds_everybody(result, data):
    design = result.opened.survey
    quiet = replace(result.opened, deviation=20.0)
    crowd = _Crowd.of(result.opened, data, 60)
    silent = replace(quiet, total=crowd.total + np.rint(noise(design, 0) / 100).astype(np.int64))
    told = _membership(replace(crowd, opened=silent))
    assert told.auc.low > 0.999
    assert told.found_at_5_percent.low > 0.99
    places = surveys._location(replace(crowd, opened=silent), result.radio_map)
    likeliest = next(one for one in places if "likeliest" in one.attack)
    assert likeliest.median.value < 0.3 * design.grid.cell_size
    assert likeliest.median.high < places[0].median.low


def test_what_epsilon_allows_is_the_curve_of_its_definition():
    for epsilon, delta in ((0.5, 1e-6), (2.0, 1e-3), (8.0, 0.0)):
        alarms = np.linspace(0, 1, 200_001)
        curve = [found_allowed(a, epsilon, delta) for a in alarms]
        area = float(np.trapezoid(curve, alarms))
        assert auc_allowed(epsilon, delta) == pytest.approx(area, abs=1e-4)
    assert auc_allowed(1e4, 0.0) == found_allowed(FALSE_ALARMS, 1e4, 0.0) == 1.0
    assert found_allowed(FALSE_ALARMS, 1.0, 1e-6) == pytest.approx(math.e * 0.05 + 1e-6)


def changed(data, **columns):
    known = {name: getattr(data, name) for name in ("user", "user_xyz", "bs_xyz", "gain_db", "bs")}
    return vm.Measurements(**known | columns)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda data: data.select(data.user < USERS - 1),
        lambda data: changed(data, crs="EPSG:32633"),
        lambda data: changed(data, gain_db=np.roll(data.gain_db, 7)),
        lambda data: changed(data, user_xyz=np.add(data.user_xyz, [5000.0, 0, 0])),
        lambda data: crowds.crowd(USERS, seed=3),
        lambda data: dict(enumerate(data.mean_positions())),
    ],
    ids=["fewer", "elsewhere", "other gains", "outside", "other people", "places"],
)
def test_data_that_were_not_summed_are_refused(result, data, wrong):
    design = result.opened.survey
    mapped = replace(design, grid=replace(design.grid, crs="EPSG:32612"))
    with refused(ConfigurationError, parameter="data"):
        audit_survey(replace(result.opened, survey=mapped), result.radio_map, wrong(data))


def test_the_data_that_were_summed_are_taken(result, data):
    check_origin(result.opened, data)
    assert _Crowd.of(result.opened, data, 5).total.any()


def test_few_users_are_refused_and_many_are_all(result, data):
    for users in (0, 1, 3):
        with refused(ConfigurationError, parameter="users"):
            audit_survey(result.opened, result.radio_map, data, users=users)
    assert len(_Crowd.of(result.opened, data, 10 * USERS).own) == USERS


def test_people_without_a_usable_reading_are_not_attacked_but_count():
    data = crowds.crowd(60, seed=5)
    away = data.user_xyz.copy()
    away[data.user < 20] += 10_000
    some = changed(data, user_xyz=away)
    result = vm.survey(some, crowds.designed(60, epsilon=50.0), seed=0)
    crowd = _Crowd.of(result.opened, some, None)
    assert len(crowd.own) == 40
    assert result.opened.participants == 60
    assert all(own.values.any() for own in crowd.own)
    away[data.user < 57] = 10_000.0
    nearly_all = changed(data, user_xyz=away)
    result = vm.survey(nearly_all, crowds.designed(60, epsilon=50.0), seed=0)
    with refused(ConfigurationError, parameter="data"):
        vm.audit(result, nearly_all)


def test_two_surveys_of_the_same_people_tell_no_more_than_both_are_charged(result, data):
    again = replace(result.opened.survey, id="again")
    second = vm.survey(data, again, seed=1).opened
    missing, both = audit_two(result.opened, second, data, users=None)
    design = result.opened.survey
    charged = composed_epsilon(2 * [(design.deviation, design.clip)], design.delta)
    assert both.auc_allowed == auc_allowed(charged, design.delta)
    once = gaussian_distance(design.deviation, design.clip)
    for told, distance in ((missing, once / math.sqrt(2)), (both, once * math.sqrt(2))):
        assert told.users == USERS
        error = (told.auc.high - told.auc.low) / (2 * Z)
        assert told.auc.value + 2 * error < told.auc_allowed
        exact = 0.5 * (1 + math.erf(0.97 * distance / 2))  # contributions are a little shorter
        assert told.auc.value == pytest.approx(exact, abs=4 * error)


def test_two_surveys_that_add_up_different_things_are_refused(result, data):
    other = vm.survey(data, crowds.designed(USERS, epsilon=3.0), seed=1).opened
    with refused(ConfigurationError, parameter="second"):
        audit_two(result.opened, other, data, users=20)
