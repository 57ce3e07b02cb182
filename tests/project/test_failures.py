"""The simulation of failing rounds: its limits, its laws, and what it counts."""

import importlib.util
import itertools
import json
import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from veilmap.privacy.mechanisms import AggregateGaussian


def _loaded():
    path = Path(__file__).parents[2] / "benchmarks" / "failures.py"
    spec = importlib.util.spec_from_file_location("failures", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["failures"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


failures = _loaded()

# Few users, nothing that fails: tests switch on what they are about.
CALM = failures.Federation(
    cohort=2000, group=50, dropout=0.0, shared=0.0, correlation=0.0, outage=0.0, deadline=math.inf
)
SEED = (0, 9)


def _groups_lost(fed, rounds=50):
    return np.mean(failures.answers(fed, rounds, SEED) == 0)


def test_everything_opens_without_failures(monkeypatch):
    monkeypatch.setattr(failures, "DROPOUTS", (0.0,))
    for row in failures.opening(CALM, 10, 0):
        assert row["missing"] == row["to_allow"] == 0
        assert row["opens"] == row["opens_every_group"] == row["users_in_groups"] == 1
    monkeypatch.setattr(failures, "DEADLINES", (math.inf,))
    for row in failures.deadlines(CALM, 5, 0):
        assert row["opens"] == 1
        assert row["wasted"] == pytest.approx(1 - 1 / row["asked"])


def test_nothing_opens_if_all_drop_out(monkeypatch):
    monkeypatch.setattr(failures, "DROPOUTS", (1.0,))
    for row in failures.opening(replace(CALM, correlation=0.1, shared=0.1), 5, 0):
        assert row["missing"] == 1
        assert row["opens"] == row["opens_every_group"] == row["users_in_groups"] == 0
    for row in failures.deadlines(replace(CALM, dropout=1.0), 5, 0):
        assert row["opens"] == 0
        assert row["opened_s"] is None


def test_nothing_opens_without_aggregators():
    assert failures.answers(replace(CALM, outage=1.0), 3, SEED).sum() == 0


@pytest.mark.parametrize("dropout", [0.02, 0.1, 0.5])
def test_dropouts_follow_the_binomial(dropout):
    fed = replace(CALM, dropout=dropout)
    gone = np.isinf(failures.answer_seconds(fed, 100, np.random.default_rng(0)))
    deviation = math.sqrt(dropout * (1 - dropout) / gone.size)
    assert gone.mean() == pytest.approx(dropout, abs=5 * deviation)
    # Their number in a group varies as the law says: the deviation of a variance is near √(2/n).
    counts = gone.sum(axis=2)
    law = fed.group * dropout * (1 - dropout)
    assert counts.var() == pytest.approx(law, rel=6 * math.sqrt(2 / counts.size))


def test_correlated_dropouts_vary_as_the_beta_binomial():
    dropout, correlation = 0.2, 0.1
    fed = replace(CALM, dropout=dropout, correlation=correlation)
    gone = np.isinf(failures.answer_seconds(fed, 200, np.random.default_rng(0))).sum(axis=2)
    law = fed.group * dropout * (1 - dropout) * (1 + (fed.group - 1) * correlation)
    assert gone.var() == pytest.approx(law, rel=0.1)
    deviation = math.sqrt(law / gone.size)
    assert gone.mean() == pytest.approx(dropout * fed.group, abs=5 * deviation)


def test_correlated_dropouts_lose_more_groups():
    lost = [
        _groups_lost(replace(CALM, dropout=0.1, correlation=correlation))
        for correlation in (0.0, 0.05, 0.2)
    ]
    assert lost[0] < lost[1] < lost[2]


def test_longer_deadlines_lose_fewer():
    missing = [
        1 - failures.answers(replace(CALM, deadline=seconds), 10, SEED).sum() / (10 * CALM.asked)
        for seconds in (30.0, 60.0, 120.0, 300.0, math.inf)
    ]
    assert all(more > fewer for more, fewer in itertools.pairwise(missing))
    rows = failures.deadlines(replace(CALM, dropout=0.08), 10, 0)
    for before, after in itertools.pairwise(rows):
        if before["asked"] == after["asked"]:
            assert before["no_answer"] > after["no_answer"]
            assert before["opens"] <= after["opens"]
            assert before["wasted"] >= after["wasted"]


def test_fewer_aggregators_take_more_with_them():
    few, many = (
        failures.answers(replace(CALM, outage=0.05, aggregators=count), 400, SEED).sum(axis=1)
        for count in (2, 40)
    )
    assert few.std() > 2 * many.std()


def test_same_seed_same_numbers(monkeypatch):
    monkeypatch.setattr(failures, "GROUPS", (50,))
    fed = failures.Federation(cohort=1000, group=50)
    first = failures.simulated(fed, 3, 7)
    assert first == failures.simulated(fed, 3, 7)
    assert first["opening"] != failures.simulated(fed, 3, 8)["opening"]


def test_answers_count_when_their_group_can_be_unmasked():
    fed = replace(CALM, cohort=12, group=4, threshold=0.75)
    rng = np.random.default_rng(1)
    seconds = rng.permutation(24).reshape(2, 3, 4).astype(float)
    seconds[0, 0, :2] = np.inf
    works = np.array([[True, True, True], [True, False, True]])
    counts = failures.counted_seconds(fed, seconds, works)
    for now in range(25):
        answered = seconds <= now
        opened = (answered.sum(axis=2) >= 3) & works
        expected = (answered.sum(axis=2) * opened).sum(axis=1)
        assert np.array_equal((counts <= now).sum(axis=(1, 2)), expected)


def test_sparse_groups_need_every_neighbourhood(monkeypatch):
    monkeypatch.setattr(failures, "sparse_degree", lambda *_: 4)
    fed = replace(CALM, cohort=20, group=10, sparse=True)
    assert fed.helpers == 4
    answered = np.random.default_rng(2).random((200, 2, 10)) < 0.85
    expected = np.all(
        [sum(np.roll(answered, shift, axis=2) for shift in range(-2, 3)) >= 4], axis=(0, 3)
    )
    assert np.array_equal(failures.unmasked(fed, answered), expected)
    assert 0 < expected.mean() < 1


def test_sparse_graphs_keep_their_conditions():
    degree = failures.sparse_degree(1000, 0.1, 0.2, 2 / 3)
    assert 50 < degree < 200
    assert 1000 * 0.3 ** (degree / 2) < 2**-failures.SECURE_BITS
    assert failures.sparse_degree(1000, 0.2, 0.2, 2 / 3) > degree
    assert failures.sparse_degree(50, 0.1, 0.2, 2 / 3) == 49  # no fewer will do: all pairs
    exact = sum(math.comb(9, i) * 0.3**i * 0.7 ** (9 - i) for i in range(4, 10))
    assert failures._binomial_tail(9, 0.3, 4) == pytest.approx(exact)


def test_key_traffic_is_linear_in_neighbours():
    sent, received = zip(*(failures.key_bytes(n) for n in (0, 1, 99)), strict=True)
    assert sent[0] == 64
    assert received[0] == 0
    assert sent[2] - sent[0] == 99 * (sent[1] - sent[0]) == 99 * (176 + 74)
    assert received[2] == 99 * received[1] == 99 * (68 + 176 + 4)


def test_what_all_users_send_is_what_aggregators_receive():
    users, edge, top = failures.bandwidth(CALM)[:3]
    maps = CALM.aggregators * CALM.download
    assert edge["all_received"] == pytest.approx(users["all_sent"] + maps)
    assert edge["all_sent"] == pytest.approx(users["all_received"] + top["all_received"])
    assert top["all_sent"] == maps


@pytest.mark.parametrize("allowed", failures.ALLOWED)
@pytest.mark.parametrize("cohort", [2, 99, 20_000])
def test_least_answers_are_the_mechanisms(cohort, allowed):
    mechanism = AggregateGaussian(dropout=allowed)
    assert failures.least_answers(cohort, allowed) == mechanism.least_answers(cohort)


def test_tables_and_file(tmp_path, capsys):
    file = tmp_path / "failures.json"
    failures.main(["--cohort", "500", "--rounds-simulated", "2", "--json", str(file)])
    found = json.loads(file.read_text())
    assert found["assumed"]["cohort"] == 500
    assert set(failures.TABLES) < set(found)
    printed = capsys.readouterr().out
    for name, (title, columns) in failures.TABLES.items():
        assert title in printed
        assert len({len(line) for line in failures.lines_of(found[name], columns)}) == 1


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--dropout", "1.5"), ("--dropout", "nan"), ("--dropout", "few"), ("--correlation", "1"),
        ("--group", "1"), ("--cohort", "99"), ("--threshold", "0"), ("--deadline", "0"),
        ("--median", "inf"), ("--sigma", "-1"), ("--upload", "0"), ("--seed", "-1"),
        ("--rounds-simulated", "0"), ("--json", "no/such/folder/file.json"),
    ],
)  # fmt: skip
def test_bad_arguments_are_refused(option, value, capsys):
    with pytest.raises(SystemExit) as refused:
        failures.main([f"{option}={value}"])
    assert refused.value.code == 2
    assert option.lstrip("-") in capsys.readouterr().err or option == "--json"
