"""`veilmap audit` of a survey's folder, typed rightly and wrongly."""

import json
from functools import partial

import pytest

import crowds
from commands import run


@pytest.fixture
def command(capsys):
    return partial(run, capsys)


@pytest.fixture
def town(tmp_path, monkeypatch, command):
    """A folder with an opened survey, its measurements, and those of others."""
    monkeypatch.chdir(tmp_path)
    crowds.crowd(400, seed=1).save("links.parquet")
    crowds.crowd(390, seed=1).save("fewer.parquet")
    crowds.crowd(400, seed=2).save("others.parquet")
    crowds.designed(400, epsilon=8.0).save("survey.json")
    words = "links.parquet", "--survey", "survey.json", "--out"
    for name in ("town", "twin"):
        assert command("survey", "run", *words, name)[0] == 0
    return tmp_path


def contents(folder):
    return {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_an_audit_is_shown_and_kept_beside_the_survey(town, command):
    before = contents(town / "town")
    words = ("town", "--data", "links.parquet", "--users", "40", "--json", "all.json")
    code, out, _ = command("audit", *words)
    assert code == 0
    assert out.startswith("Study: not for publication")
    assert "(8, 1e-06)" in " ".join(out.split())
    content = json.loads((town / "town.study" / "audit" / "audit.json").read_text())
    assert content["epsilon"] == pytest.approx(8.0)
    assert content["participants"] == 400
    assert 0 < content["canaries"]["epsilon_at_least"] < 8
    assert {"prior only", "crowd density"} < {row["attack"] for row in content["location"]}
    assert json.loads((town / "all.json").read_text())["survey town"]["survey"] == content["survey"]
    assert (town / "town.study" / "README.txt").read_text().startswith("Study: not for publication")
    assert contents(town / "town") == before


def test_several_surveys_are_audited_each_by_itself(town, command):
    words = ("--data", "links.parquet", "--users", "10", "--out", "both")
    assert command("audit", "town", "twin", *words)[0] == 0
    assert {path.name for path in (town / "both").iterdir()} == {"town", "twin"}
    assert (town / "both" / "twin" / "audit.json").exists()


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ((), "--data"),
        (("--data", "none.parquet"), "none.parquet"),
        (("--data", "fewer.parquet"), "390"),
        (("--data", "others.parquet"), "--data"),
        (("--data", "links.parquet", "--rounds", "1"), "--rounds"),
        (("--data", "links.parquet", "--test", "links.parquet"), "--test"),
        (("--data", "links.parquet", "--users", "3"), "--users"),
    ],
)
def test_wrong_audits_of_surveys_end_in_one_line(town, command, words, named):
    code, _, err = command("audit", "town", *words)
    assert code == 2
    assert named in err
    assert len(err.strip().splitlines()) == 1
    assert not (town / "town.study").exists()


@pytest.mark.parametrize("name", ["ledger.json", "sum.npz", "radio_map.nc"])
def test_a_survey_that_is_not_whole_is_named(town, command, name):
    (town / "town" / name).unlink()
    code, _, err = command("audit", "town", "--data", "links.parquet")
    assert code == 2
    assert name in err
    assert len(err.strip().splitlines()) == 1
