"""Flower's simulation: every user a node of its own, on this machine or on a Ray cluster."""

import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from typing import Any, ClassVar

from flwr.app import Context
from flwr.serverapp import Grid as FlowerGrid
from flwr.serverapp import ServerApp
from flwr.simulation import run_simulation

from veilmap._util.extras import WITHOUT_TELEMETRY
from veilmap._util.threads import environment, threads
from veilmap.data.folders import Crowd
from veilmap.data.measurements import Measurements
from veilmap.errors import ConfigurationError
from veilmap.federation.rounds import Training
from veilmap.federation.run import Run
from veilmap.flower.client import Own, client_app
from veilmap.flower.exchange import check_theta
from veilmap.flower.secagg.engine import exchange_for
from veilmap.flower.secagg.enrolment import Enrolment, Roster, enrol, write_roster

# Simulated nodes fail at once or not at all, and some machines are slow.
_NO_HURRY = 3600.0

_KNOCKING = 5.0  # seconds
_ROSTER = "roster"

_ENDED = "Flower's simulation ended before its server did"


@dataclass(frozen=True)
class Simulation:
    """An engine for `train`: a simulated node for each user, with a file of its own.

    Parameters
    ----------
    ray_address : str, optional
        Of a Ray cluster that simulates the nodes, such as "auto" or "host:6379"; by default they
        are simulated here. Users' files are in the folder for temporary files, which the hosts
        of a cluster must share.
    """

    ray_address: str | None = None
    divides: ClassVar[bool] = False

    def play(self, training: Training, data: Crowd) -> Run:
        """Play a training with one simulated node for each user of ``data``."""
        if not isinstance(data, Measurements):
            raise ConfigurationError(
                "Flower's simulation deals out one table: load the folder, or train in process"
            )
        check_theta(training.config)
        training.check()
        sums = training.config.server_sees == "sums"
        # All that a node takes along: the training itself may hold what no process can be sent.
        mechanism, seed = training.config.mechanism, training.config.seed
        with TemporaryDirectory(prefix="veilmap-") as name:
            folder = Path(name)
            for number, user in enumerate(data.users.tolist()):  # a node reads no other's file
                data.select(data.user == user).save(folder / f"{number}.parquet")
            if sums:
                _enrol(len(data.users), folder)

            def own(context: Context) -> Own:
                number = context.node_config["partition-id"]
                mine = Measurements.load(folder / f"{number}.parquet")
                files = (f"{number}.key", _ROSTER, f"{number}.account")
                enrolment = Enrolment.load(*(folder / one for one in files)) if sums else None
                return Own(mine, mechanism, seed, enrolment)

            roster = Roster.load(folder / _ROSTER) if sums else None
            return _played(training, own, len(data.users), roster, self.ray_address)


def _played(
    training: Training,
    own: Callable[[Context], Own],
    nodes: int,
    roster: Roster | None,
    ray_address: str | None,
) -> Run:
    """The training on Flower's simulation of so many nodes."""
    outcome: list[Run | BaseException] = []
    ended = Event()
    server = ServerApp()

    @server.main()
    def main(grid: FlowerGrid, context: Context) -> None:
        try:
            link: Any = _WhileItRuns(grid, ended)
            exchange = exchange_for(
                training, link, roster, least_users=nodes, poll=0.02, deadline=_NO_HURRY
            )
            outcome.append(training.play(exchange))
        except BaseException as error:  # handed to the caller's thread below
            outcome.append(error)

    # The only way to simulate from Python; Flower announces that it will go (pinned below
    # the next version).
    logging.getLogger("flwr").setLevel(logging.ERROR)
    with environment(WITHOUT_TELEMETRY | {"VEILMAP_THREADS": "1", "OMP_NUM_THREADS": "1"}):
        _check_cluster(ray_address)
        try:
            run_simulation(server, client_app(own), nodes, backend_config=_backend(ray_address))
        except RuntimeError as error:
            raise ConfigurationError(f"{_ENDED} ({error.__cause__ or error})") from error
        finally:
            ended.set()
    if not outcome:
        raise ConfigurationError(_ENDED)
    if isinstance(outcome[0], BaseException):
        raise outcome[0]
    return outcome[0]


@dataclass
class _WhileItRuns:
    """Flower's link to its nodes while there are any.

    Flower leaves its server's thread alone when a simulation breaks. Waiting for nodes that will
    never answer, it would keep the whole process from ending.
    """

    _grid: FlowerGrid
    _ended: Event

    def __getattr__(self, name: str) -> Any:
        if self._ended.is_set():
            raise ConfigurationError(_ENDED)
        return getattr(self._grid, name)


def _enrol(nodes: int, folder: Path) -> None:
    """Give every node a key, an account and the roster of all."""
    numbers = [str(number) for number in range(nodes)]
    public = {own: enrol(folder / f"{own}.key", folder / f"{own}.account") for own in numbers}
    write_roster(public, folder / _ROSTER)


def _check_cluster(address: str | None) -> None:
    """Say in one line that no cluster answers; Flower would say it in a hundred."""
    if address is None:
        return
    import ray

    host, colon, port = address.removeprefix("ray://").rpartition(":")
    try:
        if colon and port.isdigit():  # fails at once where nobody listens; Ray tries for minutes
            socket.create_connection((host, int(port)), timeout=_KNOCKING).close()
        ray.init(address=address, log_to_driver=False, logging_level=logging.CRITICAL)
    except (OSError, RuntimeError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ConfigurationError(
            f"no Ray cluster answers at {address!r} ({reason}); start one with `ray start --head`"
        ) from None
    ray.shutdown()


def _backend(address: str | None) -> dict[str, Any]:
    """Ray on this machine's cores without its dashboard, or a cluster that runs already."""
    # "local": else Ray would join whatever cluster was started last on this machine.
    here = {"address": "local", "num_cpus": threads(), "include_dashboard": False}
    return {
        "init_args": {
            **(here if address is None else {"address": address}),
            "log_to_driver": False,
            "logging_level": logging.ERROR,
        },
        "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
    }
