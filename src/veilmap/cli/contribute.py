"""`veilmap contribute`: take part in a survey with one's own measurements."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import typer

from veilmap import collection
from veilmap.cli.options import argument, option, pairs
from veilmap.cli.output import console, working, writable_file
from veilmap.errors import ConfigurationError, DataError

if TYPE_CHECKING:
    from veilmap.collection.client import Aggregators

AUTHORITY = option(
    None, "Certificate of a private authority that certifies the aggregators, such as ca.crt."
)


def contribute(
    address: str = argument(
        "The leader's address, or the link of an invitation.", metavar="ADDRESS"
    ),
    data: Path | None = argument("Your measurements: .csv, .parquet or .gpkg.", default=None),
    invitation: str | None = option(None, "The code of your invitation, if the link has none."),
    digest: str | None = option(None, "Digest of the survey that you were told, or its first 8."),
    user: str | None = option(
        None, "Whose measurements to send, if the file has several people's."
    ),
    columns: list[str] | None = option(
        None, "NAME=COLUMN: which column is which, such as gain=rsrp (may be repeated).", "--column"
    ),
    quantity: str = option("gain", "What the values are: gain, rss, rsrp (dBm) or path-loss."),
    tx_power: float = option(0.0, "Power sent in dBm, taken off rss and rsrp."),
    authority: Path | None = AUTHORITY,
    receipt: Path = option(Path("receipt.json"), "File for the receipt; keep it."),
    check: bool = option(False, "Only look whether the receipt's report is in the sum.", "--check"),
    yes: bool = option(False, "Send without asking.", "--yes"),
) -> None:
    """Take part in a survey: see what would leave this computer, then send it.

    The measurements stay here. Each of two aggregators gets a half that is random by itself.
    """
    collection.require()
    from veilmap.collection.client import Aggregators
    from veilmap.collection.connection import connected

    address, code = _split(address)
    with connected(authority) as client:
        aggregators = Aggregators.of(client, address, digest)
        if check:
            _check(aggregators, receipt)
            return
        if data is None:
            raise ConfigurationError("name the file of your measurements after the address", "data")
        writable_file(receipt)
        how = {
            "user": user,
            "columns": pairs("--column", columns, "NAME=COLUMN such as gain=rsrp"),
            "quantity": quantity,
            "tx_power_dbm": tx_power,
        }
        _take_part(aggregators, data, how, receipt, invitation or code, yes=yes)


def _take_part(
    aggregators: "Aggregators",
    file: Path,
    how: Mapping[str, object],
    receipt: Path,
    invitation: str | None,
    *,
    yes: bool,
) -> None:
    from veilmap.cli import tables
    from veilmap.collection.client import Sending
    from veilmap.collection.readings import contributed, readings_of

    task = aggregators.task
    sending = Sending.begun(task, receipt)
    own, left_out = readings_of(file, task.survey, **how)  # type: ignore[arg-type]
    vector = contributed(task.survey, own)
    if not vector.used:
        raise DataError(
            f"none of the {len(own)} readings of {file} is of a surveyed base station in the"
            " survey's area: nothing would be told"
        )
    console.print(tables.contribution_table(task, vector, left_out))
    if not yes:
        if not sys.stdin.isatty():
            raise ConfigurationError("nobody can be asked here: give --yes to send it", "yes")
        if not typer.confirm("Send it?"):
            console.print("Nothing was sent.")
            return
    with working("getting what admits the report …"):
        sending.admit(aggregators, invitation)
    with working("sending …"):
        sending.send(vector, aggregators, lambda role: None)
    console.print(
        f"Both aggregators have taken it. The receipt is {receipt}: after the survey, --check says"
        " by it whether the report was counted.",
        soft_wrap=True,
    )


def _check(aggregators: "Aggregators", receipt: Path) -> None:
    """Say whether both aggregators list a receipt's report."""
    from veilmap.collection.client import receipt_in
    from veilmap.collection.task import ROLES

    content = receipt_in(receipt)
    if content["task"] != aggregators.task.digest:
        raise DataError(f"{receipt} is of another survey, {content['task'][:16]}")
    report = bytes.fromhex(content["id"])
    missing = [role for role in ROLES if report not in aggregators.listed(role)]
    if missing:
        raise DataError(
            f"the report of {receipt} is not in the sum, says the {' and the '.join(missing)}: show"
            " the receipt to both operators"
        )
    console.print("Your report is in the sum: leader and helper both list it.")


def _split(address: str) -> tuple[str, str | None]:
    """The aggregator's address, and the invitation's code in a link's fragment."""
    try:
        parts = urlsplit(address)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ConfigurationError(
            f"{address} is no address such as https://radio.example.org", "address"
        )
    return f"{parts.scheme}://{parts.netloc}", parts.fragment or None
