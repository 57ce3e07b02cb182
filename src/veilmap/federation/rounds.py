"""The rounds of a training, whatever carries its messages."""

import contextlib
import math
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from veilmap._util import checks
from veilmap.data.folders import Crowd
from veilmap.data.measurements import Measurements
from veilmap.errors import ConfigurationError
from veilmap.federation.config import RunConfig
from veilmap.federation.engine import Exchange, Gathered, LocalExchange
from veilmap.federation.history import HistoryRow, noted, published
from veilmap.federation.messages import ClientId
from veilmap.federation.participation import Turnout
from veilmap.federation.privacy import Account
from veilmap.federation.public import NOTHING, Public
from veilmap.federation.robust import RobustMean
from veilmap.federation.run import Run, transcript_of
from veilmap.federation.run_folder import Checkpoint, RunFolder
from veilmap.federation.server import RoundSum, Server
from veilmap.federation.steps import ServerState, StepRule
from veilmap.federation.study import StudyFolder
from veilmap.federation.transcript import RoundRecorder, SeenRound, SeenSum
from veilmap.model.evaluation import mean_absolute_error
from veilmap.privacy.mechanisms import Mechanism, PrivateMechanism

Rounds = Collection[int] | Literal["all"]


@dataclass(frozen=True)
class Recording:
    """What is kept of a training, and where.

    Parameters
    ----------
    out : path, optional
        Folder for the run. Under a guarantee it holds noisy sums, public facts and who took
        part; losses, errors and what tells of the data go to ``<out>.study`` beside it, which
        is not for publication.
    resume : bool
        Go on with the run in ``out``; with a seed, to the same bits as if undisturbed.
    checkpoint_every : int
        Rounds between checkpoints in ``out``. Under a guarantee without a seed there is one after
        every opened sum: a killed run would have to open it again, with other noise, and its
        participants would pay for both.
    keep_uploads : rounds (from 0) or "all"
        Which rounds the transcript keeps. Uploads are large: M floats a user and round.
    keep_users : ids, optional
        Keep only these users' uploads.
    test : Measurements, optional
        For the map's MAE every ``test_every`` rounds and after the last.
    source : mapping, optional
        Where the data came from, as `veilmap.runs.source.Source` describes it.
    on_round : callable, optional
        Called with each round's `HistoryRow`, for a progress bar.
    """

    out: str | Path | None = None
    resume: bool = False
    checkpoint_every: int = 10
    keep_uploads: Rounds = ()
    keep_users: Collection[ClientId] | None = None
    test: Measurements | None = field(default=None, repr=False)
    test_every: int = 10
    source: Mapping[str, Any] | None = field(default=None, repr=False)
    on_round: Callable[[HistoryRow], None] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for name in ("checkpoint_every", "test_every"):
            value = checks.whole(name, getattr(self, name), least=1)
            object.__setattr__(self, name, value)
        if self.resume and self.out is None:
            raise ConfigurationError("resume needs the run's folder", "resume")

    def keeps(self, number: int) -> bool:
        """Whether the transcript keeps this round."""
        return self.keep_uploads == "all" or number in self.keep_uploads

    def saves(self, number: int, rounds: int) -> bool:
        """Whether a checkpoint is due after this round of so many."""
        return (number + 1) % self.checkpoint_every == 0 or number + 1 == rounds


@dataclass(frozen=True)
class Training:
    """A training as its server knows it; `train` documents the settings."""

    config: RunConfig  # all that decides the result, to compare a resumed run's with
    recording: Recording = Recording()
    public: Public = NOTHING  # base stations, and what the map starts from

    def check(self) -> None:
        """Refuse what cannot start, before an engine is started for it."""
        with self._locked():
            self._open_folder()

    def play(self, exchange: Exchange) -> Run:
        """Play all rounds, or those that are left; nobody else writes the run meanwhile."""
        with self._locked():
            return self._play(exchange)

    def _play(self, exchange: Exchange) -> Run:
        config, recording = self.config, self.recording
        folder, start = self._open_folder()
        rows = start.rows
        if folder and recording.resume and recording.source is not None:
            self._save_config(folder)  # where the data are: they may have moved
        account = Account.of(
            config.mechanism, folder, config.seed, start if recording.resume else None
        )
        robust = RobustMean() if config.robust else None
        server = Server(
            self._step, start.state, config.rounds, config.mechanism, config.server_sees, robust
        )
        kept = folder.load_rounds(config.grid) if folder and recording.resume else {}
        for number in range(server.state.round, config.rounds):
            started = time.perf_counter()
            turnout = config.participation.draw(config.seed, number, exchange.users())
            total = self._opened(server, exchange, turnout)
            gathered = exchange.collect(total, turnout)
            if total.opens and not account.affords(total, turnout):
                break
            if folder and number == 0 and not recording.resume:
                # Not before a round has shown that training can work.
                account.begin()
                public = self.public
                folder.save_stations((public.stations, public.ids), public.station_errors)
                self._save_config(folder)
            if total.opens:
                account.open(total, turnout)
                total.unseal()
            if recording.keeps(number) and total.opens:
                kept[number] = server.read(total)
                if folder:
                    folder.save_round(kept[number])
            server.close_round(total)
            row = _row(total, gathered, turnout, config.mechanism, account.epsilon)
            row["mae_db"] = self._tested(number, server.state)
            rows.append(HistoryRow(**row, seconds=time.perf_counter() - started))
            costly = config.promised and config.seed is None and total.opens
            if folder and (costly or recording.saves(number, config.rounds)):
                self._save(folder, Checkpoint(server.state, rows, account.mark))
            if recording.on_round:
                recording.on_round(rows[-1])
        end = Checkpoint(server.state, rows, account.mark)
        return self._finished(end, _why_stopped(server, config), kept, folder)

    @property
    def _step(self) -> StepRule:
        assert not isinstance(self.config.step, Mapping)  # only one that was read back may be
        return self.config.step

    def _locked(self) -> contextlib.AbstractContextManager[None]:
        out = self.recording.out
        return contextlib.nullcontext() if out is None else RunFolder(out).locked()

    def _save_config(self, folder: RunFolder) -> None:
        """Write the configuration, which makes a folder a run; a study has the whole of it."""
        if self.config.has_study:
            StudyFolder(folder.path).start(self.config)
        self.config.published().save(folder.path)

    def _save(self, folder: RunFolder, point: Checkpoint) -> None:
        """Write a checkpoint with what may be published of the rounds; the rest is a study."""
        rows = shown = point.rows
        if self.config.promised:
            shown = [published(row, self.config.seed) for row in rows]
        if self.config.has_study:
            # Even there a run with a seed has no ε.
            whole = [replace(r, epsilon=s.epsilon) for r, s in zip(rows, shown, strict=True)]
            StudyFolder(folder.path).save_rows(whole)
        folder.save_checkpoint(replace(point, rows=shown))

    def _opened(self, server: Server, exchange: Exchange, turnout: Turnout) -> RoundSum:
        """The sum of a round, or those of its tiles, before anybody has answered."""
        if self.config.tiling is not None:
            tiles = self.config.tiling.over(self.config.grid)
            revealed = exchange.tiles_of(tiles)[turnout.invited]
            return server.open_round(np.bincount(revealed, minlength=len(tiles)).tolist(), tiles)
        total = server.open_round([int(turnout.invited.sum())])
        if self.config.server_sees == "uploads" and self.recording.keeps(server.state.round):
            covers = self.config.mechanism.covers_theta
            total.recorder = RoundRecorder(self.recording.keep_users, covers)
        return total

    def _start(self) -> ServerState:
        return self._step.start(self.config.grid, self.public)

    def _tested(self, number: int, state: ServerState) -> float:
        """The map's MAE every so many rounds and after the last."""
        test, every = self.recording.test, self.recording.test_every
        due = number % every == every - 1 or number == self.config.rounds - 1
        return math.nan if test is None or not due else mean_absolute_error(state.radio_map, test)

    def _open_folder(self) -> tuple[RunFolder | None, Checkpoint]:
        """The run's folder, if any, and where to start from."""
        start = Checkpoint(self._start(), [])
        if self.recording.out is None:
            return None, start
        folder = RunFolder(self.recording.out)
        study = StudyFolder(folder.path) if self.config.has_study else None
        if not self.recording.resume:
            folder.check_free()
            if study:
                study.check_free()
            return folder, start
        folder.check(self.config.published())
        point = folder.load_checkpoint(self.config.grid) or start
        if study:
            study.check(self.config)
            point = replace(point, rows=study.joined(point.rows))
        return folder, point

    def _finished(
        self,
        end: Checkpoint,
        stopped: str,
        kept: dict[int, SeenRound | SeenSum],
        folder: RunFolder | None,
    ) -> Run:
        """Write what is left to write, and put the run together."""
        radio_map = end.state.radio_map
        if folder:
            if stopped:
                self._save(folder, end)
            folder.finish(radio_map)
        stations = self.public.stations, self.public.ids
        transcript = transcript_of(self.config, radio_map, stations, kept)
        path = folder.path if folder else None
        return Run(radio_map, end.rows, transcript, path, stopped, self.config.seed)


class Engine(Protocol):
    """What carries the messages of a training between its server and its users."""

    @property
    def divides(self) -> bool:
        """Whether it can train a divided area, tile by tile."""

    def play(self, training: Training, data: Crowd) -> Run:
        """Play all rounds with these users."""


@dataclass(frozen=True)
class InProcess:
    """Server and users in this process; nothing has to be carried."""

    divides = True

    def play(self, training: Training, data: Crowd) -> Run:
        """Play all rounds with these users, block after block."""
        return training.play(LocalExchange(data, training.config.mechanism, training.config.seed))


def _why_stopped(server: Server, config: RunConfig) -> str:
    """Why the last rounds were not played, or nothing."""
    played, rounds, mechanism = server.state.round, config.rounds, config.mechanism
    if played == rounds:
        return ""
    assert isinstance(mechanism, PrivateMechanism)
    reason = f"round {played + 1} would spend more than ε = {mechanism.epsilon:g}"
    if played == 0:
        raise ConfigurationError(
            f"{reason}: leave out noise_multiplier, or cap, to have the noise computed"
        )
    return f"stopped after {played} of {rounds} rounds: {reason}"


def _row(
    total: RoundSum, gathered: Gathered, turnout: Turnout, mechanism: Mechanism, epsilon: float
) -> dict[str, Any]:
    """A round's history, but for its time and the map's error."""
    loss, norm, noise = (
        np.concatenate([getattr(own, name) for own in gathered.insights] or [np.array([math.nan])])
        for name in ("loss", "norm", "noise_energy")
    )
    reasons = {**gathered.absent, **gathered.remarks, **total.refused}
    named = [f"{client} {reason}" for client, reason in reasons.items()]
    return {
        "round": total.broadcast.round,
        "loss": float(loss.mean()),
        "gradient_norm": float(norm.mean()),
        "clip_share": float(np.mean(norm > mechanism.clip)) if gathered.insights else math.nan,
        "noise_energy": float(noise.mean()),
        "epsilon": epsilon,
        "clients": len(total.clients),
        "dropped": turnout.dropped + len(gathered.absent),
        "late": turnout.late,
        "refused": len(total.refused),
        "opened": int(total.opens),
        "upload_bytes": total.upload_bytes(mechanism),
        "notes": noted(filter(None, [*total.why_shut.split("; "), *named])),
    }
