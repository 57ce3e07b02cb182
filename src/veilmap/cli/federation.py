"""`veilmap federation`: a federation on real hosts, or for a trial on this one."""

from hashlib import sha256
from pathlib import Path
from typing import Annotated

import typer

from veilmap import flower
from veilmap.cli.options import AllowMissing, Budget, Delta, Epsilon, Sees, console, writable_folder
from veilmap.cli.train import mechanism_from, trust_from
from veilmap.data.measurements import Measurements
from veilmap.errors import ConfigurationError
from veilmap.federation import Participation
from veilmap.privacy.mechanisms import MECHANISMS
from veilmap.runs.source import Source

app = typer.Typer(
    help="Run a federation of real nodes on Flower: keys, files, processes.",
    no_args_is_help=True,
)

Folder = Annotated[Path, typer.Argument(help="The federation's folder.")]


@app.command(
    epilog="Example: `veilmap federation init fed --nodes 3` then `veilmap federation up fed`"
)
def init(
    folder: Folder,
    nodes: Annotated[int, typer.Option(min=1, help="How many nodes to make keys for.")] = 3,
    data: Annotated[
        Path | None,
        typer.Option(help="Measurements to deal out to the nodes; by default a synthetic city's."),
    ] = None,
    host: Annotated[str, typer.Option(help="Where the server listens for nodes.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, help="Its port, and more after it; 0 takes free ones.")
    ] = 0,
    mechanism: Annotated[
        str, typer.Option(help=f"What nodes do to gradients: {', '.join(MECHANISMS)}.")
    ] = "aligned",
    budget: Budget = None,
    epsilon: Epsilon = None,
    delta: Delta = None,
    allow_missing: AllowMissing = None,
    server_sees: Sees = None,
    rounds: Annotated[int, typer.Option(min=1, help="Training rounds.")] = 200,
    cell_size: Annotated[float, typer.Option(help="Side of the map's cells, in metres.")] = 3.0,
    days: Annotated[int, typer.Option(min=1, help="How long the certificate is valid.")] = 365,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Fixes the noise: for studies, not for real users.")
    ] = None,
) -> None:
    """Write certificates, node keys, the app, configurations, start scripts and systemd units.

    TLS and node authentication are on, the operator's commands need the folder's token, and nodes
    run no app but veilmap's. Nothing is started.
    """
    flower.require()
    from veilmap.federation.privacy import settled
    from veilmap.flower.deploy import layout

    chosen = mechanism_from(
        mechanism, noise_budget=budget, epsilon=epsilon, delta=delta, dropout=allow_missing
    )
    settled_mechanism, sees = settled(
        chosen, trust_from(server_sees), Participation(), nodes, rounds
    )
    writable_folder(folder)
    crowd, _, grid = Source(data, None, 0, nodes, cell_size).load()
    links = crowd if isinstance(crowd, Measurements) else crowd.load()
    made = layout.init(
        folder, nodes=nodes, host=host, port=port, data=links, grid=grid,
        mechanism=settled_mechanism, server_sees=sees, rounds=rounds, days=days, seed=seed,
    )  # fmt: skip
    console.print(
        f"Wrote a federation of {nodes} nodes to {folder}/; its server will listen on"
        f" {made.address}.\nKeep the folder private: it holds keys and the operator's token;"
        " docs/deploy.md says what goes where.\n"
        f"Try it here: veilmap federation up {folder}, then run {folder}, then down {folder}"
    )
    if sees == "sums":
        digest = sha256(made.roster.read_bytes()).hexdigest()
        console.print(
            "Owners of nodes: before you take part, compare with each other, and not through the"
            f" server, what sha256sum says of your keys/roster. Here it is\n{digest}"
        )


@app.command(epilog="Example: `veilmap federation enrol node-1`")
def enrol(
    key: Annotated[Path, typer.Argument(metavar="KEY", help="File for the node's private key.")],
) -> None:
    """Make a node's key and open its account, on the host of the node's owner.

    Next to KEY, which never leaves that host, are written KEY.pub, a line for the federation's
    roster, and KEY.account.json, what the node has spent of its ε.
    """
    flower.require()
    from veilmap.flower.deploy import layout

    public, account = (key.with_name(key.name + end) for end in (".pub", ".account.json"))
    writable_folder(key.parent)
    layout.enrol(key, account)
    console.print(
        f"Wrote {key}, {public} and {account}. Send {public} to whoever writes the roster, and name"
        " the other two in the node's configuration",
        soft_wrap=True,
    )


@app.command(epilog="Example: `veilmap federation renew fed --days 365`")
def renew(
    folder: Folder,
    days: Annotated[int, typer.Option(min=1, help="How long it is valid.")] = 365,
) -> None:
    """Make a new key and certificate for the server, where the authority's key is.

    Nodes need nothing new; the server must be started again.
    """
    flower.require()
    from veilmap.flower.deploy import Federation, layout

    federation = Federation.load(folder)
    layout.renew(federation, days)
    console.print(
        f"Wrote {federation.folder / 'certificates'}/server.pem and server.key, valid for {days}"
        " days: bring them to the server and start it again"
    )


@app.command(epilog="Example: `veilmap federation up fed`")
def up(folder: Folder) -> None:
    """Start the server and all nodes on this host, for a trial."""
    flower.require()
    from veilmap.flower import deploy

    with console.status("starting …"):
        processes = deploy.up(deploy.Federation.load(folder))
    _show(processes)


@app.command(epilog="Example: `veilmap federation run fed`")
def run(folder: Folder) -> None:
    """Train: start the app on a federation that is up, and follow it to the end.

    A run that was cut off goes on from its last checkpoint.
    """
    flower.require()
    from veilmap.flower import deploy

    federation = deploy.Federation.load(folder)
    if not all(process.running for process in deploy.status(federation)):
        raise ConfigurationError(
            f"not everything is running; veilmap federation up {folder} starts it"
        )
    code = deploy.run(federation)
    if code or not (federation.folder / "run" / "radio_map.nc").exists():
        raise ConfigurationError(
            f"the run did not end well; {federation.folder / 'logs'} says why; run it again to"
            " go on"
        )
    console.print(f"Wrote the run to {federation.folder / 'run'}/")


@app.command(epilog="Example: `veilmap federation status fed`")
def status(folder: Folder) -> None:
    """Show which processes run, and where their logs are."""
    flower.require()
    from veilmap.flower import deploy

    _show(deploy.status(deploy.Federation.load(folder)))


@app.command(epilog="Example: `veilmap federation down fed`")
def down(folder: Folder) -> None:
    """Stop all processes that this folder started."""
    flower.require()
    from veilmap.flower import deploy

    with console.status("stopping …"):
        processes = deploy.down(deploy.Federation.load(folder))
    _show(processes)


def _show(processes: list) -> None:
    from veilmap.cli import tables

    console.print(tables.process_table(processes))
