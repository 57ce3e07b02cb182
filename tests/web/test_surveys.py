"""Surveys behind the page's API, beside runs."""

import gc
import os
import shutil
from itertools import count

import numpy as np
import pytest

import veilmap as vm
from small_surveys import USERS, audit_of, audited, surveyed
from veilmap.reports import surveys
from veilmap.runs.survey import OpenSurvey
from webs import client_of, line_of, service_of, strict, trained, unpacked

HOSTILE = "<img src=x onerror=alert(1)>"
NUMBERS = count()
STARTED = ["/pause", "/resume", "/stop", "/audit", "/replicas"]
LOOKED = [
    "", "/history", "/buildings", "/sum?station=north", "/layer?layer=gain&station=north",
    "/layer?layer=uncertainty&station=south", "/layer?layer=best-server",
    "/layer.tif?layer=gain&station=north",
]  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A survey, one with a seed, and a run."""
    place = tmp_path_factory.mktemp("runs")
    surveyed(place / "town")
    surveyed(place / "trial", names=(HOSTILE, 'a "b'), seed=1)
    trained(place / "run", "--mechanism", "none")
    return place


@pytest.fixture(scope="module")
def looking(made, tmp_path_factory):
    """One page for all tests, as making an application takes half a second."""
    return client_of(service_of([made], tmp_path_factory.mktemp("work")))


@pytest.fixture(scope="module")
def study(made, tmp_path_factory):
    """The same page for those who may see studies."""
    return client_of(service_of([made], tmp_path_factory.mktemp("study"), study=True))


@pytest.fixture
def copied(made):
    """Copies a folder that the page shows, for a test that changes it."""
    copies = []

    def copy(name):
        copies.append(made / f"{name}-{next(NUMBERS)}")
        return shutil.copytree(made / name, copies[-1])

    yield copy
    for path in copies:
        shutil.rmtree(path, ignore_errors=True)
        shutil.rmtree(path.with_name(f"{path.name}.study"), ignore_errors=True)


def listed(client):
    return {run["id"]: run for run in strict(client.get("/api/state"))["runs"]}


def packed(client, address):
    answer = client.get(address)
    assert answer.status_code == 200, answer.content
    return unpacked(answer.content)


def test_surveys_are_listed_beside_runs(looking):
    runs = listed(looking)
    kinds = {name: (run["kind"], run["state"]) for name, run in runs.items()}
    assert kinds == {
        "run": ("run", "finished"), "town": ("survey", "finished"), "trial": ("survey", "finished"),
    }  # fmt: skip
    assert runs["town"]["label"] == "one sum, ε = 4"
    assert "ε" not in runs["trial"]["label"]
    assert (runs["town"]["played"], runs["town"]["rounds"], runs["town"]["users"]) == (0, 0, USERS)


def test_a_survey_by_itself_is_served(made, tmp_path):
    client = client_of(service_of([made / "town"], tmp_path / "work"))
    assert list(listed(client)) == ["town"]


def test_all_that_the_page_needs_is_told(looking, made):
    town = strict(looking.get("/api/runs/town"))
    opened = OpenSurvey(made / "town")
    assert [station["id"] for station in town["stations"]] == ["north", "south"]
    assert town["promise"] == opened.promise.words
    assert town["grid"]["cell_size"] == opened.radio_map().grid.cell_size
    shown = {layer["name"]: layer for layer in town["layers"]}
    assert shown.keys() == {"gain", "best-server", "uncertainty"}
    assert all(layer["why_not"] is None for layer in shown.values())
    assert shown["gain"]["placeable"]
    assert not shown["uncertainty"]["placeable"]
    facts = {fact["name"]: fact["words"] for fact in town["survey"]["facts"]}
    assert opened.survey.digest[:16] in facts["Survey"]
    assert vm.__version__ in facts["Opened"]
    assert strict(looking.get("/api/runs/run"))["survey"] is None
    hostile = strict(looking.get("/api/runs/trial"))
    assert hostile["stations"][0]["id"] == HOSTILE


def test_its_layers_are_those_of_the_library(looking, made):
    opened = OpenSurvey(made / "town")
    radio_map, (places, ids) = opened.radio_map(), opened.stations
    expected = {
        "gain": vm.layers.gain(radio_map, places[1], station="south"),
        "uncertainty": vm.layers.deviation(radio_map, places[1], station="south"),
        "best-server": vm.layers.best_server(radio_map, places, ids=ids)[0],
    }
    for name, layer in expected.items():
        header, arrays = packed(looking, f"/api/runs/town/layer?layer={name}&station=south")
        np.testing.assert_array_equal(arrays["values"], layer.values.astype(np.float32))
        assert (header["name"], header["unit"]) == (layer.name, layer.unit)
    _, arrays = packed(looking, "/api/runs/town/layer?layer=gain&x=100&y=100&z=30")
    new = vm.layers.gain(radio_map, (100.0, 100.0, 30.0))
    np.testing.assert_array_equal(arrays["values"], new.values.astype(np.float32))


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("layer=heights", "survey"),
        ("layer=los&station=north", "survey"),
        ("layer=uncertainty&x=100&y=100&z=30", "(100, 100, 30)"),
        ("layer=uncertainty&station=west", "west"),
        ("layer=gain", "station"),
        ("layer=gain&station=north&of=true", "published"),
    ],
)
def test_layers_that_a_survey_has_not_are_refused(looking, query, named):
    assert named in line_of(looking.get(f"/api/runs/town/layer?{query}"), 400)


def test_what_was_opened_is_shown_and_what_a_run_uploads_is_not(looking, made):
    found = OpenSurvey(made / "town").sum_of("south")
    header, arrays = packed(looking, "/api/runs/town/sum?station=south")
    np.testing.assert_array_equal(arrays["counts"], found.counts.astype(np.float32))
    np.testing.assert_array_equal(arrays["length"], found.length.astype(np.float32))
    assert header["noise"] == found.noise
    assert header["summary"] == surveys.told(found)
    shape = header["grid"]["rows"], header["grid"]["columns"]
    assert shape == OpenSurvey(made / "town").survey.grid.shape
    assert "west" in line_of(looking.get("/api/runs/town/sum?station=west"), 400)
    line_of(looking.get("/api/runs/town/sum"), 422)
    assert "no survey" in line_of(looking.get("/api/runs/run/sum?station=0"), 400)
    assert "survey" in line_of(looking.get("/api/runs/town/seen?user=0&round=1"), 400)


def test_a_survey_has_no_rounds_and_nothing_to_start(looking):
    assert strict(looking.get("/api/runs/town/history"))["rows"] == []
    assert "event: end" in looking.get("/api/runs/town/events").text
    for action in STARTED:
        line_of(looking.post(f"/api/runs/town{action}"), 400)
    assert "survey" in line_of(looking.post("/api/runs", json={"like": "town"}), 400)
    assert strict(looking.get("/api/state"))["jobs"] == []


def test_an_audit_is_shown_with_the_words_of_a_study_or_not_at_all(looking, study, copied):
    town = copied("town")
    audited(town)
    hidden = strict(looking.get(f"/api/runs/{town.name}"))
    assert hidden["survey"]["audit"] == []
    assert "--study" in hidden["survey"]["why_no_audit"]
    assert hidden["study"] is None
    assert town.name in {one["run"] for one in strict(looking.get("/api/tradeoff"))["missing"]}
    shown = strict(study.get(f"/api/runs/{town.name}"))
    assert shown["study"]
    assert shown["survey"]["why_no_audit"] is None
    cells = [cell for table in shown["survey"]["audit"] for row in table["rows"] for cell in row]
    for one in ("0.62", "0.98", "75 %", "1.23", "4.00", "matched filter", "240", "20 %"):
        assert one in cells


def test_an_audited_survey_is_a_point_whose_map_nobody_measured(looking, copied):
    trial = copied("trial")
    audited(trial)
    (point,) = strict(looking.get("/api/tradeoff"))["points"]
    assert point == {
        "run": trial.name, "label": "one sum, no promise", "mae_db": None,
        "attack": "matched filter", "knows": "everything else", "median": 120.0, "low": 108.0,
        "high": 132.0, "near": 0.2, "prior": 350.0, "study": None,
        "verdict": list(OpenSurvey(trial).audit.verdict.lines),
    }  # fmt: skip
    path = audited(trial, verdict=None)
    os.utime(path, (4e9, 4e9))
    found = strict(looking.get("/api/tradeoff"))  # nothing to compare with
    assert found["points"] == []
    assert "audit" in {one["run"]: one["why_not"] for one in found["missing"]}[trial.name]


def test_a_damaged_audit_is_not_shown(looking, copied):
    trial = copied("trial")
    for content in ("", "{", "[]", {"survey": 3}, audit_of(trial) | {"location": 3}):
        audited(trial, content)
        assert strict(looking.get(f"/api/runs/{trial.name}"))["survey"]["audit"] == []
        assert strict(looking.get("/api/tradeoff"))["points"] == []


# ---- surveys that are gone or damaged


def test_a_survey_without_its_map_says_what_to_do(looking, copied):
    town = copied("town")
    (town / "radio_map.nc").unlink()
    head = listed(looking)[town.name]
    assert head["state"] == "failed"
    assert "veilmap survey open" in head["problem"]
    for path in LOOKED:
        answer = looking.get(f"/api/runs/{town.name}{path}")
        if answer.status_code != 200:
            line_of(answer, 400)


def test_a_survey_that_is_deleted_is_gone(looking, copied):
    town = copied("town")
    assert looking.get(f"/api/runs/{town.name}").status_code == 200
    shutil.rmtree(town)
    for path in LOOKED:
        assert town.name in line_of(looking.get(f"/api/runs/{town.name}{path}"), 404)
    assert town.name not in listed(looking)


def test_a_survey_in_the_place_of_a_run_is_read_anew(looking, copied):
    town, run = copied("town"), copied("run")
    assert strict(looking.get(f"/api/runs/{run.name}"))["kind"] == "run"
    shutil.rmtree(run)
    town.rename(run)
    assert strict(looking.get(f"/api/runs/{run.name}"))["kind"] == "survey"
    assert looking.get(f"/api/runs/{run.name}/sum?station=north").status_code == 200


def test_a_design_alone_is_no_survey(looking, copied):
    town = copied("town")
    assert town.name in listed(looking)
    (town / "ledger.json").unlink()
    assert town.name not in listed(looking)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("how", ["empty", "half", "garbage", "a folder", "another's"])
def test_a_damaged_file_is_no_fault_of_ours(looking, made, copied, how):
    damaged = {}
    for file in ("survey.json", "ledger.json", "radio_map.nc", "sum.npz"):
        town = copied("town")
        path, damaged[town.name] = town / file, file
        content = path.read_bytes()
        path.unlink()
        if how == "a folder":
            path.mkdir()
        elif how == "another's":
            shutil.copy(made / "trial" / file, path)
        else:
            short = {"empty": b"", "half": content[: len(content) // 2]}
            path.write_bytes(short.get(how, b"\xff\0?"))
    assert {"run", "town", "trial"} <= set(listed(looking))
    assert looking.get("/api/tradeoff").status_code == 200
    for name, file in damaged.items():
        for part in LOOKED:
            answer = looking.get(f"/api/runs/{name}{part}")
            if answer.status_code != 200:
                line_of(answer, 400, 404)
        if (file, how) != ("sum.npz", "another's"):  # of a design with as many numbers
            assert looking.get(f"/api/runs/{name}").status_code != 200
            assert looking.get(f"/api/runs/{name}/sum?station=north").status_code != 200
        for action in STARTED:
            line_of(looking.post(f"/api/runs/{name}{action}"), 400, 404)
    gc.collect()  # readers leave half a file open
