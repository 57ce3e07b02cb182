"""Proofs between the aggregators: what the leader tells, and what the helper makes of it.

    job's content   key 32 | for each report: id 16 | hashes 64 | leader's message

The key follows from the leader's own key and the task; the helper keeps to the first it is told. So
the leader says one thing of a report and never another, whatever is asked again, and also where
its database was put back: a message at another point would tell the helper more of the report.
"""

import hashlib
from dataclasses import dataclass

from veilmap.collection.keys import SigningKey
from veilmap.collection.pine import reports as proven
from veilmap.collection.pine.verifying import Unproven
from veilmap.collection.report import HASH_BYTES, ID_BYTES, Refusal
from veilmap.collection.shares import Elements
from veilmap.collection.store import NOT_LUCKY, NOT_PROVEN, Store, entries_of
from veilmap.collection.task import Task

_KEY_BYTES = 32
_ENTRY = ID_BYTES + 2 * HASH_BYTES


@dataclass(frozen=True)
class Request:
    """What a job of reports with proofs says."""

    key: bytes
    request: bytes  # the reports, as the store has them
    messages: dict[bytes, bytes]  # by report


def request_bytes(task: Task, count: int) -> int:
    """Length of a job's content for so many reports."""
    assert task.proofs is not None
    return _KEY_BYTES + count * (_ENTRY + proven.message_bytes(task.proofs))


def verify_key(task: Task, own: SigningKey) -> bytes:
    """What random points depend on, which no client can know; of the leader's own key."""
    return hashlib.sha256(bytes.fromhex(own.sign("proofs", task.digest_bytes))).digest()


def with_messages(task: Task, store: Store, key: bytes, request: bytes) -> bytes:
    """A job's content: the reports of a request, each with the leader's message."""
    assert task.proofs is not None
    entries = entries_of(request)
    there, parts = store.waiting_shares(entries), [key]
    for report, hashes in entries:
        nonce = proven.nonce_of(task.digest_bytes, report)
        parts += [report, hashes, proven.message(task.proofs, key, nonce, there[report])]
    return b"".join(parts)


def parsed_request(task: Task, content: bytes) -> Request:
    """What came from outside, taken apart."""
    assert task.proofs is not None
    size = _ENTRY + proven.message_bytes(task.proofs)
    key, rest = content[:_KEY_BYTES], content[_KEY_BYTES:]
    if len(key) < _KEY_BYTES or len(rest) % size:
        raise Refusal("malformed", "the job is no list of reports with messages")
    parts = [rest[at : at + size] for at in range(0, len(rest), size)]
    request = b"".join(part[:_ENTRY] for part in parts)
    entries_of(request)
    return Request(key, request, {part[:ID_BYTES]: part[_ENTRY:] for part in parts})


def judged_by_helper(task: Task, store: Store, told: Request) -> dict[bytes, Elements | int]:
    """The helper's share of each report that is here and short enough; else what is said of it."""
    assert task.proofs is not None
    store.keep_to(told.key)
    found = dict[bytes, Elements | int]()
    for report, share in store.waiting_shares(entries_of(told.request)).items():
        nonce = proven.nonce_of(task.digest_bytes, report)
        try:
            found[report] = proven.judged(
                task.proofs, told.key, nonce, share, told.messages[report]
            )
        except Unproven as why:
            found[report] = NOT_LUCKY if why.reason == "unlucky" else NOT_PROVEN
    return found
