import json
import math
import shutil

import numpy as np
import pytest

import flat
import veilmap as vm
from commands import run as command
from veilmap.attacks import PriorOnly, WeightedCentroid
from veilmap.auditing.audit import battery
from veilmap.auditing.measured import quantile, root_mean_square, share
from veilmap.errors import ConfigurationError
from veilmap.federation import Run
from veilmap.federation.public import write_stations


@pytest.fixture(scope="module")
def town():
    scene = vm.Scene.synthetic(5, size=90.0, buildings=4, base_stations=40)
    return scene, scene.measure(users=12, links_per_user=30, seed=0)


@pytest.fixture(scope="module")
def trained(town):
    scene, data = town
    return vm.train(
        data,
        scene.grid,
        mechanism=vm.GeometryAligned(noise_budget=20),
        rounds=12,
        seed=0,
        recording=vm.Recording(keep_uploads="all", test=data),
    )


def test_an_audit_scores_every_attack_in_every_round(town, trained):
    _, data = town
    audit = vm.audit(trained, data)
    assert audit.rounds == (0, 3, 6, 8, 11)
    names = {attack.name for attack in battery(trained.transcript)}
    assert {score.attack for score in audit.scores} == names
    assert len(audit.scores) == len(names) * 6
    assert audit.mae_db == trained.history[-1].mae_db
    assert math.isnan(audit.epsilon)
    assert "obfuscation" in audit.promise
    best = audit.strongest
    assert best.median.value == min(
        score.median.value for score in audit.scores if score.attack != "prior only"
    )
    assert best.median.value < 0.5 * audit.prior.median.value
    for score in audit.scores:
        for measured in (score.rmse, score.median, score.within_95, *score.found.values()):
            assert measured.low <= measured.value <= measured.high
        assert score.median.value <= score.within_95.value
    json.loads(json.dumps(audit.as_dict(), allow_nan=False))


def test_an_audit_of_some_users_is_that_of_all_for_them(town, trained):
    _, data = town
    everybody, some = vm.audit(trained, data), vm.audit(trained, data, users=5)
    assert len(some.truth) == 5
    for name, estimates in some.estimates.items():
        for when, placed in estimates.placed.items():
            assert len(placed.clients) == 5
            whole = everybody.estimates[name].placed[when]
            rows = [whole.clients.index(client) for client in placed.clients]
            np.testing.assert_allclose(placed.xy, whole.xy[rows], atol=1e-6)


def test_in_sums_those_who_are_not_attacked_still_count(town):
    scene, data = town
    run = vm.train(
        data,
        scene.grid,
        rounds=8,
        seed=0,
        server_sees="sums",
        participation=vm.Participation(share=0.5),
        recording=vm.Recording(keep_uploads="all"),
    )
    everybody, some = (
        vm.audit(run, data, rounds=range(8), users=users).estimates["differencing"].placed["all"]
        for users in (None, 4)
    )
    assert len(some.clients) == 4
    rows = [everybody.clients.index(client) for client in some.clients]
    np.testing.assert_allclose(some.xy, everybody.xy[rows], atol=1e-3)
    with pytest.raises(ConfigurationError) as caught:
        vm.audit(run, data, users=0)
    assert caught.value.parameter == "users"


def test_an_audit_of_sums_uses_what_works_on_sums(town):
    scene, data = town
    run = vm.train(
        data,
        scene.grid,
        mechanism=vm.AggregateGaussian(delta=1e-3),
        rounds=4,
        seed=0,
        recording=vm.Recording(keep_uploads="all"),
    )
    audit = vm.audit(run, data, rounds=[0, 3])
    assert {score.attack for score in audit.scores} == {"prior only", "differencing"}
    assert audit.closest_rmse > 0.8


@pytest.mark.parametrize("seed", [0, None])
def test_only_a_run_without_a_seed_has_a_promise(town, seed):
    scene, data = town
    run = vm.train(
        data,
        scene.grid,
        mechanism=vm.AggregateGaussian(delta=1e-3),
        rounds=2,
        seed=seed,
        recording=vm.Recording(keep_uploads="all"),
    )
    audit = vm.audit(run, data, attacks=[PriorOnly()], battery=False)
    assert audit.study == audit.as_dict()["study"] == "Study: not for publication"
    if seed is None:
        assert audit.epsilon == audit.as_dict()["epsilon"] == pytest.approx(8.0)
        assert audit.promise.startswith("(ε, δ) = (8.00, 0.001) for one user's contributions")
        return
    assert math.isnan(audit.epsilon)
    assert audit.as_dict()["epsilon"] is None
    assert "the noise is computable from the seed" in audit.promise
    assert "ε" not in audit.promise


def test_where_a_run_names_no_base_stations_the_truth_does(town):
    scene, data = town
    options = {"mechanism": vm.AggregateGaussian(delta=1e-3), "rounds": 2, "seed": 0,
               "keep_uploads": "all"}  # fmt: skip
    silent = flat.train(data, scene.grid, **options)
    told = flat.train(data, scene.grid, stations=data.stations, **options)
    assert len(silent.transcript.base_stations) == 0
    audits = [vm.audit(run, data) for run in (silent, told)]
    assert audits[0].scores == audits[1].scores
    places = dict(zip(data.users.tolist(), data.mean_positions(), strict=True))
    with pytest.raises(ConfigurationError) as caught:
        vm.audit(silent, places)
    assert caught.value.parameter == "stations"


def test_scores_are_what_their_names_say():
    errors = np.array([3.0, 4.0, 12.0, 60.0, 101.0])
    assert root_mean_square(errors).value == pytest.approx(math.sqrt(np.mean(errors**2)))
    assert quantile(errors, 0.5).value == 12.0
    assert share(errors <= 50).value == pytest.approx(0.6)


def test_intervals_hold_the_truth_as_often_as_they_say():
    rng = np.random.default_rng(0)
    trials, users = 400, 60
    samples = rng.rayleigh(10.0, (trials, users))
    truths = {
        "rms": math.sqrt(2) * 10,
        "median": 10 * math.sqrt(2 * math.log(2)),
        "within": 1 - math.exp(-(12**2) / 200),
    }
    measures = {
        "rms": [root_mean_square(s) for s in samples],
        "median": [quantile(s, 0.5) for s in samples],
        "within": [share(s <= 12) for s in samples],
    }
    for name, truth in truths.items():
        held = np.mean([m.low <= truth <= m.high for m in measures[name]])
        # Five deviations of a share of 95 % in 400 trials.
        assert held > 0.95 - 5 * math.sqrt(0.95 * 0.05 / trials)


def test_wrong_audits_are_refused(town, trained):
    scene, data = town
    kept_nothing = vm.train(data, scene.grid, rounds=1)
    for parameter, run, truth, options in (
        ("rounds", kept_nothing, data, {}),
        ("rounds", trained, data, {"rounds": [98]}),
        ("truth", trained, {0: np.zeros(2)}, {"attacks": [PriorOnly()], "battery": False}),
    ):
        with pytest.raises(ConfigurationError) as caught:
            vm.audit(run, truth, **options)
        assert caught.value.parameter == parameter


def test_chosen_attacks_and_positions_are_enough(town, trained):
    _, data = town
    truth = dict(zip(data.users.tolist(), data.mean_positions(), strict=True))
    audit = vm.audit(trained, truth, attacks=[WeightedCentroid(2)], battery=False, rounds=[2])
    assert {score.attack for score in audit.scores} == {"centroid ν = 2", "prior only"}
    assert audit.score("centroid ν = 2", 2).users == 12


@pytest.fixture(scope="module")
def folders(tmp_path_factory, town):
    """Two runs made by the command line: single uploads, and sums with a promise."""
    scene, data = town
    place = tmp_path_factory.mktemp("runs")
    data.save(place / "links.parquet")
    scene.measure(users=8, links_per_user=20, seed=1).save(place / "test.parquet")
    write_stations(data.stations, place / "stations.csv")
    files = [str(place / "links.parquet"), "--test", str(place / "test.parquet"),
             "--area", "0,0,90,90", "--stations", str(place / "stations.csv")]  # fmt: skip
    shared = ["train", *files, "--rounds", "6", "--seed", "1", "--keep-uploads", "1,3,6"]
    for name, options in {
        "aligned": ["--mechanism", "aligned", "--budget", "20"],
        "aggregate": ["--mechanism", "aggregate", "--epsilon", "6", "--delta", "1e-3"],
        "unkept": ["--mechanism", "none", "--keep-uploads", ""],
    }.items():
        vm_cli(*shared, *options, "--out", str(place / name))
    return place


def vm_cli(*arguments):
    from veilmap.cli import main

    with pytest.raises(SystemExit) as end:
        main(list(arguments))
    assert end.value.code == 0


def test_a_run_comes_back_from_its_folder(folders):
    run = Run.load(folders / "aggregate")
    assert run.transcript.server_sees == "sums"
    assert sorted(run.transcript.rounds) == [0, 2, 5]
    assert math.isnan(run.history[-1].epsilon)  # it has a seed
    assert math.isnan(run.history[-1].mae_db)
    assert Run.load(folders / "aggregate", study=True).history[-1].mae_db > 0
    assert run.transcript.mechanism.name == "aggregate"
    assert Run.load(folders / "aligned").transcript.uploads(2).uploads.shape[0] == 12


def test_the_audit_command_writes_tables_figures_and_json(capsys, folders):
    code, out, _ = command(capsys, "audit", str(folders / "aligned"))
    assert code == 0
    said = " ".join(out.split())
    assert "no (ε, δ) guarantee" in said
    written = {path.name for path in (folders / "aligned" / "audit").iterdir()}
    assert written == {"audit.json", "errors.png", "posterior.png"}
    content = json.loads((folders / "aligned" / "audit" / "audit.json").read_text())
    assert content["rounds"] == [1, 3, 6]
    assert content["map_mae_db"] > 0
    assert content["verdict"]["finding"] in said
    assert "study" not in content


def test_an_audit_of_a_run_with_a_guarantee_is_marked_and_kept_apart(capsys, folders, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(folders / "aggregate", run)
    shutil.copytree(folders / "aggregate.study", tmp_path / "run.study")
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    code, out, _ = command(capsys, "audit", str(run))
    assert code == 0
    assert out.startswith("Study: not for publication")
    assert "not known" not in out
    written = {path.name for path in (tmp_path / "run.study" / "audit").iterdir()}
    assert written == {"audit.json", "errors.png", "posterior.png"}
    content = json.loads((tmp_path / "run.study" / "audit" / "audit.json").read_text())
    assert content["study"] == "Study: not for publication"
    assert content["epsilon"] is None
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before

    # Without its study nobody can tell the data from others of the same users.
    shutil.rmtree(tmp_path / "run.study")
    code, out, _ = command(capsys, "audit", str(run), "--data", str(folders / "links.parquet"))
    assert code == 0
    assert "is not known" in " ".join(out.split())
    assert (tmp_path / "run.study" / "README.txt").read_text().startswith("Study: not for publ")
    code, _, err = command(capsys, "audit", str(run), "--data", str(folders / "test.parquet"))
    assert code == 2
    assert "trained on other measurements" in err


def test_several_runs_are_compared(capsys, folders, tmp_path):
    code, out, _ = command(
        capsys, "audit", str(folders / "aligned"), str(folders / "aggregate"),
        "--rounds", "1,6", "--out", str(tmp_path / "both"), "--json", str(tmp_path / "all.json"),
    )  # fmt: skip
    assert code == 0
    assert "Map error against the strongest attack" in out
    assert (tmp_path / "both" / "tradeoff.png").exists()
    assert (tmp_path / "both" / "aligned" / "errors.png").exists()
    assert "aggregate, ε = 6, sums only" in json.loads((tmp_path / "all.json").read_text())


def test_runs_of_the_same_name_do_not_overwrite_each_other(capsys, folders, tmp_path):
    same = str(folders / "aggregate")
    code, _, _ = command(
        capsys, "audit", same, same, "--rounds", "1", "--out", str(tmp_path / "both"),
        "--json", str(tmp_path / "all.json"),
    )  # fmt: skip
    assert code == 0
    assert {path.name for path in (tmp_path / "both").iterdir()} == {
        "1-aggregate",
        "2-aggregate",
        "tradeoff.png",
    }
    assert len(json.loads((tmp_path / "all.json").read_text())) == 3  # two runs and the version


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "config.json"),
        (["{unkept}"], "keep_uploads"),
        (["{aligned}", "--rounds", "2"], "1, 3, 6"),
        (["{aligned}", "--rounds", "x"], "--rounds"),
        (["{aligned}", "--data", "{test}"], "trained on other measurements"),
    ],
)
def test_wrong_audit_commands_end_in_one_line(capsys, folders, arguments, message):
    names = {name: str(folders / name) for name in ("aligned", "unkept")}
    names["test"] = str(folders / "test.parquet")
    code, _, error = command(capsys, "audit", *(part.format(**names) for part in arguments))
    assert code == 2
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--mechanism", "aligned", "--epsilon", "8"], "GeometryAligned"),
        (["--mechanism", "none", "--delta", "1e-6"], "NoNoise"),
        (["--mechanism", "aggregate", "--delta", "0.1"], "δ = 0.1"),
        (["--mechanism", "aggregate", "--server-sees", "uploads"], "server_sees='sums'"),
        (["--mechanism", "aggregate", "--delta", "1e-3", "--dropout", "0.3"], "30%"),
        (["--mechanism", "none", "--budget", "3"], "--budget"),
        (["--server-sees", "sums", "--share", "0.1"], "cohort of 1"),
        (["--server-sees", "nothing"], "'nothing'"),
    ],
)
def test_promises_that_cannot_be_kept_end_in_one_line(capsys, folders, tmp_path, options, message):
    out = tmp_path / "run"
    code, _, error = command(
        capsys, "train", str(folders / "links.parquet"), "--rounds", "2", "--out", str(out),
        "--area", "0,0,90,90", "--stations", str(folders / "stations.csv"), *options,
    )  # fmt: skip
    assert code == 2
    assert message in error
    assert error.count("\n") == 1
    assert not out.exists()
