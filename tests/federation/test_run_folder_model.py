"""A run that is killed, damaged or disturbed anywhere, against a model of plain numbers.

Whatever happens, the run ends with the bits of one that nothing befell (with a seed), no row of
its history is lost, and no opened sum is charged less than once, or more often than it was opened.
"""

import shutil
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

import veilmap as vm
from disasters import Killed, befalling, cut_unfinished
from veilmap.errors import VeilmapError
from veilmap.federation import history
from veilmap.federation.run_folder import RunFolder
from veilmap.federation.server import RoundSum

SCENE = vm.Scene.synthetic(seed=0, cell_size=60.0)
DATA = SCENE.measure(users=3, links_per_user=4, seed=0)
ROUNDS, OFTEN = 5, 2
PROMISE = vm.AggregateGaussian(epsilon=8.0, delta=1e-3, noise_multiplier=20.0)
KINDS = {
    "plain": {"mechanism": vm.GeometryAligned(noise_budget=10), "seed": 3},
    "promised, seeded": {"mechanism": PROMISE, "seed": 3},
    "promised": {"mechanism": PROMISE, "seed": None},
}
DISASTERS = st.tuples(
    st.sampled_from(["kill", "kill", "kill", "full", "read-only"]), st.integers(1, 60)
)


def train(kind, **recording):
    given = KINDS[kind]
    recording = vm.Recording(keep_uploads={1, 3}, checkpoint_every=OFTEN, **recording)
    return vm.train(DATA, SCENE.grid, rounds=ROUNDS, recording=recording, **given)


@cache
def undisturbed(kind):
    return train(kind)


class Disasters(RuleBasedStateMachine):
    """One run, which is begun and gone on with until it ends."""

    def __init__(self):
        super().__init__()
        memory = Path("/dev/shm")
        self.place = Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else None))
        self.run = self.place / "run"
        self.opened = 0  # sums that were opened since the run has a folder
        self.disasters = 0  # in the same time
        self.unhurt = True  # nobody has damaged a file

    def teardown(self):
        try:
            if self.unhurt:
                self.finish()
        finally:
            shutil.rmtree(self.place)

    @initialize(kind=st.sampled_from(sorted(KINDS)))
    def begin(self, kind):
        self.kind = kind

    # ---- going on

    def go_on(self):
        """Train as far as it goes; what was opened is counted where it is."""
        unseal = RoundSum.unseal

        def counted(total):
            self.opened += 1
            unseal(total)

        RoundSum.unseal = counted
        try:
            return train(self.kind, out=self.run, resume=(self.run / "config.json").exists())
        finally:
            RoundSum.unseal = unseal

    def attempted(self):
        """How going on ends."""
        problem = None
        try:
            self.go_on()
        except Killed:
            return "killed"
        except VeilmapError as error:
            problem = str(error)
        assert problem is None or "\n" not in problem
        return "whole" if problem is None else "refused"

    @rule(disaster=DISASTERS, share=st.sampled_from([0.0, 0.5, 1.0]))
    def something_happens(self, disaster, share):
        if not self.unhurt or (self.run / "radio_map.nc").exists():
            return
        with befalling(self.place, *disaster) as what:
            ended = self.attempted()
        assert ended == "whole" or what.happened
        assert ended != "whole" or (self.run / "radio_map.nc").exists()
        self.disasters += what.happened
        self.clear_away_what_never_began()
        cut_unfinished(self.place, share)
        self.look()

    def clear_away_what_never_began(self):
        """A run without its configuration is none: it is begun anew, and its account with it."""
        if not (self.run / "config.json").exists():
            shutil.rmtree(self.run, ignore_errors=True)
            shutil.rmtree(self.run.with_name("run.study"), ignore_errors=True)
            self.opened = self.disasters = 0

    def finish(self):
        """Nothing happens any more: the run comes to its end."""
        result = self.go_on()
        assert [row.round for row in result.history] == list(range(ROUNDS))
        rows = history.load(self.run / "history.csv")
        assert [row.round for row in rows] == list(range(ROUNDS))
        assert not list(self.run.rglob(".*"))
        if KINDS[self.kind]["seed"] is not None:
            straight = undisturbed(self.kind)
            for one in (result.radio_map, vm.RadioMap.load(self.run / "radio_map.nc")):
                np.testing.assert_array_equal(one.heights, straight.radio_map.heights)
                np.testing.assert_array_equal(one.theta, straight.radio_map.theta)
            for number, kept in straight.transcript.rounds.items():
                again = RunFolder(self.run).load_round(number, SCENE.grid)
                np.testing.assert_array_equal(again.theta_gradient, kept.theta_gradient)
        self.look()

    # ---- others

    @precondition(lambda self: (self.run / "config.json").exists())
    @rule()
    def somebody_else_writes(self):
        """A second writer is refused, and changes nothing."""
        before = self.contents()
        with RunFolder(self.run).locked(), suppress(VeilmapError):
            train(self.kind, out=self.run, resume=True)
            raise AssertionError("two have written")
        assert self.contents() == before

    @precondition(lambda self: self.unhurt and (self.run / "config.json").exists())
    @rule(
        which=st.integers(0, 10**6), at=st.floats(0, 1), how=st.sampled_from(["bit", "cut", "gone"])
    )
    def a_file_is_damaged(self, which, at, how):
        """The run is refused in one line, or comes to what it would have come to."""
        names = sorted(self.sealed())
        if not names:
            return
        path = names[which % len(names)]
        content = path.read_bytes()
        copy = self.place / "copy"
        shutil.copytree(self.run, copy)
        place = min(int(at * len(content)), len(content) - 1)
        if how == "gone":
            path.unlink()
        else:
            flipped = bytes([content[place] ^ 1 << which % 8])
            rest = content[place + 1 :] if how == "bit" else b""
            path.write_bytes(content[:place] + (flipped if how == "bit" else b"") + rest)
        before = self.opened
        if self.attempted() == "whole":
            assert how == "gone" or path.name.startswith("round-")
            if KINDS[self.kind]["seed"] is not None:
                found, straight = (
                    vm.RadioMap.load(self.run / "radio_map.nc"),
                    undisturbed(self.kind),
                )
                np.testing.assert_array_equal(found.heights, straight.radio_map.heights)
        # What was there before is put back, but for what was opened since.
        shutil.rmtree(self.run)
        copy.rename(self.run)
        if self.opened > before:
            self.unhurt = False

    def sealed(self):
        """Files that tell of damage; the map of an ended run is read by others, not by it."""
        return [*self.run.glob("checkpoints/round-*"), *self.run.glob("ledger.json")]

    # ---- what always holds

    def contents(self):
        found = [path for path in self.run.rglob("*") if path.is_file() and path.name != ".lock"]
        return {path: path.read_bytes() for path in found}

    def look(self):
        """No row of the history is lost, and what was opened is paid for."""
        if not (self.run / "config.json").exists():
            return
        path = self.run / "history.csv"
        rows = [row.round for row in history.load(path)] if path.exists() else []
        point = self.newest_checkpoint()
        assert rows == list(range(len(rows)))
        assert len(rows) >= point
        if KINDS[self.kind]["mechanism"] is not PROMISE:
            return
        ledger = RunFolder(self.run).load_ledger(PROMISE)
        assert {*ledger.opened} <= {*range(ROUNDS)}
        charged = {*ledger.spent.values()} or {0}
        assert len(charged) == 1  # everybody takes part in every round
        if KINDS[self.kind]["seed"] is None:
            # A disaster between account and opening charges for one sum that nobody has seen.
            assert self.opened <= charged.pop() <= self.opened + self.disasters
        else:
            assert charged.pop() == len(ledger.opened) <= ROUNDS

    def charged(self):
        """Rounds that every participant has paid for."""
        return max(RunFolder(self.run).load_ledger(PROMISE).spent.values(), default=0)

    def newest_checkpoint(self):
        names = sorted((self.run / "checkpoints").glob("round-*.npz"))
        return int(names[-1].stem.removeprefix("round-")) if names else 0


def _run(examples, steps):
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    run_state_machine_as_test(
        Disasters,
        settings=settings(
            max_examples=examples, stateful_step_count=steps, suppress_health_check=checks,
            deadline=None,
        ),
    )  # fmt: skip


def test_whatever_befalls_a_run_it_ends_as_if_nothing_had():
    _run(25, 6)


@pytest.mark.slow
def test_in_longer_lives_too_a_run_ends_as_if_nothing_had():
    _run(300, 15)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_kill_at_every_single_operation_loses_nothing(tmp_path, kind):
    kills = 0
    for after in range(1, 1000):
        world = Disasters()
        world.begin(kind)
        with befalling(world.place, "kill", after) as what, suppress(Killed):
            world.go_on()
        kills += what.happened
        world.disasters += what.happened
        world.clear_away_what_never_began()
        cut_unfinished(world.place, 0.5)
        world.look()
        world.finish()
        if kind == "promised":  # one sum at most was opened, or paid for, in vain
            assert ROUNDS <= world.charged() <= ROUNDS + 1, after
        shutil.rmtree(world.place)
        if not what.happened:
            break
    assert kills > 40
