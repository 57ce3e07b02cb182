"""Federated training: the same clients and server, on the engine of your choice."""

import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilmap._util import checks
from veilmap._util.ids import Id
from veilmap._util.plain import from_plain, to_plain
from veilmap.data.antennas import Antennas
from veilmap.data.folders import Crowd
from veilmap.data.measurements import Measurements
from veilmap.errors import ConfigurationError, DataError
from veilmap.federation.history import HistoryRow
from veilmap.federation.messages import ClientId
from veilmap.federation.participation import Participation
from veilmap.federation.privacy import settled
from veilmap.federation.public import NO_STATIONS, Public, Stations, checked_stations
from veilmap.federation.residual import ThenField
from veilmap.federation.rounds import Engine, InProcess, Rounds, Training
from veilmap.federation.run import Run
from veilmap.federation.run_folder import FORMAT
from veilmap.federation.steps import NoiseAwareStep, StepRule
from veilmap.federation.transcript import ServerSees
from veilmap.geometry.grid import Grid
from veilmap.geometry.tiling import Tiling
from veilmap.model.offsets import Offsets
from veilmap.privacy.accounting import has_guarantee
from veilmap.privacy.mechanisms import Mechanism, NoNoise, from_description

Calibrated = Literal["stations", "devices"]

_USERS_PER_DIGEST = 1000


def train(
    data: Crowd,
    grid: Grid,
    *,
    mechanism: Mechanism | None = None,
    rounds: int = 200,
    seed: int | None = None,
    step: StepRule | None = None,
    participation: Participation | None = None,
    calibrate: Collection[Calibrated] = (),
    stations: tuple[ArrayLike, Sequence[Id]] | None = None,
    buildings: ArrayLike | None = None,
    residual: float | None = None,
    tiling: Tiling | None = None,
    server_sees: ServerSees | None = None,
    keep_uploads: Rounds = (),
    keep_users: Collection[ClientId] | None = None,
    test: Measurements | None = None,
    test_every: int = 10,
    out: str | Path | None = None,
    resume: bool = False,
    checkpoint_every: int = 10,
    on_round: Callable[[HistoryRow], None] | None = None,
    engine: Engine | None = None,
) -> Run:
    """Learn a radio map from users who keep their measurements.

    Parameters
    ----------
    data : Measurements or MeasurementFolder
        Each user's rows stay with its own client. Its antennas are public: the map knows them,
        and learns from gains less their patterns. ``replace(data, antennas=None)`` has none.
    grid : Grid
        Cells of the map; links off the grid count only over it. It is published: under a
        guarantee it must not come from users' positions, as ``Grid.covering`` of them would.
    mechanism : Mechanism, optional
        What clients do to their gradients; by default they are only clipped.
    rounds : int
    seed : int, optional
        Of noise and participation. Without it noise comes from the operating system's
        cryptographic generator. A run with a seed promises nothing: it is a study.
    step : StepRule, optional
        What the server does with the mean gradient.
    participation : Participation, optional
        Who takes part; by default everybody, every round.
    calibrate : "stations" and/or "devices"
        Learn an offset in dB of every base station or kind of device with θ: where receivers
        are not calibrated, or phones differ.
    stations : (positions, ids), optional
        Base stations as public facts: (B, 3) in metres and B ids, as `Measurements.stations`
        gives them. By default those that users measured; under a guarantee, where these would
        tell of users, none.
    buildings : (rows, columns) array, optional
        Heights in metres that are public, 0 for open ground: where the map starts and what it
        is drawn to. It costs no privacy.
    residual : float, optional
        Learn in the last rounds what obstacles leave over: a field for each base station with
        points this many metres apart. Its gradients show where users are, so that the server
        may see only sums.
    tiling : Tiling, optional
        Divide a large area: each user says which tile it is in, and its upload is of that tile's
        window only. For mechanisms that need no upload of each user, none and aggregate.
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
        Folder for the run. Under a guarantee it holds noisy sums, public facts and who took
        part; losses, errors and what tells of the data go to ``<out>.study`` beside it, which
        is not for publication.
    resume : bool
        Go on with the run in ``out``; with a seed, to the same bits as if undisturbed.
    checkpoint_every : int
        Rounds between checkpoints in ``out``.
    on_round : callable, optional
        Called with each round's `HistoryRow`, for a progress bar.
    engine : Engine, optional
        What carries the messages. By default nothing has to: server and users are in this
        process. `veilmap.flower.Simulation` has a node for each user, and the same map; there
        loss and norms stay with the users, and the history has none.
    """
    engine = engine or InProcess()
    rounds = checks.whole("rounds", rounds, least=1)
    test_every = checks.whole("test_every", test_every, least=1)
    checkpoint_every = checks.whole("checkpoint_every", checkpoint_every, least=1)
    step, participation = step or NoiseAwareStep(), participation or Participation()
    if residual is not None:
        step = ThenField(residual, step)
    mechanism, sees = settled(
        mechanism or NoNoise(), server_sees, participation, len(data.users), rounds,
        None if tiling is None else largest_tile(tiling, data, grid),
    )  # fmt: skip
    if isinstance(step, ThenField) and sees != "sums":
        raise ConfigurationError(
            "a single gradient of a residual field shows where its user is: train with"
            " server_sees='sums'"
        )
    if sees == "sums" and keep_users is not None:
        raise ConfigurationError("keep_users: this server sees no single user's upload, only sums")
    if tiling is not None:
        _check_tiling(engine, mechanism, step, calibrate, keep_uploads)
    promised = has_guarantee(mechanism)
    known_stations = _public_stations(data, stations, promised, calibrate, step)
    offsets = _unknown_offsets(data, known_stations, calibrate)
    config = _config(data, grid, mechanism, sees, rounds, seed, step, participation)
    if tiling is not None:
        config["tiling"] = to_plain(tiling)
    if len(offsets):
        config["offsets"] = {"stations": [*offsets.stations], "devices": [*offsets.devices]}
    known = None if buildings is None else _checked_heights(buildings, grid)
    if known is not None:
        config["buildings"] = hashlib.sha256(known.tobytes()).hexdigest()
    if data.antennas is not None:
        config["antennas"] = _fingerprint_of(data.antennas)
    training = Training(
        grid, mechanism, sees, rounds, seed, step, participation, config,
        keep_uploads, keep_users, test, test_every, out, resume,
        checkpoint_every, on_round, Public(*known_stations, offsets, known, data.antennas),
        tiling, fingerprint(data) if promised else None,
    )  # fmt: skip
    return engine.play(training, data)


def largest_tile(tiling: Tiling, data: Crowd, grid: Grid) -> int:
    """How many users the fullest tile has."""
    return int(np.bincount(tiling.over(grid).of(data.mean_positions())).max())


def _check_tiling(
    engine: Engine,
    mechanism: Mechanism,
    step: StepRule,
    calibrate: Collection[Calibrated],
    keep_uploads: Rounds,
) -> None:
    """Refuse what cannot be done for one tile at a time."""
    if not engine.divides:
        raise ConfigurationError(
            "tiles are trained in process; on Flower run a federation for each tile"
        )
    start = getattr(step, "start_propagation", None)  # a residual field has none
    plain = not calibrate and start is not None and start.laws == 2
    how = mechanism.summand(1, 4)
    if how is None or how.budget or not plain:
        raise ConfigurationError(
            "tiles add users up where they are: for the mechanisms none and aggregate, and maps of"
            " two laws without offsets or a residual field"
        )
    if keep_uploads:
        raise ConfigurationError(
            "sums of tiles are not kept: to audit a tile, train its users alone on its window"
        )


def _checked_heights(buildings: ArrayLike, grid: Grid) -> NDArray[np.float64]:
    heights = np.ascontiguousarray(checks.floats("buildings", buildings))
    if heights.shape != grid.shape or not np.isfinite(heights).all():
        raise ConfigurationError(
            f"buildings need one finite height for each of {grid.shape} cells, not shape"
            f" {heights.shape}"
        )
    return heights


def _public_stations(
    data: Crowd,
    given: tuple[ArrayLike, Sequence[Id]] | None,
    promised: bool,
    calibrate: Collection[Calibrated],
    step: StepRule,
) -> Stations:
    """The base stations that are published; under a guarantee none come from users' data."""
    if given is not None:
        stations = checked_stations(given)
    else:
        stations = NO_STATIONS if promised else data.stations
    if promised and "devices" in calibrate:
        raise ConfigurationError(
            "calibrate='devices' would publish which kinds of devices users have, which no ε"
            " covers: leave it out"
        )
    wanted = "stations" in calibrate or isinstance(step, ThenField)
    if promised and wanted and len(stations[1]) == 0:
        raise ConfigurationError(
            "offsets of base stations and residual fields need to know them, and under a guarantee"
            " they are not taken from users' measurements: give stations=(positions, ids)"
        )
    return stations


def _unknown_offsets(data: Crowd, known: Stations, calibrate: Collection[Calibrated]) -> Offsets:
    """The offsets to learn; who there is, is public."""
    unknown = set(calibrate) - {"stations", "devices"}
    if unknown or isinstance(calibrate, str):
        raise ConfigurationError(
            f"calibrate takes 'stations' and 'devices', not {', '.join(map(repr, calibrate))}"
        )
    stations = _distinct(known[1]) if "stations" in calibrate else ()
    devices = data.devices.tolist() if "devices" in calibrate else ()
    return Offsets.unknown(stations, devices)


def _distinct(ids: Collection[Id]) -> list[Id]:
    return np.unique(np.array(list(ids))).tolist()


def _config(
    data: Crowd,
    grid: Grid,
    mechanism: Mechanism,
    server_sees: ServerSees,
    rounds: int,
    seed: int | None,
    step: StepRule,
    participation: Participation,
) -> dict[str, Any]:
    """All that decides a run's result, as far as it is published."""
    promised = has_guarantee(mechanism)
    return {
        "format": FORMAT,
        "rounds": rounds,
        "seed": seed,
        "grid": to_plain(grid),
        "mechanism": to_plain(mechanism),
        "server_sees": server_sees,
        "step": to_plain(step),
        "participation": to_plain(participation),
        # How many links there are, or a digest of them, no ε covers.
        "data": {"users": len(data.users)} if promised else fingerprint(data),
    }


def settings_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """How a run was trained, as `train` takes it; all but its data, grid and seed.

    Antennas are part of the data: the run's map has those it was trained with.
    """
    if "buildings" in config:
        raise ConfigurationError("the run started from buildings, which its folder does not hold")
    learned, tiles = config.get("offsets", {}), config.get("tiling")
    return {
        "tiling": None if tiles is None else from_plain(tiles, Tiling),
        "mechanism": from_description(config["mechanism"]),
        "rounds": config["rounds"],
        "server_sees": config["server_sees"],
        "participation": from_plain(config["participation"], Participation),
        "calibrate": [name for name in ("stations", "devices") if learned.get(name)],
        "step": _step_of(config["step"]),
    }


def _step_of(public: Mapping[str, Any]) -> StepRule:
    """The step rule that a run's configuration describes."""
    try:
        return from_plain(public, object)  # type: ignore[return-value]
    except DataError as error:
        raise ConfigurationError(
            "the run has a step rule of its own, which its folder does not hold"
        ) from error


def _fingerprint_of(antennas: Antennas) -> dict[str, Any]:
    """What tells one list of antennas from another; the map holds them."""
    text = antennas.as_text().encode()
    return {"stations": len(antennas), "sha256": hashlib.sha256(text).hexdigest()}


def fingerprint(data: Crowd) -> dict[str, Any]:
    """What tells one crowd's measurements from another's without showing them.

    The same for a table and for a folder that holds it in parts.
    """
    digest = hashlib.sha256()
    for links in data.blocks(_USERS_PER_DIGEST):
        for values in (links.offsets, links.user_xyz, links.bs_xyz, links.gain_db):
            digest.update(np.ascontiguousarray(values).tobytes())
        for ids in (links.bs, links.device):
            names, number = np.unique(np.asarray(ids), return_inverse=True)
            digest.update(json.dumps([str(name) for name in names]).encode())
            digest.update(number.astype(np.int64).tobytes())
    return {"users": len(data.users), "links": len(data), "sha256": digest.hexdigest()}
