"""`veilmap report` of surveys: what it shows, and that it needs no measurements."""

import re

import pytest

from commands import run as command
from reported import Page, undrawn
from small_surveys import USERS, audited, surveyed
from veilmap import figures
from veilmap.runs.survey import OpenSurvey
from webs import trained

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    place = tmp_path_factory.mktemp("surveys")
    surveyed(place / "town", names=(HOSTILE, "$\\frac{2$ & co"))
    audited(place / "town")
    surveyed(place / "trial", seed=1)
    trained(place / "run", "--mechanism", "none")
    return place


@pytest.fixture
def report(made, capsys, tmp_path, monkeypatch):
    """The page that a command writes."""

    def write(*arguments):
        monkeypatch.chdir(made)
        out = tmp_path / "report.html"
        code, _, error = command(capsys, "report", *arguments, "--out", str(out))
        assert (code, error) == (0, "")
        return Page(out)

    return write


def test_it_shows_design_promise_map_and_counts(report, made, monkeypatch):
    drawn = []
    monkeypatch.setattr(figures, "png", lambda picture: drawn.append(picture) or undrawn(picture))
    page = report("town")
    opened = OpenSurvey(made / "town")
    assert opened.promise.words in page.text
    assert opened.survey.digest[:16] in page.text
    assert f"{USERS:,}" in page.text
    assert HOSTILE in page.text
    assert page.every("script") == []
    # Gain, uncertainty and counts of both base stations, best server and its gain.
    assert len(page.every("img")) == len(drawn) == 3 * 2 + 2
    (counts,) = page.tables.values()
    assert {row[0] for row in counts[1:]} == {HOSTILE, "$\\frac{2$ & co"}
    for name, in_all, most, standing_out in counts[1:]:
        found = opened.sum_of(name)
        total = float(re.match(r"[\d,]+", in_all).group().replace(",", ""))
        assert total == pytest.approx(found.counts.sum(), abs=0.5)
        assert float(most) == pytest.approx(found.counts.max(), rel=1e-2)
        assert int(standing_out) == found.standing_out


def test_pictures_are_drawn_whatever_base_stations_are_called(report):
    assert len(report("town").every("img")) == 8


def test_an_audit_belongs_to_a_study(report, monkeypatch):
    monkeypatch.setattr(figures, "png", undrawn)
    plain, study = report("town"), report("town", "--study")
    assert len(plain.tables) == 1
    assert "matched filter" not in plain.text
    cells = [cell for rows in study.tables.values() for row in rows for cell in row]
    for one in ("0.62", "0.98", "75 %", "1.23", "4.00", "matched filter", "240", "20 %"):
        assert one in cells
    marked = [words for words in study.words if "not for publication" in words]
    assert len(marked) >= 2  # the title and the section


def test_a_survey_without_a_promise_says_so(report, made, monkeypatch):
    monkeypatch.setattr(figures, "png", undrawn)
    assert OpenSurvey(made / "trial").promise.words in report("trial").text


def test_runs_and_surveys_stand_on_one_page(report, monkeypatch):
    monkeypatch.setattr(figures, "png", undrawn)
    page = report("town", "run", "trial")
    headings = [attributes["id"] for attributes in page.every("h2") if "id" in attributes]
    assert headings == ["run-1", "run-2", "run-3"]
    assert {link["href"] for link in page.every("a")} == {"#run-1", "#run-2", "#run-3"}


def test_it_is_written_into_the_folder_or_into_its_study(made, capsys, monkeypatch):
    monkeypatch.setattr(figures, "png", undrawn)
    for options, folder in (((), "town"), (("--study",), "town.study")):
        assert command(capsys, "report", str(made / "town"), *options)[0] == 0
        assert (made / folder / "report.html").exists()
        (made / folder / "report.html").unlink()


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["town", "--data", "links.parquet"], "--data"),
        (["town", "--test", "links.parquet"], "--test"),
        (["town", "--user", "3"], "--user"),
        (["town", "--out", "report.pdf"], ".html"),
        (["nothing"], "nothing"),
        (["."], "survey"),
    ],
)
def test_wrong_uses_are_said_in_a_line(made, capsys, monkeypatch, arguments, named):
    monkeypatch.chdir(made)
    code, _, error = command(capsys, "report", *arguments)
    assert code == 2
    assert named in error
    assert error.count("\n") == 1


def test_a_survey_without_its_map_says_how_to_make_it(made, capsys, tmp_path):
    path = surveyed(tmp_path / "town")
    (path / "radio_map.nc").unlink()
    code, _, error = command(capsys, "report", str(path), "--out", str(tmp_path / "a.html"))
    assert code == 2
    assert "survey open" in error
    assert command(capsys, "survey", "open", str(path))[0] == 0
    assert command(capsys, "report", str(path), "--out", str(tmp_path / "a.html"))[0] == 0
