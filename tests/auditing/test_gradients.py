"""Audits of gradients of any model."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

import networks
import veilmap as vm
from refusals import refused
from veilmap.attacks.any_model import FirstLayer, Inversion, TemplateFilter
from veilmap.auditing.gradient_canaries import gradient_canary_bound, of_vectors, summed
from veilmap.auditing.gradients import _candidates
from veilmap.auditing.recordings import Answer, recorded_rounds
from veilmap.auditing.seen_gradients import gradients_of_users
from veilmap.errors import ConfigurationError, DataError
from veilmap.model.gradient_models import FunctionModel, RadioMapModel
from veilmap.privacy import accounting
from veilmap.privacy.batches import DiverseBatch, FarthestBatch

MODEL = networks.network()
FIRST_LAYER = [FirstLayer()]
FORMAL = vm.AggregateGaussian(epsilon=2.0, delta=1e-5, clip=1.0)


def audited(people, sees, attacks=FIRST_LAYER, seed=0, **options):
    return vm.audit_gradients(
        MODEL, people, area=networks.AREA, sees=sees, attacks=attacks, seed=seed, **options
    )


def test_an_audit_says_for_each_thing_seen_what_it_gives_away():
    people = networks.users(40)
    audit = vm.audit_gradients(
        MODEL, people, area=networks.AREA, attacks=[TemplateFilter(), FirstLayer()], seed=0
    )
    raw, clipped, noisy, sums, formal = audit.exposed
    for open_one in (raw, clipped):
        assert open_one.strongest.attack == "first layer"
        assert open_one.strongest.median.value < 0.01
        assert open_one.strongest.found[50].value == 1.0
    for hidden in (noisy, sums, formal):
        assert hidden.strongest.median.value > 20
    # Sums over everybody are no better than guessing, within what 40 users tell.
    for hidden in (sums, formal):
        assert hidden.strongest.median.high > 0.85 * hidden.prior.median.value
    assert {score.attack for score in raw.scores} == {
        "prior only", "matched filter", "first layer",
    }  # fmt: skip
    for one in audit.exposed:
        assert one.prior.median == raw.prior.median
        assert one.sees in str(audit)
    assert math.isnan(raw.epsilon)
    assert raw.membership is None
    assert formal.membership is not None
    content = json.loads(json.dumps(audit.as_dict(), allow_nan=False))
    assert content["users"] == 40
    verdicts = [one["verdict"] for one in content["exposed"]]
    assert [one["attack"] for one in verdicts][:2] == ["first layer", "first layer"]
    assert [one["beats_guessing"] for one in verdicts][:2] == [True, True]
    assert formal.verdict.finding in str(audit)


def test_guessing_is_the_strongest_where_no_attack_is_better():
    people = networks.users(4)
    model = FunctionModel(MODEL.parameters, lambda p, r: {n: 0 * v for n, v in p.items()})
    audit = vm.audit_gradients(
        model, people, area=networks.AREA, sees=vm.Uploads(), attacks=[Inversion()]
    )
    assert audit[0].strongest.attack == "prior only"


def test_only_a_sum_without_a_seed_has_a_promise():
    people = networks.users(6)
    for seed, promised in ((0, False), (None, True)):
        one = audited(people, vm.Sums(mechanism=FORMAL), seed=seed)[0]
        assert math.isnan(one.epsilon) != promised
        if promised:
            # Calibrated for one round; all answers are there, so that no more is spent.
            assert one.epsilon == pytest.approx(FORMAL.epsilon, rel=1e-3)


def test_the_same_seed_gives_the_same_audit():
    people = networks.users(5)
    sees = [vm.Uploads(vm.UniformNoise()), vm.Sums(mechanism=FORMAL)]
    first, second = (audited(people, sees, seed=3).as_dict() for _ in range(2))
    assert first == second
    assert audited(people, sees, seed=4).as_dict() != first


def test_users_are_told_what_their_cohort_gives_away():
    people = networks.users(7)
    seen = vm.Sums(2).of(MODEL, people, seed=0)
    assert [len(clients) for clients in seen.clients] == [3, 2, 2]
    own = gradients_of_users(MODEL, people)
    np.testing.assert_allclose(seen.uploads[0], own[:3].mean(axis=0))


def test_noise_of_single_uploads_is_that_of_the_mechanism():
    people, mechanism = networks.users(30), vm.UniformNoise(noise_budget=4.0, clip=0.5)
    own = gradients_of_users(MODEL, people)
    sent = vm.Uploads(mechanism).of(MODEL, people, seed=1).uploads
    clipped = own * np.minimum(1, 0.5 / np.linalg.norm(own, axis=1))[:, None]
    energy = np.sum((sent - clipped) ** 2) / np.sum(clipped**2)
    # 30 × 49 squares of normal numbers: a relative deviation of √(2/1470) = 4 %.
    assert energy == pytest.approx(4.0, rel=0.15)


def test_a_formal_sum_has_the_noise_that_is_claimed():
    calibrated = accounting.calibrated(of_vectors(replace(FORMAL, dropout=0.0)), 1)
    zeros = np.zeros((20, 2000))
    noise = summed(calibrated, zeros, 0, "test")
    # Of 2,000 numbers the deviation is off by 1.6 %; ROOM lengthens Δ by up to 3 %.
    wanted = calibrated.noise_on_sum * calibrated.clip
    assert wanted * 0.95 < noise.std() < wanted * 1.10
    own = np.zeros((20, 2000))
    own[:, 5] = 3.0  # clipped to 1
    assert summed(calibrated, own, 0, "test")[5] - noise[5] == pytest.approx(20.0, abs=0.5)


def test_canaries_stay_below_the_claim_and_find_half_of_the_noise():
    calibrated = accounting.calibrated(of_vectors(replace(FORMAL, epsilon=4.0)), 1)
    kept = gradient_canary_bound(calibrated, 300, seed=0)  # more numbers than canaries in a sum
    halved = calibrated.with_noise(0.4 * calibrated.noise_on_sum)
    broken = gradient_canary_bound(halved, 49, seed=0)
    assert 0.3 < kept.epsilon_at_least < 4.0
    assert broken.epsilon_at_least > 4.0


# Batches that mislead.


def test_curated_batches_lead_the_attack_astray():
    people = {}
    for user, own in networks.users(25, records=20, spread=5.0).items():
        away = np.random.default_rng(user).uniform(0, 300, (2, 2))  # two errands
        xy = np.vstack([own.xy, away])
        people[user] = vm.Records(xy, np.append(own.target, [0.5, -0.5]))
    sees = [
        vm.Uploads(),
        vm.Uploads(batch=DiverseBatch(radius=30)),
        vm.Uploads(batch=FarthestBatch(radius=30)),
    ]
    whole, diverse, farthest = audited(people, sees, attacks=[Inversion()]).exposed
    medians = [one.score("inversion, cosine").median.value for one in (whole, diverse, farthest)]
    assert medians[0] < 0.7 * medians[1]
    assert medians[1] < medians[2]


# Our own model, and recordings.


def test_a_radio_map_is_audited_like_any_model():
    scene = vm.Scene.synthetic(5, size=90.0, buildings=4, base_stations=25)
    data = scene.measure(users=10, links_per_user=20, seed=0)
    start = vm.RadioMap(scene.grid, np.full(scene.grid.cells, 10.0), sharpness=0.3)
    people = dict(zip(data.users.tolist(), RadioMapModel.records(data), strict=True))
    best = start.fit_propagation(data)
    audit = vm.audit_gradients(
        RadioMapModel(start), people, area=scene.grid, attacks=[TemplateFilter()], shift=1.0,
        around=RadioMapModel.around(best, scene.base_stations), seed=0,
        sees=[vm.Uploads(), vm.Uploads(vm.GeometryAligned(noise_budget=5.0))],
    )  # fmt: skip
    for one in audit.exposed:
        assert one.score("matched filter").median.value < 0.5 * one.prior.median.value


def recorded(folder, people, *, whole_model, rate=0.5):
    """Two rounds of somebody's app, as its nodes would have written them."""
    for number, before in enumerate((MODEL.parameters, networks.network(1).parameters)):
        for user, own in people.items():
            slope = networks.gradient(before, own)
            after = {n: before[n] - rate * slope[n] for n in before} if whole_model else slope
            Answer(user, number, before, after, whole_model).save(folder)


@pytest.mark.parametrize("whole_model", [True, False])
def test_a_recording_is_audited_round_by_round(tmp_path, whole_model):
    people = networks.users(5)
    recorded(tmp_path, people, whole_model=whole_model)
    rounds = recorded_rounds(tmp_path, MODEL, learning_rate=0.5)
    assert len(rounds) == 2
    np.testing.assert_allclose(
        rounds[0].seen.uploads, gradients_of_users(MODEL, people), rtol=1e-9, atol=1e-12
    )
    assert not np.array_equal(rounds[0].seen.parameters, rounds[1].seen.parameters)
    audit = audited({user: people[user] for user in (0, 3)}, rounds)
    for one in audit.exposed:
        assert one.score("first layer").users == 2
        assert one.score("first layer").median.value < 1e-2
        assert math.isnan(one.epsilon)


def test_recordings_that_cannot_be_audited_are_refused(tmp_path):
    with refused(DataError, "answer"):
        recorded_rounds(tmp_path, MODEL)
    Answer("a", 0, {"w1": np.zeros(3)}, {"w1": np.zeros(3)}, whole_model=True).save(tmp_path)
    with refused(DataError, "'w1'"):
        recorded_rounds(tmp_path, MODEL)
    (tmp_path / "00001-b.npz").write_bytes(b"nothing")
    with refused(DataError, "00001-b"):
        recorded_rounds(tmp_path, MODEL)


# Mistakes.


def test_areas_become_square_candidates_that_have_room():
    grid = _candidates((10, 20, 310, 170), 100)
    assert grid.extent[0] == 10
    assert grid.extent[2] == 20
    assert grid.extent[1] >= 310
    assert grid.extent[3] >= 170
    assert 2000 < grid.cells < 2700
    assert _candidates((0, 0, 300, 300), 1_000_000).cells < 100


@pytest.mark.parametrize(
    ("options", "parameter"),
    [
        ({"area": (0, 0, -1, 3)}, "area"),
        ({"area": (0, 0, 3)}, "area"),
        ({"users": {}}, "users"),
        ({"users": {1: [3.0]}}, "users"),
        ({"users": {1: vm.Records([[0.0, 1.0]], [0.0], [[1.0]])}}, "around"),
        ({"sees": vm.Sums(5)}, "users"),
        ({"shift": 0.0}, "shift"),
        ({"sees": vm.Uploads(vm.GeometryAligned())}, "grid"),
    ],
)
def test_what_cannot_be_audited_is_refused(options, parameter):
    given = {"users": networks.users(2), "area": networks.AREA, "sees": vm.Uploads()} | options
    with refused(ConfigurationError, parameter=parameter):
        vm.audit_gradients(MODEL, attacks=[], **given)


@pytest.mark.parametrize(
    ("make", "parameter"),
    [(lambda: vm.Uploads(FORMAL), "mechanism"), (lambda: vm.Sums(1), "size")],
)
def test_things_seen_that_make_no_sense_are_refused(make, parameter):
    with refused(ConfigurationError, parameter=parameter):
        make()
