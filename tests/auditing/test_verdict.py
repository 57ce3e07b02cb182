"""Verdicts of audits: what they say follows from the numbers, and they survive a file."""

import json
import math

import pytest

import veilmap as vm
from veilmap.auditing.measured import Measured
from veilmap.auditing.verdict import Told, Verdict, change

GUESS = Measured(119.0, 110.0, 130.0), Measured(0.05, 0.02, 0.11)
FOUND = Measured(0.12, 0.1, 0.2), Measured(0.98, 0.93, 1.0)
PARTLY = Measured(72.0, 60.0, 85.0), Measured(0.3, 0.2, 0.4)
NOT = Measured(112.0, 100.0, 125.0), Measured(0.06, 0.03, 0.12)


def verdict(found, **changes):
    content = {
        "sees": "uploads", "attack": "some", "knows": "round 3", "users": 100, "median": found[0],
        "near": found[1], "guess_median": GUESS[0], "guess_near": GUESS[1],
        "promise": "no (ε, δ) guarantee: obfuscation", "epsilon": math.nan, "change": "all",
    }  # fmt: skip
    return Verdict(**content | changes)


def test_only_what_intervals_tell_from_guessing_is_a_find():
    found, partly, nothing = (verdict(one) for one in (FOUND, PARTLY, NOT))
    assert [one.beats_guessing for one in (found, partly, nothing)] == [True, True, False]
    assert len({one.finding.split(":")[0] for one in (found, partly, nothing)}) == 3
    # Half of the users are no nearer, but many are within 50 m.
    assert verdict((NOT[0], PARTLY[1])).beats_guessing


def test_numbers_are_in_the_sentence():
    assert {"0.12 m", "98 %", "119 m", "5 %"} <= {
        f"{one} {unit.strip(',.')}"
        for one, unit in zip(
            verdict(FOUND).finding.split(), verdict(FOUND).finding.split()[1:], strict=False
        )
    }


def test_a_verdict_comes_back_from_its_file():
    for one in (
        verdict(FOUND),
        verdict(NOT, epsilon=8.0, told=Told(Measured(0.84, 0.83, 0.86), 0.9997)),
    ):
        content = json.loads(json.dumps(one.as_dict(), allow_nan=False))
        assert Verdict.read(content).lines == one.lines


def test_what_a_promise_allows_is_never_rounded_up_to_certainty():
    told = verdict(NOT, told=Told(Measured(0.84, 0.83, 0.86), 0.99999)).membership
    assert "100 %" not in told


def test_advice_depends_on_what_is_seen_and_promised():
    said = [
        change("uploads", math.nan, None),
        change("sums", math.nan, None),
        change("sums", math.nan, 1e-6),
        change("sums", 8.0, 1e-6),
        change("sums", 1.0, 1e-6),
    ]
    assert len(set(said)) == len(said)
    assert "aggregate" in said[0]
    assert "aggregate" in said[1]
    assert "seed" in said[2]
    assert said[4].startswith("nothing")


@pytest.mark.parametrize("mechanism", [None, vm.AggregateGaussian(delta=1e-3)], ids=str)
def test_the_verdict_of_a_run_is_its_strongest_adversarys(mechanism):
    scene = vm.Scene.synthetic(5, size=120.0, cell_size=6.0, buildings=4, base_stations=20)
    data = scene.measure(users=12, links_per_user=20, seed=0)
    keep = vm.Recording(keep_uploads="all")
    chosen = {} if mechanism is None else {"mechanism": mechanism}
    run = vm.train(data, scene.grid, rounds=3, seed=0, recording=keep, **chosen)
    audit = vm.audit(run, data)
    found = audit.verdict
    others = [] if audit.sums is None else [*audit.sums.location[1:]]
    medians = [score.median.value for score in (audit.strongest, *others)]
    assert found.median.value == min(medians)
    assert found.promise == audit.promise
    assert (found.told is None) == (audit.sums is None)
    assert audit.as_dict()["verdict"] == found.as_dict()
