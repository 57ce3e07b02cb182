"""The apps of a deployment: what `flwr run` starts on the server and on every node.

The operator's settings come with the run (`flwr run --run-config`), a node's own from its
configuration (`flower-supernode --node-config`): where its measurements are and how it
protects itself. A node never takes its mechanism from the server.
"""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, cast

from flwr.app import Context
from flwr.serverapp import Grid as FlowerGrid
from flwr.serverapp import ServerApp

from veilmap._util import checks
from veilmap.data.measurements import Measurements
from veilmap.errors import ConfigurationError
from veilmap.federation.config import RunConfig
from veilmap.federation.participation import Participation
from veilmap.federation.privacy import settled
from veilmap.federation.rounds import Recording, Training
from veilmap.federation.steps import NoiseAwareStep
from veilmap.federation.transcript import ServerSees
from veilmap.flower.client import Own, client_app
from veilmap.flower.secagg.engine import exchange_for
from veilmap.flower.secagg.enrolment import Enrolment, Roster
from veilmap.geometry.grid import Grid
from veilmap.privacy.mechanisms import MECHANISMS, Mechanism, named

Settings = Mapping[str, Any]


def node_settings(settings: Settings) -> Own:
    """A node's own data and mechanism, from its configuration."""
    if "data" not in settings:
        raise ConfigurationError(
            'the node\'s configuration names no data: data="/path/links.parquet"'
        )
    mechanism = mechanism_of(settings)
    enrolment = _enrolment(settings) if trust_of(settings, mechanism) == "sums" else None
    data = Measurements.load(Path(str(settings["data"])))
    return Own(data, mechanism, _seed(settings), enrolment)


def _enrolment(settings: Settings) -> Enrolment:
    """Who the node is and whom it knows; without that it takes part in no sum."""
    needed = ("key", "roster", "account")
    for name in needed:
        if name not in settings:
            raise ConfigurationError(f'the node\'s configuration names no {name}: {name}="/path"')
    return Enrolment.load(*(Path(str(settings[name])) for name in needed))


def mechanism_of(settings: Settings) -> Mechanism:
    """The mechanism that settings name, with its parameters."""
    known = {field.name for kind in MECHANISMS.values() for field in fields(kind)}
    spelt = {name: name.replace("_", "-") for name in known}
    given = {name: settings[key] for name, key in spelt.items() if key in settings}
    return named(str(settings.get("mechanism", "aligned")), given)


def trust_of(settings: Settings, mechanism: Mechanism) -> ServerSees:
    """What the server sees: by default what the mechanism is made for."""
    sees = str(settings.get("server-sees", "sums" if mechanism.needs_sums else "uploads"))
    if sees not in ("uploads", "sums"):
        raise ConfigurationError(f"server-sees is 'uploads' or 'sums', not {sees!r}")
    if mechanism.needs_sums and sees != "sums":
        raise ConfigurationError(f"{mechanism.name} protects only sums: server-sees must be 'sums'")
    return cast("ServerSees", sees)


def training_of(settings: Settings) -> Training:
    """A training, from the run's configuration; one that was begun in its folder goes on."""
    for name in ("out", "cell-size", "rows", "columns"):
        if name not in settings:
            raise ConfigurationError(f"the run's configuration has no {name}")
    grid = Grid(
        settings["cell-size"],
        (settings["rows"], settings["columns"]),
        (float(settings.get("west", 0.0)), float(settings.get("south", 0.0))),
        str(settings.get("crs", "")) or None,
    )
    rounds = checks.whole("rounds", settings.get("rounds", 200), least=1)
    crowd = Participation(share=settings.get("share", 1.0))
    seed, out = _seed(settings), Path(str(settings["out"]))
    chosen = mechanism_of(settings)
    # What cannot keep its promise is refused before anybody is asked.
    mechanism, sees = settled(
        chosen, trust_of(settings, chosen), crowd, least_users(settings), rounds
    )
    return Training(
        RunConfig(
            grid,
            mechanism,
            sees,
            rounds,
            seed,
            NoiseAwareStep(),
            crowd,
            robust=bool(settings.get("robust", False)),
        ),
        Recording(out, RunConfig.exists(out), settings.get("checkpoint-every", 1)),
    )


def least_users(settings: Settings) -> int:
    """How many users a run waits for before it starts."""
    return checks.whole("least-users", settings.get("least-users", 2), least=1)


def _seed(settings: Settings) -> int | None:
    return checks.whole("seed", settings["seed"], least=0) if "seed" in settings else None


client = client_app(lambda context: node_settings(context.node_config))
server = ServerApp()


@server.main()
def main(grid: FlowerGrid, context: Context) -> None:
    """Play the training that the run's configuration asks for."""
    settings: Settings = context.run_config
    training = training_of(settings)
    exchange = exchange_for(
        training,
        grid,
        Roster.load(Path(str(settings["roster"]))) if "roster" in settings else None,
        least_users=least_users(settings),
        patience=checks.number("patience", settings.get("patience", 600.0), above=0),
        deadline=checks.number("deadline", settings.get("deadline", 60.0), above=0),
        least_cohort=checks.whole("least-cohort", settings.get("least-cohort", 1), least=1),
    )
    training.play(exchange)
