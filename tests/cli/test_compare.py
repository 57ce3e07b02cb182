"""`veilmap compare`: from a file of measurements to tables and a file of scores."""

import json
import sys
from dataclasses import replace

import numpy as np
import pytest

import veilmap as vm
from commands import run as command
from veilmap import compare
from veilmap.compare import ComparisonSettings, without_patterns
from veilmap.compare.folds import round_number
from veilmap.data.antennas import Antennas

pytestmark = pytest.mark.usefixtures("one_thread")

LINKS = 240
MASTS = np.array([[30.0, 30.0, 25.0], [170.0, 50.0, 30.0], [30.0, 30.0, 25.0]])


def street(**columns):
    """Links to three base stations, two of them on one mast."""
    rng = np.random.default_rng(0)
    number = rng.integers(0, 3, LINKS)
    given = {
        "user": np.arange(LINKS) % 30,
        "user_xyz": rng.uniform([0, 0, 1.5], [200, 150, 1.5], (LINKS, 3)),
        "bs_xyz": MASTS[number],
        "gain_db": rng.normal(-90, 8, LINKS),
        "bs": np.array(["a", "b", "c"])[number],
    }
    return vm.Measurements(**(given | columns))


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch):
    monkeypatch.setattr("veilmap.cli.compare.console.width", 160)


@pytest.fixture
def path(tmp_path):
    street().save(tmp_path / "links.parquet")
    return tmp_path / "links.parquet"


@pytest.fixture
def learned(monkeypatch):
    """Which folds and baselines were learned from, in order."""
    seen = []
    original = compare.running.scored

    def counted(method, fold):
        seen.append((fold.scheme, fold.number, method.name))
        return original(method, fold)

    monkeypatch.setattr(compare.running, "scored", counted)
    return seen


def compare_by_command(capsys, *arguments):
    return command(capsys, "compare", *map(str, arguments))


SMALL = ("--schemes", "users", "--methods", "log-distance,k-nn", "--folds", 2)


def test_help_has_an_example_and_the_options(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    code, out, _ = compare_by_command(capsys, "--help")
    assert code == 0
    assert "veilmap compare links.parquet" in out
    for option in ("--schemes", "--methods", "--folds", "--first", "--few", "--json", "--seed"):
        assert option in out


def test_scores_are_those_of_the_library(capsys, path, tmp_path):
    scores = tmp_path / "out" / "scores.json"
    code, out, err = compare_by_command(
        capsys, path, "--methods", "log-distance,k-nn,central,federated", "--folds", 3,
        "--first", 1, "--few", "40,60", "--block", 40, "--rounds", 3, "--cell-size", 10,
        "--json", scores,
    )  # fmt: skip
    assert (code, err) == (0, "")
    schemes = ("random users", "blocks of 40 m", "40 links", "60 links")
    for scheme in schemes:
        assert f"Error on test data: {scheme}, 1 folds" in out
    for text in ("log-distance", "k-nn", "central", "federated", "240 links, cells of 10 m",
                 "3 rounds", "obstacles", f"Wrote {scores}"):  # fmt: skip
        assert text in " ".join(out.split()) or text in out.replace("\n", "")
    data = vm.Measurements.load(path)
    ends = np.vstack([data.user_xyz, data.bs_xyz])[:, :2]
    setting = ComparisonSettings(vm.Grid.covering(ends, 10.0), rounds=3)
    folds = [
        next(compare.by_users(data, 3)),
        next(compare.by_blocks(data, 3, block=40.0)),
        next(compare.few_links(data, 40, 3)),
        next(compare.few_links(data, 60, 3)),
    ]
    compared = compare.methods(["log-distance", "k-nn", "central", "federated"], setting)
    expected = list(compare.compare(folds, compared))
    found = [compare.FoldScore(**one) for one in json.loads(scores.read_text())["scores"]]
    assert [one.key for one in found] == [one.key for one in expected]
    for one, other in zip(found, expected, strict=True):
        assert one.model == other.model
        assert one.links == other.links
        np.testing.assert_allclose(
            [one.mae_db, one.rmse_db], [other.mae_db, other.rmse_db], rtol=1e-9
        )


def test_a_stopped_comparison_goes_on_where_it_was(capsys, path, tmp_path, monkeypatch, learned):
    scores = tmp_path / "scores.json"
    original = compare.running.scored

    def interrupted(method, fold):
        if (fold.number, method.name) == (1, "k-nn"):
            raise KeyboardInterrupt
        return original(method, fold)

    with monkeypatch.context() as patch:
        patch.setattr(compare.running, "scored", interrupted)
        code, _, err = compare_by_command(capsys, path, *SMALL, "--json", scores)
    assert code == 130
    assert "stopped" in err
    before = json.loads(scores.read_text())
    assert len(before["scores"]) == len(learned) == 3
    learned.clear()
    code, out, _ = compare_by_command(capsys, path, *SMALL, "--json", scores)
    assert code == 0
    assert learned == [("random users", 1, "k-nn")]
    after = json.loads(scores.read_text())
    assert after["settings"] == before["settings"]
    assert after["scores"][:3] == before["scores"]
    assert len(after["scores"]) == 4
    whole = scores.read_text()
    learned.clear()
    code, again, _ = compare_by_command(capsys, path, *SMALL, "--json", scores)
    assert (code, learned) == (0, [])
    assert scores.read_text() == whole
    assert again == out
    assert [path.name for path in tmp_path.glob("*scores*")] == ["scores.json"]


def test_more_methods_schemes_and_folds_go_into_the_same_file(capsys, path, tmp_path, learned):
    scores = tmp_path / "scores.json"
    assert compare_by_command(capsys, path, *SMALL, "--first", 1, "--json", scores)[0] == 0
    learned.clear()
    code, out, _ = compare_by_command(
        capsys, path, "--schemes", "users,few", "--few", 20, "--methods", "k-nn", "--folds", 2,
        "--json", scores,
    )  # fmt: skip
    assert code == 0
    assert learned == [
        ("random users", 1, "k-nn"),
        ("20 links", 0, "k-nn"),
        ("20 links", 1, "k-nn"),
    ]
    assert "log-distance" not in out  # kept, but not asked for
    assert len(json.loads(scores.read_text())["scores"]) == 5


@pytest.mark.parametrize(
    "other",
    [
        ("--folds", 3), ("--seed", 1), ("--rounds", 7), ("--cell-size", 50), ("--budget", 9),
        ("--epsilon", 1), ("--delta", 1e-4), ("--calibrate", "devices"), "data", "stations",
    ],
)  # fmt: skip
def test_scores_of_other_settings_are_not_mixed(capsys, path, tmp_path, other):
    scores = tmp_path / "scores.json"
    assert compare_by_command(capsys, path, *SMALL, "--json", scores)[0] == 0
    before, options = scores.read_text(), other
    if other == "data":
        street(gain_db=street().gain_db + 1.0).save(path)
        options = ()
    elif other == "stations":
        street(bs=np.where(street().bs == "a", "c", street().bs)).save(path)
        options = ()
    code, out, err = compare_by_command(capsys, path, *SMALL, *options, "--json", scores)
    assert (code, out) == (2, "")
    assert "other data or settings" in err
    assert scores.read_text() == before


def test_what_is_not_a_comparison_is_left_alone(capsys, path, tmp_path):
    half = '{"scores": []}', '{"settings": {}, "scores": [{"mae_db": 3}]}'
    for number, text in enumerate(("not json", "[]", "{}", "3", *half)):
        other = tmp_path / f"{number}.json"
        other.write_text(text)
        code, _, err = compare_by_command(capsys, path, *SMALL, "--json", other)
        assert code == 2
        assert "not a comparison" in err
        assert other.read_text() == text
    code, _, err = compare_by_command(capsys, path, *SMALL, "--json", path / "scores.json")
    assert code == 2
    assert "is a file" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.csv"], "none.csv"),
        (["links.parquet", "--methods", "nonsense"], "'nonsense'"),
        (["links.parquet", "--methods", "k-nn,k-nn"], "twice"),
        (["links.parquet", "--schemes", "nonsense"], "--schemes"),
        (["links.parquet", "--schemes", ","], "--schemes"),
        (["links.parquet", "--few", "x"], "--few"),
        (["links.parquet", "--few", ""], "--few"),
        (["links.parquet", "--block", "0"], "--block"),
        (["links.parquet", "--cell-size", "0"], "--cell-size"),
        (["links.parquet", "--schemes", "users", "--budget", "-1"], "--budget"),
        (["links.parquet", "--schemes", "users", "--epsilon", "0"], "--epsilon"),
        (["links.parquet", "--schemes", "users", "--delta", "2"], "--delta"),
        (["links.parquet", "--few", "5"], "10, not 5"),
        (["links.parquet", "--few", "5000"], "192 links"),
        (["links.parquet", "--folds", "31"], "31 folds"),
        (["links.parquet", "--folds", "1"], "--folds"),
        (["links.parquet", "--first", "0"], "--first"),
        (["links.parquet", "--rounds", "1"], "--rounds"),
        (["links.parquet", "--block", "-3"], "--block"),
        (["links.parquet", "--block", "1000"], "blocks of 1000 m"),
        (["links.parquet", "--cell-size", "-1"], "--cell-size"),
        (["links.parquet", "--calibrate", "masts"], "--calibrate"),
        (["links.parquet", "--buildings", "none.tif"], "none.tif"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_two(
    capsys, path, monkeypatch, learned, arguments, message
):
    monkeypatch.chdir(path.parent)
    if not {"--few", "--methods"} & set(arguments):
        arguments = [*arguments, "--few", "20"]
    code, out, err = compare_by_command(capsys, *arguments, "--json", "scores.json")
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert err.startswith("veilmap: ")
    assert message in err
    assert learned == []
    assert [one.name for one in path.parent.iterdir()] == ["links.parquet"]


def test_links_at_one_place_cannot_be_compared(capsys, tmp_path):
    place = np.full((LINKS, 3), 7.0)
    street(user_xyz=place, bs_xyz=place).save(tmp_path / "links.csv")
    code, out, err = compare_by_command(capsys, tmp_path / "links.csv", *SMALL)
    assert (code, out) == (2, "")
    assert "one place" in err


def test_users_at_one_place_can_be_compared_but_not_by_blocks(capsys, tmp_path):
    street(user_xyz=np.full((LINKS, 3), 7.0)).save(tmp_path / "links.csv")
    assert compare_by_command(capsys, tmp_path / "links.csv", *SMALL)[0] == 0
    code, _, err = compare_by_command(capsys, tmp_path / "links.csv", "--schemes", "blocks")
    assert code == 2
    assert "one place" in err


@pytest.mark.parametrize(
    ("module", "name", "extra"),
    [("pykrige", "kriging", "baselines"), ("sklearn", "gradient-boosting", "learn")],
)
def test_a_missing_library_is_said_before_the_work(
    capsys, path, monkeypatch, learned, module, name, extra
):
    monkeypatch.setitem(sys.modules, module, None)
    for methods in ((), ("--methods", f"k-nn,{name}")):
        code, out, err = compare_by_command(capsys, path, *methods, "--few", 20)
        assert (code, out) == (2, "")
        assert f"{name} needs {module}: pip install 'veilmap[{extra}]'" in err
    assert learned == []


def test_the_ground_is_divided_into_round_numbers():
    asked = [0.9, 1.3, 1.5, 2.4, 2.5, 3.8, 3.9, 7.0, 7.2, 14.0, 15.0, 230.0, 0.014]
    found = [round_number(metres, "users are") for metres in asked]
    expected = [1, 1, 2, 2, 3, 3, 5, 5, 10, 10, 20, 200, 0.01]
    np.testing.assert_allclose(found, expected)


def test_cells_and_blocks_follow_the_ground(capsys, path, tmp_path):
    scores = tmp_path / "scores.json"
    code, out, _ = compare_by_command(
        capsys, path, "--schemes", "blocks", "--methods", "k-nn", "--json", scores
    )
    assert code == 0
    # 200 m wide: a hundred cells of 2 m, ten blocks of 20 m.
    assert "cells of 2 m" in out
    assert "blocks of 20 m, 5 folds" in out
    found = json.loads(scores.read_text())
    assert found["settings"]["grid"]["cell_size"] == 2.0
    assert sum(one["links"] for one in found["scores"]) == LINKS


# Antennas

SECTORS = Antennas(("a", "b"), (45.0, 200.0), (65.0, 90.0))


def test_patterns_are_taken_off_once():
    data = street(antennas=SECTORS)
    bare = without_patterns(data)
    patterns = SECTORS.of(data.bs, data.user_xyz, data.bs_xyz)
    assert patterns.min() < -20
    assert (patterns[data.bs == "c"] == 0).all()
    assert bare.antennas is None
    np.testing.assert_allclose(bare.gain_db, data.gain_db - patterns)
    np.testing.assert_array_equal(bare.bs, data.bs)
    assert without_patterns(bare) is bare


def test_patterns_are_taken_off_for_every_method(capsys, path, tmp_path):
    """Gains that are antennas and nothing else but a line: then every method sees the line."""
    data = street()
    patterns = SECTORS.of(data.bs, data.user_xyz, data.bs_xyz)
    bare = replace(data, gain_db=-80.0 + 0.01 * data.gain_db)
    bare.save(path)
    sectored = tmp_path / "sectors.parquet"
    replace(bare, gain_db=bare.gain_db + patterns, antennas=SECTORS).save(sectored)
    found = []
    for number, file in enumerate((path, sectored)):
        scores = tmp_path / f"{number}.json"
        code, _, _ = compare_by_command(
            capsys, file, "--schemes", "users", "--first", 1, "--rounds", 2, "--cell-size", 10,
            "--methods", "log-distance,k-nn,kriging,central,federated",
            "--json", scores,
        )  # fmt: skip
        assert code == 0
        found.append({s["method"]: s["mae_db"] for s in json.loads(scores.read_text())["scores"]})
    plain, directed = found
    assert plain.keys() == directed.keys()
    for name, error in plain.items():
        assert directed[name] == pytest.approx(error, abs=1e-3), name
