"""A node's own account of its ε: it stops by itself, whatever the server asks."""

import json
from pathlib import Path

from veilmap import _files
from veilmap._describe import described
from veilmap.accounting import Ledger
from veilmap.errors import VeilmapError
from veilmap.mechanisms import AggregateGaussian, Mechanism

_USER = "this node's"


def spend(file: Path, mechanism: Mechanism) -> None:
    """Note one more answer, or refuse it if the promise would not hold any more.

    It is noted before the answer leaves, for the node cannot know whether its sum is opened.
    """
    if not isinstance(mechanism, AggregateGaussian):
        return  # promises nothing
    ledger = _load(file, mechanism)
    if not ledger.affords([_USER]):
        raise VeilmapError(
            f"this node has spent its ε = {mechanism.epsilon:g} in {ledger.spent[_USER]} rounds"
            " and answers no more"
        )
    ledger.spend(len(ledger.opened), [_USER])
    _files.write_json({"mechanism": described(mechanism), **ledger.as_dict()}, file)


def _load(file: Path, mechanism: AggregateGaussian) -> Ledger:
    if not file.exists():
        return Ledger(mechanism)
    try:
        content = json.loads(file.read_text())
        spent_with = content["mechanism"]
        ledger = Ledger.from_dict(mechanism, content)
    except (KeyError, TypeError, ValueError) as error:
        raise VeilmapError(f"{file} is damaged, and with it what this node has spent") from error
    if spent_with != described(mechanism):
        raise VeilmapError(
            f"{file} was spent with other settings of the mechanism: what was promised to the user"
            " cannot be added up; keep the settings"
        )
    return ledger
