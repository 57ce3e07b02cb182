"""A run's folder among strangers, full disks and kills: nothing lost, nothing let out."""

import json
import os
import stat
from dataclasses import replace

import numpy as np
import pytest

import veilmap as vm
from refusals import refused
from veilmap._util import archives, limits
from veilmap.errors import DataError, PrivacyError, RunFolderError
from veilmap.federation import history
from veilmap.federation.run_folder import RunFolder
from veilmap.runs.opened import OpenRun
from veilmap.runs.source import Source

SCENE = vm.Scene.synthetic(seed=0, cell_size=30.0)
DATA = SCENE.measure(users=4, links_per_user=10, seed=0)
PROMISE = vm.AggregateGaussian(epsilon=8.0, delta=1e-3)


def train(out, rounds=6, **settings):
    recording = vm.Recording(
        out=out, resume=settings.pop("resume", False), keep_uploads="all",
        checkpoint_every=settings.pop("checkpoint_every", 3),
    )  # fmt: skip
    return vm.train(DATA, SCENE.grid, rounds=rounds, recording=recording, **settings)


@pytest.fixture
def run(tmp_path):
    train(tmp_path / "run", seed=0)
    return tmp_path / "run"


@pytest.mark.parametrize("mechanism", [None, PROMISE])
def test_a_run_is_its_owners_alone(tmp_path, mechanism):
    umask = os.umask(0o022)
    try:
        train(tmp_path / "run", seed=0, mechanism=mechanism)
    finally:
        os.umask(umask)
    public = {"radio_map.nc", "base_stations.csv"}  # in a folder that nobody else enters
    for path in tmp_path.rglob("*"):
        wanted = 0o700 if path.is_dir() else 0o644 if path.name in public else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == wanted, path


def test_going_on_deletes_nothing_but_what_the_run_has_left(run, tmp_path):
    stranger = tmp_path / "stranger"
    stranger.mkdir()
    kept = [stranger / ".aws-credentials", run / ".my-notes", run / "transcript" / ".a-b.npz"]
    left = [run / ".veilmap-0123456789abcdef.part.json",
            run / "checkpoints" / ".veilmap-0123456789abcdef.part.npz"]  # fmt: skip
    for path in (*kept, *left):
        path.write_text("x")
    (run / "link").symlink_to(stranger)
    train(run, seed=0, resume=True)
    assert all(path.exists() for path in kept)
    assert not any(path.exists() for path in left)


@pytest.mark.parametrize("kind", ["checkpoints", "transcript"])
def test_a_folder_of_a_run_does_not_lead_out_of_it(run, tmp_path, kind):
    (run / kind).rename(tmp_path / "elsewhere")
    (run / kind).symlink_to(tmp_path / "elsewhere")
    before = {path.name: path.read_bytes() for path in (tmp_path / "elsewhere").iterdir()}
    with refused(DataError, run / kind):
        train(run, seed=0, resume=True)
    assert {path.name: path.read_bytes() for path in (tmp_path / "elsewhere").iterdir()} == before


@pytest.mark.parametrize(
    ("name", "look"),
    [
        ("radio_map.nc", lambda run: OpenRun(run).radio_map()),
        ("radio_map.nc", vm.Run.load),
        ("history.csv", lambda run: OpenRun(run).history()),
        ("config.json", lambda run: OpenRun(run).config),
        ("base_stations.csv", lambda run: OpenRun(run).stations),
        ("transcript/round-000000.npz", lambda run: RunFolder(run).load_round(0, SCENE.grid)),
    ],
)
def test_a_file_of_a_run_does_not_lead_out_of_it(run, tmp_path, name, look):
    (run / name).rename(tmp_path / "elsewhere")
    (run / name).symlink_to(tmp_path / "elsewhere")
    with refused((DataError, RunFolderError), run / name):
        look(run)


def test_what_nodes_say_can_be_read_back_however_long_it_is():
    said = [f"node-{number} cannot answer: " + "x" * 100_000 for number in range(2_000)]
    assert history.noted(said[:1]).startswith("node-0 cannot answer: xxx")
    assert len(history.noted(said[:1])) == limits.REASON_LETTERS
    text = history.noted([*said, "line\nbreak\x1b[2J"])
    assert len(text) < limits.NOTE_LETTERS + 50
    assert "2001" in text
    assert history.noted(["a", "line\nbreak\x1b[2J"]) == "a; linebreak[2J"
    assert history.noted([]) == ""


def test_a_history_that_cannot_be_read_is_one_clear_line(run):
    text = (run / "history.csv").read_text()
    for damaged in ("", "x", text.replace(",,", f",{'x' * 200_000},"), text[:-40], "\0" + text):
        (run / "history.csv").write_text(damaged)
        with refused(DataError, run / "history.csv"):
            history.load(run / "history.csv")


class Killed(BaseException):
    """As if the process ended here."""


@pytest.mark.parametrize("last", [3, 6])
def test_no_row_is_lost_between_history_and_checkpoint(tmp_path, monkeypatch, last):
    run, straight = tmp_path / "run", train(tmp_path / "straight", seed=0)

    def killed(path, *_, **__):
        if path.name == f"round-{last:06d}.npz" and path.parent.name == "checkpoints":
            raise Killed
        return save(path, *_, **__)

    save = archives.save
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(archives, "save", killed)
        train(run, seed=0)
    assert [row.round for row in history.load(run / "history.csv")] == list(range(last))
    train(run, seed=0, resume=True)
    rows = history.load(run / "history.csv")
    assert [row.loss for row in rows] == [row.loss for row in straight.history]


@pytest.mark.parametrize("damage", [lambda path: path.unlink(), lambda path: path.write_text("x")])
def test_a_history_that_was_taken_away_comes_back(run, damage):
    before = (run / "history.csv").read_bytes()
    damage(run / "history.csv")
    train(run, seed=0, resume=True)
    assert (run / "history.csv").read_bytes() == before


def test_an_older_ledger_is_refused(tmp_path):
    run = tmp_path / "run"
    loud = replace(PROMISE, noise_multiplier=20.0)
    train(run, mechanism=loud)
    ledger = (run / "ledger.json").read_bytes()
    (run / "radio_map.nc").unlink()
    for file in sorted((run / "checkpoints").iterdir())[1:]:
        file.unlink()
    # One checkpoint less: its last round is opened again, and paid for again.
    train(run, mechanism=loud, resume=True)
    later = json.loads((run / "ledger.json").read_bytes())
    assert len(later["marks"]) == len(json.loads(ledger)["marks"]) + 1
    (run / "ledger.json").write_bytes(ledger)
    with refused(PrivacyError, run / "ledger.json"):
        train(run, mechanism=loud, resume=True)


def test_a_run_of_too_many_synthetic_users_is_not_measured(run, monkeypatch):
    config = json.loads((run / "config.json").read_text())
    source = Source(None, None, city=0, users=100_000, cell_size=30.0).described()
    (run / "config.json").write_text(json.dumps(config | {"source": source}))
    monkeypatch.setattr(vm.Scene, "measure", None)
    opened = OpenRun(run)
    assert opened.data is None
    assert "20,000,000" in opened.missing
    (run / "config.json").write_text(
        json.dumps(config | {"source": source | {"users": 100_000_000}})
    )
    assert OpenRun(run).source is None


def test_a_map_of_another_size_than_the_grid_is_refused(run):
    path = run / "checkpoints" / "round-000006.npz"
    content = archives.load(path)
    archives.save(path, content | {"heights": np.zeros(7)})
    with refused(RunFolderError, path):
        train(run, seed=0, resume=True)
