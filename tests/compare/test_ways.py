"""Both ways to a map with a promise, planned for the same numbers."""

import json
import math

import numpy as np
import pytest

from commands import run as command
from refusals import refused
from veilmap.compare.ways import spread, ways
from veilmap.errors import ConfigurationError, PrivacyError
from veilmap.federation import planning
from veilmap.surveys.design import stations_of

CITY = (0.0, 0.0, 300.0, 300.0)


@pytest.fixture(scope="module")
def both():
    return ways(20_000, 2.0)


def test_both_ways_keep_the_same_promise(both):
    assert both.rounds.epsilon <= 2.0
    assert both.one_sum.survey.epsilon == 2.0
    assert both.rounds.mechanism.delta == both.one_sum.survey.delta == 1e-7
    assert both.rounds.users == both.one_sum.survey.participants == 20_000
    assert both.refused.keys() == {"shuffled uploads", "uploads with names"}


def test_the_less_is_trusted_the_more_it_costs():
    found = ways(1_000_000, 4.0)
    shuffled, named = found.uploads["shuffled"], found.uploads["uploads"]
    assert found.rounds.loss_db < shuffled.loss_db < named.loss_db
    for plan in (shuffled, named):
        assert plan.rounds_each == 1
        assert plan.epsilon <= 4.0
        assert plan.mechanism.delta == found.rounds.mechanism.delta
    assert not found.refused


def test_both_are_expected_on_the_scale_of_a_synthetic_city(both):
    """The readings' own noise of 3 dB is in both."""
    least = 3.0 * math.sqrt(2 / math.pi)
    assert both.rounds.error_db == planning.NOISE_FREE_DB + both.rounds.loss_db > least
    assert both.one_sum.expectation.error_db > least
    # Obstacles are what these cities are made of.
    assert both.rounds.error_db < both.one_sum.expectation.error_db
    assert both.advice.startswith("Rounds")


def test_a_way_that_cannot_work_leaves_the_other():
    found = ways(1500, 1.0)
    assert found.rounds is None
    assert found.refused.keys() == {"rounds", "shuffled uploads", "uploads with names"}
    assert found.one_sum.expectation.error_db > 0
    assert found.advice.startswith("One sum")
    few = ways(60, 8.0, stations=60, cells=100)  # noise drowns the points of so many stations
    assert few.one_sum is None
    assert few.rounds.error_db > planning.NOISE_FREE_DB
    assert few.advice.startswith("Rounds")


def test_one_sum_is_better_where_noise_costs_rounds_much():
    few, many = (ways(users, 1.0, stations=1, links=1) for users in (1800, 20_000))
    assert few.one_sum.expectation.error_db < few.rounds.error_db
    assert many.one_sum.expectation.error_db > many.rounds.error_db
    assert few.advice.startswith("One sum")
    assert many.advice.startswith("Rounds")


def test_neither_is_refused_with_both_reasons():
    with refused(PrivacyError, 10, "rounds", "one sum"):
        ways(10, 0.5)


@pytest.mark.parametrize(
    ("options", "parameter"),
    [({"area": (0, 0, 1, 1)}, "area"), ({"stations": 0}, "stations"), ({"epsilon": 0}, "epsilon")],
)
def test_wrong_numbers_are_refused_whatever_the_way(options, parameter):
    with refused(ConfigurationError, parameter=parameter):
        ways(**{"users": 20_000, "epsilon": 2.0} | options)


def test_areas_and_stations_may_be_named():
    masts = stations_of([(100.0, 100.0, 20.0), (500.0, 300.0, 20.0)], ["a", "b"])
    found = ways(20_000, 8.0, area=(0.0, 0.0, 600.0, 400.0), stations=masts)
    assert found.one_sum.survey.stations == masts
    assert found.one_sum.surroundings.heard == 2
    assert (found.rounds.cells if found.rounds else 26_667) == round(600 * 400 / 9)


def test_stations_are_spread_evenly():
    places = np.array([(one.x, one.y) for one in spread((0.0, 0.0, 200.0, 100.0), 400)])
    counts, _, _ = np.histogram2d(*places.T, bins=(4, 2), range=((0, 200), (0, 100)))
    assert counts.sum() == 400
    assert (np.abs(counts - 50) <= 4).all()


def test_the_command_answers_for_both(tmp_path, capsys):
    file = tmp_path / "plan.json"
    words = ("plan", "--users", "1500", "--epsilon", "1", "--json", str(file))
    code, shown, error = command(capsys, *words)
    assert code == 0, error
    assert "cannot work" in shown
    described = json.loads(file.read_text())
    assert described["rounds"] is None
    assert "1,500 users" in described["refused"]["rounds"]
    assert described["one_sum"]["expected_error_db"] > 2.4
    assert described["advice"].split()[0] in shown


def test_the_command_takes_an_area_and_a_file_of_stations(tmp_path, capsys):
    sites = tmp_path / "sites.csv"
    sites.write_text("bs,x,y,z,azimuth\na,100,100,20,90\nb,500,300,20,\n")
    words = ("--area", "0,0,600,400", "--stations", str(sites), "--json", str(tmp_path / "p.json"))
    code, _, error = command(capsys, "plan", "--users", "20000", "--epsilon", "2", *words)
    assert code == 0, error
    assert json.loads((tmp_path / "p.json").read_text())["one_sum"]["stations"] == 2
    code, _, error = command(
        capsys, "plan", "--users", "2000", "--epsilon", "2", "--stations", "x.csv"
    )
    assert code == 2
    assert "x.csv" in error
