import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import flat
import veilmap as vm
from refusals import refused
from veilmap.errors import ConfigurationError, DataError, RunFolderError
from veilmap.federation import Broadcast, Update
from veilmap.federation import history as histories
from veilmap.federation.client import Clients
from veilmap.federation.config import RunConfig
from veilmap.federation.run_folder import RunFolder
from veilmap.federation.server import RoundSum, Server
from veilmap.model.filtering import filtered

ALIGNED = vm.GeometryAligned(noise_budget=10)


@pytest.fixture(scope="module")
def town():
    """A small scene, so that rounds take milliseconds."""
    scene = vm.Scene.synthetic(5, size=90.0, buildings=4, base_stations=40)
    return scene, scene.measure(users=12, links_per_user=30, seed=0)


def same(one, other):
    np.testing.assert_array_equal(one.radio_map.heights, other.radio_map.heights)
    assert one.radio_map.propagation == other.radio_map.propagation
    timeless = [
        [
            vars(row) | {"seconds": 0, "mae_db": 0, "epsilon": repr(row.epsilon)}
            for row in run.history
        ]
        for run in (one, other)
    ]
    assert timeless[0] == timeless[1]


def test_a_device_sends_what_it_would_send_in_a_crowd(town):
    scene, data = town
    broadcast = Broadcast(3, vm.RadioMap(scene.grid, np.full(scene.grid.cells, 4.0)))
    crowd, _ = Clients(data.users.tolist(), data.links, ALIGNED, seed=7).answer(broadcast)
    for update in crowd:
        own = data.of_user(update.client)
        (alone,), _ = Clients([update.client], own.links, ALIGNED, seed=7).answer(broadcast)
        np.testing.assert_array_equal(alone.height_gradient, update.height_gradient)
        np.testing.assert_array_equal(alone.theta_gradient, update.theta_gradient)
        assert (alone.client, alone.round, alone.weight) == (update.client, 3, len(own))


def updates_for(broadcast, rng, count=4):
    cells = broadcast.radio_map.grid.cells
    return [
        Update(i, broadcast.round, i + 1, 0.1 * rng.normal(size=cells), rng.normal(size=4))
        for i in range(count)
    ]


def test_the_sum_weighs_updates_by_their_links(town):
    scene, _ = town
    broadcast = Broadcast(0, vm.RadioMap(scene.grid, np.zeros(scene.grid.cells)))
    updates = updates_for(broadcast, np.random.default_rng(0))
    total = RoundSum(broadcast, largest_norm=np.inf)
    total.add(updates[:2])
    total.add(updates[2:])
    expected = sum(u.weight * u.height_gradient for u in updates)
    np.testing.assert_allclose(total.sum.height_gradient, expected)
    assert total.sum.weight == 1 + 2 + 3 + 4


def test_bad_updates_are_refused_by_name_and_harm_nobody(town):
    scene, _ = town
    broadcast = Broadcast(5, vm.RadioMap(scene.grid, np.zeros(scene.grid.cells)))
    cells = scene.grid.cells
    good = updates_for(broadcast, np.random.default_rng(0))
    fine = np.zeros(cells)
    bad = [
        Update("nan", 5, 1, np.full(cells, np.nan), np.zeros(4)),
        Update("inf", 5, 1, fine, np.full(4, np.inf)),
        Update("shape", 5, 1, np.zeros(3), np.zeros(4)),
        Update("late", 4, 1, fine, np.zeros(4)),
        Update("huge", 5, 1, np.full(cells, 1e6), np.zeros(4)),
        Update("empty", 5, 0, fine, np.zeros(4)),
        good[1],
    ]
    clean, total = RoundSum(broadcast, 100.0), RoundSum(broadcast, 100.0)
    clean.add(good)
    total.add([bad[0], *good[:2], *bad[1:], *good[2:]])
    np.testing.assert_array_equal(total.sum.height_gradient, clean.sum.height_gradient)
    assert total.clients == clean.clients
    reasons = total.refused
    assert set(reasons) == {"nan", "inf", "shape", "late", "huge", "empty", 1}
    assert "answers round 4 in round 5" in reasons["late"]
    assert "more than 100" in reasons["huge"]
    assert reasons[1] == "answered twice"


def test_a_round_without_answers_only_lets_the_priors_speak(town):
    scene, _ = town
    step = vm.PlainDescent()
    server = Server(step, step.start(scene.grid), 3, vm.NoNoise())
    before = server.state.radio_map.heights
    server.close_round(server.open_round())
    np.testing.assert_array_equal(server.state.radio_map.heights, before)
    assert server.state.round == 1


def test_plain_descent_is_the_papers_step(town):
    scene, data = town
    step = vm.PlainDescent(heights_rate=30.0, propagation_rate=0.01, floor=-5.0)
    run = vm.train(
        data, scene.grid, mechanism=vm.NoNoise(clip=1e9), rounds=1, model=vm.Model(step=step)
    )
    start = step.start(scene.grid).radio_map
    gradients = vm.local_gradients(start, data)
    weights = gradients.counts / len(data)
    expected = np.clip(
        start.heights.ravel() - 30.0 * (weights @ gradients.height_gradient), -5, 130
    )
    np.testing.assert_allclose(run.radio_map.heights.ravel(), expected)
    theta = start.propagation.as_array() - 0.01 * (weights @ gradients.theta_gradient)
    np.testing.assert_allclose(run.radio_map.propagation.as_array(), theta)


def test_plain_descent_reduces_the_loss(town):
    scene, data = town
    step = vm.PlainDescent(heights_rate=50.0, propagation_rate=0.02)
    losses = [
        row.loss for row in vm.train(data, scene.grid, rounds=60, model=vm.Model(step=step)).history
    ]
    assert losses[-1] < 0.7 * losses[0]


def test_the_same_seed_gives_the_same_bits_and_another_does_not(town):
    scene, data = town
    runs = [vm.train(data, scene.grid, mechanism=ALIGNED, rounds=5, seed=s) for s in (1, 1, 2)]
    same(runs[0], runs[1])
    assert not np.array_equal(runs[0].radio_map.heights, runs[2].radio_map.heights)
    unseeded = [vm.train(data, scene.grid, mechanism=ALIGNED, rounds=2) for _ in range(2)]
    assert not np.array_equal(unseeded[0].radio_map.heights, unseeded[1].radio_map.heights)


def test_blocks_of_users_do_not_change_the_map(town, monkeypatch):
    from veilmap.federation import engine

    scene, data = town
    whole = vm.train(data, scene.grid, mechanism=ALIGNED, rounds=5, seed=1)
    monkeypatch.setattr(engine, "_BLOCK_BYTES", 5 * 3 * 8 * scene.grid.cells)
    blocks = vm.train(data, scene.grid, mechanism=ALIGNED, rounds=5, seed=1)
    np.testing.assert_allclose(blocks.radio_map.heights, whole.radio_map.heights, rtol=1e-9)


def test_uneven_users_at_several_places_with_dropouts_train(town):
    scene, _ = town
    data = scene.measure(users=15, links_per_user=24, places_per_user=3, seed=3)
    data = data.select(np.random.default_rng(0).random(len(data)) < 0.6)
    crowd = vm.Participation(share=0.7, dropout=0.2, late=0.1)
    run = vm.train(data, scene.grid, mechanism=ALIGNED, rounds=30, seed=0, participation=crowd)
    assert run.history[-1].loss < run.history[0].loss
    asked = [row.clients + row.dropped + row.late for row in run.history]
    mean = 15 * 0.7
    assert abs(np.mean(asked) - mean) < 5 * np.sqrt(15 * 0.7 * 0.3 / 30)
    assert sum(row.dropped for row in run.history) > 0
    assert sum(row.late for row in run.history) > 0


def test_groups_that_take_turns_are_asked_equally_often(town):
    crowd = vm.Participation(share=1 / 3, in_turns=True)
    turnouts = [crowd.draw(7, number, range(20)).invited for number in range(6)]
    # Every user once in three rounds, always with the same others.
    np.testing.assert_array_equal(np.sum(turnouts[:3], axis=0), np.ones(20))
    np.testing.assert_array_equal(turnouts[:3], turnouts[3:])
    assert {int(turnout.sum()) for turnout in turnouts} == {6, 7}
    assert not np.array_equal(turnouts[0], crowd.draw(8, 0, range(20)).invited)
    assert (crowd.rounds_each(6), crowd.rounds_each(7)) == (2, 3)
    scene, data = town
    run = vm.train(data, scene.grid, rounds=6, seed=0, participation=crowd)
    assert sum(row.clients for row in run.history) == 2 * len(data.users)


def test_groups_stay_the_same_without_a_seed():
    crowd = vm.Participation(share=1 / 4, in_turns=True)
    turnouts = [crowd.draw(None, number, range(40)).invited for number in range(4)]
    np.testing.assert_array_equal(np.sum(turnouts, axis=0), np.ones(40))


def test_a_round_in_which_nobody_answers_is_survived(town):
    scene, data = town
    crowd = vm.Participation(share=0.05, dropout=0.5)
    run = vm.train(data, scene.grid, rounds=8, seed=0, participation=crowd)
    assert min(row.clients for row in run.history) == 0
    assert np.isfinite(run.radio_map.heights).all()


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"share": 0}, ["share", 0]),
        ({"dropout": 1.5}, ["dropout", 1.5]),
        ({"dropout": 0.6, "late": 0.6}, ["dropout", "late"]),
        ({"share": 0.4, "in_turns": True}, ["share", "1/2", 0.4]),
    ],
)
def test_impossible_crowds_are_refused(arguments, named):
    with refused(ConfigurationError, *named):
        vm.Participation(**arguments)


def test_history_tells_what_happened(town):
    scene, data = town
    seen = []
    test = scene.measure(users=5, links_per_user=30, seed=9)
    run = vm.train(
        data,
        scene.grid,
        mechanism=ALIGNED,
        rounds=7,
        seed=0,
        recording=vm.Recording(test=test, test_every=3, on_round=seen.append),
    )
    assert seen == run.history
    measured = [row.round for row in run.history if not np.isnan(row.mae_db)]
    assert measured == [2, 5, 6]
    first = run.history[0]
    gradients = vm.local_gradients(vm.NoiseAwareStep().start(scene.grid).radio_map, data)
    norms = np.linalg.norm(gradients.height_gradient, axis=1)
    assert first.loss == pytest.approx(gradients.loss.mean())
    assert first.gradient_norm == pytest.approx(norms.mean())
    assert first.clip_share == pytest.approx((norms > 1).mean())
    assert first.noise_energy == pytest.approx((10 * np.minimum(norms, 1) ** 2).mean())


def test_the_transcript_keeps_what_was_asked_for(town):
    scene, data = town
    run = vm.train(
        data,
        scene.grid,
        mechanism=ALIGNED,
        rounds=4,
        seed=0,
        recording=vm.Recording(keep_uploads={1, 3}, keep_users={2, 5}),
    )
    assert set(run.transcript.rounds) == {1, 3}
    seen = run.transcript.rounds[3]
    assert seen.clients == (2, 5)
    assert seen.uploads.shape == (2, scene.grid.cells)
    assert run.transcript.mechanism.name == "aligned"
    everything = vm.train(
        data, scene.grid, rounds=2, recording=vm.Recording(keep_uploads="all")
    ).transcript
    assert set(everything.rounds) == {0, 1}


class StoppedError(Exception):
    pass


def stop_after(rounds):
    def on_round(row):
        if row.round + 1 == rounds:
            raise StoppedError

    return on_round


@pytest.mark.parametrize("stopped", [1, 4, 9, 10, 11, 19])
def test_a_stopped_run_goes_on_to_the_same_bits(town, tmp_path, stopped):
    scene, data = town
    options = {
        "mechanism": ALIGNED,
        "rounds": 20,
        "seed": 3,
        "keep_uploads": {0, 15},
        "participation": vm.Participation(share=0.8, dropout=0.1),
    }
    undisturbed = flat.train(data, scene.grid, **options)
    out = tmp_path / "run"
    with pytest.raises(StoppedError):
        flat.train(
            data,
            scene.grid,
            out=out,
            checkpoint_every=5,
            on_round=stop_after(stopped),
            **options,
        )
    resumed = flat.train(
        data,
        scene.grid,
        out=out,
        resume=True,
        checkpoint_every=5,
        **options,
    )
    same(resumed, undisturbed)
    for number in (0, 15):
        np.testing.assert_array_equal(
            resumed.transcript.rounds[number].uploads, undisturbed.transcript.rounds[number].uploads
        )
    np.testing.assert_array_equal(
        vm.RadioMap.load(out / "radio_map.nc").heights, undisturbed.radio_map.heights
    )
    assert [row.round for row in histories.load(out / "history.csv")] == list(range(20))


KILLED_RUN = """
import sys, veilmap as vm
scene = vm.Scene.synthetic(5, size=90.0, buildings=4, base_stations=40)
data = scene.measure(users=12, links_per_user=30, seed=0)
vm.train(data, scene.grid, mechanism=vm.GeometryAligned(noise_budget=10), rounds=300, seed=3,
         recording=vm.Recording(sys.argv[1], resume=sys.argv[2] == "resume", checkpoint_every=1,
                                keep_uploads={7, 250}))
"""


@pytest.mark.parametrize("times", [5, pytest.param(20, marks=pytest.mark.slow)])
def test_a_run_killed_again_and_again_ends_in_the_same_bits(town, tmp_path, times):
    scene, data = town
    out = tmp_path / "run"
    chance = random.Random(0)
    kills = 0
    while kills < times:
        how = "resume" if (out / "config.json").exists() else "new"
        process = subprocess.Popen([sys.executable, "-c", KILLED_RUN, str(out), how])
        before = checkpoint_round(out)
        while process.poll() is None and checkpoint_round(out) < before + 3:
            time.sleep(0.002)
        time.sleep(chance.uniform(0, 0.02))  # anywhere in a round, also while writing
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            kills += 1
        assert process.wait() in (0, -signal.SIGKILL)
        if (out / "radio_map.nc").exists():
            break
    assert kills == times
    options = {"mechanism": ALIGNED, "rounds": 300, "seed": 3}
    keep = {"keep_uploads": {7, 250}}
    resumed = flat.train(
        data,
        scene.grid,
        out=out,
        resume=True,
        checkpoint_every=1,
        **options,
        **keep,
    )
    same(resumed, flat.train(data, scene.grid, **options))
    assert not list(out.glob("**/.*"))


def checkpoint_round(out):
    names = sorted(path.stem for path in (out / "checkpoints").glob("round-*.npz"))
    return int(names[-1].removeprefix("round-")) if names else 0


PRINTED_RUN = """
import veilmap as vm
scene = vm.Scene.synthetic(5, size=90.0, buildings=4, base_stations=40)
data = scene.measure(users=12, links_per_user=30, seed=0)
run = vm.train(data, scene.grid, mechanism=vm.GeometryAligned(noise_budget=10), rounds=40, seed=3)
print(run.radio_map.heights.tobytes().hex())
"""


def test_kernels_compiled_anew_give_the_same_bits(town, tmp_path):
    scene, data = town
    here = vm.train(data, scene.grid, mechanism=ALIGNED, rounds=40, seed=3).radio_map.heights
    fresh = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    for _ in range(2):  # compiled, then from the cache it wrote
        printed = subprocess.run(
            [sys.executable, "-c", PRINTED_RUN],
            env=fresh,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert printed.strip() == here.tobytes().hex()


@pytest.fixture
def half_run(town, tmp_path):
    """A run that stopped after 7 of 10 rounds, with checkpoints at 2, 4 and 6."""
    scene, data = town
    options = {"mechanism": ALIGNED, "rounds": 10, "seed": 3, "out": tmp_path / "run"}
    with pytest.raises(StoppedError):
        flat.train(
            data,
            scene.grid,
            checkpoint_every=2,
            on_round=stop_after(7),
            **options,
        )
    return scene, data, options


def test_only_the_last_two_checkpoints_are_kept(half_run):
    names = sorted(path.name for path in (half_run[2]["out"] / "checkpoints").iterdir())
    assert names == ["round-000004.npz", "round-000006.npz"]


@pytest.mark.parametrize("damage", [b"", b"junk", None])
def test_a_damaged_checkpoint_is_named_and_nothing_is_touched(half_run, damage):
    scene, data, options = half_run
    path = options["out"] / "checkpoints" / "round-000006.npz"
    whole = path.read_bytes()
    middle = whole.index(b"heights.npy") + 500  # among the heights themselves
    path.write_bytes(whole[:middle] + b"xxxx" + whole[middle + 4 :] if damage is None else damage)
    with refused(RunFolderError, "round-000006.npz", "round-000004.npz"):
        flat.train(data, scene.grid, resume=True, **options)
    path.unlink()
    resumed = flat.train(data, scene.grid, resume=True, **options)
    undisturbed = flat.train(data, scene.grid, **options | {"out": None})
    same(resumed, undisturbed)


def test_another_configuration_is_refused_with_what_changed(half_run):
    scene, data, options = half_run
    changed = options | {"mechanism": vm.GeometryAligned(noise_budget=20)}
    with refused(RunFolderError, "mechanism.noise_budget", "10.0", "20.0"):
        flat.train(data, scene.grid, resume=True, **changed)
    with refused(RunFolderError, "data.sha256"):
        flat.train(data.select(np.arange(50)), scene.grid, resume=True, **options)


def test_a_folder_with_a_run_is_not_overwritten(half_run):
    scene, data, options = half_run
    with refused(RunFolderError, options["out"], "resume"):
        flat.train(data, scene.grid, **options)
    with refused(ConfigurationError, parameter="resume"):
        vm.train(data, scene.grid, recording=vm.Recording(resume=True))
    with refused(RunFolderError, options["out"] / "other", "config.json"):
        vm.train(
            data, scene.grid, recording=vm.Recording(out=options["out"] / "other", resume=True)
        )


def test_a_full_disk_leaves_the_last_good_checkpoint(half_run, monkeypatch):
    scene, data, options = half_run

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    folder = options["out"] / "checkpoints"
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        with refused(DataError, options["out"], "No space left on device"):
            flat.train(data, scene.grid, resume=True, checkpoint_every=2, **options)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    flat.train(data, scene.grid, resume=True, **options)


def test_kept_uploads_come_back_from_disk(town, tmp_path):
    scene, data = town
    out = tmp_path / "run"
    run = vm.train(
        data,
        scene.grid,
        mechanism=ALIGNED,
        rounds=3,
        seed=0,
        recording=vm.Recording(out=out, keep_uploads={1}),
    )
    rounds = RunFolder(out).load_rounds(scene.grid)
    np.testing.assert_array_equal(rounds[1].uploads, run.transcript.rounds[1].uploads)
    assert rounds[1].clients == run.transcript.rounds[1].clients
    assert isinstance(RunConfig.load(out).mechanism, vm.GeometryAligned)
    (out / "transcript" / "round-000001.npz").write_bytes(b"junk")
    with refused(RunFolderError, "round-000001.npz"):
        RunFolder(out).load_rounds(scene.grid)


def test_a_start_that_blocks_every_link_is_an_error_that_says_so(town, tmp_path):
    scene, data = town
    out = tmp_path / "run"
    with refused(ConfigurationError, "start_height"):
        vm.train(
            data,
            scene.grid,
            model=vm.Model(step=vm.PlainDescent(start_height=130.0)),
            recording=vm.Recording(out=out),
        )
    assert not out.exists()


# ---- One writer of a run's folder


def test_a_second_writer_is_refused_and_readers_are_not(town, tmp_path):
    scene, data = town
    options = {"rounds": 4, "seed": 1, "out": tmp_path / "run", "checkpoint_every": 1}
    refusals = []

    def meanwhile(row):
        folder = RunFolder(tmp_path / "run")
        assert folder.newest_map() is not None
        assert len(histories.load(tmp_path / "run" / "history.csv")) == row.round + 1
        for resume in (True, False):
            with refused(DataError, tmp_path / "run" / ".lock", f"process {os.getpid()}"):
                flat.train(data, scene.grid, resume=resume, **options)
            refusals.append(resume)

    run = flat.train(data, scene.grid, on_round=meanwhile, **options)
    assert len(refusals) == 8
    same(run, vm.train(data, scene.grid, rounds=4, seed=1))
    same(run, flat.train(data, scene.grid, resume=True, **options))  # free again
    assert not list((tmp_path / "run").glob(".*"))


RESUMES = """
import sys, time
from pathlib import Path
import veilmap as vm
from veilmap.federation.server import RoundSum

place, number, others = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
data = vm.Measurements.load(place / "links.parquet")
unseal = RoundSum.unseal

def counted(total):
    with (place / "opened").open("a") as file:
        file.write(f"{total.broadcast.round}\\n")
    unseal(total)

def until_all_have_tried(row):
    while len(list(place.glob("refused-*"))) < others:
        time.sleep(0.02)

RoundSum.unseal = counted
try:
    vm.train(data, vm.Grid(6.0, (15, 15)), rounds=8,
             mechanism=vm.AggregateGaussian(epsilon=8, delta=1e-3),
             recording=vm.Recording(place / "run", resume=True, checkpoint_every=3,
                                    on_round=until_all_have_tried))
except vm.VeilmapError as error:
    (place / f"refused-{number}").write_text(str(error))
"""


def test_of_several_who_resume_one_goes_on_and_every_opened_sum_is_charged(town, tmp_path):
    _, data = town
    data.save(tmp_path / "links.parquet")

    def stop(row):
        if row.round == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        vm.train(
            data,
            vm.Grid(6.0, (15, 15)),
            rounds=8,
            mechanism=vm.AggregateGaussian(epsilon=8, delta=1e-3),
            recording=vm.Recording(out=tmp_path / "run", checkpoint_every=3, on_round=stop),
        )
    command = [sys.executable, "-c", RESUMES, str(tmp_path)]
    processes = [subprocess.Popen([*command, str(n), "3"]) for n in range(4)]
    try:
        assert [process.wait(120) for process in processes] == [0] * 4
    finally:
        for process in processes:
            process.kill()
    refused = [path.read_text() for path in tmp_path.glob("refused-*")]
    assert len(refused) == 3
    pids = {str(process.pid) for process in processes}
    assert all("locked by process" in line and pids & {*line.split()} for line in refused)
    # Four were opened before it was stopped, one of them behind the last checkpoint.
    opened = (tmp_path / "opened").read_text().split()
    ledger = json.loads((tmp_path / "run" / "ledger.json").read_text())
    assert set(dict(ledger["spent"]).values()) == {4 + len(opened)}
    assert {3, *map(int, opened)} <= {*ledger["opened"]}


def test_a_run_that_comes_to_nothing_leaves_no_folder(town, tmp_path):
    scene, data = town
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "mine.txt").write_text("mine")
    for name in ("none", "kept"):
        with refused(RunFolderError, tmp_path / name, "config.json"):
            vm.train(
                data, scene.grid, rounds=1, recording=vm.Recording(out=tmp_path / name, resume=True)
            )
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["kept", "mine.txt"]


@pytest.mark.parametrize("width", [math.nan, math.inf, -0.1, 20.1])
def test_a_filter_that_no_training_comes_to_is_refused(width):
    grid = vm.Grid(shape=(4, 5))
    radio_map = vm.RadioMap(grid, np.zeros(grid.cells))
    Broadcast(0, radio_map, 9, 20.0).check()
    with refused(ConfigurationError, "filter"):
        Broadcast(0, radio_map, 9, width).check()


def test_half_of_the_filter_before_the_sum_and_half_after_it_are_the_whole():
    """Widths add up as squares; what filters cut off beyond four deviations is left."""
    grid = vm.Grid(shape=(60, 50))
    rng = np.random.default_rng(0)
    same = {"noisy_damping": 0.1, "noisy_soft_share": 0.5}  # what else differs after a filter
    step = vm.NoiseAwareStep(damping=0.1, soft_share=0.5, **same)
    state = replace(step.start(grid), round=3)
    gradient = rng.normal(size=grid.cells)
    width = step.filter_width(state, 20)
    half = filtered(gradient[None], grid.shape, width)[0]
    whole = step(state, gradient, np.zeros(4), 20).radio_map.heights
    parts = step(replace(state, filtered=width), half, np.zeros(4), 20).radio_map.heights
    assert abs(parts - whole).max() < 0.02 * abs(whole - state.radio_map.heights).max()
    assert vm.PlainDescent().filter_width(state, 20) == 0.0


def test_only_sums_of_the_formal_mode_are_filtered(town):
    scene, data = town
    widths = {}
    for mechanism in (vm.NoNoise(), vm.AggregateGaussian(epsilon=50.0, delta=1e-3)):
        run = vm.train(
            data, scene.grid, mechanism=mechanism, rounds=3, seed=0, server_sees="sums",
            recording=vm.Recording(keep_uploads="all"),
        )  # fmt: skip
        seen = run.transcript.rounds
        widths[mechanism.name] = [seen[number].broadcast.filter_width for number in range(3)]
    assert widths["none"] == [0.0, 0.0, 0.0]
    assert widths["aggregate"] == pytest.approx([w / math.sqrt(2) for w in (3, 7 / 3, 5 / 3)])


@pytest.mark.parametrize("mechanism", [vm.NoNoise(), vm.AggregateGaussian(delta=1e-3)])
def test_a_field_that_leaves_no_round_for_obstacles_is_refused(town, mechanism):
    scene, data = town
    known = scene.base_stations, list(range(len(scene.base_stations)))
    model = vm.Model(residual=30.0, stations=known)
    with refused(ConfigurationError, 1, "rounds"):
        vm.train(
            data, scene.grid, mechanism=mechanism, rounds=1, seed=0, server_sees="sums", model=model
        )
