"""Surveys as the command line, reports and the page open them."""

import json
import math
import os
import shutil

import numpy as np
import pytest

import veilmap as vm
from refusals import refused
from sealing import reseal
from small_surveys import MASTS, USERS, audit_of, audited, designed, people, surveyed
from veilmap._util import archives
from veilmap.errors import ConfigurationError, DataError, RunFolderError
from veilmap.runs.folders import holds_result, open_result, results_in
from veilmap.runs.survey import OpenSurvey
from veilmap.surveys.aggregate import OpenedSum, summed
from veilmap.surveys.design import RECEIVER_HEIGHT, Survey


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    place = tmp_path_factory.mktemp("surveys")
    surveyed(place / "town")
    surveyed(place / "trial", seed=1)
    return place


@pytest.fixture
def town(made, tmp_path):
    """A survey of this test alone."""
    return shutil.copytree(made / "town", tmp_path / "town")


@pytest.fixture
def trial(made, tmp_path):
    """The same with a seed."""
    return shutil.copytree(made / "trial", tmp_path / "trial")


def test_a_folder_is_opened_as_what_it_is(made, tmp_path):
    assert isinstance(open_result(made / "town"), OpenSurvey)
    assert [path.name for path in results_in(made)] == ["town", "trial"]
    designed().save(tmp_path / "survey.json")  # before anyone takes part
    assert not holds_result(tmp_path)
    for nothing in (tmp_path, tmp_path / "nowhere", made):
        with refused(RunFolderError, nothing):
            open_result(nothing)
    with refused(ConfigurationError, made / "town", parameter="data"):
        open_result(made / "town", data=tmp_path / "links.parquet")


def test_it_says_what_was_promised_and_to_whom(made):
    town, trial = OpenSurvey(made / "town"), OpenSurvey(made / "trial")
    assert town.promised
    assert "ε = 4" in town.label
    assert town.promise.epsilon == pytest.approx(4.0, abs=1e-6)
    assert f"{USERS}" in town.promise.words
    assert not trial.promised
    assert "ε" not in trial.label + trial.promise.words
    assert math.isnan(trial.promise.epsilon)
    assert (town.users, town.rounds, town.history(), town.scene) == (USERS, 0, [], None)


def test_its_map_has_the_stations_of_the_design(made):
    town = OpenSurvey(made / "town")
    places, ids = town.stations
    assert ids == ("north", "south")
    np.testing.assert_array_equal(places, [place for _, *place in MASTS])
    assert town.finished_map().antennas is not None  # one beam is known
    there = (500, 400, 1.5), places[0]
    gain, deviation = town.radio_map().predict(*there, station="north", return_std=True)
    assert gain == pytest.approx(-60 - 30 * math.log10(3), abs=5)
    assert 3 < deviation < 10


def test_a_map_that_is_made_anew_is_read_anew(town):
    opened = OpenSurvey(town)
    before = opened.radio_map()
    assert opened.radio_map() is before
    vm.RadioMap.load(town / "radio_map.nc").save(town / "radio_map.nc")
    assert opened.radio_map() is not before


def test_the_map_of_another_survey_is_refused(made, town):
    other = surveyed(town.with_name("other"), names=("east", "west"))
    shutil.copy(other / "radio_map.nc", town / "radio_map.nc")
    with refused(RunFolderError, town / "radio_map.nc"):
        OpenSurvey(town).finished_map()
    plain = vm.RadioMap(designed().grid, np.zeros(designed().grid.cells))
    plain.save(town / "radio_map.nc")
    with refused(RunFolderError, town / "radio_map.nc"):
        OpenSurvey(town).finished_map()


def test_without_its_map_it_is_not_finished(town):
    (town / "radio_map.nc").unlink()
    opened = OpenSurvey(town)
    assert not opened.finished
    with refused(RunFolderError, town):
        opened.finished_map()


@pytest.mark.parametrize("station", ["north", "south"])
def test_counts_are_the_sum_turned_by_the_map(made, station):
    """A sum that is as the map says, 5 at every point, gives 5; a quarter turn away none."""
    town = OpenSurvey(made / "town")
    survey, number = town.survey, ("north", "south").index(station)
    points = survey.grid.centres
    ground = np.column_stack([points, np.full(len(points), RECEIVER_HEIGHT)])
    gain = town.radio_map().predict(ground, survey.positions[number], station=station)
    for quarter, count in ((0.0, 5.0), (survey.range_db / 4, 0.0), (survey.range_db / 2, -5.0)):
        residual = gain + quarter - survey.nominal(np.full(len(points), number), points)
        angles = np.zeros((*survey.shape, 2))
        turn = 2 * np.pi / survey.range_db * residual
        angles[number] = 5 * survey.clip * np.column_stack([np.cos(turn), np.sin(turn)])
        levels = np.zeros(2 * len(survey.stations))
        total = np.rint(np.append(angles, levels)).astype(np.int64)
        town.__dict__["opened"] = OpenedSum(survey, total, USERS, survey.deviation)
        found = town.sum_of(station)
        # Rounding moves each part by at most half a step.
        np.testing.assert_allclose(found.counts, count, atol=1 / survey.clip)
        np.testing.assert_allclose(found.length, 5.0, atol=1 / survey.clip)
        assert found.noise == survey.deviation / survey.clip
        assert found.standing_out == (survey.grid.cells if count > 3 * found.noise else 0)


def test_counts_are_those_of_the_participants_and_the_noise(made):
    town, data = OpenSurvey(made / "town"), people(("north", "south"))
    survey = town.survey
    clean = summed(survey, data.user.astype(np.int64), data.user_xyz[:, :2], data.bs, data.gain_db)
    lengths = np.abs(OpenedSum(survey, clean, USERS, survey.deviation).angles).sum(axis=1)
    for number, station in enumerate(("north", "south")):
        found = town.sum_of(station)
        spread = 5 * found.noise * math.sqrt(found.counts.size)
        # A map that is off by 8 dB where points have few participants turns a tenth of 80 dB,
        # which leaves cos 36° of a count.
        assert 0.8 * lengths[number] - spread < found.counts.sum() < lengths[number] + spread


def test_a_station_that_was_not_surveyed_has_no_sum(made):
    with refused(ConfigurationError, "west", parameter="station"):
        OpenSurvey(made / "town").sum_of("west")


@pytest.mark.parametrize("total", [np.zeros(3), np.full(324, np.nan), np.full(324, "1"), [[1, 2]]])
def test_a_sum_that_is_none_is_refused(town, total):
    assert OpenSurvey(town).survey.numbers == 324
    archives.save(town / "sum.npz", {"total": total}, compressed=True)
    with refused(RunFolderError, town / "sum.npz"):
        OpenSurvey(town).sum_of("north")


@pytest.mark.parametrize("file", ["survey.json", "ledger.json", "radio_map.nc", "sum.npz"])
@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"null", b"\xff\0?", b"[" * 100_000])
def test_a_damaged_file_is_said_in_a_line(town, file, content):
    (town / file).write_bytes(content)
    opened = OpenSurvey(town)
    with refused((DataError, RunFolderError), town / file):
        _ = opened.label, opened.finished_map(), opened.opened


@pytest.mark.parametrize(
    "change", [{"epsilon": 1e300}, {"stations": ("x", 1e300)}, {"stations": ("z", -1e300)}], ids=str
)
def test_a_design_beyond_all_bounds_is_said_in_a_line(town, change):
    """Its digest is right: only the design itself can be refused."""
    content = json.loads((town / "survey.json").read_text())
    for name, value in change.items():
        if name == "stations":
            content["stations"][0][value[0]] = value[1]
        else:
            content[name] = value
    (town / "survey.json").write_text(json.dumps(content))
    reseal(town / "ledger.json", survey=Survey.load(town / "survey.json").digest)
    opened = OpenSurvey(town)
    with refused((DataError, RunFolderError), town):
        _ = opened.label, opened.opened, opened.stations


# ---- its audit


def test_an_audit_is_shown_in_a_study_or_where_nothing_is_promised(town, trial):
    for path in (town, trial):
        audited(path)
    assert OpenSurvey(town).audit is None
    assert OpenSurvey(town).withheld
    assert not OpenSurvey(trial).withheld
    for opened in (OpenSurvey(town, study=True), OpenSurvey(trial)):
        found = opened.audit
        assert found.verdict.median.value == 120.0
        assert found.verdict.guess_median.value == 350.0
        assert found.membership.auc_allowed == 0.981
        assert found.canaries.epsilon_at_least == 1.23
        assert found.location[1].found[50].value == 0.2


def test_an_audit_of_another_survey_or_of_an_earlier_sum_is_not_shown(trial):
    path = audited(trial, survey="0" * 64)
    assert OpenSurvey(trial).audit is None
    audited(trial)
    assert OpenSurvey(trial).audit is not None
    os.utime(path, (1, 1))
    assert OpenSurvey(trial).audit is None


def test_an_audit_that_is_made_anew_is_read_anew(trial):
    opened = OpenSurvey(trial)
    assert opened.audit is None
    path = audited(trial)
    os.utime(path, (4e9, 4e9))
    assert opened.audit.canaries.right == 81


def test_numbers_that_were_not_measured_are_unknown(trial):
    def nothing(content):
        if isinstance(content, dict):
            return {name: nothing(one) for name, one in content.items()}
        if isinstance(content, list):
            return [nothing(one) for one in content]
        return None if isinstance(content, float | int) else content

    audited(trial, nothing(audit_of(trial)))
    found = OpenSurvey(trial).audit
    assert math.isnan(found.membership.auc.value)
    assert math.isnan(found.location[0].found[10].low)
    assert found.verdict is None
    audited(trial, membership=None, canaries=None, location=None)
    os.utime(trial.with_name("trial.study") / "audit" / "audit.json", (4e9, 4e9))
    found = OpenSurvey(trial).audit
    assert (found.membership, found.canaries, found.location) == (None, None, ())


WRONG = [3, "x", [], [1], {"a": 1}, True, 1e400, {"value": "near"}, [[[]]]]


@pytest.mark.parametrize("name", ["survey", "epsilon", "membership", "canaries", "location"])
@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_a_strangers_audit_is_ignored_or_read_but_never_fails(trial, name, wrong):
    audited(trial, **{name: wrong})
    found = OpenSurvey(trial).audit
    harmless = name == "epsilon" and wrong in (3, True)
    empty = name in ("membership", "canaries", "location") and wrong == []
    assert (found is not None) == (harmless or empty)


@pytest.mark.parametrize("name", [None, "attack", "median", "epsilon", "told", "change"])
@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_a_strangers_verdict_is_left_out_or_read_but_never_fails(trial, name, wrong):
    verdict = audit_of(trial)["verdict"]
    audited(trial, verdict=wrong if name is None else verdict | {name: wrong})
    found = OpenSurvey(trial).audit
    assert found.verdict is None or len(found.verdict.lines) >= 3


@pytest.mark.parametrize("wrong", [*WRONG[:4], 1e400], ids=str)
def test_a_wrong_number_deep_inside_is_never_shown(trial, wrong):
    content = audit_of(trial)
    content["location"][1]["median"] |= {"value": wrong}
    audited(trial, json.dumps(content))
    found = OpenSurvey(trial).audit
    assert found is None or found.location[1].median.value == wrong


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "3", "\x00", "[" * 100_000])
def test_a_file_that_is_no_audit_is_ignored(trial, text):
    audited(trial, text)
    assert OpenSurvey(trial).audit is None
