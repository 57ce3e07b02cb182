import json
import subprocess
import sys

import pytest

import veilmap
from commands import run
from veilmap.federation import Run
from veilmap.runs.opened import OpenRun


def test_version(capsys):
    assert run(capsys, "--version") == (0, f"veilmap {veilmap.__version__}\n", "")


@pytest.mark.parametrize("command", ["demo", "train"])
def test_help_has_an_example_and_the_common_options(capsys, command):
    code, out, _ = run(capsys, command, "--help")
    assert code == 0
    assert f"veilmap {command} " in out
    assert "--seed" in out
    assert "--out" in out


def test_no_command_shows_the_help(capsys):
    code, out, err = run(capsys)
    assert code == 0
    assert "demo" in out + err
    assert "veilmap:" not in err


def test_demo_writes_its_table_figures_and_map_and_ends_on_the_page(capsys, tmp_path, monkeypatch):
    out, shown = tmp_path / "demo", []
    monkeypatch.setattr("veilmap.cli.demo.show", lambda runs, **_: shown.extend(runs))
    arguments = ["demo", "--rounds", "3", "--users", "20", "--out", str(out), "--open"]
    code, text, _ = run(capsys, *arguments)
    assert code == 0
    assert shown == [out / "runs"]
    runs = {path.name: Run.load(path) for path in shown[0].iterdir()}
    assert runs.keys() == {"none", "uniform", "aligned", "none-sums"}
    assert all(OpenRun(shown[0] / name).data for name in runs)
    assert run(capsys, *arguments)[0] == 2  # it overwrites no run
    assert "k nearest neighbours" in text
    names = {path.name for path in out.iterdir()}
    assert names == {
        "heights_true.png", "heights_learned.png", "gain_predicted.png", "gain_error.png",
        "overview.png", "uploads.png", "results.json", "radio_map.nc", "runs",
    }  # fmt: skip
    rows = json.loads((out / "results.json").read_text())
    assert all(row["mae_db"] > 2 for row in rows)
    assert veilmap.RadioMap.load(out / "radio_map.nc").grid.shape == (100, 100)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["demo", "--rounds", "1"], "--rounds"),
        (["demo", "--seed", "-1"], "--seed"),
        (["demo", "--seed", "many"], "--seed"),
        (["demo", "--wrong"], "--wrong"),
        (["dmeo"], "dmeo"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_two(capsys, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, *arguments)
    assert code == 2
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("veilmap: ")
    assert message in err
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_way_of_the_output_is_said_before_the_work(capsys, tmp_path):
    (tmp_path / "taken").write_text("mine")
    code, _, err = run(capsys, "demo", "--out", str(tmp_path / "taken"))
    assert code == 2
    assert "is a file" in err
    assert (tmp_path / "taken").read_text() == "mine"
    code, _, err = run(capsys, "demo", "--out", str(tmp_path / "taken" / "below"))
    assert code == 2
    assert "taken is a file" in err


def test_importing_does_not_load_what_is_not_needed():
    script = (
        "import sys, veilmap;"
        "print([m for m in ('matplotlib', 'pyarrow', 'xarray', 'shapely', 'jax', 'typer')"
        " if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_the_module_runs_as_a_program():
    command = [sys.executable, "-m", "veilmap.cli", "--version"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.startswith(
        "veilmap "
    )
