"""A participant's side: what will leave, and how it gets to both aggregators."""

import json
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

from veilmap._util import files, reading
from veilmap._util.plain import DAMAGED
from veilmap.collection import report as reports
from veilmap.collection.admission import Blinded, Invitations
from veilmap.collection.aggregator import receipt_text
from veilmap.collection.connection import MOST_BYTES, asked, line_of, object_in, why_of
from veilmap.collection.keys import is_signed
from veilmap.collection.report import Half
from veilmap.collection.task import ROLES, Role, Task
from veilmap.errors import DataError, PrivacyError, VeilmapError
from veilmap.surveys.contribution import Contribution

_PAUSES = (0.5, 1, 2, 4, 8, 15, 30)  # seconds between tries


class Unreachable(VeilmapError):  # noqa: N818
    """An aggregator does not answer, or not now: what was begun can be gone on with later."""


class Refused(VeilmapError):  # noqa: N818
    """An aggregator says in one line why it does not take something."""


@dataclass
class Aggregators:
    """Leader and helper of a task, over HTTP; ``pauses`` are seconds between tries."""

    client: httpx.Client
    task: Task
    pauses: tuple[float, ...] = _PAUSES

    @classmethod
    def of(cls, client: httpx.Client, address: str, digest: str | None = None) -> "Aggregators":
        """Those of the task that one of them publishes; both must publish the same.

        ``digest`` is what the invitation says of the task, or the beginning of it.
        """
        address = address.rstrip("/")
        content = _got(client, f"{address}/task")
        task = Task.parse(content, address)
        if digest is not None and not (len(digest) >= 8 and task.digest.startswith(digest.lower())):
            raise PrivacyError(f"{address} publishes task {task.digest}, not {digest}")
        for role in ROLES:
            if _got(client, f"{task.address(role)}/task") != content:
                raise PrivacyError(
                    f"{task.address(role)} publishes another task than {address}: tell both"
                    " operators, and send nothing"
                )
        return cls(client, task)

    def send(self, half: Half, role: Role) -> str:
        """Send half of a report until it is taken; the receipt."""
        answer = self.post(role, "reports", half.content, "application/octet-stream")
        receipt = str(answer.get("receipt"))
        text = receipt_text(self.task, role, half.id, half.hashes)
        if not is_signed(self.task.key(role), "receipt", text, receipt):
            raise PrivacyError(f"the {role}'s receipt has no valid signature: ask its operator")
        return receipt

    def post(self, role: Role, what: str, body: bytes, kind: str) -> dict[str, Any]:
        """What an aggregator answers, with several tries where it does not."""
        url = f"{self.task.address(role)}/tasks/{self.task.digest}/{what}"
        for pause in (*self.pauses, None):
            try:
                named = {"content-type": kind}
                found = asked(self.client, "POST", url, content=body, headers=named)
                if found.is_success:
                    return object_in(found, f"the {role}")
                if found.status_code < 500:
                    raise Refused(line_of(found))
                why = line_of(found)
            except httpx.HTTPError as problem:
                why = why_of(problem)
            if pause is not None:
                time.sleep(pause)
        raise Unreachable(
            f"the {role}, {self.task.address(role)}, does not take it now ({why}); the same command"
            " goes on later"
        )

    def listed(self, role: Role) -> list[bytes]:
        """The ids of the reports in the opened sum."""
        url = f"{self.task.address(role)}/tasks/{self.task.digest}/reports"
        most = reports.ID_BYTES * self.task.most_reports
        content = _got(self.client, url, most)
        size = reports.ID_BYTES
        return [content[at : at + size] for at in range(0, len(content), size)]


@dataclass
class Sending:
    """A report on its way, kept in a file until both have taken it, so that it is sent once."""

    task: Task
    file: Path
    id: bytes = field(default_factory=lambda: secrets.token_bytes(reports.ID_BYTES))
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(reports.SECRET_BYTES))
    credential: bytes | None = None
    blinded: Blinded | None = None
    receipts: dict[str, str] = field(default_factory=dict)
    hashes: bytes = b""

    @classmethod
    def begun(cls, task: Task, file: Path) -> "Sending":
        """The one that a file was left with, or a new one."""
        if not file.exists():
            return cls(task, file)
        content = receipt_in(file)
        if content["task"] != task.digest:
            raise DataError(f"{file} is the receipt of another survey: name another file")
        if "secret" not in content:
            raise DataError(
                f"{file} is the receipt of a report that was taken; one person takes part once"
            )
        try:
            blinded, credential = content.get("blinded"), content.get("credential")
            return cls(
                task, file,
                _exactly(content["id"], reports.ID_BYTES),
                _exactly(content["secret"], reports.SECRET_BYTES),
                _exactly(credential, task.admission.credential_bytes) if credential else None,
                None if blinded is None else Blinded.from_text(blinded),
                hashes=bytes.fromhex(content["hashes"]),
            )  # fmt: skip
        except DAMAGED as error:
            raise DataError(f"{file} is damaged: {error}") from None

    def save(self) -> None:
        """Write the file; the secret is gone once both have taken their half."""
        content: dict[str, Any] = {
            "task": self.task.digest,
            "id": self.id.hex(),
            "hashes": self.hashes.hex(),
            "receipts": self.receipts,
        }
        if len(self.receipts) == len(ROLES):
            content["sent"] = datetime.now(UTC).isoformat(timespec="seconds")
        else:
            content["secret"] = self.secret.hex()
            content["credential"] = self.credential.hex() if self.credential else None
            content["blinded"] = self.blinded.as_text() if self.blinded else None
        files.write_text(json.dumps(content, indent=1) + "\n", self.file, secret=True)

    def admit(self, aggregators: Aggregators, invitation: str | None) -> None:
        """Get what admits the report: by an invitation, or by work."""
        if self.credential is not None:
            return
        admission, digest = self.task.admission, self.task.digest_bytes
        if not isinstance(admission, Invitations):
            self.credential = admission.solved(digest, self.id)
            self.save()
            return
        if not invitation:
            raise DataError("this survey takes part by invitation: give its code (--invitation)")
        if self.blinded is None:
            self.blinded = admission.blinded(digest, self.id)
            self.save()  # the code is good for this token alone
        asked = {"code": invitation.strip(), "blinded": self.blinded.message.hex()}
        answer = aggregators.post(
            "leader", "tokens", json.dumps(asked).encode(), "application/json"
        )
        with suppress(ValueError, TypeError):
            self.credential = self.blinded.finished(bytes.fromhex(str(answer.get("signature"))))
        if self.credential is None or not admission.admits(self.credential, digest, self.id):
            raise PrivacyError(
                "the leader's token is not valid: ask its operator; nothing was sent"
            )
        self.save()

    def send(
        self, own: Contribution, aggregators: Aggregators, sent: Callable[[Role], None]
    ) -> None:
        """Send both halves; ``sent`` is called after each."""
        assert self.credential is not None
        halves = reports.halves(self.task, own.vector, self.id, self.credential, self.secret)
        if self.hashes and self.hashes != halves[0].hashes:
            raise DataError(
                f"{self.file} is of a report with other measurements, which may have arrived in"
                " part: give the same file of measurements as then"
            )
        self.hashes = halves[0].hashes
        self.save()  # before anything leaves
        self.receipts = {}
        for role, half in zip(ROLES, halves, strict=True):
            # Also one that was confirmed before: alone, it may have been deleted since.
            self.receipts[role] = aggregators.send(half, role)
            sent(role)
        self.save()


def _exactly(digits: str, size: int) -> bytes:
    """So many bytes, from hexadecimal digits."""
    found = bytes.fromhex(digits)
    if len(found) != size:
        raise ValueError(f"{len(found)} bytes where {size} belong")
    return found


def receipt_in(file: Path) -> Mapping[str, Any]:
    """What a receipt says."""
    try:
        content = reading.read_json(file)
        if not isinstance(content, dict) or not isinstance(content["receipts"], dict):
            raise ValueError("it has no receipts")
        bytes.fromhex(content["id"]), str(content["task"])
    except DAMAGED as error:
        raise DataError(f"{file} is no receipt: {error}") from None
    return content


def _got(client: httpx.Client, url: str, most: int = MOST_BYTES) -> bytes:
    """What an address gives, of at most so many bytes."""
    try:
        answer = asked(client, "GET", url, most=most)
    except httpx.RemoteProtocolError as problem:
        raise DataError(f"{url} gives no answer that can be used: {problem}") from None
    except httpx.HTTPError as problem:
        raise Unreachable(f"{url} does not answer: {why_of(problem)}") from None
    except (httpx.InvalidURL, ValueError) as problem:
        raise DataError(f"{url} is no address: {problem}") from None
    if answer.status_code != 200:
        raise Refused(f"{url}: {line_of(answer)}")
    return answer.content
