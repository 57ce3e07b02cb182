"""Training under a guarantee: what is opened, what it costs, and what stops it."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

import flat
import veilmap as vm
from refusals import refused
from sealing import reseal
from veilmap.errors import ConfigurationError, DataError, PrivacyError, RunFolderError
from veilmap.federation import SeenSum
from veilmap.federation.run_folder import RunFolder

PROMISE = vm.AggregateGaussian(epsilon=8.0, delta=1e-3)


@pytest.fixture(scope="module")
def town():
    scene = vm.Scene.synthetic(5, size=90.0, buildings=4, base_stations=40)
    return scene, scene.measure(users=12, links_per_user=30, seed=0)


def test_the_promise_is_spent_over_all_rounds(town):
    scene, data = town
    run = vm.train(
        data,
        scene.grid,
        mechanism=PROMISE,
        rounds=6,
        seed=0,
        recording=vm.Recording(keep_uploads="all"),
    )
    spent = [row.epsilon for row in run.history]
    assert spent == sorted(spent)
    assert spent[-1] == pytest.approx(8.0, rel=1e-6)
    assert spent[-1] <= 8.0
    assert run.stopped == ""
    for seen in run.transcript.rounds.values():
        assert isinstance(seen, SeenSum)
        assert seen.height_gradient.shape == (scene.grid.cells,)
        assert seen.weight == 12  # users count alike: nobody says how many links it has


def test_the_opened_sum_is_the_mean_of_filtered_clipped_gradients_and_noise(town):
    scene, data = town
    quiet = vm.AggregateGaussian(
        epsilon=1e9, delta=1e-3, noise_multiplier=0.02, clip=2.0, theta_clip=1e3, levels=100_000
    )
    run = vm.train(
        data,
        scene.grid,
        mechanism=quiet,
        rounds=1,
        seed=0,
        recording=vm.Recording(keep_uploads="all"),
    )
    seen = run.transcript.rounds[0]
    raw = vm.local_gradients(seen.broadcast.radio_map, data)
    limit = 2.0 * np.sqrt(1 - 0.2**2)
    width, shape = 3.0 / np.sqrt(2), scene.grid.shape  # half of the first round's filter
    images = raw.height_gradient.reshape(-1, *shape)
    gradients = np.array([gaussian_filter(image, width) for image in images]).reshape(12, -1)
    norms = np.linalg.norm(gradients, axis=1)
    assert (norms > limit).any()
    assert (norms < limit).any()
    clipped = gradients * np.minimum(1, limit / norms)[:, None]
    # Noise of 0.02 · C on the sum, at most 1/√(1 − dropout) more, over 12 users.
    deviation = 0.02 * 2.0 / 12 / np.sqrt(0.9)
    assert np.abs(seen.height_gradient - clipped.mean(axis=0)).max() < 6 * deviation
    # θ's share is scaled by C · 0.2 / 1,000 = 1/1,000, so that its noise is that much larger.
    assert (
        np.abs(seen.theta_gradient - raw.theta_gradient.mean(axis=0)).max() < 60 * deviation * 1000
    )


def test_training_stops_before_the_budget_is_exceeded(town, tmp_path):
    scene, data = town
    fixed = vm.AggregateGaussian(epsilon=8.0, delta=1e-3, noise_multiplier=2.0)
    run = vm.train(
        data,
        scene.grid,
        mechanism=fixed,
        rounds=50,
        seed=0,
        recording=vm.Recording(out=tmp_path / "run"),
    )
    played = len(run.history)
    assert 1 < played < 50
    assert run.history[-1].epsilon <= 8.0
    assert vm.accounting.epsilon(fixed, played + 1, 1e-3) > 8.0
    assert f"stopped after {played} of 50 rounds" in run.stopped
    assert (tmp_path / "run" / "radio_map.nc").exists()
    again = vm.train(
        data,
        scene.grid,
        mechanism=fixed,
        rounds=50,
        seed=0,
        recording=vm.Recording(out=tmp_path / "run", resume=True),
    )
    assert len(again.history) == played
    assert again.stopped == run.stopped
    loud = vm.AggregateGaussian(epsilon=0.1, delta=1e-3, noise_multiplier=0.5)
    with refused(ConfigurationError, "round 1", "ε = 0.1", "noise_multiplier"):
        vm.train(
            data,
            scene.grid,
            mechanism=loud,
            rounds=2,
            recording=vm.Recording(out=tmp_path / "none"),
        )
    assert not (tmp_path / "none").exists()


def test_a_sum_that_misses_too_much_noise_stays_shut(town):
    scene, data = town
    mechanism = vm.AggregateGaussian(epsilon=8.0, delta=1e-3, dropout=0.2)
    run = vm.train(
        data,
        scene.grid,
        mechanism=mechanism,
        rounds=30,
        seed=0,
        participation=vm.Participation(dropout=0.2),
        recording=vm.Recording(keep_uploads="all"),
    )
    shut = [row for row in run.history if not row.opened]
    assert shut
    assert all(row.clients < 0.8 * (row.clients + row.dropped) for row in shut)
    opened = sum(row.opened for row in run.history)
    assert sorted(run.transcript.rounds) == [row.round for row in run.history if row.opened]
    # What stays shut costs nothing, and users pay only for sums they were in.
    ceiling = vm.accounting.epsilon(
        vm.accounting.calibrated(mechanism, 30), opened, mechanism.delta
    )
    assert run.history[-1].epsilon <= ceiling < 8.0


TURNS = vm.Participation(share=1 / 3, in_turns=True)


def test_uploads_that_may_have_been_sent_are_charged(town, tmp_path):
    """Late uploads are seen too, and those of a round of which some never came."""
    scene, data = town
    late = replace(TURNS, late=0.05, dropout=0.05)
    run = vm.train(
        data, scene.grid, mechanism=vm.PrivUnit(epsilon=4, delta=1e-3), rounds=6, seed=0,
        participation=late, recording=vm.Recording(keep_uploads="all", out=tmp_path / "run"),
    )  # fmt: skip
    assert run.history[-1].epsilon == pytest.approx(4, rel=0.01)
    assert run.history[-1].epsilon <= 4
    # Everybody was asked twice, and not all answered in time.
    assert sum(row.clients for row in run.history) < 24
    spent = json.loads((tmp_path / "run" / "ledger.json").read_text())["spent"]
    assert sorted(spent) == [[user, 2] for user in range(12)]
    seen = run.transcript.rounds[0]
    assert np.abs(seen.uploads).max() <= 32
    assert (seen.weight == 1).all()


def test_shuffled_uploads_have_no_names_and_few_are_not_passed_on(town):
    scene, data = town
    settings = {"rounds": 3, "seed": 0, "server_sees": "shuffled"}
    settings["recording"] = vm.Recording(keep_uploads="all")
    wanted = vm.PrivUnit(epsilon=8, delta=1e-3)
    run = vm.train(data, scene.grid, mechanism=wanted, participation=TURNS, **settings)
    assert run.transcript.mechanism.among == 4  # of groups of four none may be missing
    assert all(isinstance(seen, SeenSum) for seen in run.transcript.rounds.values())
    assert run.history[-1].epsilon <= 8
    missing = replace(run.transcript.mechanism, among=5)
    shut = vm.train(data, scene.grid, mechanism=missing, participation=TURNS, **settings)
    assert not any(row.opened for row in shut.history)
    assert shut.history[-1].epsilon == 0
    with refused(ConfigurationError, parameter="keep_users"):
        settings["recording"] = vm.Recording(keep_uploads="all", keep_users={0})
        vm.train(data, scene.grid, mechanism=wanted, participation=TURNS, **settings)


def test_private_uploads_resume_to_the_same_bits_and_pay_once(town, tmp_path):
    scene, data = town
    settings = {"mechanism": vm.PrivUnit(epsilon=8, delta=1e-3), "rounds": 6, "seed": 1}
    settings |= {"grid": scene.grid, "participation": TURNS}
    whole = vm.train(data, **settings)
    out = tmp_path / "run"
    vm.train(data, **settings, recording=vm.Recording(out=out, checkpoint_every=1))
    for newer in sorted((out / "checkpoints").glob("*"))[1:]:
        newer.unlink()
    (out / "radio_map.nc").unlink()
    again = vm.train(data, **settings, recording=vm.Recording(out=out, resume=True))
    np.testing.assert_array_equal(again.radio_map.heights, whole.radio_map.heights)
    assert again.history[-1].epsilon == whole.history[-1].epsilon <= 8


def test_a_lone_answer_is_never_opened_in_sums(town):
    scene, data = town
    run = vm.train(
        data,
        scene.grid,
        server_sees="sums",
        rounds=40,
        seed=3,
        participation=vm.Participation(share=0.2),
        recording=vm.Recording(keep_uploads="all"),
    )
    assert min(len(seen.clients) for seen in run.transcript.rounds.values()) >= 2
    assert any(row.clients == 1 and not row.opened for row in run.history)


def interrupted(data, grid, out, **options):
    """A run that ends, as if killed, after seven rounds with its last checkpoint at five."""

    class Killed(Exception):  # noqa: N818
        pass

    def on_round(row):
        if row.round == 6:
            raise Killed

    with pytest.raises(Killed):
        flat.train(
            data,
            grid,
            out=out,
            checkpoint_every=5,
            on_round=on_round,
            **options,
        )


def test_a_seeded_run_resumes_to_the_same_bits_and_pays_once(town, tmp_path):
    scene, data = town
    options = {"mechanism": PROMISE, "rounds": 10, "seed": 4}
    interrupted(data, scene.grid, tmp_path / "run", **options)
    resumed = flat.train(data, scene.grid, out=tmp_path / "run", resume=True, **options)
    straight = flat.train(data, scene.grid, **options)
    np.testing.assert_array_equal(resumed.radio_map.heights, straight.radio_map.heights)
    assert resumed.history[-1].epsilon == straight.history[-1].epsilon


def test_a_killed_run_with_fresh_noise_opens_no_sum_again_that_it_has_kept(town, tmp_path):
    scene, data = town
    options = {"mechanism": PROMISE, "rounds": 10}
    interrupted(data, scene.grid, tmp_path / "run", **options)
    ledger = json.loads((tmp_path / "run" / "ledger.json").read_text())
    assert dict(ledger["spent"]) == dict.fromkeys(range(12), 7)
    resumed = flat.train(data, scene.grid, out=tmp_path / "run", resume=True, **options)
    assert len(resumed.history) == 10
    assert not resumed.stopped
    assert resumed.history[-1].epsilon <= 8.0
    ledger = json.loads((tmp_path / "run" / "ledger.json").read_text())
    assert dict(ledger["spent"]) == dict.fromkeys(range(12), 10)


def test_a_resumed_run_with_fresh_noise_pays_for_what_it_opens_again(town, tmp_path, monkeypatch):
    scene, data = town
    options = {"mechanism": PROMISE, "rounds": 10}

    def killed(self, point):
        if point.state.round == 7:  # its sum is paid for and opened
            raise KeyboardInterrupt
        save(self, point)

    save = RunFolder.save_checkpoint
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(RunFolder, "save_checkpoint", killed)
        flat.train(data, scene.grid, out=tmp_path / "run", **options)
    resumed = flat.train(data, scene.grid, out=tmp_path / "run", resume=True, **options)
    # Round 7 was opened twice: one round fewer can be afforded.
    assert len(resumed.history) == 9
    assert "stopped after 9 of 10 rounds" in resumed.stopped
    assert resumed.history[-1].epsilon <= 8.0


@pytest.mark.parametrize("seed", [None, 4])
def test_a_checkpoint_of_another_run_does_not_go_on_beside_a_ledger(town, tmp_path, seed):
    scene, data = town
    options = {"mechanism": PROMISE, "rounds": 10, "seed": seed}
    for name in ("run", "other"):
        interrupted(data, scene.grid, tmp_path / name, **options)
    for file in (tmp_path / "other" / "checkpoints").iterdir():
        shutil.copy(file, tmp_path / "run" / "checkpoints" / file.name)
    with refused(PrivacyError, tmp_path / "run" / "ledger.json"):
        flat.train(data, scene.grid, out=tmp_path / "run", resume=True, **options)


def test_a_damaged_ledger_is_not_guessed(town, tmp_path):
    scene, data = town
    options = {"mechanism": PROMISE, "rounds": 10, "seed": 4}
    interrupted(data, scene.grid, tmp_path / "run", **options)
    (tmp_path / "run" / "ledger.json").write_text("{")
    with refused(RunFolderError, tmp_path / "run" / "ledger.json"):
        flat.train(data, scene.grid, out=tmp_path / "run", resume=True, **options)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"mechanism": vm.AggregateGaussian(delta=1 / 12)}, ["δ = 0.0833333", "12 users"]),
        ({"mechanism": PROMISE, "server_sees": "uploads"}, ["server_sees='sums'", "upload"]),
        ({"mechanism": PROMISE, "participation": vm.Participation(late=0.2)}, ["20%", "10%"]),
        ({"server_sees": "sums", "participation": vm.Participation(share=0.1)}, ["cohort of 1"]),
    ],
)
def test_settings_that_would_break_the_promise_are_refused(town, options, named):
    scene, data = town
    with refused(PrivacyError, *named):
        flat.train(data, scene.grid, rounds=2, **options)


@pytest.mark.parametrize(
    ("options", "parameter"),
    [
        ({"server_sees": "everything"}, "server_sees"),
        ({"server_sees": "sums", "keep_users": [1]}, "keep_users"),
    ],
)
def test_a_server_sees_uploads_or_sums(town, options, parameter):
    scene, data = town
    with refused(ConfigurationError, parameter=parameter):
        flat.train(data, scene.grid, rounds=2, **options)


# ---- What users have spent is known, or the run does not go on


def test_a_run_without_its_ledger_does_not_go_on(town, tmp_path):
    scene, data = town
    options = {"mechanism": PROMISE, "rounds": 10}
    interrupted(data, scene.grid, tmp_path / "run", **options)
    (tmp_path / "run" / "ledger.json").unlink()
    before = sorted((tmp_path / "run").rglob("*"))
    with refused(RunFolderError, tmp_path / "run" / "ledger.json"):
        flat.train(data, scene.grid, out=tmp_path / "run", resume=True, **options)
    assert sorted((tmp_path / "run").rglob("*")) == before


@pytest.mark.parametrize("lost", ["opened", "spent", "marks"])
def test_a_ledger_that_lacks_opened_sums_is_refused(town, tmp_path, lost):
    scene, data = town
    options = {"mechanism": PROMISE, "rounds": 10, "seed": 4}
    interrupted(data, scene.grid, tmp_path / "run", **options)
    path = tmp_path / "run" / "ledger.json"
    ledger = json.loads(path.read_text())
    older = {"opened": ledger["opened"][:3], "spent": [[user, 3] for user, _ in ledger["spent"]]}
    older["marks"] = ledger["marks"][:4]
    reseal(path, **{lost: older[lost]})
    with refused(PrivacyError, path):
        flat.train(data, scene.grid, out=tmp_path / "run", resume=True, **options)


def test_a_run_that_has_opened_nothing_yet_has_a_ledger_that_says_so(town, tmp_path):
    scene, data = town
    options = {
        "mechanism": vm.AggregateGaussian(epsilon=8.0, delta=1e-3, dropout=0.5),
        "rounds": 2,
        "participation": vm.Participation(dropout=0.5),
        "out": tmp_path / "run",
        "checkpoint_every": 1,
    }
    # A seed whose first round too few answer.
    seed = next(
        seed
        for seed in range(100)
        if options["participation"].draw(seed, 0, range(12)).answers.sum() < 6
    )

    def stop(row):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        flat.train(data, scene.grid, seed=seed, on_round=stop, **options)
    ledger = json.loads((tmp_path / "run" / "ledger.json").read_text())
    assert (ledger["opened"], ledger["spent"]) == ([], [])
    assert len(flat.train(data, scene.grid, seed=seed, resume=True, **options).history) == 2


# ---- The study beside a run


def test_a_run_goes_on_with_its_own_data_only_as_far_as_its_study_knows_them(town, tmp_path):
    scene, data = town
    options = {"mechanism": PROMISE, "rounds": 10, "seed": 4, "out": tmp_path / "run"}
    interrupted(data, scene.grid, **options)
    study, other = tmp_path / "run.study", replace(data, gain_db=data.gain_db + 1.0)
    assert (study / "README.txt").read_text().splitlines()[0] == "Study: not for publication"
    with refused(RunFolderError, study):
        flat.train(other, scene.grid, resume=True, **options)
    with refused(RunFolderError, "data.users", 12, 11):
        flat.train(data.select(data.user > 0), scene.grid, resume=True, **options)
    shutil.rmtree(study)  # who publishes the run leaves it behind
    rows = flat.train(data, scene.grid, resume=True, **options).history
    assert np.isnan([row.loss for row in rows]).tolist() == [True] * 5 + [False] * 5
    assert (study / "README.txt").exists()


def test_the_studies_of_two_runs_are_not_mixed(town, tmp_path):
    scene, data = town
    options = {"mechanism": PROMISE, "rounds": 1, "out": tmp_path / "run"}
    flat.train(data, scene.grid, **options)
    shutil.rmtree(tmp_path / "run")
    with refused(RunFolderError, tmp_path / "run.study"):
        flat.train(data, scene.grid, **options)
    assert not (tmp_path / "run").exists()


# ---- Public facts


def test_base_stations_are_those_that_are_given(town, tmp_path):
    scene, data = town
    stations = scene.base_stations[:5], [f"mast {n}" for n in range(5)]
    options = {"mechanism": PROMISE, "rounds": 2, "seed": 0}
    flat.train(data, scene.grid, out=tmp_path / "none", **options)
    assert (tmp_path / "none" / "base_stations.csv").read_text() == "bs,x,y,z\n"
    run = flat.train(
        data,
        scene.grid,
        stations=stations,
        out=tmp_path / "some",
        **options,
    )
    found, ids = RunFolder(tmp_path / "some").base_stations()
    np.testing.assert_array_equal(found, stations[0])
    assert ids == tuple(stations[1])
    assert len(run.transcript.base_stations) == 5
    # Without a guarantee those that were measured are public, unless others are given.
    plain = vm.train(data, scene.grid, rounds=1, seed=0)
    assert len(plain.transcript.base_stations) == len(data.stations[1])
    told = vm.train(data, scene.grid, rounds=1, seed=0, model=vm.Model(stations=stations))
    assert len(told.transcript.base_stations) == 5


@pytest.mark.parametrize(
    ("options", "kind", "named"),
    [
        ({"calibrate": ["stations"]}, PrivacyError, "stations=(positions, ids)"),
        ({"residual": 30.0}, PrivacyError, "stations=(positions, ids)"),
        ({"calibrate": ["devices"]}, PrivacyError, "calibrate='devices'"),
        (
            {"stations": (np.zeros((1, 3)), [1]), "station_errors": {"1": 250.0}},
            PrivacyError,
            "station_errors",
        ),
        ({"stations": np.zeros((2, 3))}, DataError, "stations"),
        ({"stations": (np.zeros((2, 2)), [1, 2])}, DataError, "(2, 2)"),
        ({"stations": (np.full((1, 3), np.nan), [1])}, DataError, "finite"),
    ],
)
def test_public_facts_that_are_missing_or_wrong_are_named(town, options, kind, named):
    scene, data = town
    with refused(kind, named):
        flat.train(data, scene.grid, mechanism=PROMISE, rounds=4, **options)
