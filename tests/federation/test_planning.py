import json
import math

import numpy as np
import pytest

import veilmap as vm
from commands import run as command
from veilmap.federation import planning
from veilmap.federation.planning import CURVE, Curve
from veilmap.privacy import accounting
from veilmap.privacy.mechanisms import AggregateGaussian


def test_a_curve_is_found_again_in_what_it_gives():
    true = Curve(400.0, 900.0, 3e5, 1e-3, 0.0)
    trials = [(t, x, true.loss_db(t, x)) for t in (60, 120, 200) for x in (0.0, 1e-4, 5e-4, 1e-3)]
    found = Curve.fit(trials)
    assert found.unfinished == pytest.approx(400)
    assert found.linear == pytest.approx(900)
    assert found.square == pytest.approx(3e5)
    assert (found.most_noise, found.error_db) == (1e-3, pytest.approx(0, abs=1e-9))


def test_more_noise_and_fewer_rounds_cost_more():
    losses = [CURVE.loss_db(60, x) for x in np.linspace(0, CURVE.most_noise, 9)]
    assert (np.diff(losses) > 0).all()
    assert CURVE.loss_db(60, 1e-4) > CURVE.loss_db(120, 1e-4) > CURVE.loss_db(200, 1e-4)
    assert math.isinf(CURVE.loss_db(60, 1.01 * CURVE.most_noise))


@pytest.mark.parametrize("contribute", [1.0, 0.5])
def test_a_plan_keeps_its_promise_as_training_would(contribute):
    found = planning.plans(20_000, 2.0, contribute=contribute, rounds=[60], groups=[1, 4])
    for plan in found:
        each = plan.participation.rounds_each(60)
        assert each == (60 if plan.participation.groups == 1 else 15)
        spent = accounting.epsilon(plan.mechanism, each, 1e-7)
        assert plan.epsilon == spent <= 2.0
        assert spent > 1.99
        assert plan.mechanism.delta == 1e-7
    once, turns = found
    if contribute == 1:  # four groups: half the noise on a sum over a quarter of the users
        z = once.mechanism.noise_on_sum, turns.mechanism.noise_on_sum
        assert z[0] == pytest.approx(2 * z[1], rel=0.02)
        assert turns.noise == pytest.approx(2 * once.noise, rel=0.1)
    assert turns.sent_bytes < 0.3 * once.sent_bytes


def test_the_best_map_or_the_fewest_bytes():
    best = planning.plan(100_000, 1.0)
    cheap = planning.plan(100_000, 1.0, within=0.4)
    everything = planning.plans(100_000, 1.0)
    assert best.loss_db <= min(plan.loss_db for plan in everything) + 0.03
    assert best.loss_db < cheap.loss_db <= 0.4
    enough = [plan for plan in everything if plan.loss_db <= 0.4]
    assert cheap.sent_bytes == min(plan.sent_bytes for plan in enough)
    # Fine enough a lattice for filtered gradients takes three bytes a cell.
    assert cheap.upload_bytes < 3.01 * cheap.cells


def test_a_larger_map_needs_as_many_more_users():
    small = planning.plans(10_000, 2.0, 1e-7, rounds=[120], groups=[1])[0]
    large = planning.plans(100_000, 2.0, 1e-7, cells=100_000, rounds=[120], groups=[1])[0]
    # Their lattices differ a little, and with them the noise.
    assert large.noise == pytest.approx(small.noise, rel=0.1)


@pytest.mark.parametrize(("users", "groups"), [(1000, 1), (20_000, 4)])
def test_the_noise_of_a_plan_is_that_of_its_sums(users, groups):
    plan = planning.plans(users, 4.0, rounds=[60], groups=[groups], cells=400)[0]
    share = plan.mechanism._sampler(400, 4, plan.cohort).deviation
    unit = plan.mechanism.clip / plan.mechanism.levels
    of_mean = share * unit * math.sqrt(plan.cohort) / plan.cohort
    over_rounds = of_mean / math.sqrt(plan.rounds) / plan.mechanism.clip
    assert plan.noise == pytest.approx(over_rounds * 400 / 10_000)
    # No less than what the promise needs, and not much more.
    needed = plan.mechanism.noise_on_sum / (plan.cohort * math.sqrt(plan.rounds)) * 400 / 10_000
    assert needed < plan.noise < 1.2 * needed


def test_training_follows_a_plan(tmp_path):
    plan = next(
        one for one in planning.plans(3000, 8.0, rounds=[60], groups=[4]) if one.rounds == 60
    )
    scene = vm.Scene.synthetic(5, size=90.0, buildings=4, base_stations=40)
    data = scene.measure(users=40, links_per_user=10, seed=0)
    wanted = AggregateGaussian(epsilon=8.0, delta=1e-5, clip=plan.mechanism.clip)
    run = vm.train(
        data, scene.grid, mechanism=wanted, participation=plan.participation, rounds=8, seed=0
    )
    assert [row.clients for row in run.history] == [10] * 8
    # Everybody was asked twice, and pays for two rounds.
    assert run.history[-1].epsilon == pytest.approx(8.0, rel=1e-3)
    assert run.history[3].epsilon < 0.8 * run.history[-1].epsilon


def test_one_answer_is_timed():
    plan = planning.plans(3000, 8.0, rounds=[60], groups=[1], cells=400, links=5)[0]
    assert 0 < plan.seconds() < 10


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--users", "100", "--epsilon", "1"], "100 users"),
        (["--users", "300", "--epsilon", "2", "--within", "0.01"], "300 users"),
        (["--users", "3000", "--epsilon", "2", "--within", "-1"], "--within"),
        (["--users", "3000", "--epsilon", "0"], "--epsilon"),
        (["--users", "3000", "--epsilon", "2", "--delta", "0.1"], "δ = 0.1"),
        (["--users", "3000", "--epsilon", "2", "--contribute", "2"], "--contribute"),
        (["--users", "1", "--epsilon", "2"], "--users"),
    ],
)
def test_plans_that_cannot_be_are_refused_in_one_line(options, message, tmp_path, capsys):
    code, _, error = command(capsys, "plan", *options, "--json", str(tmp_path / "plan.json"))
    assert code == 2
    assert message in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_the_command_says_what_to_expect(tmp_path, capsys):
    file = tmp_path / "plan.json"
    code, shown, error = command(
        capsys, "plan", "--users", "20000", "--epsilon", "2", "--json", str(file)
    )
    assert code == 0, error
    for word in ("expected error", "a user sends", "a user computes", "Assumed", "veilmap train"):
        assert word in shown
    plan = json.loads(file.read_text())["rounds"]
    assert plan["epsilon"] <= 2
    assert plan["delta"] == 1e-7
    assert plan["sent_bytes"] == plan["rounds_each"] * plan["upload_bytes"]
    assert plan["command"] in shown.replace("\n", " ")


def test_the_command_that_a_plan_shows_has_all_its_settings(capsys):
    code, shown, error = command(
        capsys, "plan", "--users", "100000", "--epsilon", "1.23456789", "--delta", "1e-7",
        "--within", "0.4", "--allow-missing", "0.25", "--contribute", "0.9",
    )  # fmt: skip
    assert code == 0, error
    for words in (
        "--epsilon 1.23456789", "--delta 1e-07", "--allow-missing 0.25", "--contribute 0.9",
        "--rounds ", "--share ", "--in-turns",
    ):  # fmt: skip
        assert words in shown
