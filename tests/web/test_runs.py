import gc
import json
import shutil

import numpy as np
import pytest

import veilmap as vm
from veilmap._util import archives
from veilmap.auditing.verdict import Verdict
from veilmap.web.library import Library
from webs import age, client_of, line_of, make_runs, service_of, strict, unpacked

READ = [
    "", "/history", "/buildings", "/layer?layer=heights", "/layer.tif?layer=heights",
    "/layer?layer=best-server", "/layer?layer=gain&station=4", "/layer?layer=heights&of=true",
    "/seen?user=0&round=1", "/seen?user=0&round=1&sum=true",
]  # fmt: skip
DONE = ["/pause", "/resume", "/stop", "/audit", "/replicas"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make_runs(tmp_path_factory.mktemp("runs"))


@pytest.fixture
def place(made, tmp_path):
    """Runs of this test alone, which it may destroy."""
    return shutil.copytree(made, tmp_path / "runs")


@pytest.fixture
def client(place, tmp_path):
    return client_of(service_of([place], tmp_path / "work"))


def listed(client):
    return {run["id"]: run for run in strict(client.get("/api/state"))["runs"]}


def write(path, content):
    path.write_text(json.dumps(content))


# ---- which runs there are


def test_runs_have_ids_that_an_address_can_hold(made, tmp_path):
    names = ["two words", "<img src=x onerror=alert(1)>", "Straße μ", "...", "ö", "-", "a" * 250]
    for name in names:
        shutil.copytree(made / "bare", tmp_path / "runs" / name)
    client = client_of(service_of([tmp_path / "runs"], tmp_path / "work"))
    runs = listed(client)
    assert sorted(run["name"] for run in runs.values()) == sorted(names)
    for run in runs:
        assert set(run) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
        assert strict(client.get(f"/api/runs/{run}"))["id"] == run
        header = client.get(f"/api/runs/{run}/layer.tif?layer=heights").headers
        assert run in header["content-disposition"]


def test_equal_names_in_different_folders_are_different_runs(made, tmp_path):
    for parent, name in {"one": "aligned", "two": "bare"}.items():
        shutil.copytree(made / name, tmp_path / parent / "run")
    places = [tmp_path / "one", tmp_path / "two" / "run", tmp_path / "one" / "run"]
    client = client_of(service_of(places, tmp_path / "work"))
    assert list(listed(client)) == ["run", "run-2"]
    labels = [client.get(f"/api/runs/{run}").json()["label"] for run in ("run", "run-2")]
    assert labels == ["aligned, μ = 20, ρ = 1", "none"]


def test_new_runs_appear_without_a_restart(client, place, made):
    assert set(listed(client)) == {"aligned", "bare", "sums"}
    shutil.copytree(made / "bare", place / "later")
    assert client.get("/api/runs/later").status_code == 200  # before anybody lists it
    assert "later" in listed(client)


def test_a_run_that_takes_the_place_of_another_is_read_anew(client, place):
    before = client.get("/api/runs/aligned").json()
    shutil.rmtree(place / "aligned")
    (place / "bare").rename(place / "aligned")
    after = client.get("/api/runs/aligned").json()
    assert (before["label"], after["label"]) == ("aligned, μ = 20, ρ = 1", "none")
    assert not after["measured"]


# ---- a run that goes on


@pytest.fixture
def unfinished(place):
    (place / "aligned" / "radio_map.nc").unlink()
    return place / "aligned"


def test_a_run_is_running_while_its_history_grows(client, unfinished):
    assert listed(client)["aligned"]["state"] == "running"
    age(unfinished / "history.csv", 3600)
    assert listed(client)["aligned"]["state"] == "stopped"
    for action in ("/resume", "/pause", "/stop"):
        assert "started" in line_of(client.post(f"/api/runs/aligned{action}"), 400)


def test_a_new_checkpoint_is_a_new_map(client, unfinished):
    def heights():
        _, arrays = unpacked(client.get("/api/runs/aligned/layer?layer=heights").content)
        return arrays["values"]

    before = heights()
    (old,) = (unfinished / "checkpoints").iterdir()
    with np.load(old) as file:
        content = dict(file)
    content["heights"] = content["heights"] + 1.0
    archives.save(unfinished / "checkpoints" / "round-000005.npz", content)
    np.testing.assert_allclose(heights(), before + 1.0, atol=1e-4)
    content["heights"] = content["heights"] + 1.0
    archives.save(unfinished / "checkpoints" / "round-000005.npz", content)  # the same name again
    np.testing.assert_allclose(heights(), before + 2.0, atol=1e-4)


def test_a_run_without_a_checkpoint_has_no_map_yet(client, unfinished):
    shutil.rmtree(unfinished / "checkpoints")
    assert "no map yet" in line_of(client.get("/api/runs/aligned"), 400)
    assert listed(client)["aligned"]["played"] == 4


def test_uncertainty_is_that_of_all_replicas_there_are(client, place, tmp_path):
    radio_map = vm.RadioMap.load(place / "aligned" / "radio_map.nc")
    folder = tmp_path / "work" / "made" / "aligned" / "replicas"
    folder.mkdir(parents=True)

    def spread():
        answer = client.get("/api/runs/aligned/layer?layer=uncertainty&station=4")
        return unpacked(answer.content)[1]["values"]

    for number in (0, 1):
        radio_map.save(folder / f"{number}.nc")
    assert np.nanmax(spread()) < 1e-3
    other = vm.RadioMap(radio_map.grid, radio_map.heights + 20.0, radio_map.propagation)
    other.save(folder / "2.nc")
    assert np.nanmax(spread()) > 0.1


# ---- runs that are gone or damaged


def test_a_run_that_is_deleted_is_gone_from_every_answer(client, place):
    for path in READ:
        assert client.get(f"/api/runs/aligned{path}").status_code == 200
    shutil.rmtree(place / "aligned")
    for path in [*READ, "/events"]:
        assert "aligned" in line_of(client.get(f"/api/runs/aligned{path}"), 404)
    for path in DONE:
        line_of(client.post(f"/api/runs/aligned{path}"), 404)
    line_of(client.post("/api/runs", json={"like": "aligned"}), 404)
    assert set(listed(client)) == {"bare", "sums"}
    assert client.get("/api/tradeoff").status_code == 200


def test_a_run_that_vanishes_while_runs_are_listed_is_left_out(client, place, monkeypatch):
    found = Library._found

    def late(self):
        paths = found(self)
        shutil.rmtree(place / "aligned", ignore_errors=True)
        return paths

    monkeypatch.setattr(Library, "_found", late)
    assert set(listed(client)) == {"bare", "sums"}
    assert client.get("/api/tradeoff").status_code == 200


def test_a_run_nobody_has_is_not_found(client):
    for path in [*READ, "/events"]:
        assert "none" in line_of(client.get(f"/api/runs/none{path}"), 404)
    for path in DONE:
        line_of(client.post(f"/api/runs/none{path}"), 404)


@pytest.mark.parametrize(
    "damage",
    [
        {"format": 4}, {"format": None}, {"rounds": "many"}, {"rounds": None}, {"mechanism": {}},
        {"mechanism": 3}, {"mechanism": {"type": "Magic"}}, {"data": []}, {"data": {"users": "x"}},
        {"server_sees": 7}, {"mechanism": {"type": "NoNoise", "clip": "x"}},
    ],
    ids=str,
)  # fmt: skip
def test_a_damaged_configuration_is_unreadable_and_the_rest_is_served(client, place, damage):
    path = place / "sums" / "config.json"
    write(path, json.loads(path.read_text()) | damage)
    assert_unreadable(client, "sums")


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "null", '"text"', "\xff", "{}"])
def test_a_configuration_that_is_none_is_unreadable(client, place, text):
    path = place / "sums" / "config.json"
    path.write_bytes(text.encode("latin-1"))
    assert_unreadable(client, "sums")


def assert_unreadable(client, run):
    found = listed(client)
    assert found[run]["state"] == "unreadable"
    assert found[run]["problem"]
    assert {name: each["state"] for name, each in found.items() if name != run} == dict.fromkeys(
        ("aligned", "bare"), "finished"
    )
    line_of(client.get(f"/api/runs/{run}"), 400)
    assert client.get("/api/runs/aligned").status_code == 200
    assert client.get("/api/tradeoff").status_code == 200
    assert '"unreadable"' in client.get(f"/api/runs/{run}/events").text
    for path in READ[1:]:
        assert client.get(f"/api/runs/{run}{path}").status_code < 500
    for path in DONE:
        line_of(client.post(f"/api/runs/{run}{path}"), 400)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("how", ["empty", "half", "garbage", "gone", "a folder"])
@pytest.mark.parametrize(
    "file",
    ["history.csv", "radio_map.nc", "base_stations.csv",
     "transcript/round-000000.npz", "checkpoints/round-000004.npz"],
)  # fmt: skip
def test_a_damaged_file_is_no_fault_of_ours(client, place, file, how):
    path = place / "aligned" / file
    content = path.read_bytes()
    path.unlink()
    if how == "a folder":
        path.mkdir()
    elif how != "gone":
        path.write_bytes({"empty": b"", "half": content[: len(content) // 2]}.get(how, b"\xff\0?"))
    assert set(listed(client)) == {"aligned", "bare", "sums"}
    assert client.get("/api/tradeoff").status_code == 200
    for part in READ:
        answer = client.get(f"/api/runs/aligned{part}")
        if answer.status_code != 200:
            line_of(answer, 400)
    gc.collect()  # numpy leaves half a file open


# ---- the trade-off


def audit(median=12.0):
    spread = {"value": median, "low": median - 2, "high": median + 2}
    share = {"value": 0.5, "low": 0.4, "high": 0.6}
    return {
        "map_mae_db": 7.5,
        "verdict": {
            "sees": "every user's upload", "attack": "matched filter", "knows": "5 kept rounds",
            "users": 40,
            "median": spread, "near": share,
            "guess_median": {"value": 80, "low": 1, "high": 99}, "guess_near": share,
            "promise": "none", "epsilon": None, "change": "all", "told": None,
        },
    }  # fmt: skip


def write_audit(place, content):
    path = place / "aligned" / "audit" / "audit.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    age(path, -10)
    return path


def test_audited_runs_are_points_and_others_missing(client, place):
    write_audit(place, audit())
    found = strict(client.get("/api/tradeoff"))
    (point,) = found["points"]
    assert point == {
        "run": "aligned", "label": "aligned, μ = 20, ρ = 1", "mae_db": 7.5, "prior": 80.0,
        "attack": "matched filter", "knows": "5 kept rounds", "median": 12.0, "low": 10.0,
        "high": 14.0, "near": 0.5, "study": None,
        "verdict": list(Verdict.read(audit()["verdict"]).lines),
    }  # fmt: skip
    missing = {run["run"]: run["why_not"] for run in found["missing"]}
    assert "only what was published" in missing["sums"]
    assert "no transcript" in missing["bare"]


def test_an_audit_of_an_older_map_is_not_shown(client, place):
    age(write_audit(place, audit()), 3600)
    found = strict(client.get("/api/tradeoff"))
    assert found["points"] == []
    assert "aligned" in {run["run"] for run in found["missing"]}


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "null", {}, audit() | {"verdict": None}, audit() | {"verdict": []},
     audit() | {"verdict": audit()["verdict"] | {"told": 3}}, audit() | {"map_mae_db": "good"},
     audit(float("nan")), json.dumps(audit()).replace("12.0", '"near"')],
    ids=lambda content: str(content)[:30],
)  # fmt: skip
def test_a_damaged_audit_is_not_shown(client, place, content):
    write_audit(place, content)
    assert strict(client.get("/api/tradeoff"))["points"] == []


def test_a_map_error_that_nobody_measured_is_null(client, place):
    for unknown in (None, float("nan")):
        write_audit(place, audit() | {"map_mae_db": unknown})
        (point,) = strict(client.get("/api/tradeoff"))["points"]
        assert point["mae_db"] is None
