"""Federated training: the same clients and server, on the engine of your choice."""

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from veilmap._util import checks
from veilmap._util.arrays import Floats
from veilmap.data.folders import Crowd
from veilmap.errors import ConfigurationError, PrivacyError
from veilmap.federation.config import Fingerprint, RunConfig
from veilmap.federation.model import Model
from veilmap.federation.participation import Participation
from veilmap.federation.privacy import settled
from veilmap.federation.public import NO_STATIONS, Public, Stations, checked_stations
from veilmap.federation.residual import ThenField
from veilmap.federation.rounds import Engine, InProcess, Recording, Rounds, Training
from veilmap.federation.run import Run
from veilmap.federation.transcript import ServerSees
from veilmap.geometry.grid import Grid
from veilmap.geometry.tiling import Tiling
from veilmap.model.offsets import Offsets
from veilmap.privacy.accounting import has_guarantee
from veilmap.privacy.mechanisms import Mechanism, NoNoise


def train(
    data: Crowd,
    grid: Grid,
    *,
    mechanism: Mechanism | None = None,
    rounds: int = 200,
    model: Model | None = None,
    participation: Participation | None = None,
    tiling: Tiling | None = None,
    server_sees: ServerSees | None = None,
    robust: bool = False,
    engine: Engine | None = None,
    recording: Recording | None = None,
    seed: int | None = None,
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
    model : Model, optional
        What is learned, and the public facts that it may start from.
    participation : Participation, optional
        Who takes part; by default everybody, every round.
    tiling : Tiling, optional
        Divide a large area: each user reveals its tile, and its upload is of that tile's window
        only. For mechanisms that need no upload of each user, none and aggregate.
    server_sees : "uploads", "shuffled" or "sums", optional
        The trust model: a server that sees every upload (the paper's), one that sees uploads
        without names, mixed by somebody else within a round (for `PrivUnit`), or one that sees only
        sums (secure aggregation). By default what the mechanism is made for.
    robust : bool
        Leave users out whose uploads pull away from all others', and bound what each of the
        others can change, where the server sees uploads: against hostile participants.
    engine : Engine, optional
        What carries the messages. By default nothing has to: server and users are in this
        process. `veilmap.flower.Simulation` has a node for each user, and the same map; there
        loss and norms stay with the users, and the history has none.
    recording : Recording, optional
        What is kept of the training, and where.
    seed : int, optional
        Seed of noise and participation; by default noise comes from the operating system's
        cryptographic generator. A run with a seed promises nothing: it is a study.
    """
    engine, model, recording = engine or InProcess(), model or Model(), recording or Recording()
    rounds = checks.whole("rounds", rounds, least=1)
    step, participation = model.steps, participation or Participation()
    users = len(data.users)
    in_a_sum = users if tiling is None else largest_tile(tiling, data, grid)
    mechanism, sees = settled(
        mechanism or NoNoise(), server_sees, participation, users, rounds, in_a_sum
    )
    if isinstance(step, ThenField) and sees != "sums":
        raise ConfigurationError(
            "a single gradient of a residual field shows where its user is: train with"
            " server_sees='sums'"
        )
    if sees != "uploads" and recording.keep_users is not None:
        raise ConfigurationError(
            "keep_users: this server does not know any upload's user", "keep_users"
        )
    if tiling is not None:
        _check_tiling(engine, mechanism, model, recording.keep_uploads)
    public = _public(data, grid, model, has_guarantee(mechanism))
    config = RunConfig(grid, mechanism, sees, rounds, seed, step, participation, tiling, robust)
    config = replace(config, data=Fingerprint.of(data), source=recording.source)
    return engine.play(Training(config.knowing(public), recording, public), data)


def largest_tile(tiling: Tiling, data: Crowd, grid: Grid) -> int:
    """How many users the fullest tile has."""
    return int(np.bincount(tiling.over(grid).of(data.mean_positions())).max())


def _check_tiling(engine: Engine, mechanism: Mechanism, model: Model, keep_uploads: Rounds) -> None:
    """Refuse what cannot be done for one tile at a time."""
    if not engine.divides:
        raise ConfigurationError(
            "tiles are trained in process; on Flower run a federation for each tile", "tiling"
        )
    start = getattr(model.steps, "start_propagation", None)  # a residual field has none
    plain = not model.calibrate and start is not None and start.laws == 2
    if mechanism.perturbs_uploads or not (mechanism.sums_in_place and plain):
        raise ConfigurationError(
            "tiles add users up where they are: for the mechanisms none and aggregate, and maps of"
            " two laws without offsets or a residual field",
            "tiling",
        )
    if keep_uploads:
        raise ConfigurationError(
            "sums of tiles are not kept: to audit a tile, train its users alone on its window",
            "keep_uploads",
        )


def _public(data: Crowd, grid: Grid, model: Model, promised: bool) -> Public:
    """What the server knows before any user speaks."""
    stations = _public_stations(data, model, promised)
    known = tuple(np.unique(stations[1]).tolist()) if "stations" in model.calibrate else ()
    devices = tuple(data.devices.tolist()) if "devices" in model.calibrate else ()
    heights = None if model.buildings is None else _checked_heights(model.buildings, grid)
    errors = model.station_errors
    if model.stations is None and not promised:
        errors = data.station_errors
    return Public(*stations, Offsets(known, devices), heights, data.antennas, errors)


def _checked_heights(buildings: ArrayLike, grid: Grid) -> Floats:
    heights = np.ascontiguousarray(checks.floats("buildings", buildings))
    if heights.shape != grid.shape or not np.isfinite(heights).all():
        raise ConfigurationError(
            f"buildings need one finite height for each of {grid.shape} cells, not shape"
            f" {heights.shape}"
        )
    return heights


def _public_stations(data: Crowd, model: Model, promised: bool) -> Stations:
    """The base stations that are published; under a guarantee none come from users' data."""
    if model.stations is not None:
        stations = checked_stations(model.stations)
    else:
        stations = NO_STATIONS if promised else data.stations
    if promised and model.station_errors:
        raise PrivacyError(
            f"the positions of {len(model.station_errors)} stations are estimates from"
            " measurements, which under a guarantee may not tell of users: give stations whose"
            " positions are public, or leave station_errors out if no user's measurements went"
            " into them"
        )
    if promised and "devices" in model.calibrate:
        raise PrivacyError(
            "calibrate='devices' would publish which kinds of devices users have, which no ε"
            " covers: leave it out"
        )
    wanted = "stations" in model.calibrate or isinstance(model.steps, ThenField)
    if promised and wanted and len(stations[1]) == 0:
        raise PrivacyError(
            "offsets of base stations and residual fields need to know them, and under a guarantee"
            " they are not taken from users' measurements: give stations=(positions, ids)"
        )
    return stations
