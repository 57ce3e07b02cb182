import json

import numpy as np
import pytest

import bench
import suite
from suite import Figure, Stage, _alternatives, figures_of, page_written, stages
from suite._stage import growth_exponent
from veilmap.attacks import WeightedCentroid
from veilmap.geometry.tracing import trace
from veilmap.model.gradients import local_gradients
from veilmap.privacy.mechanisms import GeometryAligned
from veilmap.privacy.mechanisms.lattice import discrete_gaussian

STAGE = Stage("walking", "links", 12.34, "SciPy | alone", 0.5, 1.02)
STEEP = Stage("climbing", "cells", 1.0, "NumPy", 20.0, 1.9)
SPEED = Figure("speed", 12.0, "×", at_least=10)
SLOW = Figure("slow", 3.0, "s", at_most=1)


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
def test_the_exponent_of_made_up_times(power):
    sizes = (10, 40, 160, 1000)
    seconds = [3e-6 * size**power for size in sizes]
    assert growth_exponent(sizes, seconds) == pytest.approx(power)
    noisy = [second * factor for second, factor in zip(seconds, (1.1, 0.9, 1.1, 0.9), strict=True)]
    assert growth_exponent(sizes, noisy) == pytest.approx(power, abs=0.1)


def test_a_stage_yields_its_figures_with_a_bar_for_growth():
    time, ratio, exponent = STAGE.figures
    assert time.shown == "12.3 ms"
    assert (ratio.name, ratio.shown) == ("walking: SciPy | alone / ours", "0.500 ×")
    assert exponent.name == "walking: exponent in links"
    assert [one.figures[2].meets_bar for one in (STAGE, STEEP)] == [True, False]
    assert figures_of([SPEED, STAGE, SLOW]) == [SPEED, time, ratio, exponent, SLOW]


def test_the_page_has_a_table_of_stages_and_one_of_other_figures(monkeypatch):
    monkeypatch.setenv("VEILMAP_THREADS", "3")
    text = page_written.markdown([SPEED, STAGE, STEEP, SLOW])
    assert "3 threads on " in text.replace("\n", " ")
    assert max(len(line) for line in text.splitlines()) <= 100
    assert "| stage | time | against | ratio | grows with | exponent |\n| --- |" in text
    assert r"| walking | 12.3 ms | SciPy \| alone | 0.500 × | links | 1.02 |" in text
    assert "| what | measured | bar | ok |" in text
    assert "| speed | 12.0 × | ≥ 10.0 × | ok |" in text
    assert "| slow | 3.00 s | ≤ 1.00 s | MISSED |" in text
    assert text.index("walking") < text.index("climbing") < text.index("speed")
    assert text.count("walking") == 1


def test_the_page_leaves_out_what_was_not_run():
    assert "grows with" not in page_written.markdown([SPEED])
    assert "measured" not in page_written.markdown([STAGE])


def test_the_command_writes_the_page(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(suite, "run", lambda name, seed: [STAGE, SLOW])
    page = tmp_path / "new" / "performance.md"
    bench.main(["--only", "stages", "--page", str(page)])
    assert page.read_text(encoding="utf-8") == page_written.markdown([STAGE, SLOW])
    assert list(page.parent.iterdir()) == [page]


@pytest.mark.parametrize(
    ("only", "page", "message"),
    [
        ("nothing", "page.md", "'nothing'"),
        ("stages", "taken/page.md", "taken is a file"),
        ("stages", "folder", "folder is a folder"),
    ],
)
def test_mistakes_are_said_before_the_work(capsys, tmp_path, monkeypatch, only, page, message):
    monkeypatch.setattr(suite, "run", lambda name, seed: pytest.fail("it ran"))
    (tmp_path / "taken").write_text("mine")
    (tmp_path / "folder").mkdir()
    with pytest.raises(SystemExit) as stop:
        bench.main(["--only", only, "--page", str(tmp_path / page)])
    err = capsys.readouterr().err
    assert stop.value.code == 2
    assert err.startswith("bench: ")
    assert err.count("\n") == 1
    assert message in err
    assert {path.name for path in tmp_path.rglob("*")} == {"taken", "folder"}
    assert (tmp_path / "taken").read_text() == "mine"


@pytest.fixture(scope="module")
def setting():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stages, "_TRAINED", 4)
        yield stages.Setting.synthetic(0, users=6, links=20)


def test_alternatives_do_the_same_work(setting):
    """A ratio to something that computes less would be no ratio at all."""
    grid, data, radio_map = setting.grid, setting.data, setting.radio_map
    ours = trace(grid, data.user_xyz, data.bs_xyz)
    theirs = _alternatives.sorted_crossings(grid, data.user_xyz, data.bs_xyz)
    np.testing.assert_array_equal(theirs.offsets, ours.offsets)
    np.testing.assert_array_equal(theirs.cells, ours.cells)
    np.testing.assert_allclose(theirs.chords, ours.chords, atol=1e-6)
    np.testing.assert_allclose(theirs.heights, ours.heights, atol=1e-6)
    made, plain = (
        local_gradients(radio_map, data),
        _alternatives.traced_gradients(radio_map, data, ours),
    )
    largest = np.abs(made.height_gradient).max()
    np.testing.assert_allclose(plain.height_gradient, made.height_gradient, atol=1e-8 * largest)
    np.testing.assert_allclose(plain.theta_gradient, made.theta_gradient, rtol=1e-8)
    np.testing.assert_allclose(plain.loss, made.loss, rtol=1e-8)
    np.testing.assert_allclose(
        _alternatives.dense_sum(radio_map, data), stages.added_up(radio_map, data), atol=1e-9
    )
    noisy = GeometryAligned(noise_budget=50)
    np.testing.assert_array_equal(
        stages.uploads_added_up(radio_map, data, noisy), stages.added_up(radio_map, data, noisy)
    )
    np.testing.assert_allclose(
        _alternatives.centroids(setting.seen.uploads, grid),
        WeightedCentroid().positions(setting.seen.uploads, setting.transcript),
    )


def test_scipy_finds_the_same_allocation(setting):
    mechanism = GeometryAligned(noise_budget=50)
    ours = mechanism.variances(setting.gradients, setting.grid, setting.places)
    theirs = _alternatives.bfgs_variances(
        mechanism, setting.gradients, setting.grid, setting.places
    )
    apart = np.abs(theirs - ours).max(axis=1) / ours.max(axis=1)
    assert apart.max() < 1e-3


@pytest.mark.parametrize("stage", stages.STAGES, ids=lambda stage: stage.__name__.strip("_"))
def test_every_stage_names_its_alternative_and_a_range_of_sizes(setting, stage, monkeypatch):
    monkeypatch.setattr(stages, "discrete_gaussian", lambda _: discrete_gaussian(5.0))
    monkeypatch.setattr(stages, "calibrated", lambda mechanism, _: mechanism.with_noise(1.0))
    case = stage(setting)
    assert case.against
    assert case.grows_with in {"links", "users", "cells", "places"}
    assert max(case.sizes) >= 16 * min(case.sizes)


def test_a_stage_is_measured(setting, monkeypatch):
    monkeypatch.setattr(stages, "_LINKS", (100, 400, 1600))
    monkeypatch.setattr(stages, "_SECONDS", 0.01)
    row = stages._tracing(setting).measured()
    assert row.milliseconds > 0
    assert row.ratio > 0
    assert 0 < row.exponent < 2


def test_bench_prints_a_table_and_writes_json(capsys, tmp_path, monkeypatch):
    figures = [Figure("speed", 12.0, "×", at_least=10), Figure("slow", 3.0, "s", at_most=1)]
    monkeypatch.setattr(suite, "run", lambda name, seed: figures)
    path = tmp_path / "bench.json"
    bench.main(["--only", "growth", "--json", str(path)])
    assert "MISSED" in capsys.readouterr().out
    written = json.loads(path.read_text())
    assert [figure["meets_bar"] for figure in written["figures"]] == [True, False]


def test_growth_and_start_up_benchmarks_run(monkeypatch):
    from suite import growth

    monkeypatch.setattr(growth, "_LINKS", (400, 1000, 2000))
    figures = {figure.name: figure for figure in growth.measure(0)}
    assert figures["cells crossed per link"].value == pytest.approx(68, abs=6)
    assert figures["peak memory of the pass, 1e6 links"].value > 0
    start = {figure.name: figure for figure in suite.run("start-up", 0)}
    assert start["import veilmap"].value > 0
