"""Running, remembering and reporting experiments; their findings on made-up outcomes."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from toys import Dies, Square
from veilmap import figures
from veilmap.errors import ConfigurationError, DataError
from veilmap.federation import Recording
from veilmap.figures.content import Curves, Line, MapPanel, Maps, Panel, SideView
from veilmap.paper import experiments, running, tasks
from veilmap.paper.experiment import Finding, Result, Spread, Table
from veilmap.paper.experiments import EXPERIMENTS
from veilmap.paper.running import TaskPlan
from veilmap.paper.tasks import Store
from veilmap.paper.trials import DEFAULT, FLOOR_0, POWERS, STEPS, Trial, looked_at
from veilmap.privacy.mechanisms import GeometryAligned, NoNoise, UniformNoise
from veilmap.reports import reproduction

# Run once: on one of the processes that share the tests.
uses_quick = pytest.mark.xdist_group("quick experiments")


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """Every experiment's quick version, run once."""
    store = Store(tmp_path_factory.mktemp("computed"))
    chosen = experiments.chosen(["all"], quick=True)
    plan = TaskPlan.of((task for one in chosen for task in one.tasks()), store)
    outcomes = running.run(plan, store, workers=1)
    return store, chosen, [one.result(outcomes) for one in chosen]


# ---- The experiments


@uses_quick
def test_every_experiment_runs_and_answers(quick):
    _, chosen, results = quick
    assert [result.name for result in results] == list(EXPERIMENTS)
    for result in results:
        assert result.tables or result.pictures
        for table in result.tables:
            assert table.rows
            assert all(len(row) == len(table.columns) for row in table.rows), table.title
            assert not any("nan" in cell for row in table.text() for cell in row), table.title
        for finding in result.findings:
            assert finding.claim.endswith(".")
            assert not finding.measured.endswith(".")


@uses_quick
def test_every_picture_can_be_drawn_and_every_axis_has_a_label(quick):
    _, _, results = quick
    pictures = [picture for result in results for picture in result.pictures]
    assert len({picture.name for picture in pictures}) == len(pictures) >= 8
    for picture in pictures:
        figure = figures.draw(picture)
        labelled = [axes for axes in figure.axes if axes.get_xlabel() or axes.get_ylabel()]
        assert labelled, picture.name


@uses_quick
def test_a_second_run_computes_nothing_and_gives_the_same_numbers(quick):
    store, chosen, results = quick
    plan = TaskPlan.of((task for one in chosen for task in one.tasks()), store)
    assert plan.left == ()
    again = [one.result(plan.done) for one in chosen]
    assert reproduction.as_dict(again) == reproduction.as_dict(results)


@uses_quick
def test_a_changed_setting_computes_only_what_it_touches(quick):
    store, _, _ = quick
    other = experiments.chosen(["all"], quick=True, settings={"tradeoffs": "1,10,50"})
    plan = TaskPlan.of((task for one in other for task in one.tasks()), store)
    new = {
        (type(task).__name__, getattr(task, "mechanism", None) or task.tradeoff)
        for task in plan.left
    }
    assert new == {
        ("Trial", GeometryAligned(noise_budget=1.0, tradeoff=10.0)),
        ("Trial", GeometryAligned(noise_budget=50.0, tradeoff=10.0)),
    }
    more = experiments.chosen(["fig-budget"], quick=True, settings={"seeds": "0,1,2"})
    plan = TaskPlan.of(more[0].tasks(), store)
    assert {task.seed for task in plan.left} == {2}
    assert len(plan.done) == 2 * len(plan.left)


def test_a_trial_is_what_training_and_the_attack_give():
    from veilmap import Scene, train
    from veilmap.attacks import WeightedCentroid
    from veilmap.baselines import mean_absolute_error

    trial = Trial(3, UniformNoise(noise_budget=5), DEFAULT, rounds=8, users=6, powers=(2.0,))
    outcome = trial.run()
    assert outcome["rounds"].tolist() == list(range(1, 9))
    scene = Scene.synthetic(3)
    data, unseen = scene.measure(users=6, seed=6), scene.measure(users=200, seed=7)
    run = train(
        data,
        scene.grid,
        mechanism=UniformNoise(noise_budget=5),
        rounds=8,
        seed=3,
        recording=Recording(keep_uploads="all"),
    )
    assert outcome["mae"][-1] == mean_absolute_error(run.radio_map, unseen)
    start = run.transcript.uploads(0).broadcast.radio_map
    assert outcome["mae"][0] == mean_absolute_error(start, unseen)
    truth = dict(zip(data.users.tolist(), data.mean_positions(), strict=True))
    errors = WeightedCentroid(2).locate(run.transcript).errors(truth)
    assert outcome["rmse"][0, 4] == np.sqrt(np.mean(errors[4] ** 2))


def test_attackers_look_at_the_first_round_and_eight_more():
    assert looked_at(200) == (1, 25, 50, 75, 100, 125, 150, 175, 200)
    assert looked_at(4) == (1, 2, 3, 4)


# ---- Findings, on outcomes that are made up


def made_up(experiment, rmse):
    """Outcomes of an experiment's trials: rmse(mechanism) for every ν and round."""
    looks = len(looked_at(experiment.rounds))
    return {
        task: {"rmse": np.full((len(POWERS), looks), 1.0) * rmse(task.mechanism)}
        for task in experiment.tasks()
    }


def test_a_budget_where_uniform_noise_leads_is_named():
    experiment = EXPERIMENTS["fig-budget"](seeds=(0,))

    def rmse(mechanism):
        leads = isinstance(mechanism, GeometryAligned) != (mechanism.noise_budget == 5)
        return 100 * mechanism.noise_budget + (50 if leads else 0)

    result = experiment.result(made_up(experiment, rmse))
    modest, everywhere, _, rising = result.findings
    assert not modest.holds
    assert not everywhere.holds
    assert "ν = 1 at μ = 5;" in everywhere.measured
    assert rising.holds
    fine = experiment.result(
        made_up(experiment, lambda m: m.noise_budget + 9 * isinstance(m, GeometryAligned))
    )
    assert all(finding.holds for finding in fine.findings)


def test_leakage_that_does_not_grow_is_named():
    experiment = EXPERIMENTS["table-leakage"](seeds=(0, 1))
    first, *later = experiment.result(made_up(experiment, lambda m: 3.0)).findings
    assert first.holds
    assert [finding.holds for finding in later] == [False] * len(STEPS)


def test_the_trade_off_is_held_against_uniform_noise():
    experiment = EXPERIMENTS["fig-tradeoff"](seeds=(0,))

    def rmse(mechanism):
        return 200 - getattr(mechanism, "tradeoff", 60)

    first, second = experiment.result(made_up(experiment, rmse)).findings
    assert first.holds
    assert not second.holds  # ρ = 100 gives 100 m, uniform 140 m


# ---- Settings


@pytest.mark.parametrize(
    ("names", "settings", "parameter"),
    [
        (["table-nothing"], {}, "names"),
        (["fig-budget"], {"colour": "red"}, "colour"),
        (["fig-budget"], {"budgets": "1,x"}, "budgets"),
        (["fig-budget"], {"budgets": ","}, "budgets"),
        (["fig-budget"], {"rounds": "1,2"}, "rounds"),
        (["fig-budget"], {"rounds": "2.5"}, "rounds"),
        (["fig-budget"], {"rounds": "1"}, "rounds"),
        (["fig-budget"], {"seeds": "1,1"}, "seeds"),
        (["fig-budget"], {"seeds": "-1"}, "seeds"),
    ],
)
def test_wrong_settings_are_named(names, settings, parameter):
    with pytest.raises(ConfigurationError) as raised:
        experiments.chosen(names, settings=settings)
    assert raised.value.parameter == parameter


def test_settings_reach_those_who_have_them():
    chosen = {one.name: one for one in experiments.chosen(["all"], settings={"budgets": "1,2"})}
    assert chosen["fig-budget"].budgets == chosen["fig-tradeoff"].budgets == (1.0, 2.0)
    assert chosen["table-leakage"] == EXPERIMENTS["table-leakage"]()
    assert experiments.chosen(["fig-model", "headline"], settings={"users": "7"})[1].users == 7


# ---- Remembering


def test_outcomes_are_found_by_settings(tmp_path):
    store = Store(tmp_path)
    assert store.load(Square(3)) is None
    store.save(Square(3), Square(3).run())
    assert store.load(Square(3))["square"] == 9
    assert store.load(Square(4)) is None


def test_every_setting_of_a_trial_counts():
    trial = Trial(0, NoNoise(), DEFAULT)
    others = [
        replace(trial, seed=1),
        replace(trial, mechanism=NoNoise(clip=2.0)),
        replace(trial, step=FLOOR_0),
        replace(trial, rounds=100),
        replace(trial, users=50),
        replace(trial, powers=(1.0,)),
    ]
    assert len({tasks.key(task) for task in [trial, *others]}) == 7
    assert tasks.key(trial) == tasks.key(Trial(0, NoNoise(), DEFAULT))


_DECIDES = (
    "model/radio_map.py", "privacy/mechanisms/aligned.py", "federation/steps.py",
    "attacks/centroid.py", "_kernels/links.py", "paper/trials.py", "_util/streams.py",
)  # fmt: skip
_SHOWS = ("cli/__init__.py", "figures/maps.py", "reports/reproduction.py", "web/routes.py")


def test_code_that_decides_results_counts_and_code_that_shows_them_does_not(tmp_path):
    root = tmp_path / "veilmap"
    shutil.copytree(Path(tasks.__file__).parents[1], root)
    source = root / "paper" / "trials.py"

    def digest():
        tasks.code_version.cache_clear()
        return tasks.code_version(source, root)

    before = digest()
    for name in (*_DECIDES, *_SHOWS):
        text = (root / name).read_text()
        (root / name).write_text(text + "\n# changed\n")
        assert (digest() != before) == (name in _DECIDES), name
        (root / name).write_text(text)
    tasks.code_version.cache_clear()


def test_a_damaged_file_is_named(tmp_path):
    store = Store(tmp_path)
    store.save(Square(3), Square(3).run())
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:40])
    with pytest.raises(DataError):
        store.load(Square(3))


# ---- Running


@pytest.mark.parametrize("workers", [1, 2])
def test_tasks_run_once_each_and_on_several_processes(tmp_path, workers):
    store = Store(tmp_path)
    plan = TaskPlan.of([Square(1), Square(2), Square(1), Square(3)], store)
    assert len(plan.left) == 3
    seen = []
    outcomes = running.run(plan, store, workers=workers, on_done=seen.append)
    assert {task.number: float(o["square"]) for task, o in outcomes.items()} == {1: 1, 2: 4, 3: 9}
    assert sorted(seen, key=lambda task: task.number) == [Square(1), Square(2), Square(3)]
    here = {int(o["process"]) for o in outcomes.values()} == {os.getpid()}
    assert here == (workers == 1)


@pytest.mark.parametrize("workers", [1, 2])
def test_work_that_was_stopped_goes_on_where_it_was(tmp_path, workers):
    store = Store(tmp_path)
    everything = [Square(number) for number in range(6)]

    def stop(task):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        running.run(TaskPlan.of(everything, store), store, workers=workers, on_done=stop)
    plan = TaskPlan.of(everything, store)
    assert len(plan.done) >= 1
    outcomes = running.run(plan, store, workers=1)
    assert sorted(float(o["square"]) for o in outcomes.values()) == [0, 1, 4, 9, 16, 25]


def test_a_worker_that_dies_is_reported_in_one_line(tmp_path):
    store = Store(tmp_path)
    plan = TaskPlan.of([Dies(), Square(1)], store)
    with pytest.raises(ConfigurationError) as raised:
        running.run(plan, store, workers=2)
    assert raised.value.parameter == "workers"


def test_the_environment_is_as_before_after_a_run(tmp_path, monkeypatch):
    monkeypatch.setenv("VEILMAP_THREADS", "7")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    store = Store(tmp_path)
    running.run(TaskPlan.of([Square(1), Square(2)], store), store, workers=2)
    assert os.environ["VEILMAP_THREADS"] == "7"
    assert "OMP_NUM_THREADS" not in os.environ


# ---- Reporting


def test_spread_is_the_mean_and_the_sample_deviation():
    spread = Spread.of([1.0, 2.0, 6.0])
    assert spread.mean == 3.0
    assert spread.deviation == pytest.approx(np.std([1, 2, 6], ddof=1))
    assert str(spread) == "3.0 ± 2.6"
    assert str(Spread((2.345,), digits=2)) == "2.35" or str(Spread((2.345,), digits=2)) == "2.34"


def small_result():
    line = Line("a", np.array([1.0, 2.0]), np.array([3.0, 4.0]))
    picture = Curves("toy", "A <toy> picture", (Panel("p", "x (m)", "y (dB)", (line,)),))
    table = Table("T & t", ("a", "b"), (("<x>", Spread((1.0, 2.0))), ("y", 2.5)))
    return Result(
        "toy", "A toy", "It shows <nothing>.", (table,), (picture,),
        (Finding("Up is up.", True, "1 of 1"), Finding("Down is up.", False, "0 of 1")),
    )  # fmt: skip


def about(**other):
    settings = {"command": "veilmap reproduce toy", "seconds": 3.0, "computed": 2,
                "remembered": 1, "workers": 2}  # fmt: skip
    return reproduction.about(**settings | other)


def test_reports_hold_tables_pictures_and_findings(tmp_path):
    written = reproduction.write([small_result()], about(), tmp_path, "toy")
    assert [path.name for path in written] == ["toy.md", "toy.html", "toy.png"]
    text = (tmp_path / "toy.md").read_text()
    assert "| <x> | 1.5 ± 0.7 |" in text
    assert "(figures/toy.png)" in text
    assert "- ✗ Down is up. **Does not hold**: 0 of 1." in text
    page = (tmp_path / "toy.html").read_text()
    assert "&lt;x&gt;" in page
    assert "T &amp; t" in page
    assert 'src="data:image/png;base64,' in page
    assert "<code>veilmap reproduce toy</code>" in page


@uses_quick
def test_the_page_asks_for_nothing_from_outside(quick, tmp_path):
    _, _, results = quick
    reproduction.write(results, about(quick=True), tmp_path, "report")
    page = (tmp_path / "report.html").read_text()
    assert not re.findall(r"(?:src|href)\s*=\s*[\"'](?!data:image/png|#)", page)
    assert "http:" not in page
    assert "https:" not in page
    assert "Quick settings" in page
    for name in EXPERIMENTS:
        assert f'id="{name}"' in page


def test_numbers_in_json_are_numbers(tmp_path):
    content = json.loads(json.dumps(reproduction.as_dict([small_result()])))
    rows = content["experiments"][0]["tables"][0]["rows"]
    assert rows[0][1] == {
        "mean": 1.5,
        "deviation": pytest.approx(0.7071, abs=1e-4),
        "values": [1.0, 2.0],
    }
    assert rows[1][1] == 2.5


def test_maps_and_side_views_are_drawn():
    from veilmap import Grid

    grid = Grid(3.0, (4, 5))
    panel = MapPanel(
        "p", np.arange(20.0).reshape(4, 5), np.array([3.0, 3.0]), {"attacker": np.array([9.0, 6.0])}
    )
    figure = figures.draw(Maps("m", "c", grid, "height (m)", ((panel, panel), (panel, panel))))
    assert figure.axes[-1].get_ylabel() == "height (m)"
    cells = np.linspace(0, 9, 4)
    view = SideView(
        "s", "c", "t", cells, np.full(4, 3.0), np.array([0.0, 9.0, 2.0, 0.0]), cells + 1,
        np.ones(4), ((0.0, 1.0), (9.0, 10.0)),
    )  # fmt: skip
    figure = figures.draw(view)
    assert [axes.get_ylabel() for axes in figure.axes] == ["height (m)", "share clear"]
    with pytest.raises(TypeError, match="int"):
        figures.draw(3)


# ---- The command


def veilmap(*arguments, **options):
    command = [sys.executable, "-m", "veilmap.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def test_without_a_name_the_command_lists_what_there_is():
    listed = veilmap("reproduce")
    assert listed.returncode == 0
    for name in EXPERIMENTS:
        assert name in listed.stdout


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["nothing"], "'nothing'"),
        (["fig-model", "--set", "budgets"], "NAME=VALUE"),
        (["fig-model", "--set", "budgets=1"], "'budgets'"),
        (["fig-model", "--seeds", "a"], "seeds"),
        (["fig-model", "--workers", "0"], "'--workers'"),
    ],
)
def test_mistakes_are_one_line_and_nothing_is_written(tmp_path, arguments, complaint):
    done = veilmap("reproduce", *arguments, "--out", tmp_path / "out", cwd=tmp_path)
    assert done.returncode == 2
    assert complaint in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_killed_command_goes_on_and_ends_the_same(tmp_path):
    arguments = ["reproduce", "table-leakage", "--quick", "--workers", "1"]
    whole = veilmap(*arguments, "--out", tmp_path / "a", "--json", tmp_path / "a.json")
    assert whole.returncode == 0, whole.stderr
    command = [sys.executable, "-m", "veilmap.cli", *arguments, "--out", str(tmp_path / "b")]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    computed = tmp_path / "b" / "computed"
    deadline = time.monotonic() + 120
    while not list(computed.glob("trial-*.npz")) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    kept = len(list(computed.glob("trial-*.npz")))
    assert kept >= 1
    again = veilmap(*arguments, "--out", tmp_path / "b", "--json", tmp_path / "b.json")
    assert again.returncode == 0, again.stderr
    assert f"{kept} tasks remembered" in " ".join(again.stdout.split())
    assert (tmp_path / "b.json").read_text() == (tmp_path / "a.json").read_text()


def test_every_experiment_is_explained_in_the_docs():
    text = (Path(__file__).parents[2] / "docs" / "reproduction.md").read_text()
    for name in EXPERIMENTS:
        assert f"veilmap reproduce {name}" in text, name


# Where tests run in a shell's background, it has told them to ignore Ctrl-C.
HEARS_CTRL_C = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from veilmap.cli import main
main()
"""


def test_ctrl_c_stops_at_once_with_one_line(tmp_path):
    command = [sys.executable, "-c", HEARS_CTRL_C, "reproduce", "fig-budget", "--workers", "2"]
    process = subprocess.Popen(
        [*command, "--out", str(tmp_path / "out")],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not [*tmp_path.glob("out/computed/*")]:
        time.sleep(0.2)  # until the workers are at work, however busy the machine is
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: parent and workers
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.endswith("veilmap: stopped\n")  # perhaps after what was being computed
    assert "Traceback" not in errors
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and _alive(process.pid):
        time.sleep(0.1)
    assert not _alive(process.pid)


def _alive(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
