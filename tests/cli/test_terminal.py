"""What commands write to the terminal: strangers' texts, any locale, signs of life."""

import os
import subprocess
import sys
import time

import pytest

import veilmap as vm
from commands import run
from veilmap.cli import output
from veilmap.cli.output import console, progress_bar, working

HOSTILE = "[/b] [red]:smile: \x1b[31m"
AS_SHOWN = HOSTILE.replace("\x1b", "\N{REPLACEMENT CHARACTER}")


def said(text):
    """What the terminal says, whatever lines it is broken into."""
    return " ".join(text.split())


def test_a_strangers_text_is_a_text(capsys):
    console.print(HOSTILE)
    with progress_bar() as bar:
        bar.add_task("task", total=1, completed=1, note=HOSTILE)
    assert said(capsys.readouterr().out).count(AS_SHOWN) == 2


def test_a_mistake_about_a_strangers_name_is_one_visible_line(capsys, tmp_path):
    code, _, error = run(capsys, "data", "check", str(tmp_path / "a\n\x1b]0;b.csv"))
    assert code == 2
    assert error.count("\n") == 1
    assert "\x1b" not in error


@pytest.fixture
def crowd(tmp_path):
    city = vm.Scene.synthetic(3, cell_size=15.0)
    city.measure(users=4, links_per_user=10, seed=0).save(tmp_path / "links.csv")
    return tmp_path / "links.csv"


@pytest.mark.parametrize(
    "command",
    [
        "data split {data} {name}",
        "data convert {data} {name}.parquet",
        "data check {data} --json {name}.json",
        "data make {name} --users 4 --links 10",
        "train {data} --rounds 2 --cell-size 15 --out {name}",
        "plan --users 3000 --epsilon 2 --stations 20 --json {name}.json",
    ],
)
def test_a_name_that_looks_like_markup_is_written_and_shown(
    capsys, tmp_path, crowd, monkeypatch, command
):
    monkeypatch.chdir(tmp_path)
    code, out, error = run(capsys, *command.format(data=crowd, name="[/b]").split())
    assert code == 0, error
    assert "Wrote" in out
    assert "[/b]" in out
    assert [path.name for path in (tmp_path / "[").iterdir() if path.name.startswith("b]")]


ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}


def in_ascii(folder, command):
    """A command where only ASCII can be shown, and files are ASCII unless it is said."""
    return subprocess.run(
        [sys.executable, "-m", "veilmap.cli", *command.split()],
        env=os.environ | ASCII, cwd=folder, capture_output=True, timeout=300, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("train --help", b"epsilon"),
        ("survey design --help", b"epsilon"),
        ("plan --users 3000 --epsilon 2 --stations 20 --json plan.json", b"epsilon = 2"),
        ("train --city 3 --users 20 --cell-size 15 --rounds 2 --mechanism aggregate --out run",
         b"epsilon"),
        ("train --city 3 --users 4 --cell-size 15 --rounds 2 --out run", b"dB2"),
    ],
)  # fmt: skip
def test_any_locale_will_do(tmp_path, command, shown):
    done = in_ascii(tmp_path, command)
    assert done.returncode == 0, done.stderr
    assert shown in done.stdout
    assert done.stdout.isascii()


def test_a_mistake_is_spelled_out_too(tmp_path):
    done = in_ascii(tmp_path, "train --mechanism aggregate --delta 0.5 --city 3 --users 4")
    assert done.returncode == 2
    assert b"delta = 0.5" in done.stderr


def test_names_that_are_not_ascii_survive_any_locale(tmp_path, crowd):
    table = crowd.read_text().replace("\n0,", "\nÅsa,")
    crowd.write_text(table, encoding="utf-8")
    for command in (
        "data convert links.csv out.csv",
        "train links.csv --rounds 2 --cell-size 15 --dropout 0.3 --seed 1 --out run",
        "report run",
    ):
        done = in_ascii(tmp_path, command)
        assert done.returncode == 0, done.stderr
    assert "Åsa" in (tmp_path / "out.csv").read_text(encoding="utf-8")


@pytest.fixture
def hurried(monkeypatch):
    monkeypatch.setattr(output, "QUIET_SECONDS", 0.05)
    monkeypatch.setattr(output, "_AGAIN_SECONDS", 0.05)


def test_long_work_says_what_it_does_where_no_bar_can_be_drawn(capsys, hurried):
    with working("adding up …") as change:
        time.sleep(0.3)
        change("writing …")
        time.sleep(0.3)
    with progress_bar() as bar:
        bar.add_task("rounds", total=9, completed=4, note="")
        time.sleep(0.3)
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["adding up …", "writing …", "rounds 4 of 9"]


def test_short_work_says_nothing(capsys):
    with working("adding up …"):
        pass
    assert capsys.readouterr() == ("", "")
