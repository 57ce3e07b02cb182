"""A node's own account: which sessions it took part in, and what it has spent of its ε.

It belongs to the person, by the node's key, and not to a file of measurements. Every entry is
written durably and under a lock before the answer that it stands for is computed: whatever the
server asks, however many processes ask at once, wherever the node is killed, no answer is given
twice and none goes uncharged.
"""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from veilmap._util import files, reading
from veilmap._util.plain import to_plain
from veilmap.errors import PrivacyError
from veilmap.privacy.accounting import Ledger
from veilmap.privacy.mechanisms import AggregateGaussian, Mechanism

# Of a session, in their order; each is answered once.
STAGES = ("setup", "share_keys", "collect_masked_vectors", "agree", "unmask")
CHARGED = STAGES[2]  # the only one that touches data

_USER = "this node's"
_PATIENCE = 30.0  # seconds to wait for another process of this node


@dataclass(frozen=True)
class NodeAccount:
    """What a node has done so far."""

    owner: str  # fingerprint of the node's public key
    session: int = 0  # the newest one it took part in; it never joins an older one
    stage: str = ""  # the last one of it that was answered; empty before the first session
    answers: int = 0  # sums that hold a contribution of this node
    mechanism: dict[str, Any] | None = None  # by which they were protected; None before the first


def enrol(path: Path, owner: str) -> None:
    """Open the account of a new key; one that exists already is left as it is."""
    with files.locked(_lock(path), wait=_PATIENCE):
        if path.exists():
            load(path, owner)
        else:
            files.write_json(asdict(NodeAccount(owner)), path, secret=True)


def enter(path: Path, owner: str, session: int, stage: str, mechanism: Mechanism) -> None:
    """Note that this node answers a stage of a session, or refuse it.

    Sessions only go forward, and so do their stages. The stage that touches data is paid for
    here: once this returns, the answer may be computed.
    """
    with files.locked(_lock(path), wait=_PATIENCE):
        before = load(path, owner)
        after = _advanced(before, session, stage)
        if stage == CHARGED:
            after = _charged(after, mechanism)
        files.write_json(asdict(after), path, secret=True)


def load(path: Path, owner: str) -> NodeAccount:
    """The account of a key; without one nothing is known to be left of its ε."""
    if not path.exists():
        raise PrivacyError(
            f"the account {path} is missing, and with it what this node has spent: restore it, or"
            " enrol the node with a new key"
        )
    try:
        account = NodeAccount(**reading.read_json(path))
        if account.session < 0 or account.answers < 0 or account.stage not in ("", *STAGES):
            raise ValueError("a number or stage that no account comes to")
    except (TypeError, ValueError) as error:
        raise PrivacyError(
            f"the account {path} is damaged, and with it what this node has spent"
        ) from error
    if account.owner != owner:
        raise PrivacyError(f"the account {path} belongs to another node's key")
    return account


def _advanced(account: NodeAccount, session: int, stage: str) -> NodeAccount:
    """The account once a stage is answered, if it is that stage's turn."""
    if stage == STAGES[0]:
        if session <= account.session:
            raise PrivacyError(
                f"session {session} is not newer than session {account.session}, in which this"
                " node took part: nothing is sent"
            )
        return replace(account, session=session, stage=stage)
    due = (*STAGES, "")[STAGES.index(account.stage) + 1] if account.stage else ""
    if session != account.session or stage != due:
        raise PrivacyError(
            f"the server asks for {stage} of session {session}, but {due or 'nothing'} of session"
            f" {account.session} is due: no stage is answered twice"
        )
    return replace(account, stage=stage)


def _charged(account: NodeAccount, mechanism: Mechanism) -> NodeAccount:
    """The account after one more answer, if the promise still holds with it."""
    if not isinstance(mechanism, AggregateGaussian):
        return account  # promises nothing
    public = json.loads(json.dumps(to_plain(mechanism)))
    if account.mechanism not in (None, public):
        raise PrivacyError(
            "this node's account was spent with other settings of the mechanism: what was promised"
            " to its user cannot be added up; keep the settings"
        )
    ledger = Ledger(mechanism, spent={_USER: account.answers})
    if not ledger.affords([_USER]):
        raise PrivacyError(
            f"this node has spent its ε = {mechanism.epsilon:g} in {account.answers} rounds and"
            " answers no more"
        )
    return replace(account, answers=account.answers + 1, mechanism=public)


def _lock(path: Path) -> Path:
    return path.with_name(path.name + ".lock")
