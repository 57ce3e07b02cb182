"""Whether both aggregators of a task are reachable and agree."""

import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import httpx

from veilmap.collection.connection import PLAIN, content_of, why_of
from veilmap.collection.task import Role, Task

_CLOCK_SECONDS = 60.0
_DAYS_LEFT = 14.0


@dataclass(frozen=True)
class Checked:
    """What an aggregator answered."""

    role: Role
    address: str
    answers: bool
    same_task: bool
    clock_off: float | None  # seconds that its clock is ahead of ours
    certificate_days: float | None  # until it ends; None without TLS
    why: str

    @property
    def problems(self) -> Iterator[str]:
        """What is wrong, a line each."""
        if not self.answers:
            yield f"the {self.role}, {self.address}, does not answer: {self.why}"
            return
        if not self.same_task:
            yield f"the {self.role}, {self.address}, publishes another task: give both one file"
        if self.clock_off is not None and abs(self.clock_off) > _CLOCK_SECONDS:
            yield f"the {self.role}'s clock is {self.clock_off:+.0f} s from this one: set both"
        if self.certificate_days is not None and self.certificate_days < _DAYS_LEFT:
            days = f"{self.certificate_days:.0f} days"
            yield f"the {self.role}'s certificate ends in {days}: renew it"


def checked(task: Task, role: Role, client: httpx.Client, now: datetime) -> Checked:
    """What an aggregator of a task answers."""
    address = task.address(role)
    try:
        with client.stream("GET", f"{address}/task", headers=PLAIN) as answer:
            stream = answer.extensions["network_stream"]
            days = _days_left(stream.get_extra_info("ssl_object"), now)
            content = content_of(answer)
    except httpx.HTTPError as problem:
        return Checked(role, address, False, False, None, None, why_of(problem))
    same = content == task.content
    return Checked(role, address, True, same, _clock_off(answer, now), days, "")


def _clock_off(answer: httpx.Response, now: datetime) -> float | None:
    try:
        return (parsedate_to_datetime(answer.headers["date"]) - now).total_seconds()
    except (KeyError, ValueError, TypeError):
        return None


def _days_left(connection: ssl.SSLObject | None, now: datetime) -> float | None:
    """How long the certificate of a connection is valid."""
    certificate = connection.getpeercert() if connection is not None else None
    if not certificate:
        return None
    ends = ssl.cert_time_to_seconds(str(certificate["notAfter"]))
    return (datetime.fromtimestamp(ends, UTC) - now).total_seconds() / 86_400
