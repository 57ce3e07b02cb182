"""Published means accounted: what is written of a run with a guarantee comes out of noisy sums.

Twins are two trainings that differ in one user's measurements and open the same sums. Whatever
is published of them must be the same to the last byte.
"""

import json
import os
import re
import subprocess
import sys
import zipfile
from dataclasses import fields, replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

import flat
import twins
import veilmap as vm
from commands import run as command
from twins import DATA, PROMISE, SCENE, STATIONS, TWINS, VICTIM, fixed_sum
from veilmap.federation import HistoryRow, history, server
from veilmap.federation.config import Fingerprint
from veilmap.federation.public import write_stations
from veilmap.federation.server import RoundSum
from veilmap.federation.study import STUDY
from veilmap.privacy import accounting
from veilmap.reports import pages
from veilmap.web.routes import looking
from webs import client_of, service_of, until


@pytest.fixture
def same_sums(monkeypatch):
    """Every round opens a sum that its number alone decides; so do the marks of ledgers."""
    monkeypatch.setattr(RoundSum, "sum", property(fixed_sum))
    monkeypatch.setattr(accounting, "_new_mark", lambda: "mark")


def contents(folder):
    """Every file of a folder, with its bytes."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def assert_alike(one, other):
    assert one.keys() == other.keys()
    assert [name for name in one if one[name] != other[name]] == []


def train_by_command(capsys, place, *options):
    """A run of one of the twins, with a name that both share."""
    place.mkdir()
    TWINS[place.name].save(place / "links.parquet")
    write_stations(STATIONS, place / "stations.csv")
    code, out, error = command(
        capsys, "train", str(place / "links.parquet"), "--mechanism", "aggregate",
        "--epsilon", "6", "--delta", "1e-3", "--rounds", "4", "--keep-uploads", "1,3",
        "--checkpoint-every", "2", "--area", "0,0,90,90", "--cell-size", "6",
        "--stations", str(place / "stations.csv"), "--test", str(place / "links.parquet"),
        "--out", str(place / "run"), *options,
    )  # fmt: skip
    assert code == 0, error
    return out


@pytest.fixture
def pair(capsys, tmp_path, same_sums):
    said = [train_by_command(capsys, tmp_path / name) for name in TWINS]
    return [tmp_path / name / "run" for name in TWINS], said


def test_a_run_folder_tells_nothing_of_a_user_beyond_the_sums(pair):
    (one, other), said = pair
    found = contents(one)
    assert {
        "config.json",
        "history.csv",
        "ledger.json",
        "base_stations.csv",
        "radio_map.nc",
        "transcript/round-000000.npz",
        "checkpoints/round-000004.npz",
    } <= found.keys()
    assert_alike(found, contents(other))
    # The studies beside them differ, or the twins would show nothing.
    assert contents(one.parent / "run.study") != contents(other.parent / "run.study")
    for out in said:
        measured = [line for line in out.splitlines() if "loss" in line or "MAE" in line]
        assert measured
        assert all(line.startswith(STUDY) for line in measured)


def test_exports_of_all_formats_and_layers_are_alike(capsys, pair):
    runs, _ = pair
    for run in runs:
        out = run.parent / "exported"
        (run.parent / "points.csv").write_text("x,y\n10,20\n45.5,60\n")
        for layer in ("gain", "los", "best-server", "heights"):
            for ending in ("tif", "nc", "png", "geojson", "csv"):
                options = ["--points", str(run.parent / "points.csv")] if ending == "csv" else []
                options += ["--station", "4"] if layer in ("gain", "los") else []
                if ending == "geojson" and layer == "best-server":
                    continue  # numbers of stations have no contour lines
                code, _, error = command(
                    capsys, "export", str(run), str(out / f"{layer}.{ending}"), "--layer", layer,
                    *options,
                )  # fmt: skip
                assert code == 0, error
    one, other = (contents(run.parent / "exported") for run in runs)
    assert len(one) >= 19
    assert_alike(one, other)


def test_reports_are_alike(capsys, pair, monkeypatch):
    class Stopped(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime(2024, 5, 6, tzinfo=UTC)

    monkeypatch.setattr(pages, "datetime", Stopped)
    runs, _ = pair
    for run in runs:
        assert command(capsys, "report", str(run))[0] == 0
    assert_alike(*(contents(run) for run in runs))
    assert (runs[0] / "report.html").exists()


def answers_about(run, work, **options):
    """What the page is told of a run: every address that can be looked at."""
    client = client_of(service_of([run], work, **options))
    asked = {path: f"/api{path}" for path in ("/state", "/tradeoff", "/mechanisms")}
    asked |= {
        f"/runs/{{run}}{part}": f"/api/runs/run{part}"
        for part in ("", "/history", "/events", "/buildings", "/sum")
    }
    found = {path: client.get(address).content for path, address in asked.items()}
    for layer in ("gain", "los", "best-server", "heights", "uncertainty"):
        for of in ("learned", "true", "error"):
            wanted = {"layer": layer, "of": of, "station": "4"}
            for path in ("/layer", "/layer.tif"):
                got = client.get(f"/api/runs/run{path}", params=wanted)
                found[f"/runs/{{run}}{path}", layer, of] = (got.status_code, got.content)
    for summed in (False, True):
        wanted = {"user": str(VICTIM), "round": 1, "sum": summed}

        def seen(wanted=wanted):
            got = client.get("/api/runs/run/seen", params=wanted)
            waits = got.status_code == 200 and json.loads(got.content.split(b"\n")[0])["pending"]
            return None if waits else (got.status_code, got.content)

        found["/runs/{run}/seen", summed] = until(seen, "attacks were prepared")
    return found


def test_the_page_is_told_the_same(pair):
    runs, _ = pair
    one, other = (answers_about(run, run.parent / "work") for run in runs)
    there = {route.path for route in looking.routes}
    assert {path if isinstance(path, str) else path[0] for path in one} == there
    assert one["/runs/{run}/layer", "gain", "learned"][0] == 200
    assert one["/runs/{run}/seen", True][0] == 200
    assert_alike(one, other)
    assert STUDY.encode() not in b"".join(
        value if isinstance(value, bytes) else value[1] for value in one.values()
    )


def test_a_study_on_the_page_is_marked_in_every_answer(pair):
    runs, _ = pair
    shown = answers_about(runs[0], runs[0].parent / "work", study=True)
    for path in ("/state", "/runs/{run}", "/runs/{run}/history", "/runs/{run}/events"):
        assert STUDY.encode() in shown[path], path
    assert STUDY.encode() in shown["/runs/{run}/seen", True][1]
    assert STUDY.encode() not in shown["/runs/{run}/layer", "gain", "learned"][1]
    row = json.loads(shown["/runs/{run}/history"])["rows"][-1]
    assert row["loss"] > 0
    assert row["mae_db"] > 0


def test_a_rich_run_that_is_killed_and_goes_on_tells_no_more(tmp_path, same_sums):
    class KilledError(Exception):
        pass

    def kill(row):
        if row.round == 4:
            raise KilledError

    for name, data in TWINS.items():
        options = {
            "mechanism": replace(PROMISE, epsilon=20.0, noise_multiplier=3.0), "rounds": 6,
            "calibrate": ["stations"], "residual": 30.0, "stations": STATIONS, "test": data,
            "out": tmp_path / name / "run", "checkpoint_every": 3, "keep_uploads": "all",
        }  # fmt: skip
        with pytest.raises(KilledError):
            flat.train(data, SCENE.grid, on_round=kill, **options)
        run = flat.train(data, SCENE.grid, resume=True, **options)
        # In memory, and in the study, the rows of the first part are whole again.
        assert all(row.loss > 0 and row.seconds > 0 for row in run.history)
    assert_alike(*(contents(tmp_path / name / "run") for name in TWINS))


_ON_FLOWER = """
import sys
import numpy as np, veilmap as vm
from twins import PROMISE, STATIONS, TWINS, VICTIM, fixed_sum
from veilmap.federation.server import RoundSum
from veilmap.privacy import accounting
if __name__ == "__main__":
    RoundSum.sum = property(fixed_sum)
    accounting._new_mark = lambda: "mark"
    data = TWINS[sys.argv[1]]
    few = data.select(np.isin(data.user, [0, 1, VICTIM]))
    vm.train(
        few, vm.Grid(6.0, (15, 15)), mechanism=PROMISE, rounds=2, engine=vm.flower.Simulation(),
        model=vm.Model(stations=STATIONS),
        recording=vm.Recording("run", test=few, keep_uploads="all"),
    )
"""


def test_a_run_on_flower_writes_and_logs_no_more(tmp_path):
    pytest.importorskip("ray", reason="Flower's simulation needs Ray")
    logged = []
    for name in TWINS:
        (tmp_path / name).mkdir()
        (tmp_path / name / "script.py").write_text(_ON_FLOWER)
        paths = os.pathsep.join(
            [str(Path(twins.__file__).parent), os.environ.get("PYTHONPATH", "")]
        )
        with TemporaryDirectory(prefix="ray-") as ray:  # a short path: sockets lie below it
            done = subprocess.run(
                [sys.executable, "script.py", name], cwd=tmp_path / name, capture_output=True,
                text=True, timeout=300, check=False,
                env=os.environ | {"RAY_TMPDIR": ray, "PYTHONPATH": paths},
            )  # fmt: skip
        assert done.returncode == 0, done.stderr[-2000:]
        logged.append(done.stdout + done.stderr)
    assert_alike(*(contents(tmp_path / name / "run") for name in TWINS))
    assert logged[0] == logged[1]


# ---- A run as it is, without a patch


def blobs(folder):
    """All that a folder holds, with archives unpacked."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                for member in archive.namelist():
                    yield f"{path.name}/{member}", archive.read(member)
        elif path.is_file():
            yield path.name, path.read_bytes()


def told_of(data, file, folder):
    """What a folder tells of measurements: coordinates, gains, how many there are, digests."""
    values = np.concatenate([data.user_xyz[:, :2].ravel(), data.gain_db])
    secrets = {repr(value).encode() for value in values.tolist()}
    secrets |= {
        value.tobytes() for kind in ("<f8", ">f8", "<f4", ">f4") for value in values.astype(kind)
    }
    for digest in (Fingerprint.of(data).sha256, sha256(file.read_bytes()).hexdigest()):
        secrets |= {digest.encode(), bytes.fromhex(digest)}
    counts = {len(data), *np.bincount(data.user).tolist()}
    told = set()
    for name, content in blobs(folder):
        told |= {name for secret in secrets if secret in content}
        whole = re.findall(rb"(?<![\d.e+-])\d+(?![\d.])", content)
        if name.endswith((".json", ".csv")) and {str(n).encode() for n in counts} & {*whole}:
            told.add(name)
        if name.endswith(".npy") and b"'shape': ()" in content and b"<i8" in content[:100]:
            told |= {name} if int.from_bytes(content[-8:], "little") in counts else set()
    return told


def test_no_file_holds_coordinates_gains_numbers_of_links_or_digests(capsys, tmp_path):
    # Users have 211 to 218 links, numbers that nothing else here is likely to be.
    dense = vm.Scene.synthetic(5, size=90.0, buildings=4, base_stations=300)
    many = dense.measure(users=8, links_per_user=218, seed=0)
    rows = [np.flatnonzero(many.user == user)[: 211 + user] for user in range(8)]
    TWINS["uneven"] = many.select(np.sort(np.concatenate(rows)))
    try:
        train_by_command(capsys, tmp_path / "uneven")
    finally:
        data = TWINS.pop("uneven")
    run, file = tmp_path / "uneven" / "run", tmp_path / "uneven" / "links.parquet"
    assert told_of(data, file, run) == set()
    # The same search finds them where they are, in the study and in a run without a guarantee.
    assert "study.json" in told_of(data, file, run.with_name("run.study"))
    plain = ["train", str(file), "--rounds", "2", "--mechanism", "none", "--keep-uploads", "1"]
    assert command(capsys, *plain, "--out", str(tmp_path / "plain"))[0] == 0
    assert {"config.json", "round-000000.npz/links.npy"} & told_of(data, file, tmp_path / "plain")


# ---- One place decides


def test_what_is_published_of_a_round_is_listed_and_the_rest_is_not():
    full = HistoryRow(3, 1.5, 2.5, 3.5, 0.5, 4.5, 5.5, 8, 1, 1, 0, 1, 999, "note", 6.5)
    kept = {"round", "noise_energy", "epsilon", "clients", "dropped", "late", "refused", "opened",
            "upload_bytes", "notes"}  # fmt: skip
    for seed, names in ((None, kept), (0, kept - {"epsilon"})):
        row = history.published(full, seed)
        for field in fields(HistoryRow):
            value = getattr(row, field.name)
            if field.name in names:
                assert value == getattr(full, field.name)
            else:
                assert np.isnan(value)


def test_the_patch_is_where_sums_are_opened(same_sums):
    """Else the twins would compare nothing: means and kept rounds come from the patched sum."""
    run = vm.train(
        DATA, SCENE.grid, mechanism=PROMISE, rounds=2, recording=vm.Recording(keep_uploads="all")
    )
    total = server.RoundSum(run.transcript.rounds[1].broadcast, np.inf)
    total._answered += run.transcript.rounds[1].clients
    expected = total.means(run.transcript.mechanism)[0]
    np.testing.assert_array_equal(run.transcript.rounds[1].height_gradient, expected)
