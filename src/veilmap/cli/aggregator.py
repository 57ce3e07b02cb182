"""`veilmap aggregator`: one of the two services that add up a survey of real participants."""

import secrets
import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import typer

from veilmap import collection
from veilmap._util import files
from veilmap.cli.contribute import AUTHORITY
from veilmap.cli.options import option
from veilmap.cli.output import console, working, writable_file, writable_folder
from veilmap.errors import ConfigurationError

if TYPE_CHECKING:
    from veilmap.collection.folder import AggregatorFolder
    from veilmap.collection.task import Role, Task

app = typer.Typer(
    help="Serve one half of a survey of real participants: leader or helper.", no_args_is_help=True
)

ROLE = option(..., "leader or helper.")
TASK = option(..., "The survey's task, as `survey publish` writes it.")
FOLDER = option(None, "The aggregator's folder; default: named after its role.")
DATABASE = option(
    None,
    "sqlite:///FILE or postgresql://…; default: a file in the folder.",
    envvar="VEILMAP_DATABASE",
)
_MOST_INVITATIONS = 1_000_000


@app.command(
    epilog="Example: `veilmap aggregator init --role leader --address https://radio.example.org`"
)
def init(
    role: str = ROLE,
    address: str = option(..., "Where clients reach it: https://HOST or https://HOST:PORT."),
    folder: Path | None = FOLDER,
    host: str = option("127.0.0.1", "Address that the process listens on."),
    port: int = option(8443, "Port that it listens on.", min=1, max=65535),
    own_authority: Path | None = option(
        None,
        "Folder of a private authority, made if it is not there, for a certificate of this"
        " aggregator; default: none, TLS ends elsewhere or has a certificate of its own.",
    ),
    days: int = option(365, "How long that certificate is valid.", min=1, max=3650),
) -> None:
    """Make keys, a systemd unit and a Containerfile for an aggregator; each on its own host.

    Give public.json to who publishes the survey. Everything else stays in the folder.
    """
    collection.require()
    from veilmap.collection.folder import AggregatorFolder
    from veilmap.collection.task import origin

    known, where = _role(role), origin("address", address)
    folder = folder or Path(known)
    writable_folder(folder)
    named = urlsplit(where).hostname or host
    names = list(dict.fromkeys([named, host, socket.gethostname(), "127.0.0.1", "localhost"]))
    AggregatorFolder.init(
        folder, known, where, host=host, port=port, authority=own_authority, names=names, days=days
    )
    console.print(
        f"Wrote the {known}'s folder {folder}/. It holds keys: keep it private, but for"
        f" {folder}/public.json, which veilmap survey publish takes.",
        soft_wrap=True,
    )


@app.command(epilog="Example: `veilmap aggregator serve --survey task.json --role leader`")
def serve(
    survey: Path = TASK,
    role: str = ROLE,
    folder: Path | None = FOLDER,
    host: str = option("127.0.0.1", "Address to listen on."),
    port: int = option(8443, "Port; 0 takes a free one.", min=0, max=65535),
    database: str | None = DATABASE,
    certificate: Path | None = option(None, "Certificate for TLS, with its chain (PEM)."),
    key: Path | None = option(None, "The certificate's private key (PEM)."),
    authority: Path | None = option(
        None,
        "Certificate of the private authority that certifies the helper; default: authority.crt in"
        " the folder, if it is there.",
    ),
) -> None:
    """Serve until Ctrl-C or SIGTERM; can be killed at any moment, and goes on where it was.

    Without a certificate it speaks plain HTTP, for a proxy on the same host that ends TLS.
    """
    collection.require()
    from veilmap.collection.serving import serve

    own, task = _opened(role, folder), _task(survey)
    if authority is None and own.authority.exists():
        authority = own.authority

    def on_ready(where: str) -> None:
        console.print(f"The {own.role} of task {task.digest[:16]} is at {where}", soft_wrap=True)
        console.print(f"Clients reach it as {task.address(own.role)} until {task.closes}")

    serve(
        own, task, host=host, port=port, database=database, certificate=certificate, key=key,
        authority=authority, on_ready=on_ready,
    )  # fmt: skip


@app.command(
    epilog="Example: `veilmap aggregator invite --survey task.json --count 200 --out links.txt`"
)
def invite(
    survey: Path = TASK,
    count: int = option(..., "How many people to invite.", min=1, max=_MOST_INVITATIONS),
    out: Path = option(..., "File for the links, one a line; who has a link can take part once."),
    folder: Path | None = FOLDER,
    database: str | None = DATABASE,
) -> None:
    """Make invitations, on the leader's host, while it serves or not."""
    collection.require()
    from veilmap.collection.admission import Invitations
    from veilmap.collection.store import StorageError, Store

    own, task = _opened("leader", folder), _task(survey)
    own.key_for(task)
    writable_file(out)
    if out.exists():
        raise ConfigurationError(f"{out} is there already: name a new file", "out")
    if not isinstance(task.admission, Invitations):
        raise ConfigurationError("this survey has no invitations: anybody may take part", "survey")
    codes = [secrets.token_urlsafe(16) for _ in range(count)]
    store = Store(database or own.database, task, "leader", serving=False)
    try:
        files.write_text(
            "".join(f"{task.leader}/take-part#{code}\n" for code in codes), out, secret=True
        )
        with working("making invitations …"):
            store.invite(codes)
    except StorageError as error:
        out.unlink()
        raise ConfigurationError(f"no invitation was made: {error}", "database") from None
    finally:
        store.close()
    console.print(f"Wrote {count:,} links to {out}: give each to one person.", soft_wrap=True)


@app.command(epilog="Example: `veilmap aggregator check --survey task.json`")
def check(survey: Path = TASK, authority: Path | None = AUTHORITY) -> None:
    """Check that both aggregators answer, serve the same task, and that TLS and clocks are well."""
    collection.require()
    from veilmap.cli import tables
    from veilmap.collection.checking import checked
    from veilmap.collection.connection import connected

    task = _task(survey)
    with connected(authority) as client:
        found = [checked(task, role, client, datetime.now(UTC)) for role in ("leader", "helper")]
    console.print(tables.aggregators_table(task, found))
    problems = [problem for one in found for problem in one.problems]
    if problems:
        raise ConfigurationError(problems[0])


def _role(role: str) -> "Role":
    from veilmap.collection.task import ROLES

    for known in ROLES:
        if role == known:
            return known
    raise ConfigurationError(f"role must be leader or helper, not {role!r}", "role")


def _opened(role: str, folder: Path | None) -> "AggregatorFolder":
    """The folder of the aggregator with a role."""
    from veilmap.collection.folder import AggregatorFolder

    known = _role(role)
    found = AggregatorFolder.existing(folder or Path(known))
    if found.role != known:
        raise ConfigurationError(f"{found.path} is the folder of the {found.role}", "role")
    return found


def _task(path: Path) -> "Task":
    from veilmap.collection.task import Task

    return Task.load(path)
