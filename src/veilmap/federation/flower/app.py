"""The apps of a deployment: what `flwr run` starts on the server and on every node.

The operator's settings come with the run (`flwr run --run-config`), a node's own from its
configuration (`flower-supernode --node-config`): where its measurements are and how it
protects itself. A node never takes its mechanism from the server.
"""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context
from flwr.serverapp import Grid as FlowerGrid
from flwr.serverapp import ServerApp

from veilmap import _checks
from veilmap._describe import described
from veilmap.errors import VeilmapError
from veilmap.federation.flower.client import Own, client_app
from veilmap.federation.flower.exchange import FlowerExchange
from veilmap.federation.folder import FORMAT
from veilmap.federation.participation import Participation
from veilmap.federation.rounds import Training
from veilmap.federation.steps import NoiseAwareStep
from veilmap.geometry import Grid
from veilmap.measurements import Measurements
from veilmap.mechanisms import MECHANISMS, Mechanism

Settings = Mapping[str, Any]

_MECHANISM = {"clip", "noise-budget", "tradeoff"}


def node_settings(settings: Settings) -> Own:
    """A node's own data and mechanism, from its configuration."""
    if "data" not in settings:
        raise VeilmapError('the node\'s configuration names no data: data="/path/links.parquet"')
    return Own(Measurements.load(str(settings["data"])), mechanism_of(settings), _seed(settings))


def mechanism_of(settings: Settings) -> Mechanism:
    """The mechanism that settings name, with its parameters."""
    name = str(settings.get("mechanism", "aligned"))
    if name not in MECHANISMS:
        raise VeilmapError(f"no mechanism {name!r}; there are {', '.join(MECHANISMS)}")
    kind = MECHANISMS[name]
    if kind.needs_sums:
        raise VeilmapError(f"{name} protects only sums, and this server sees every upload")
    given = {key.replace("-", "_"): settings[key] for key in _MECHANISM if key in settings}
    unknown = given.keys() - {field.name for field in fields(kind)}
    if unknown:
        raise VeilmapError(f"the mechanism {name} has no {', '.join(sorted(unknown))}")
    return kind(**given)


def training_of(settings: Settings) -> Training:
    """A training, from the run's configuration; one that was begun in its folder goes on."""
    for name in ("out", "cell-size", "rows", "columns"):
        if name not in settings:
            raise VeilmapError(f"the run's configuration has no {name}")
    grid = Grid(
        settings["cell-size"],
        (settings["rows"], settings["columns"]),
        (float(settings.get("west", 0.0)), float(settings.get("south", 0.0))),
    )
    mechanism, step = mechanism_of(settings), NoiseAwareStep()
    rounds = _checks.whole("rounds", settings.get("rounds", 200), least=1)
    crowd = Participation(share=settings.get("share", 1.0))
    seed, out = _seed(settings), Path(str(settings["out"]))
    config = {
        "format": FORMAT,
        "rounds": rounds,
        "seed": seed,
        "grid": described(grid),
        "mechanism": described(mechanism),
        "server_sees": "uploads",
        "step": described(step),
        "participation": described(crowd),
        "data": None,  # stays with the nodes
    }
    return Training(
        grid, mechanism, "uploads", rounds, seed, step, crowd, config, np.zeros((0, 3)),
        out=out, resume=(out / "config.json").exists(),
        checkpoint_every=_checks.whole("checkpoint-every", settings.get("checkpoint-every", 1),
                                       least=1),
    )  # fmt: skip


def _seed(settings: Settings) -> int | None:
    return _checks.whole("seed", settings["seed"], least=0) if "seed" in settings else None


client = client_app(lambda context: node_settings(context.node_config))
server = ServerApp()


@server.main()
def main(grid: FlowerGrid, context: Context) -> None:
    """Play the training that the run's configuration asks for."""
    settings: Settings = context.run_config
    exchange = FlowerExchange(
        grid,
        least_users=_checks.whole("least-users", settings.get("least-users", 2), least=1),
        patience=_checks.number("patience", settings.get("patience", 600.0), above=0),
        deadline=_checks.number("deadline", settings.get("deadline", 60.0), above=0),
    )
    training_of(settings).play(exchange)
