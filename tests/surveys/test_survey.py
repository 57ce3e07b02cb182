"""Whole surveys: the map they give, what they promise, and what they refuse."""

import json
import math
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest

import veilmap as vm
from refusals import refused
from sealing import reseal
from veilmap._util.plain import to_plain
from veilmap.errors import ConfigurationError, DataError, PrivacyError, RunFolderError
from veilmap.privacy.accounting import composed_epsilon, gaussian_deviation, gaussian_epsilon
from veilmap.privacy.mechanisms.lattice import LARGEST_DEVIATION
from veilmap.surveys.aggregate import opened
from veilmap.surveys.contribution import contribution
from veilmap.surveys.design import Survey, stations_of
from veilmap.surveys.folder import SurveyFolder
from veilmap.surveys.surroundings import Surroundings
from veilmap.surveys.surveying import survey

SIDE = 2000.0
AREA = (0.0, 0.0, SIDE, SIDE)
MASTS = np.array([(300.0, 400.0, 25.0), (1700.0, 900.0, 25.0), (900.0, 1800.0, 25.0)])
LEVELS = np.array([-95.0, -48.0, -63.0])  # the design knows none of them


def waves(count=80, seed=0):
    """Directions, lengths from 100 m to 3 km and phases: rough at every scale, as streets are."""
    generator = np.random.default_rng(seed)
    length = 100 * 30 ** generator.uniform(size=count)
    angle, phase = generator.uniform(0, 2 * np.pi, (2, count))
    return 2 * np.pi / length * np.array([np.cos(angle), np.sin(angle)]), phase


def truth(station, xy):
    """Gains with a field of 6 dB around laws that the design does not know."""
    apart = np.hypot(*(xy - MASTS[station, :2]).T)
    vectors, phase = waves()
    shadow = np.cos(xy @ vectors + phase + 3.0 * station[:, None] * np.arange(80)).sum(axis=1)
    shadow *= 6.0 / np.sqrt(80 / 2)
    return LEVELS[station] - 34 * np.log10(np.maximum(apart, 20) / 100) + shadow


def crowd(users, seed, noise_db=4.0):
    generator = np.random.default_rng(seed)
    xy = np.repeat(generator.uniform(0, SIDE, (users, 2)), 2, axis=0)
    station = generator.integers(0, 3, 2 * users)
    gain = truth(station, xy) + generator.normal(0, noise_db, 2 * users)
    user_xyz = np.column_stack([xy, np.full(len(xy), 1.5)])
    rows = np.repeat(np.arange(users), 2), user_xyz, MASTS[station], gain, station
    return vm.Measurements(*rows, on_bad="drop")


def designed(participants=4000, epsilon=4.0, **changes):
    stations = stations_of(MASTS, range(3))
    return Survey.design(AREA, stations, participants=participants, epsilon=epsilon, **changes)


@pytest.fixture(scope="module")
def data():
    return crowd(4000, seed=1)


@pytest.fixture(scope="module")
def unseen():
    return crowd(1000, seed=2)


@pytest.mark.parametrize(("epsilon", "most_db"), [(8.0, 4.6), (2.0, 5.6)])
def test_it_finds_levels_and_field_that_nobody_told_it(data, unseen, epsilon, most_db):
    """Readings have 4 dB of noise, so 3.2 dB is the least mean error there can be."""
    radio_map = survey(data, designed(epsilon=epsilon), seed=0).radio_map
    wrong = radio_map.predict_links(unseen) - unseen.gain_db
    assert np.abs(wrong).mean() < most_db


@pytest.mark.parametrize("epsilon", [8.0, 2.0, 1.0])
def test_95_percent_intervals_hold_for_about_95_percent(data, unseen, epsilon):
    radio_map = survey(data, designed(epsilon=epsilon), seed=3).radio_map
    wrong = np.abs(radio_map.predict_links(unseen) - unseen.gain_db)
    deviation = radio_map.deviation(unseen.user_xyz, unseen.bs_xyz, unseen.bs)
    assert 0.92 <= (wrong < 1.96 * deviation).mean() <= 0.98


def test_predictions_come_with_standard_deviations(data, tmp_path):
    radio_map = survey(data, designed(), seed=0).radio_map
    gain, deviation = radio_map.predict((500, 500, 1.5), MASTS[1], station=1, return_std=True)
    assert gain == radio_map.predict((500, 500, 1.5), MASTS[1], station=1)
    assert 3 < deviation < 12
    radio_map.save(tmp_path / "map.nc")
    again = vm.RadioMap.load(tmp_path / "map.nc")
    assert again.deviation((500, 500, 1.5), MASTS[1], np.array([1])) == deviation
    assert math.isnan(radio_map.deviation((500, 500, 1.5), (1, 2, 3))[0])
    with refused(ConfigurationError):
        vm.RadioMap(radio_map.grid, radio_map.heights).predict((0, 0, 1), MASTS[0], return_std=True)


def test_the_sum_is_that_of_contributions_and_noise_of_the_designs_deviation(data):
    few = data.select(data.user < 50)
    design = designed(participants=50, spacing=400.0, epsilon=8.0)
    total = np.zeros(design.numbers, dtype=np.int64)
    for user in few.users:
        own = few.of_user(user)
        total += contribution(design, own.user_xyz[:, :2], own.bs, own.gain_db).vector
    clean = [opened(design, total, 50, seed).total - total for seed in range(40)]
    found = survey(few, design, seed=7).opened
    assert (found.total - total == opened(design, total, 50, 7).total - total).all()
    noise = np.concatenate(clean)
    # The relative error of a deviation from n numbers is 1/√(2n).
    assert noise.std() == pytest.approx(design.deviation, rel=5 / math.sqrt(2 * len(noise)))
    assert abs(noise.mean()) < 5 * design.deviation / math.sqrt(len(noise))


def test_without_a_seed_noise_differs_each_time(data):
    few, design = data.select(data.user < 50), designed(participants=50, spacing=400.0)
    first, second = (survey(few, design).opened.total for _ in range(2))
    assert (first != second).mean() > 0.9


def test_too_few_participants_are_not_opened(data):
    with refused(PrivacyError, 50, 4000):
        survey(data.select(data.user < 50), designed())


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 8.0])
def test_noise_is_exactly_calibrated(epsilon):
    """Less than what zCDP asks for, and not less than the continuous Gaussian's."""
    deviation = gaussian_deviation(epsilon, 1e-6, 1024)
    assert gaussian_epsilon(deviation, 1e-6, 1024) <= epsilon
    assert gaussian_epsilon(0.999 * deviation, 1e-6, 1024) > epsilon
    rho = math.sqrt(epsilon + math.log(1e6)) - math.sqrt(math.log(1e6))  # (Bun and Steinke, 2016)
    assert deviation < 1024 / (math.sqrt(2) * rho)
    twice = composed_epsilon(2 * [(deviation, 1024)], 1e-6)
    assert epsilon < twice < 2 * epsilon


def test_more_people_or_a_larger_epsilon_put_points_closer():
    few, many = designed(1000), designed(4000)
    assert many.grid.cell_size == pytest.approx(few.grid.cell_size / 2, rel=1e-9)
    assert designed(1000, 8.0).grid.cell_size < few.grid.cell_size


def advised(error, what):
    """The number that a message advises, after ``what``."""
    return float(str(error).split(what)[-1].split()[0].rstrip(","))


@pytest.mark.parametrize("asked", [(10, 0.1), (30, 1.0)])
def test_a_design_that_cannot_work_is_refused_with_the_nearest_that_can(asked):
    participants, epsilon = asked
    with refused(ConfigurationError, participants, parameter="participants") as caught:
        designed(participants, epsilon)
    needed = int(advised(caught.value, "ask for "))
    assert designed(needed, epsilon).grid.cells >= 16
    assert designed(participants, advised(caught.value, "ε = ")).grid.cells >= 16
    for nearly in ((0.9 * needed // 1, epsilon), (participants, 0.9 * epsilon)):
        with refused(ConfigurationError, parameter="participants"):
            designed(*nearly)
    assert designed(participants, epsilon, coarsest=True).grid.cells == 16


def test_a_small_epsilon_takes_a_coarser_lattice():
    """Its noise can be drawn, and promises what is asked for."""
    design = designed(100_000, 0.1)
    assert design.clip < 1024
    assert design.deviation <= LARGEST_DEVIATION
    assert 0.099 < gaussian_epsilon(design.deviation, 1e-6, design.clip) <= 0.1
    lost = math.sqrt(2 * 5 * len(MASTS)) / 2  # of a contribution that hears every station once
    assert lost < 0.05 * design.clip


@pytest.mark.parametrize("epsilon", [1e-3, 1e-9])
def test_an_epsilon_that_no_lattice_bears_is_refused_with_the_least_that_one_does(epsilon):
    with refused(ConfigurationError, parameter="epsilon") as caught:
        designed(10**9, epsilon)
    least = advised(caught.value, "ask for ε = ")
    assert designed(10**9, least).deviation <= LARGEST_DEVIATION
    with refused(ConfigurationError, parameter="epsilon"):
        designed(10**9, 0.9 * least)


@pytest.mark.parametrize(("spacing", "advice"), [(2.0, "of "), (900.0, "of ")])
def test_a_million_points_and_three_are_refused_with_the_nearest_spacing(spacing, advice):
    with refused(ConfigurationError, f"{spacing:g}", parameter="spacing") as caught:
        designed(spacing=spacing)
    assert designed(spacing=advised(caught.value, advice)).grid.cells >= 16


@pytest.mark.parametrize(
    ("area", "masts", "parameter"),
    [
        ((-111.86, 40.75, -111.83, 40.78), MASTS, "area"),  # degrees
        (AREA, MASTS + 4e6, "stations"),  # another plane
        ((0, 0, 2000), MASTS, "area"),
        ((0, 0, 2000, -1), MASTS, "area"),
        ((0, 0, 2000, "north"), MASTS, "area"),
    ],
)
def test_areas_and_stations_in_other_units_are_refused(area, masts, parameter):
    with refused(ConfigurationError, parameter=parameter):
        Survey.design(area, stations_of(masts, range(3)), participants=4000, epsilon=4.0)


def test_participants_on_less_ground_have_points_closer():
    half = designed(surroundings=Surroundings(occupied=0.5)).grid.cell_size
    all_over = designed(surroundings=Surroundings(occupied=1.0)).grid.cell_size
    assert all_over == pytest.approx(math.sqrt(2) * half)


def test_designs_are_saved_whole_and_have_a_digest(tmp_path):
    design = designed()
    design.save(tmp_path / "survey.json")
    assert Survey.load(tmp_path / "survey.json") == design
    assert Survey.load(tmp_path / "survey.json").digest == design.digest
    assert designed(epsilon=4.1).digest != design.digest


@pytest.mark.parametrize(
    "content",
    ["", "{}", "[1]", '{"type": "Grid"}', '{"type": "Survey"}', "[" * 100_000, "null", '"Survey"'],
)
def test_files_that_are_no_design_are_refused(tmp_path, content):
    (tmp_path / "survey.json").write_text(content)
    with refused(DataError):
        Survey.load(tmp_path / "survey.json")


@pytest.mark.parametrize("wrong", [None, 5, "x", [], [1], {}, -1, 1e400, {"type": "Grid"}])
@pytest.mark.parametrize("name", ["grid", "stations", "participants", "epsilon", "delta", "clip"])
def test_designs_with_a_wrong_value_are_refused(tmp_path, name, wrong):
    content = to_plain(designed()) | {name: wrong}
    (tmp_path / "survey.json").write_text(json.dumps(content))
    usable = (name, wrong) in [("participants", 5), ("epsilon", 5), ("grid", {"type": "Grid"})]
    with nullcontext() if usable else refused(DataError, tmp_path / "survey.json"):
        Survey.load(tmp_path / "survey.json")


def test_a_survey_is_opened_once(data, tmp_path):
    few, design = data.select(data.user < 50), designed(participants=50, spacing=400.0)
    folder = SurveyFolder(tmp_path / "town")
    result = survey(few, design, before_opening=folder.begin)
    folder.save(result.opened, result.radio_map)
    again = SurveyFolder(tmp_path / "town")
    assert (again.opened().total == result.opened.total).all()
    assert again.account["epsilon"] <= design.epsilon
    with refused(PrivacyError, tmp_path / "town"):
        survey(few, design, before_opening=again.begin)


def test_an_opening_is_written_down_before_any_noise_is_drawn(data, tmp_path, monkeypatch):
    few, design = data.select(data.user < 50), designed(participants=50, spacing=400.0)
    folder = SurveyFolder(tmp_path)

    def dies(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("veilmap.surveys.surveying.opened", dies)
    with pytest.raises(KeyboardInterrupt):
        survey(few, design, before_opening=folder.begin)
    monkeypatch.undo()
    with refused(PrivacyError):
        survey(few, design, before_opening=folder.begin)


@pytest.mark.parametrize("name", ["participants", "epsilon", "delta", "seeded", "survey"])
@pytest.mark.parametrize("wrong", [None, "x", [], {}, -1, 1e400])
def test_a_strangers_account_is_refused_or_read_but_never_fails(tmp_path, name, wrong):
    SurveyFolder(tmp_path).begin(designed(participants=50, spacing=400.0), 50, None)
    reseal(tmp_path / "ledger.json", **{name: wrong})
    if name == "seeded" or (name in ("epsilon", "delta") and wrong == -1):
        assert SurveyFolder(tmp_path).account["participants"] == 50
    else:
        with refused(RunFolderError, tmp_path / "ledger.json"):
            _ = SurveyFolder(tmp_path).account


@pytest.mark.parametrize("content", [b"", b"PK", b"no archive", "cut", "flipped"])
def test_a_damaged_sum_is_refused(data, tmp_path, content):
    few, design = data.select(data.user < 50), designed(participants=50, spacing=400.0)
    folder = SurveyFolder(tmp_path)
    result = survey(few, design, before_opening=folder.begin)
    folder.save(result.opened, result.radio_map)
    whole = bytearray((tmp_path / "sum.npz").read_bytes())
    middle = len(whole) // 2
    damaged = {"cut": whole[:middle], "flipped": whole[:middle] + b"\xff" * 9 + whole[middle + 9 :]}
    (tmp_path / "sum.npz").write_bytes(bytes(damaged.get(content, content)))
    with refused(RunFolderError, tmp_path / "sum.npz"):
        SurveyFolder(tmp_path).opened()


def test_noise_that_cannot_be_drawn_is_refused_before_the_account(data, tmp_path):
    few, design = data.select(data.user < 50), designed(participants=50, spacing=400.0)
    with refused(ConfigurationError):
        survey(few, replace(design, epsilon=1e-3), before_opening=SurveyFolder(tmp_path).begin)
    assert not (tmp_path / "ledger.json").exists()


def test_a_folder_of_another_design_is_refused(data, tmp_path):
    few, design = data.select(data.user < 50), designed(participants=50, spacing=400.0)
    folder = SurveyFolder(tmp_path)
    result = survey(few, design, seed=1, before_opening=folder.begin)
    folder.save(result.opened, result.radio_map)
    assert SurveyFolder(tmp_path).account["epsilon"] is None  # a seed promises nothing
    designed(participants=50, spacing=300.0).save(tmp_path / "survey.json")
    with refused(RunFolderError):
        SurveyFolder(tmp_path).opened()


def test_public_buildings_tell_clear_links_from_blocked_ones():
    scene = vm.Scene.synthetic(3, base_stations=8)
    data = scene.measure(users=1500, links_per_user=5, noise_db=3.0, seed=0)
    unseen = scene.measure(users=200, links_per_user=5, noise_db=3.0, seed=1)
    west, east, south, north = scene.grid.extent
    known = stations_of(scene.base_stations, range(8))
    design = vm.Survey.design((west, south, east, north), known, participants=1500, epsilon=4)
    public = np.where(scene.heights > 2, scene.heights, 0.0)
    maps = [
        vm.survey(data, design, 0, buildings=given).radio_map
        for given in (None, (scene.grid, public))
    ]
    blind, sighted = (np.abs(own.predict_links(unseen) - unseen.gain_db) for own in maps)
    # Two cities gave 1.9 to 3.5 dB less, 5.9 to 7.3 dB without buildings.
    assert sighted.mean() < blind.mean() - 1
    laws = maps[1].propagation
    assert laws.los_intercept > laws.nlos_intercept + 8
    assert maps[1].grid == scene.grid
    ends = unseen.user_xyz, unseen.bs_xyz, unseen.bs
    # 1,000 links of users at 200 places: the share within has a standard error of about 1 %.
    assert 0.92 < (sighted <= 1.96 * maps[1].deviation(*ends)).mean() <= 1
