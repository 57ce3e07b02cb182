"""`veilmap federation`: a federation on real hosts, or for a trial on this one."""

from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import typer

from veilmap import flower
from veilmap.cli.options import (
    SERVER_SEES,
    argument,
    mechanism_from,
    option,
    with_mechanism_options,
)
from veilmap.cli.output import console, working, writable_file, writable_folder, write_json
from veilmap.data.measurements import Measurements
from veilmap.errors import ConfigurationError
from veilmap.federation import Participation
from veilmap.federation.transcript import ServerSees
from veilmap.privacy.mechanisms import MECHANISMS
from veilmap.runs.source import Source

if TYPE_CHECKING:
    from veilmap.flower.deploy.layout import Federation

app = typer.Typer(
    help="Run a federation of real nodes on Flower: keys, files, processes.", no_args_is_help=True
)

_SOME_DOWN = 1  # the exit code of status; 2 is a mistake in the command
_FOLDER = argument("The federation's folder.")


@app.command(
    epilog="Example: `veilmap federation init fed --nodes 3` then `veilmap federation up fed`"
)
@with_mechanism_options
def init(
    folder: Path = _FOLDER,
    nodes: int = option(3, "How many nodes to make keys for.", min=1),
    data: Path | None = option(None, "Measurements to distribute; default: a synthetic city's."),
    host: str = option("127.0.0.1", "Where the server listens for nodes."),
    port: int = option(0, "Its port, and the one after it; 0 takes free ones.", min=0),
    mechanism: str = option("aligned", f"What nodes do to gradients: {', '.join(MECHANISMS)}."),
    protection: Any = None,
    server_sees: str | None = SERVER_SEES,
    rounds: int = option(200, "Training rounds.", min=1),
    cell_size: float = option(3.0, "Side of the map's cells, in metres."),
    days: int = option(365, "How long the certificate is valid.", min=1),
    seed: int | None = option(None, "Fixes the noise: for studies, not for real users.", min=0),
) -> None:
    """Write certificates, node keys, the app, configurations, start scripts and systemd units.

    TLS and node authentication are on, the operator's commands need the folder's token, and nodes
    run no app but veilmap's. Nothing is started.
    """
    flower.require()
    from veilmap.federation.privacy import settled
    from veilmap.flower.deploy import layout

    chosen = mechanism_from(mechanism, protection)
    wanted = cast("ServerSees | None", server_sees)
    settled_mechanism, sees = settled(chosen, wanted, Participation(), nodes, rounds)
    writable_folder(folder)
    with working("reading measurements …") as change:
        crowd, _, grid = Source(data, None, 0, nodes, cell_size).load()
        links = crowd if isinstance(crowd, Measurements) else crowd.load()
        made = layout.init(
            folder,
            nodes=nodes,
            host=host,
            port=port,
            data=links,
            grid=grid,
            mechanism=settled_mechanism,
            server_sees=sees,
            rounds=rounds,
            days=days,
            seed=seed,
            on_node=lambda done: change(f"writing files of nodes: {done} of {nodes} …"),
        )
    console.print(
        f"Wrote a federation of {nodes} nodes to {folder}/; its server will listen on"
        f" {made.address}.\nKeep the folder private: it holds keys and the operator's token;"
        " docs/deployment.md says what goes where.\n"
        f"Try it here: veilmap federation up {folder}, then run {folder}, then down {folder}"
    )
    if sees == "sums":
        digest = sha256(made.roster.read_bytes()).hexdigest()
        console.print(
            "Owners of nodes: before you take part, compare with each other, and not through the"
            f" server, what sha256sum says of your keys/roster. Here it is\n{digest}"
        )


@app.command(epilog="Example: `veilmap federation enrol node-1`")
def enrol(key: Path = argument("File for the node's private key.", metavar="KEY")) -> None:
    """Make a node's key and open its account, on the host of the node's owner.

    Next to KEY, which never leaves that host, are written KEY.pub, a line for the federation's
    roster, and KEY.account.json, what the node has spent of its ε.
    """
    flower.require()
    from veilmap.flower.secagg import enrolment

    public, account = (key.with_name(key.name + end) for end in (".pub", ".account.json"))
    writable_folder(key.parent)
    enrolment.enrol(key, account)
    console.print(
        f"Wrote {key}, {public} and {account}. Send {public} to whoever writes the roster, and name"
        " the other two in the node's configuration",
        soft_wrap=True,
    )


@app.command(epilog="Example: `veilmap federation renew fed --days 365`")
def renew(folder: Path = _FOLDER, days: int = option(365, "How long it is valid.", min=1)) -> None:
    """Make a new key and certificate for the server, where the authority's key is.

    Nodes need nothing new; the server must be started again.
    """
    federation = _opened(folder)
    from veilmap.flower.deploy import layout

    layout.renew(federation, days)
    console.print(
        f"Wrote {federation.folder / 'certificates'}/server.pem and server.key, valid for {days}"
        " days: bring them to the server and start it again"
    )


@app.command(epilog="Example: `veilmap federation up fed`")
def up(folder: Path = _FOLDER) -> None:
    """Start the server and all nodes on this host, for a trial."""
    federation = _opened(folder)
    from veilmap.cli import tables
    from veilmap.flower.deploy import processes

    with working("starting …") as change:
        started = processes.up(federation, lambda step: change(f"{step} …"))
    console.print(tables.process_table(started))


@app.command(epilog="Example: `veilmap federation run fed`")
def run(folder: Path = _FOLDER) -> None:
    """Train: start the app on a federation that is up, and follow it to the end.

    A run that was interrupted continues from its last checkpoint.
    """
    federation = _opened(folder)
    from veilmap.flower.deploy import processes

    if not all(process.running for process in processes.status(federation)):
        raise ConfigurationError(
            f"some processes are down; veilmap federation up {folder} starts them"
        )
    code = processes.run(federation)
    if code or not (federation.folder / "run" / "radio_map.nc").exists():
        raise ConfigurationError(
            f"the run did not end well; {federation.folder / 'logs'} says why; run it again to"
            " go on"
        )
    console.print(f"Wrote the run to {federation.folder / 'run'}/")


@app.command(epilog="Example: `veilmap federation status fed`")
def status(
    folder: Path = _FOLDER,
    json_out: Path | None = option(None, "Also write it to this file.", "--json"),
) -> None:
    """Show which processes run, and where their logs are; exit with 1 unless all of them run."""
    federation = _opened(folder)
    from veilmap.cli import tables
    from veilmap.flower.deploy import processes

    writable_file(json_out)
    found = processes.status(federation)
    console.print(tables.process_table(found))
    write_json(processes.as_dict(found), json_out)
    if not all(process.running for process in found):
        raise typer.Exit(_SOME_DOWN)


@app.command(epilog="Example: `veilmap federation down fed`")
def down(folder: Path = _FOLDER) -> None:
    """Stop all processes that this folder started."""
    federation = _opened(folder)
    from veilmap.cli import tables
    from veilmap.flower.deploy import processes

    with working("stopping …"):
        left = processes.down(federation)
    console.print(tables.process_table(left))


def _opened(folder: Path) -> "Federation":
    """The federation in a folder, where Flower is installed."""
    flower.require()
    from veilmap.flower.deploy.layout import Federation

    return Federation.load(folder)
