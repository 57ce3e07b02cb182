"""What the two aggregators do: take halves of reports, pair them, add them, and open one sum.

    clients → reports → pairs → (leader) Σ masked, (helper) Σ masks → + noise each → collector

The leader asks, the helper answers; either can die at any moment, and what is asked twice is done
once. Nothing here knows of HTTP.
"""

import base64
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from veilmap._util import files, reading
from veilmap._util.plain import DAMAGED
from veilmap.collection import report as reports
from veilmap.collection import shares
from veilmap.collection.admission import Invitations, Issuer
from veilmap.collection.keys import SigningKey, is_signed
from veilmap.collection.report import Half, Refusal
from veilmap.collection.store import (
    PAIRED,
    STATES,
    WAITING,
    Standing,
    Store,
    already_opened,
    entries_of,
)
from veilmap.collection.task import Role, Task
from veilmap.collection.verification import (
    judged_by_helper,
    parsed_request,
    request_bytes,
    verify_key,
    with_messages,
)
from veilmap.errors import ConfigurationError, DataError
from veilmap.surveys.aggregate import add_noise

_MOST_IN_JOB = 500  # reports
_MOST_PROVEN_IN_JOB = 100  # reports with proofs, each of which takes a millisecond or two
_JOB_BYTES = 32_000_000  # of the leader's shares in a job: what it holds in memory
_OFFER_AGAIN = 5.0  # seconds after the helper did not have a report's other half
_NOT_YET = 1.0  # seconds since 1970: after 0, when nothing was offered, and before all offers
_ENTRY = reports.ID_BYTES + 2 * reports.HASH_BYTES
_HEAD = 16  # of a job: its number, and whether the leader has offered all


class Peer(Protocol):
    """The helper, as the leader reaches it."""

    def job(self, content: bytes) -> bytes:
        """What the helper answers to a job."""
        ...

    def close(self) -> int:
        """Have the helper take no more reports; how many have no other half."""
        ...

    def opening(self, statement: bytes, signature: str) -> str:
        """Have the helper open its share; its signature under the statement."""
        ...


@dataclass
class Aggregator:
    """One of the two, with its database and its key.

    ``opening`` is a file beside the database for the noisy share: a database that is put back as it
    was before the opening gets the same noise again. ``clock`` gives seconds since 1970; with a
    ``seed``, for tests, noise protects nobody.
    """

    task: Task
    role: Role
    store: Store
    key: SigningKey
    opening: Path | None = None
    clock: Callable[[], float] = time.time
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.opening is None or not self.opening.exists():
            return
        statement, _ = _opening_in(self.opening)
        if task_in(statement) != self.task.digest:
            raise ConfigurationError(
                f"{self.opening} is of another survey: an aggregator has a folder for each",
                "folder",
            )

    # ---- clients

    def parsed(self, content: bytes) -> Half:
        """A client's half, checked as far as that goes without the database."""
        if self.clock() < self.task.opens_at.timestamp():
            raise Refusal("early", f"this survey opens {self.task.opens}: send it then", 403)
        return reports.parsed(content, self.task, self.role)

    def take(self, halves: list[Half]) -> list[Refusal | None]:
        """Store halves; what is None is stored for good."""
        return self.store.take(halves, self.clock())

    def receipt(self, half: Half) -> str:
        """The signature by which a client can show that its half was taken."""
        return self.key.sign("receipt", receipt_text(self.task, self.role, half.id, half.hashes))

    # ---- both

    def expire(self) -> int:
        """Delete halves whose other half did not come in time."""
        return self.store.expire(self.clock() - self.task.pairing_hours * 3600)

    def standing(self) -> Standing:
        """How the survey stands here."""
        return self.store.standing()

    def noised(self, statement: bytes, total: shares.Elements) -> shares.Elements:
        """The sum of shares with the whole noise of the promise, which is drawn once."""
        if self.opening is not None and self.opening.exists():
            known, opened = _opening_in(self.opening)
            if known != statement:
                raise already_opened()
            return opened
        noisy = shares.centred(total)
        add_noise(self.task.survey, noisy, self.seed, 0 if self.role == "leader" else 1)
        opened = shares.residues(noisy)
        if self.opening is not None:
            share = base64.b64encode(shares.to_bytes(opened)).decode()
            content = json.dumps({"statement": statement.decode(), "share": share})
            files.write_text(content, self.opening, secret=True)
        return opened

    def certificate(self) -> dict[str, str] | None:
        """Which sum was opened, signed by both, once it was."""
        standing = self.standing()
        if standing.state != "opened" or standing.statement is None or standing.signature is None:
            return None
        own = self.key.sign("opening", standing.statement)
        signed: dict[str, str] = {self.role: own, _other(self.role): standing.signature}
        return {"statement": standing.statement.decode(), **signed}


@dataclass
class Helper(Aggregator):
    """Answers the leader."""

    def answer(self, content: bytes) -> bytes:
        """Add those reports of a job that are here and belong to the leader's."""
        if not _HEAD <= len(content) <= most_job_bytes(self.task):
            raise Refusal("malformed", f"a job has between {_HEAD} and so many bytes", 413)
        number, all_offered = int.from_bytes(content[:8]), int.from_bytes(content[8:_HEAD])
        if number >= 2**31 or all_offered > 1:
            raise Refusal("malformed", "the job's number is none")
        swept, request = self.clock() if all_offered else None, content[_HEAD:]
        if self.task.proofs is None:
            entries_of(request)
            return self.store.answer_job(number, request, swept)
        told = parsed_request(self.task, request)
        judged = judged_by_helper(self.task, self.store, told)
        return self.store.answer_job(number, told.request, swept, judged)

    def open(self, statement: bytes, signature: str) -> str:
        """Write the opening into the ledger and add noise, if both have the same reports."""
        if not is_signed(self.task.leader_key, "opening", statement, signature):
            raise Refusal("not signed", "the leader did not sign this opening", 403)
        with self.store.undisturbed():  # what is opened is what was compared
            if statement != self._own_statement(statement):
                raise Refusal(
                    "disagreement",
                    "leader and helper do not have the same reports: nothing is opened; compare"
                    " both databases",
                    409,
                )
            check_enough(self.task, self.standing().added)
            self.store.open(statement, signature, partial(self.noised, statement))
        return self.key.sign("opening", statement)

    def _own_statement(self, theirs: bytes) -> bytes:
        try:
            leader_unpaired = int(json.loads(theirs)["leader_unpaired"])
        except DAMAGED:
            raise Refusal("malformed", "the opening is no statement") from None
        return statement_of(self.task, self.store, leader_unpaired, self.store.unpaired())


@dataclass
class Leader(Aggregator):
    """Asks the helper, and issues tokens."""

    issuer: Issuer | None = None
    _one_job: threading.RLock = field(default_factory=threading.RLock, repr=False)

    def issued(self, code: str, blinded: bytes) -> bytes:
        """The blind signature that an invitation is changed into."""
        if self.issuer is None or not isinstance(self.task.admission, Invitations):
            raise Refusal("no tokens", "this survey has no invitations: anybody may take part", 404)
        if self.standing().state != "collecting":
            raise Refusal("over", "this survey is over: no more tokens are given out", 410)
        if not self.issuer.can_sign(blinded):
            raise Refusal("malformed", "the blinded token is no number below the task's key")
        self.store.use_invitation(code, blinded)
        return self.issuer.signed(blinded)

    def pair(
        self, helper: Peer, offered_before: float | None = None, *, empty: bool = False
    ) -> int | None:
        """Offer reports to the helper, and add those that both have; None if there was no job.

        Else how many were offered, now or in a job that was not finished. Reports that
        the helper did not have are offered again some seconds later, or if they were offered before
        a given time. An ``empty`` offer tells the helper that there is nothing.
        """
        with self._one_job:  # the helper takes them in their order
            return self._paired(helper, offered_before, empty=empty)

    def _paired(self, helper: Peer, offered_before: float | None, *, empty: bool) -> int | None:
        now = self.clock()
        before = now - _OFFER_AGAIN if offered_before is None else offered_before
        # Also if the clock is set back, what was just offered is not offered again.
        found = self.store.next_job(_most_in_job(self.task), before, max(now, before), empty=empty)
        if found is None:
            return None
        number, request, fresh = found
        entries = entries_of(request)
        all_offered = int(fresh and len(entries) < _most_in_job(self.task))
        content = request
        if self.task.proofs is not None:
            key = verify_key(self.task, self.key)
            content = with_messages(self.task, self.store, key, request)
        answer = helper.job(number.to_bytes(8) + all_offered.to_bytes(8) + content)
        known = {PAIRED, WAITING, *STATES}
        if len(answer) != len(entries) or not set(answer) <= known:
            raise Refusal("malformed", "the helper's answer is none", 502)
        judged = list(zip(entries, answer, strict=True))
        self.store.finish_job(
            number,
            [report for (report, _), verdict in judged if verdict == PAIRED],
            {report: STATES[verdict] for (report, _), verdict in judged if verdict in STATES},
        )
        return len(entries)

    def open(self, helper: Peer, *, early: bool = False) -> dict[str, str]:
        """Close the survey at both, add what is left, open one sum; goes on where it stopped."""
        standing = self.standing()
        if standing.state == "collecting":
            if not early and self.clock() < self.task.closes_at.timestamp():
                raise Refusal(
                    "collecting", f"reports are taken until {self.task.closes}: open it then", 409
                )
            self._pair_the_rest(helper)
            check_enough(self.task, self.standing().added)  # or it goes on
            self.store.stop_collecting()
        if standing.state in ("collecting", "closed"):
            helper.close()
            self._pair_the_rest(helper)
            unpaired_there = helper.close()
            unpaired_here = self.store.unpaired()
            statement = statement_of(self.task, self.store, unpaired_here, unpaired_there)
            check_enough(self.task, self.standing().added)
            self.store.agree(statement)
        standing = self.standing()
        if standing.state == "agreed":
            assert standing.statement is not None
            signature = self.key.sign("opening", standing.statement)
            theirs = helper.opening(standing.statement, signature)
            if not is_signed(self.task.helper_key, "opening", standing.statement, theirs):
                raise Refusal("not signed", "the helper did not sign the opening", 502)
            noised = partial(self.noised, standing.statement)
            self.store.open(standing.statement, theirs, noised)
        found = self.certificate()
        assert found is not None
        return found

    def _pair_the_rest(self, helper: Peer) -> None:
        """Offer everything once more."""
        with self._one_job:
            self.store.forget_offers()
            while self.pair(helper, offered_before=_NOT_YET) is not None:
                pass


def _most_in_job(task: Task) -> int:
    most = _MOST_IN_JOB if task.proofs is None else _MOST_PROVEN_IN_JOB
    return max(1, min(most, _JOB_BYTES // (shares.ELEMENT_BYTES * task.survey.numbers)))


def most_job_bytes(task: Task) -> int:
    """Length of a job of a task at most."""
    if task.proofs is None:
        return _HEAD + _MOST_IN_JOB * _ENTRY
    return _HEAD + request_bytes(task, _MOST_PROVEN_IN_JOB)


def check_enough(task: Task, there: int) -> None:
    """Refuse to open the sum of fewer people than the design says."""
    if there < task.survey.participants:
        raise Refusal(
            "too few",
            f"{there} reports are fewer than the {task.survey.participants} whose sum may be"
            " opened",
            409,
        )


def statement_of(task: Task, store: Store, leader_unpaired: int, helper_unpaired: int) -> bytes:
    """What both aggregators sign before either adds noise: which reports are in the sum."""
    count, listed = store.reports()
    content: dict[str, Any] = {
        "helper_unpaired": helper_unpaired,
        "leader_unpaired": leader_unpaired,
        "list": listed,
        "reports": count,
        "task": task.digest,
    }
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def task_in(statement: bytes | str) -> str | None:
    """The digest of the task that a statement is about; None of what is no statement."""
    try:
        return str(json.loads(statement)["task"])
    except DAMAGED:
        return None


def receipt_text(task: Task, role: Role, report: bytes, hashes: bytes) -> bytes:
    """What an aggregator signs when it has taken its half of a report."""
    return task.digest_bytes + role.encode() + report + hashes


def _opening_in(file: Path) -> tuple[bytes, shares.Elements]:
    """The statement and the noisy share of an opening, whatever became of the database."""
    try:
        content = reading.read_json(file)
        share = shares.from_bytes(base64.b64decode(content["share"]))
        return content["statement"].encode(), share
    except DAMAGED as error:
        raise DataError(f"{file} is no opening of an aggregator: {error}") from None


def _other(role: Role) -> Role:
    return "helper" if role == "leader" else "leader"
