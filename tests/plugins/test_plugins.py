"""Mechanisms, attacks, baselines and exporters of a package that is not veilmap."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import veilmap as vm
from packages import install, install_example
from refusals import refused
from veilmap._util.plugins import Registry
from veilmap.errors import ConfigurationError, PluginError, RunFolderError
from veilmap.federation.config import RunConfig

ROOT = Path(__file__).parents[2]
CITY = ["--city", "3", "--users", "6", "--cell-size", "15", "--rounds", "4", "--seed", "1"]


def python(site, *arguments):
    """A process beside which the packages in ``site`` are installed."""
    path = os.pathsep.join(map(str, (ROOT / "src", ROOT / "tests" / "support", site)))
    return subprocess.run(
        [sys.executable, *map(str, arguments)], env=os.environ | {"PYTHONPATH": path},
        capture_output=True, text=True, check=False, cwd=site,
    )  # fmt: skip


def veilmap(site, *arguments):
    """Standard output of a command that succeeds."""
    done = python(site, "-m", "veilmap.cli", *arguments)
    assert done.returncode == 0, done.stderr
    assert "veilmap:" not in done.stderr  # nothing was left out
    return done.stdout


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    return install_example(tmp_path_factory.mktemp("site"))


@pytest.fixture(scope="module")
def run(site):
    mechanism = ["--mechanism", "largest", "--keep", "0.05"]
    veilmap(site, "train", *CITY, *mechanism, "--keep-uploads", "1,4", "--out", site / "run")
    return site / "run"


@pytest.fixture(scope="module")
def audit(site, run):
    out = veilmap(site, "audit", run, "--json", site / "audit.json")
    return out, json.loads((site / "audit.json").read_text())


# The package of the how-to


def test_a_mechanism_of_another_package_is_trained_with_its_option(site, run):
    config = json.loads((run / "config.json").read_text())
    assert config["mechanism"] == {"type": "LargestOnly", "clip": 1.0, "keep": 0.05}
    refusal = python(site, "-m", "veilmap.cli", "train", "--mechanism", "none", "--keep", "0.1")
    assert refusal.returncode == 2
    assert "--keep" in refusal.stderr
    wrong = python(site, "-m", "veilmap.cli", "train", "--mechanism", "largest", "--keep", "7")
    assert wrong.returncode == 2
    assert wrong.stderr.count("\n") == 1
    assert "--keep" in wrong.stderr


def test_its_attack_is_in_the_table_and_the_json_of_every_audit(audit):
    table, content = audit
    found = next(one for name, one in content.items() if name != "veilmap")
    assert found["mechanism"]["name"] == "largest"
    attacks = {score["attack"] for score in found["scores"]}
    assert {"middle of the rest", "prior only", "matched filter"} <= attacks
    assert "middle of the rest" in table


def test_attacks_are_chosen_by_their_first_words(site, run):
    veilmap(site, "audit", run, "--attacks", "prior,middle-of", "--json", site / "two.json")
    content = json.loads((site / "two.json").read_text())
    found = next(one for name, one in content.items() if name != "veilmap")
    assert {one["attack"] for one in found["scores"]} == {"middle of the rest", "prior only"}
    refusal = python(site, "-m", "veilmap.cli", "audit", run, "--attacks", "nobody's")
    assert refusal.returncode == 2
    assert refusal.stderr.count("\n") == 1
    assert all(name in refusal.stderr for name in ("--attacks", "middle of the rest", "prior only"))


def test_a_report_says_what_the_mechanism_does_and_what_the_attack_finds(site, run, audit):
    veilmap(site, "report", run, "--out", site / "run.html")
    page = (site / "run.html").read_text()
    assert "5% of each gradient" in page
    assert "middle of the rest" in page
    assert "largest, κ = 0.05" in page


def test_its_baseline_and_mechanism_are_compared(site):
    vm.Scene.synthetic(5, size=90.0, buildings=4, base_stations=20).measure(
        users=10, links_per_user=20, seed=0
    ).save(site / "links.parquet")
    veilmap(
        site, "compare", site / "links.parquet", "--methods", "mean-gain,largest", "--schemes",
        "users", "--folds", "2", "--first", "1", "--rounds", "2", "--cell-size", "15", "--json",
        site / "scores.json",
    )  # fmt: skip
    scores = json.loads((site / "scores.json").read_text())["scores"]
    assert {one["method"] for one in scores} == {"mean-gain", "largest"}
    known = "from veilmap.compare import all_methods; print(*all_methods())"
    assert {"mean-gain", "largest", "k-nn"} <= set(python(site, "-c", known).stdout.split())


def test_its_exporter_writes_layers(site, run):
    assert ".xyz" in veilmap(site, "export", "--help")
    veilmap(site, "export", run, site / "gain.xyz", "--bs", "100,100,40")
    x, y, gain = np.loadtxt(site / "gain.xyz").T
    grid = vm.RadioMap.load(run / "radio_map.nc").grid
    np.testing.assert_allclose(np.column_stack([x, y]), grid.centres)
    assert np.isfinite(gain).all()
    assert not list(site.glob(".gain*"))  # the temporary file took its place


def test_the_page_offers_the_mechanism_and_trains_with_it(site):
    script = """
import json, time
from webs import client_of, service_of
from veilmap.web.jobs import Jobs
from pathlib import Path
work = Path("work")
service = service_of([], work, jobs=Jobs(work))
with client_of(service) as client:
    offered = {one["name"]: one for one in client.get("/api/mechanisms").json()}
    wish = {"city": 3, "users": 5, "mechanism": "largest", "options": {"keep": 0.2}, "rounds": 2}
    run = client.post("/api/runs", json=wish).json()
    deadline = time.monotonic() + 300
    while (now := client.get(f"/api/runs/{run['id']}").json()).get("state") != "finished":
        assert time.monotonic() < deadline and now.get("state") != "failed", now
        time.sleep(0.2)
    user = {"user": now["user_ids"][0], "round": 1}
    seen = client.get(f"/api/runs/{run['id']}/seen", params=user).content
    wrong = client.post("/api/runs", json=wish | {"mechanism": "rot13"})
service.jobs.close()
header = json.loads(seen.splitlines()[0])
attacks = [one["attack"] for scheme in header["schemes"] for one in scheme["estimates"]]
print(json.dumps([offered["largest"], run, now, attacks, wrong.status_code, wrong.json()]))
"""
    done = python(site, "-c", script)
    assert done.returncode == 0, done.stderr
    offered, run, now, attacks, status, wrong = json.loads(done.stdout)
    assert offered["title"] == "Largest entries only (the package veilmap-largest)"
    keep = next(one for one in offered["options"] if one["name"] == "keep")
    assert (keep["default"], keep["least"], keep["most"]) == (0.1, 0.0, 1.0)
    assert run["label"] == now["label"] == "largest, κ = 0.2"
    assert now["mechanism"]["keep"] == 0.2
    assert "--keep 0.2" in now["command"]
    assert "middle of the rest" in attacks
    assert status == 400
    assert "rot13" in wrong["error"]


def test_nodes_of_a_federation_can_be_configured_with_it(site):
    pytest.importorskip("flwr")
    script = """
from veilmap.flower.app import mechanism_of
print(mechanism_of({"mechanism": "largest", "keep": 0.05, "other": 1}))
"""
    assert "LargestOnly(clip=1.0, keep=0.05)" in python(site, "-c", script).stdout


def test_its_own_tests_pass(site):
    script = """
import test_largest
test_largest.test_the_mechanism()
test_largest.test_the_attack()
"""
    done = python(site, "-c", script)
    assert done.returncode == 0, done.stderr


def test_nothing_is_imported_before_it_is_needed(site):
    script = """
import sys, veilmap
import veilmap.attacks, veilmap.compare, veilmap.export
assert "veilmap_largest" not in sys.modules
assert veilmap.mechanisms.MECHANISMS["aligned"] is veilmap.GeometryAligned
assert veilmap.mechanisms.MECHANISMS.names[-1] == "largest"
assert "veilmap_largest" not in sys.modules
"""
    done = python(site, "-c", script)
    assert done.returncode == 0, done.stderr


def test_a_run_says_that_its_plug_in_is_missing(run):
    with refused(RunFolderError, "LargestOnly", "plug-in"):
        RunConfig.load(run)


@pytest.mark.parametrize("kind", ["trap:LargestOnly", "trap", "trap.LargestOnly"])
def test_a_run_cannot_name_what_is_imported(run, tmp_path, kind):
    (tmp_path / "trap.py").write_text("print('imported')")
    config = json.loads((run / "config.json").read_text())
    config["mechanism"]["type"] = kind
    (tmp_path / "config.json").write_text(json.dumps(config))
    script = """
from pathlib import Path
from veilmap.federation.config import RunConfig
RunConfig.load(Path.cwd())
"""
    done = python(tmp_path, "-c", script)
    assert "imported" not in done.stdout
    assert "RunFolderError" in done.stderr.splitlines()[-1]
    assert "plug-in" in done.stderr.splitlines()[-1]


# Packages that cannot be used


BROKEN = {
    "veilmap.mechanisms": {
        "unwritten": "no_such_module:Noise",
        "text": "faulty:TEXT",
        "none": "faulty:Other",
        "other": "faulty:Misnamed",
        "bold": "faulty:Bold",
        "shadow": "faulty:NoNoise",
        "exits": "exits:Noise",
    },
    "veilmap.attacks": {"boom": "faulty:boom"},
    "veilmap.baselines": {"k-nn": "faulty:Other", "text": "faulty:TEXT"},
    "veilmap.exporters": {"txt": "faulty:TEXT"},
}
FAULTY = """
from dataclasses import dataclass
import veilmap as vm
from veilmap.privacy.mechanisms import PrivateSums, option

TEXT = "no class"

@dataclass(frozen=True, kw_only=True)
class Other(vm.UniformNoise):
    name = "none"

@dataclass(frozen=True, kw_only=True)
class Misnamed(vm.UniformNoise):
    name = "another"

@dataclass(frozen=True, kw_only=True)
class Bold(vm.UniformNoise):
    name = "bold"
    guarantee = PrivateSums(0.1)

@dataclass(frozen=True, kw_only=True)
class NoNoise(vm.UniformNoise):
    name = "shadow"

def boom():
    raise RuntimeError("two\\nlines")
"""


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    """Ours that works, beside a package of which nothing does."""
    site = install_example(tmp_path_factory.mktemp("broken"))
    leaving = "raise SystemExit(3)\n"
    return install(site, "veilmap-broken", BROKEN, faulty=FAULTY, exits=leaving)


def test_a_broken_plug_in_is_a_line_and_takes_nothing_down(broken):
    done = python(broken, "-m", "veilmap.cli", "train", "--help")
    assert done.returncode == 0
    assert "--keep" in done.stdout
    lines = done.stderr.splitlines()
    assert len(lines) == len(BROKEN["veilmap.mechanisms"])
    for name, line in zip(BROKEN["veilmap.mechanisms"], lines, strict=True):
        assert repr(name) in line
        assert "veilmap-broken" in line
    assert "ModuleNotFoundError" in lines[0]


def test_asking_for_a_broken_plug_in_is_an_error_of_one_line(broken, run):
    train = ["train", *CITY, "--out", broken / "made"]
    for name, arguments in {
        "unwritten": [*train, "--mechanism", "unwritten"],
        "boom": ["audit", run, "--attacks", "boom"],
        "text": ["compare", broken / "none.csv", "--methods", "text"],
        "txt": ["export", run, broken / "gain.txt", "--bs", "100,100,40"],
    }.items():
        (broken / "none.csv").write_text("user,bs,x,y,z,bs_x,bs_y,bs_z,gain_db\n")
        done = python(broken, "-m", "veilmap.cli", *arguments)
        assert done.returncode == 2, name
        last = done.stderr.splitlines()[-1]
        assert last.startswith("veilmap: "), name
    veilmap_made = python(broken, "-m", "veilmap.cli", *train, "--mechanism", "largest")
    assert veilmap_made.returncode == 0


PROMISING = """
from dataclasses import dataclass
import veilmap as vm
from veilmap.privacy.mechanisms import option

@dataclass(frozen=True, kw_only=True)
class Promising(vm.AggregateGaussian):
    strength: float = option(1.0, "--rounds", "Not what --rounds of a command is.", least=0)
    extra: float = option(2.0, "--extra", "A flag that is free.", least=0)
    name = "promising"
"""


def test_what_a_package_claims_is_shown_as_its_claim(tmp_path):
    entries = {"veilmap.mechanisms": {"promising": "promising:Promising"}}
    site = install(tmp_path, "veilmap-promising", entries, promising=PROMISING)
    protection = ["--mechanism", "promising", "--delta", "1e-3", "--extra", "3"]
    options = [*CITY[:-2], "--keep-uploads", "1,2", *protection]
    done = python(site, "-m", "veilmap.cli", "train", *options, "--out", site / "run")
    assert done.returncode == 0, done.stderr
    assert "package veilmap-promising claims" in " ".join(done.stdout.split())
    # The flag is the command's own: said in one line, and the other options are there.
    assert done.stderr.count("\n") == 1
    assert "--rounds" in done.stderr
    assert json.loads((site / "run" / "config.json").read_text())["mechanism"]["extra"] == 3
    done = python(site, "-m", "veilmap.cli", "report", site / "run", "--out", site / "run.html")
    assert done.returncode == 0, done.stderr
    page = (site / "run.html").read_text()
    assert "package veilmap-promising claims; veilmap has not checked it" in page
    label = "from pathlib import Path; from veilmap.runs.opened import OpenRun as opened;"
    done = python(site, "-c", label + "print(opened(Path('run')).label)")
    assert done.stdout.strip() == "promising, ε = 8, only claimed, sums only"


def registry(monkeypatch, site, group="veilmap.exporters", ours=None, **more):
    monkeypatch.syspath_prepend(site)
    return Registry(group, ours or {}, lambda name, made: made, **more)


def test_a_name_belongs_to_one_package(monkeypatch, tmp_path):
    for package in ("first", "second"):
        entries = {"veilmap.exporters": {"same": "math:floor", package: "math:ceil"}}
        install(tmp_path, package, entries)
    found = registry(monkeypatch, tmp_path)
    assert set(found) == {"first", "second"}
    with refused(PluginError, "first", "second", "'same'"):
        found["same"]
    with pytest.raises(KeyError):
        found["third"]


def test_ours_and_taken_names_stay_ours(monkeypatch, tmp_path, caplog):
    entries = {"veilmap.exporters": {"ours": "math:floor", "taken": "math:floor", "new": "math:pi"}}
    install(tmp_path, "greedy", entries)
    found = registry(monkeypatch, tmp_path, ours={"ours": 1}, taken=("taken",))
    assert dict(found) == {"ours": 1, "new": np.pi}
    assert [*found] == ["ours", "new"]
    assert found.others == [np.pi]
    assert len(caplog.records) == 2  # each is said once
    assert found.names == ("ours", "new")
    assert (found.package_of(found["new"]), found.package_of(1)) == ("the package greedy", None)


# Guarantees of others


class Claimed(vm.AggregateGaussian):
    name = "claimed"


@pytest.mark.parametrize("kind", [vm.AggregateGaussian, Claimed])
def test_a_guarantee_of_others_is_shown_as_a_claim(kind):
    scene = vm.Scene.synthetic(5, size=90.0, buildings=4, base_stations=40)
    data = scene.measure(users=12, links_per_user=30, seed=0)
    recording = vm.Recording(keep_uploads="all")
    run = vm.train(data, scene.grid, mechanism=kind(delta=1e-3), rounds=2, recording=recording)
    audit = vm.audit(run, data, attacks=[vm.attacks.PriorOnly()], battery=False)
    ours = kind is vm.AggregateGaussian
    assert (audit.as_dict()["epsilon"] is not None) == ours
    assert ("has not checked" in audit.promise) != ours
    assert (Claimed.__module__ in audit.promise) != ours
    assert "ε, δ" in audit.promise


def test_who_states_a_guarantee_keeps_an_account():
    class Bold(vm.UniformNoise):
        guarantee = vm.AggregateGaussian(noise_multiplier=2.0).guarantee

    made = vm.accounting.promise(Bold(), 1.0, None)
    assert np.isnan(made.epsilon)
    assert made.words.startswith("no (ε, δ) guarantee")


def test_attacks_join_the_battery_or_take_its_place():
    scene = vm.Scene.synthetic(5, size=90.0, buildings=4, base_stations=40)
    data = scene.measure(users=6, links_per_user=30, seed=0)
    run = vm.train(data, scene.grid, rounds=1, seed=0, recording=vm.Recording(keep_uploads="all"))
    centroid, guess = vm.attacks.WeightedCentroid(3), vm.attacks.PriorOnly()
    both = {score.attack for score in vm.audit(run, data, attacks=[centroid]).scores}
    usual = {score.attack for score in vm.audit(run, data).scores}
    assert both == usual | {"centroid ν = 3"}
    alone = vm.audit(run, data, attacks=[guess], battery=False)
    assert {score.attack for score in alone.scores} == {"prior only"}


def test_attacks_are_found_by_name():
    named = vm.attacks.attacks_named
    assert [one.name for one in named(["theta-inversion"])] == ["theta inversion"]
    assert [one.name for one in named(["plane", "plane inversion"])] == [
        "plane inversion", "plane subtraction",
    ]  # fmt: skip
    assert len(named(["centroid"])) == 5
    with refused(ConfigurationError, parameter="attacks"):
        named(["inversion"])
