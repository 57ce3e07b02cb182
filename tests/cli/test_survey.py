"""The commands of a survey, typed as a user would, rightly and wrongly."""

import json
from datetime import datetime
from functools import partial

import numpy as np
import pytest

import veilmap as vm
from commands import run
from veilmap.privacy.accounting import composed_epsilon

SITES = "bs,x,y,z\nnorth,500,900,20\nsouth,400,100,20\n"


@pytest.fixture
def command(capsys):
    """A command of veilmap: its exit code, standard output and standard error."""
    return partial(run, capsys)


@pytest.fixture
def design(command):
    """`survey design` with usual options, and some changes."""

    def designed(*changes):
        given = {
            "--area": "0,0,1000,1000",
            "--stations": "sites.csv",
            "--participants": "500",
            "--epsilon": "4",
        } | dict(zip(changes[::2], changes[1::2], strict=True))
        return command("survey", "design", *(word for pair in given.items() for word in pair))

    return designed


@pytest.fixture
def town(tmp_path, monkeypatch):
    """A folder with base stations and the measurements of 600 people."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sites.csv").write_text(SITES)
    generator = np.random.default_rng(0)
    masts = np.array([(500.0, 900.0, 20.0), (400.0, 100.0, 20.0)])
    station = generator.integers(0, 2, 600)
    xy = generator.uniform(0, 1000, (600, 2))
    apart = np.hypot(*(xy - masts[station, :2]).T)
    gain = -60 - 30 * np.log10(np.maximum(apart, 10) / 100) + generator.normal(0, 4, 600)
    user_xyz = np.column_stack([xy, np.full(600, 1.5)])
    names = np.array(["north", "south"])[station]
    vm.Measurements(np.arange(600), user_xyz, masts[station], gain, names).save("links.parquet")
    return tmp_path


def test_from_a_design_to_a_map(town, command, design):
    assert design()[0] == 0
    assert json.loads((town / "survey.json").read_text())["participants"] == 500
    words = ("links.parquet", "--survey", "survey.json", "--out", "town")
    code, out, _ = command("survey", "run", *words)
    assert code == 0
    assert "(4, 1e-06)" in out
    before = (town / "town" / "sum.npz").read_bytes()
    assert command("survey", "open", "town")[0] == 0
    assert (town / "town" / "sum.npz").read_bytes() == before
    for what in ("town", "survey.json"):
        assert command("survey", "show", what)[0] == 0
    radio_map = vm.RadioMap.load(town / "town" / "radio_map.nc")
    gain = radio_map.predict((500, 500, 1.5), (500, 900, 20), station="north")
    assert gain == pytest.approx(-60 - 30 * np.log10(4), abs=6)


def test_surveys_of_the_same_people_are_counted_together(town, command, design):
    design()
    words = ("links.parquet", "--survey", "survey.json", "--out")
    assert command("survey", "run", *words, "first")[0] == 0
    code, out, _ = command("survey", "run", *words, "second", "--after", "first")
    assert code == 0
    account = json.loads((town / "second" / "ledger.json").read_text())
    deviation, clip = account["earlier"][0]
    assert account["epsilon"] == pytest.approx(composed_epsilon(2 * [(deviation, clip)], 1e-6))
    assert 4 < account["epsilon"] < 8
    assert f"{account['epsilon']:.3g}" in out
    command("survey", "run", *words, "third", "--after", "second")
    assert len(json.loads((town / "third" / "ledger.json").read_text())["earlier"]) == 2
    # What can be computed from a seed protects nobody, also not later.
    command("survey", "run", *words, "study", "--seed", "0")
    for named in ("study", "nowhere"):
        code, _, error = command("survey", "run", *words, "fourth", "--after", named)
        assert code == 2
        assert error.count("\n") <= 2
        assert not (town / "fourth" / "ledger.json").exists()


def test_a_design_says_what_to_expect(town, command, design):
    _, first, _ = design()
    _, noisy, _ = design("--reading-noise", "9")
    _, many, _ = design("--participants", "5000")
    assert figure(noisy) > figure(first) > figure(many)
    _, shown, _ = command("survey", "show", "survey.json")
    assert figure(shown) == figure(many)
    _, shown, _ = command("survey", "show", "survey.json", "--reading-noise", "9")
    assert figure(shown) > figure(many)
    for words in ("participant sends", "kB", "10,000 participants", "ε = 8", "m apart"):
        assert words in " ".join(shown.split())
    code, _, err = command("survey", "show", "survey.json", "--occupied", "2")
    assert code == 2
    assert "--occupied" in err


def figure(shown):
    """The error in dB that a table expects."""
    return float(shown.split("expected error")[1].split()[0])


def test_beams_and_levels_of_base_stations_are_read(town, command, design):
    (town / "sites.csv").write_text(
        "bs,x,y,z,azimuth,beam_width,level\nnorth,500,900,20,180,70,-61\nsouth,400,100,20,,,\n"
    )
    assert design()[0] == 0
    north, south = json.loads((town / "survey.json").read_text())["stations"]
    assert (north["azimuth_deg"], north["beam_width_deg"], north["level_db"]) == (180, 70, -61)
    assert (south["azimuth_deg"], south["beam_width_deg"], south["level_db"]) == (None, None, -75)
    assert design("--level", "-60")[0] == 0
    stations = json.loads((town / "survey.json").read_text())["stations"]
    assert {one["level_db"] for one in stations} == {-60}


def test_base_stations_in_degrees_need_a_coordinate_system(town, design):
    (town / "sites.csv").write_text("bs,latitude,longitude,z\nnorth,48.14,11.575,20\n")
    code, _, err = design()
    assert code == 2
    assert "--crs" in err
    # Which is that of the area as well.
    code, _, err = design("--crs", "EPSG:32632")
    assert code == 2
    assert "north" in err
    code, _, err = design("--crs", "EPSG:32632", "--area", "690000,5334000,692000,5336000")
    assert code == 0, err


def test_its_map_is_exported_with_its_uncertainty(town, command, design):
    design()
    command("survey", "run", "links.parquet", "--survey", "survey.json", "--out", "town")
    (town / "at.csv").write_text("x,y\n500,500\n2000,500\n")
    for source in ("town", "town/radio_map.nc"):
        words = ("--layer", "uncertainty", "--station", "south", "--points", "at.csv")
        code, out, _ = command("export", source, "sure.csv", *words)
        assert code == 0
        assert "measurements" not in out  # nobody's data were used again
        near = float((town / "sure.csv").read_text().splitlines()[1].split(",")[-1])
        assert 3 < near < 10  # readings differ by 4 dB
    code, _, err = command("export", "town", "gain.csv", "--station", "west", "--points", "at.csv")
    assert code == 2
    assert "south" in err


def test_a_study_promises_nothing(town, command, design):
    design()
    words = ("links.parquet", "--survey", "survey.json", "--out", "town", "--seed", "1")
    code, out, _ = command("survey", "run", *words)
    assert code == 0
    assert "ε" not in out.splitlines()[-2]
    assert json.loads((town / "town" / "ledger.json").read_text())["epsilon"] is None


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        (("--participants", "3", "--epsilon", "0.1"), "--participants"),
        (("--epsilon", "0.0001", "--participants", "9999999"), "--epsilon"),
        (("--area", "11.5,48.1,11.6,48.2"), "--area"),
        (("--area", "690000,5334000,692000,5336000"), "--stations"),
        (("--heard", "0"), "--heard"),
        (("--occupied", "1.5"), "--occupied"),
        (("--reading-noise", "-1"), "--reading-noise"),
        (("--shadowing", "-1"), "--shadowing"),
        (("--area", "0,0,1000"), "--area"),
        (("--area", "0,1000,1000,0"), "--area"),
        (("--stations", "none.csv"), "none.csv"),
        (("--epsilon", "-1"), "--epsilon"),
        (("--spacing", "0.01"), "--spacing"),
        (("--delta", "2"), "--delta"),
    ],
)
def test_designs_that_cannot_be_are_refused_in_one_line(town, design, changes, named):
    code, _, err = design(*changes)
    assert code == 2
    assert named in err
    assert len(err.strip().splitlines()) == 1
    assert not (town / "survey.json").exists()


def test_a_survey_is_not_opened_twice_and_wrong_files_are_named(town, command, design):
    design()
    words = ("survey", "run", "links.parquet", "--survey", "survey.json", "--out")
    assert command(*words, "town")[0] == 0
    code, _, err = command(*words, "town")
    assert code == 2
    assert "town" in err
    (town / "town" / "sum.npz").write_bytes(b"no archive")
    for name, wrong in (
        ("sum.npz", ("survey", "open", "town")),
        ("links.parquet", ("survey", "show", "links.parquet")),
        ("ledger.json", ("survey", "show", str(town))),
    ):
        code, _, err = command(*wrong)
        assert code == 2
        assert name in err


@pytest.mark.parametrize(
    "words",
    [
        ("export", "planned", "gain.csv"),
        ("report", "planned"),
        ("serve", "planned", "--port", "0"),
        ("serve", "town", "planned", "--port", "0"),
        ("audit", "planned"),
    ],
)
def test_folders_of_neither_a_run_nor_a_survey_are_refused_in_a_line(town, command, design, words):
    design()
    command("survey", "run", "links.parquet", "--survey", "survey.json", "--out", "town")
    (town / "planned").mkdir()
    (town / "survey.json").rename(town / "planned" / "survey.json")  # nobody has taken part yet
    code, _, err = command(*words)
    assert code == 2
    assert "planned" in err
    assert len(err.strip().splitlines()) == 1


def test_uncertainty_of_a_base_station_that_was_not_surveyed_is_refused(town, command, design):
    design()
    command("survey", "run", "links.parquet", "--survey", "survey.json", "--out", "town")
    words = ("export", "town", "sure.nc", "--layer", "uncertainty", "--bs")
    assert command(*words, "500,900,20")[0] == 0  # that is north
    code, _, err = command(*words, "10,20,30")
    assert code == 2
    assert "(10, 20, 30)" in err
    assert len(err.strip().splitlines()) == 1


def test_the_account_says_how_to_make_the_sum_again(town, command, design):
    design()
    words = ("survey", "run", "links.parquet", "--survey", "survey.json", "--seed", "7", "--out")
    command(*words, "town")
    account = json.loads((town / "town" / "ledger.json").read_text())
    assert account["veilmap"] == vm.__version__
    assert datetime.fromisoformat(account["opened"]).tzinfo is not None
    again = ("survey", "run", "links.parquet", "--survey", "town/survey.json", "--seed")
    command(*again, str(account["seed"]), "--out", "again")
    sums = [np.load(town / name / "sum.npz")["total"] for name in ("town", "again")]
    np.testing.assert_array_equal(*sums)
    command("survey", "run", "links.parquet", "--survey", "survey.json", "--out", "promised")
    assert json.loads((town / "promised" / "ledger.json").read_text())["seed"] is None


def test_estimated_positions_of_base_stations_are_not_published(town, design):
    estimated = "bs,x,y,z,error_m\nnorth,500,900,20,\nsouth,400,100,20,250\n"
    (town / "sites.csv").write_text(estimated)
    code, _, err = design()
    assert code == 2
    assert "estimates" in err
    assert err.count("\n") == 1
    (town / "sites.csv").write_text(estimated.replace("250", ""))
    assert design()[0] == 0
