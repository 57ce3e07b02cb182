import shlex
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

import veilmap as vm
from veilmap import cli
from veilmap.federation.config import RunConfig
from veilmap.runs import command
from veilmap.runs.command import NewTraining, kept_rounds
from veilmap.runs.opened import OpenRun
from veilmap.runs.source import Source
from veilmap.scenes.scene import Scene
from veilmap.web.jobs import Jobs
from webs import client_of, service_of, trained, until

TINY = Source(None, None, city=3, users=6, cell_size=15.0)


config_of = RunConfig.load


def study_of(run):
    """The folder with the whole configuration of a run."""
    study = run.with_name(f"{run.name}.study")
    return study if study.exists() else run


def source_of(run):
    return Source.of(RunConfig.load(run, "study.json" if run.suffix == ".study" else "config.json"))


def done(*arguments):
    with pytest.raises(SystemExit) as end:
        cli.main([str(argument) for argument in arguments])
    assert end.value.code == 0


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    """A file of test data, in a folder whose name a shell would split."""
    path = tmp_path_factory.mktemp("some data") / "a few's.parquet"
    Scene.synthetic(3, cell_size=15.0).measure(users=3, links_per_user=20, seed=7).save(path)
    return path


def tiny(few):
    return Source(None, few, city=3, users=6, cell_size=15.0)


@pytest.mark.parametrize(
    ("mechanism", "parameters", "sums"),
    [
        ("none", {}, True),
        ("uniform", {"noise_budget": 12.3456789, "clip": 0.1 + 0.2}, False),
        ("aligned", {"noise_budget": 1234.5678, "tradeoff": 1e-7, "clip": 123456.75}, False),
        ("aggregate", {"epsilon": 7.00000001}, False),
    ],
)
def test_a_plan_becomes_the_run_that_was_asked_for(few, tmp_path, mechanism, parameters, sums):
    plan = NewTraining(tiny(few), mechanism, parameters, rounds=2, seed=7, sums=sums)
    done(*plan.arguments(tmp_path / "run"))
    config = config_of(tmp_path / "run")
    asked = plan.mechanism_checked()
    assert {name: getattr(config.mechanism, name) for name in parameters} == parameters
    assert type(config.mechanism) is type(asked)
    assert (config.rounds, config.seed, config.users) == (2, 7, 6)
    assert config.server_sees == ("sums" if sums or asked.needs_sums else "uploads")
    whole = tmp_path / ("run.study" if mechanism == "aggregate" else "run")
    assert source_of(whole) == tiny(few)
    assert len([*(tmp_path / "run" / "transcript").iterdir()]) == 2


@pytest.mark.parametrize(
    "options",
    [
        ["--mechanism", "aligned", "--budget", "12.3456789", "--tradeoff", "3"],
        ["--mechanism", "uniform", "--server-sees", "sums", "--share", "0.6666666667"],
        ["--mechanism", "aggregate", "--epsilon", "6", "--delta", "0.00123456789",
         "--allow-missing", "0.4", "--dropout", "0.2"],
        ["--mechanism", "aggregate", "--delta", "0.001", "--contribute", "0.75", "--share",
         "0.3333333333333333", "--in-turns"],
        ["--mechanism", "none", "--degrees", "3", "--calibrate", "stations", "--late", "0.1"],
    ],
    ids=lambda options: options[1],
)  # fmt: skip
def test_the_command_that_is_shown_trains_the_same(few, tmp_path, options):
    first = trained(tmp_path / "first", *options, "--test", str(few))
    shown = shlex.split(command.command(config_of(first), source_of(study_of(first)), [0]))
    assert shown[:2] == ["veilmap", "train"]
    done(*shown[1:], "--out", tmp_path / "second")
    assert config_of(tmp_path / "second") == config_of(first)


def test_a_run_like_another_is_trained_as_that_one_was(few, tmp_path):
    first = trained(tmp_path / "first", "--share", "0.5", "--calibrate", "stations", "--test",
                    str(few), "--degrees", "3")  # fmt: skip
    extras = command.model_options(config_of(first), source_of(study_of(first)))
    plan = NewTraining(source_of(study_of(first)), "none", {}, 4, 1, extras=extras)
    done(*plan.arguments(tmp_path / "second"))
    one, two = config_of(first), config_of(tmp_path / "second")
    assert two.mechanism != one.mechanism
    assert replace(two, mechanism=one.mechanism) == one


def test_measurements_of_a_file_are_named(few, tmp_path):
    done("train", few, "--cell-size", "15", "--rounds", "2", "--out", tmp_path / "run")
    config = config_of(tmp_path / "run")
    shown = command.command(config, source_of(tmp_path / "run"), [])
    assert shlex.split(shown)[2] == str(few)
    replace(config, source=None).save(tmp_path / "run")
    assert OpenRun(tmp_path / "run").command is None


@pytest.mark.parametrize(
    ("rounds", "kept"),
    [(1, [1]), (2, [1, 2]), (4, [1, 2, 3, 4]), (5, [1, 2, 3, 4, 5]), (6, [1, 2, 3, 5, 6]),
     (100, [1, 26, 51, 75, 100]), (1000, [1, 251, 501, 750, 1000])],
)  # fmt: skip
def test_kept_rounds_go_from_the_first_to_the_last(rounds, kept):
    assert kept_rounds(rounds) == kept


def test_runs_that_are_started_at_once_have_folders_of_their_own(tmp_path, monkeypatch):
    service = service_of([], tmp_path)
    free = service.library.free_folder

    def slowly(name):
        path = free(name)
        time.sleep(0.02)
        return path

    monkeypatch.setattr(service.library, "free_folder", slowly)
    found = []
    starts = [
        threading.Thread(
            target=lambda: found.append(service.start(NewTraining(TINY, "none", {}, 2, 1)).id)
        )
        for _ in range(6)
    ]
    for start in starts:
        start.start()
    for start in starts:
        start.join()
    assert len(set(found)) == 6


def test_the_queue_has_an_end(tmp_path):
    client = client_of(service_of([], tmp_path))
    answers = [client.post("/api/runs", json={"rounds": 2}) for _ in range(21)]
    assert {answer.status_code for answer in answers[:20]} == {202}
    assert "20 jobs wait already" in answers[20].json()["error"]
    runs = client.get("/api/state").json()["runs"]
    assert [run["state"] for run in runs] == ["waiting"] * 20
    stopped = client.post(f"/api/runs/{runs[0]['id']}/stop").json()
    assert stopped["state"] == "stopped"
    assert client.post("/api/runs", json={"rounds": 2}).status_code == 202


def test_a_job_that_cannot_begin_fails_and_others_go_on(tmp_path):
    folder = tmp_path / "logs"
    jobs = Jobs(folder)  # which is not there
    try:
        first = jobs.submit("train", "a", ["--version"])
        until(lambda: not first.alive, "the first has failed")
        assert first.state == "failed"
        assert "logs" in first.problem
        folder.mkdir()
        second = jobs.submit("train", "a", ["--version"])
        third = jobs.submit("train", "b", ["train", "--rounds", "0"])
        until(lambda: not third.alive, "both have ended")
        assert second.state == "done"
        assert third.state == "failed"
        assert "--rounds" in third.problem
    finally:
        jobs.close()


def test_versions_are_those_of_the_package(tmp_path):
    client = client_of(service_of([], tmp_path))
    assert client.get("/api/openapi.json").json()["info"]["version"] == vm.__version__


def test_no_name_of_a_file_becomes_an_option():
    hostile = Path("--out=elsewhere")
    source = Source(hostile, hostile, city=0, users=1, cell_size=15.0, stations=hostile)
    words = command.source_options(source)
    assert {word for word in words if word.startswith("-")} == {
        "--stations", "--test", "--cell-size",
    }  # fmt: skip
    assert words.count("./--out=elsewhere") == 3
