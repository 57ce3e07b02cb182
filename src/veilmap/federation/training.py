"""Federated training in one process: the same clients and server that run anywhere."""

import hashlib
import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from veilmap import _checks
from veilmap._describe import described
from veilmap.errors import VeilmapError
from veilmap.evaluation import mean_absolute_error
from veilmap.federation import history
from veilmap.federation.client import Clients, Insight
from veilmap.federation.folder import RunFolder
from veilmap.federation.history import HistoryRow
from veilmap.federation.messages import ClientId
from veilmap.federation.participation import Participation, Turnout
from veilmap.federation.privacy import Account, settled
from veilmap.federation.server import RoundSum, Server
from veilmap.federation.steps import NoiseAwareStep, ServerState, StepRule
from veilmap.federation.transcript import (
    RoundRecorder,
    SeenRound,
    SeenSum,
    ServerSees,
    Transcript,
)
from veilmap.geometry import Grid
from veilmap.measurements import Measurements
from veilmap.mechanisms import AggregateGaussian, Mechanism, NoNoise, from_description
from veilmap.radiomap import RadioMap

# Gradients, uploads and variances of the users worked on at once stay below about this.
_BLOCK_BYTES = 64e6

# Below this norm a gradient moves nothing.
_NO_GRADIENT = 1e-12

# Of run folders; another number was written by another version.
_FORMAT = 2

Rounds = Collection[int] | Literal["all"]


@dataclass(frozen=True)
class Run:
    """What training gave.

    Attributes
    ----------
    radio_map : RadioMap
    history : list of HistoryRow
    transcript : Transcript
        Holds the rounds that were asked for with ``keep_uploads``.
    folder : Path or None
    stopped : str
        Why training ended before its last round; empty if it did not.
    """

    radio_map: RadioMap
    history: list[HistoryRow] = field(repr=False)
    transcript: Transcript = field(repr=False)
    folder: Path | None = None
    stopped: str = ""

    @classmethod
    def load(cls, path: str | Path) -> "Run":
        """A finished run out of its folder."""
        folder = RunFolder(path)
        config = folder.config()
        if config.get("format") != _FORMAT:
            raise VeilmapError(f"{path} was written by another version of veilmap; train it anew")
        if not (folder.path / "radio_map.nc").exists():
            raise VeilmapError(f"the run in {path} is not finished: go on with it (resume) first")
        radio_map = RadioMap.load(folder.path / "radio_map.nc")
        mechanism = from_description(config["mechanism"])
        transcript = Transcript(
            radio_map.grid,
            config["mechanism"] | {"name": mechanism.name},
            folder.base_stations(),
            folder.load_rounds(radio_map.grid),
            config["server_sees"],
            radio_map,
        )
        rows = history.load(folder.path / "history.csv")
        return cls(radio_map, rows, transcript, folder.path)


def train(
    data: Measurements,
    grid: Grid,
    *,
    mechanism: Mechanism | None = None,
    rounds: int = 200,
    seed: int | None = None,
    step: StepRule | None = None,
    participation: Participation | None = None,
    server_sees: ServerSees | None = None,
    keep_uploads: Rounds = (),
    keep_users: Collection[ClientId] | None = None,
    test: Measurements | None = None,
    test_every: int = 10,
    out: str | Path | None = None,
    resume: bool = False,
    checkpoint_every: int = 10,
    on_round: Callable[[HistoryRow], None] | None = None,
) -> Run:
    """Learn a radio map from users who keep their measurements.

    Parameters
    ----------
    data : Measurements
        Each user's rows stay with its own client.
    grid : Grid
        Cells of the map; links off the grid count only over it.
    mechanism : Mechanism, optional
        What clients do to their gradients; by default they are only clipped.
    rounds : int
    seed : int, optional
        Of noise and participation. Without it noise comes from the operating system's
        cryptographic generator.
    step : StepRule, optional
        What the server does with the mean gradient.
    participation : Participation, optional
        Who takes part; by default everybody, every round.
    server_sees : "uploads" or "sums", optional
        The trust model: a server that sees every upload (the paper's), or one that sees only
        sums (secure aggregation). By default what the mechanism is made for.
    keep_uploads : rounds (from 0) or "all"
        Which rounds the transcript keeps. Uploads are large: M floats a user and round.
    keep_users : ids, optional
        Keep only these users' uploads.
    test : Measurements, optional
        For the map's MAE every ``test_every`` rounds and after the last.
    out : path, optional
        Folder for the run.
    resume : bool
        Go on with the run in ``out``; with a seed, to the same bits as if undisturbed.
    checkpoint_every : int
        Rounds between checkpoints in ``out``.
    on_round : callable, optional
        Called with each round's `HistoryRow`, for a progress bar.
    """
    rounds = _checks.whole("rounds", rounds, least=1)
    test_every = _checks.whole("test_every", test_every, least=1)
    checkpoint_every = _checks.whole("checkpoint_every", checkpoint_every, least=1)
    step, participation = step or NoiseAwareStep(), participation or Participation()
    mechanism, sees = settled(
        mechanism or NoNoise(), server_sees, participation, len(data.users), rounds
    )
    if sees == "sums" and keep_users is not None:
        raise VeilmapError("keep_users: this server sees no single user's upload, only sums")
    config = _config(data, grid, mechanism, sees, rounds, seed, step, participation)
    folder, state, rows = _open_folder(out, resume, config, step, grid)
    account = Account.of(mechanism, folder, resume, seed)
    server = Server(step, state, rounds, mechanism, sees)
    kept = folder.load_rounds(grid) if folder and resume else {}
    stations = np.unique(data.bs_xyz, axis=0)

    for number in range(server.state.round, rounds):
        started = time.perf_counter()
        turnout = participation.draw(seed, number, len(data.users))
        keeps = keep_uploads == "all" or number in keep_uploads
        recorder = RoundRecorder(keep_users) if keeps and sees == "uploads" else None
        total, insights = _collect(server, data, turnout, seed, recorder)
        if total.opens and not account.affords(total):
            break
        if folder and number == 0 and not resume:
            folder.start(config, stations)  # not before a round has shown that training can work
        if total.opens:
            account.open(total)
        if keeps and total.opens:
            kept[number] = recorder.seen(total.broadcast) if recorder else server.read(total)
            if folder:
                folder.save_round(kept[number])
        server.close_round(total)
        row = _row(total, insights, turnout, mechanism, account.epsilon)
        if test is not None and (number % test_every == test_every - 1 or number == rounds - 1):
            row["mae_db"] = mean_absolute_error(server.state.radio_map, test)
        rows.append(HistoryRow(**row, seconds=time.perf_counter() - started))
        done = number + 1
        if folder and (done % checkpoint_every == 0 or done == rounds):
            folder.save_checkpoint(server.state, rows)
        if on_round:
            on_round(rows[-1])

    return _finished(server, rounds, rows, kept, stations, folder)


def _finished(
    server: Server,
    rounds: int,
    rows: list[HistoryRow],
    kept: Mapping[int, SeenRound | SeenSum],
    stations: NDArray[np.float64],
    folder: RunFolder | None,
) -> Run:
    """Write what is left to write, and put the run together."""
    radio_map, mechanism = server.state.radio_map, server.mechanism
    stopped = _why_stopped(server, rounds, mechanism)
    if folder:
        if stopped:
            folder.save_checkpoint(server.state, rows)
        folder.finish(radio_map)
    public = described(mechanism) | {"name": mechanism.name}
    transcript = Transcript(radio_map.grid, public, stations, kept, server.server_sees, radio_map)
    return Run(radio_map, rows, transcript, folder.path if folder else None, stopped)


def _collect(
    server: Server,
    data: Measurements,
    turnout: Turnout,
    seed: int | None,
    recorder: RoundRecorder | None,
) -> tuple[RoundSum, list[Insight]]:
    """Broadcast, and add up the answers of those who turn out."""
    total = server.open_round(turnout.asked)
    insights = []
    for clients in _answering(data, turnout, server.mechanism, seed, len(total.heights)):
        updates, insight = clients.answer(total.broadcast)
        total.add(updates)
        insights.append(insight)
        if recorder:
            recorder.add(updates)
    if total.broadcast.round == 0:
        _refuse_dead_start(insights)
    return total, insights


def _why_stopped(server: Server, rounds: int, mechanism: Mechanism) -> str:
    """Why the last rounds were not played, or nothing."""
    played = server.state.round
    if played == rounds:
        return ""
    assert isinstance(mechanism, AggregateGaussian)
    reason = f"round {played + 1} would spend more than ε = {mechanism.epsilon:g}"
    if played == 0:
        raise VeilmapError(f"{reason}: raise noise_multiplier, or leave it out to have it computed")
    return f"stopped after {played} of {rounds} rounds: {reason}"


def _open_folder(
    out: str | Path | None, resume: bool, config: dict[str, Any], step: StepRule, grid: Grid
) -> tuple[RunFolder | None, ServerState, list[HistoryRow]]:
    """The run's folder, if any, and where to start from."""
    if out is None:
        if resume:
            raise VeilmapError("resume needs the run's folder")
        return None, step.start(grid), []
    folder = RunFolder(out)
    if not resume:
        folder.check_free()
        return folder, step.start(grid), []
    folder.check(config)
    state, rows = folder.load_checkpoint(grid) or (step.start(grid), [])
    return folder, state, rows


def _answering(
    data: Measurements, turnout: Turnout, mechanism: Mechanism, seed: int | None, cells: int
) -> Iterator[Clients]:
    """The users who answer this round, in the order of their ids, some at a time."""
    block = max(1, int(_BLOCK_BYTES / (3 * 8 * cells)))
    ids = data.users.tolist()
    for number, links in enumerate(data.links.blocks(block)):
        own = slice(number * block, (number + 1) * block)
        answers = turnout.answers[own]
        if answers.any():
            chosen = [client for client, taken in zip(ids[own], answers, strict=True) if taken]
            yield Clients(chosen, links.of_users(answers), mechanism, seed)


def _refuse_dead_start(insights: list[Insight]) -> None:
    if insights and max(insight.norm.max() for insight in insights) < _NO_GRADIENT:
        raise VeilmapError(
            "no link can move the map: every one is blocked or off the grid;"
            " start lower (start_height, such as 4 m) or check the positions"
        )


def _row(
    total: RoundSum,
    insights: list[Insight],
    turnout: Turnout,
    mechanism: Mechanism,
    epsilon: float,
) -> dict[str, Any]:
    """A round's history, but for its time."""
    loss, norm, noise = (
        np.concatenate([getattr(insight, name) for insight in insights] or [np.array([math.nan])])
        for name in ("loss", "norm", "noise_energy")
    )
    return {
        "round": total.broadcast.round,
        "loss": float(loss.mean()),
        "mae_db": math.nan,
        "gradient_norm": float(norm.mean()),
        "clip_share": float(np.mean(norm > mechanism.clip)),
        "noise_energy": float(noise.mean()),
        "epsilon": epsilon,
        "clients": len(total.clients),
        "dropped": turnout.dropped,
        "late": turnout.late,
        "refused": len(total.refused),
        "opened": int(total.opens),
    }


def _config(
    data: Measurements,
    grid: Grid,
    mechanism: Mechanism,
    server_sees: ServerSees,
    rounds: int,
    seed: int | None,
    step: StepRule,
    participation: Participation,
) -> dict[str, Any]:
    """All that decides a run's result."""
    return {
        "format": _FORMAT,
        "rounds": rounds,
        "seed": seed,
        "grid": described(grid),
        "mechanism": described(mechanism),
        "server_sees": server_sees,
        "step": described(step),
        "participation": described(participation),
        "data": fingerprint(data),
    }


def fingerprint(data: Measurements) -> dict[str, Any]:
    """What tells one table of measurements from another without showing it."""
    links = data.links
    digest = hashlib.sha256()
    for values in (links.offsets, links.user_xyz, links.bs_xyz, links.gain_db):
        digest.update(values.tobytes())
    return {"users": links.users, "links": len(data), "sha256": digest.hexdigest()}
