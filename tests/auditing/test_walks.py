"""Audits of users who move: scores from the truth, beside guessing."""

import json
from dataclasses import replace

import numpy as np
import pytest

import veilmap as vm
from refusals import refused
from veilmap.attacks import FoundPlaces, PlacesOverTime
from veilmap.auditing.walks import _spread, _Truth
from veilmap.errors import ConfigurationError
from veilmap.federation import OnePlacePerRound


@pytest.fixture(scope="module")
def town():
    scene = vm.Scene.synthetic(5, size=120.0, cell_size=6.0, buildings=4, base_stations=60)
    days = [
        scene.measure_walks(users=14, places=6, links_per_place=12, seed=0, day=day)
        for day in (0, 1)
    ]
    names = np.random.default_rng(1).permutation(14)
    days[1] = replace(days[1], user=names[days[1].user])
    return scene, days, {user: int(name) for user, name in enumerate(names)}


def trained(scene, data, **settings):
    return vm.train(
        data, scene.grid, rounds=12, seed=0, recording=vm.Recording(keep_uploads="all"), **settings
    )


@pytest.fixture(scope="module")
def audits(town):
    scene, days, _ = town
    return [vm.audit_walks(trained(scene, data, engine=OnePlacePerRound()), data) for data in days]


def test_an_audit_scores_places_beside_guessing(audits):
    audit = audits[0]
    assert {one.attack for one in audit.scores} == {"places over time", "mixture pursuit"}
    assert audit.rounds == tuple(range(12))
    assert audit.guessing.attack == "prior only"
    best = audit.strongest
    assert best.home[50].value > audit.guessing.home[50].value
    assert best.home_median.value < 0.5 * audit.guessing.home_median.value
    verdict = audit.verdict
    assert (verdict.attack, verdict.median) == (best.attack, best.home_median)
    assert audit.as_dict()["verdict"] == verdict.as_dict()
    assert all(line in audit.as_text() for line in verdict.lines)
    json.loads(json.dumps(audit.as_dict(), allow_nan=False))
    for one in (*audit.scores, audit.guessing):
        assert one.attack in audit.as_text()
        for measured in (*one.home.values(), *one.work.values(), one.nearest, one.home_median):
            assert measured.low <= measured.value <= measured.high


def test_the_same_people_are_recognised_under_other_names(town, audits):
    _, _, same = town
    linked = vm.reidentify(*audits, same)
    assert linked.chance == 1 / 14
    assert linked.right.value > 0.5
    shuffled = dict(zip(same, np.roll(list(same.values()), 1).tolist(), strict=True))
    assert vm.reidentify(*audits, shuffled).right.value <= 1 - linked.right.value


def test_scores_are_what_their_names_say():
    xyz = np.array([[0, 0], [0, 0], [0, 0], [200, 0], [200, 0], [100, 90.0]])
    masts = np.column_stack([np.arange(6.0), np.zeros(6), np.full(6, 50.0)])
    at = np.column_stack([xyz, np.full(6, 1.5)])
    data = vm.Measurements(np.full(6, 7), at, masts, np.full(6, -80.0))
    found = FoundPlaces((7,), np.array([[[30.0, 40.0], [200.0, 60.0], [100.0, 0.0]]]))
    score = _Truth.of(data).score("some", found)
    assert [score.home[metres].value for metres in (10, 50, 100)] == [0, 1, 1]
    assert [score.work[metres].value for metres in (10, 50, 100)] == [0, 0, 1]
    assert score.home_median.value == pytest.approx(50)
    # From home 50 m, from work 60 m, and from the third place √(70² + 50²) m.
    assert score.nearest.value == pytest.approx(60)


def test_sums_are_attacked_with_what_works_on_sums(town):
    scene, (data, _), _ = town
    mechanism = vm.AggregateGaussian(delta=1e-3)
    audit = vm.audit_walks(trained(scene, data, mechanism=mechanism), data)
    assert [one.attack for one in audit.scores] == ["places over time"]
    assert audit.server_sees == "sums"
    assert audit.study == audit.as_dict()["study"]
    assert audit.as_text().startswith(audit.study)
    # Four deviations of a share of 14 users above guessing.
    guess = audit.guessing.home[50].value
    assert audit.strongest.home[50].value < guess + 4 * np.sqrt(0.25 / 14)


def test_guessed_places_leave_no_part_of_the_map_far_away():
    grid = vm.Grid(3.0, (100, 100))
    for places in (1, 4, 9):
        spread = _spread(grid, places)
        apart = np.linalg.norm(grid.centres[:, None] - spread, axis=2).min(axis=1)
        # Squares of equal area around the places, and a fifth more.
        assert apart.max() < 1.2 * 300 / np.sqrt(places) * np.sqrt(0.5)


def test_what_cannot_be_audited_is_refused(town, audits):
    scene, (data, _), same = town
    run = trained(scene, data)
    still = scene.measure(users=14, links_per_user=10, seed=0)
    with refused(ConfigurationError, 0, parameter="data"):
        vm.audit_walks(run, still, attacks=[PlacesOverTime()])
    with refused(ConfigurationError, parameter="data"):
        vm.audit_walks(run, data.select(data.user != 3), attacks=[PlacesOverTime()])
    with refused(ConfigurationError, parameter="rounds"):
        vm.audit_walks(vm.train(data, scene.grid, rounds=1), data)
    with refused(ConfigurationError, parameter="same"):
        vm.reidentify(*audits, {0: same[0]})
    with refused(ConfigurationError, parameter="second"):
        vm.reidentify(audits[0], replace(audits[1], found={}), same)
