"""The collector: has both aggregators open the survey, and joins their noisy shares."""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from veilmap._util.plain import DAMAGED
from veilmap.collection import shares
from veilmap.collection.aggregator import task_in
from veilmap.collection.client import Aggregators, Refused, Unreachable
from veilmap.collection.connection import MOST_BYTES, asked, line_of, object_in, why_of
from veilmap.collection.keys import SigningKey, is_signed
from veilmap.collection.task import ROLES, Role, Task
from veilmap.errors import DataError, PrivacyError
from veilmap.model.radio_map import RadioMap
from veilmap.surveys.aggregate import OpenedSum, noised
from veilmap.surveys.folder import SurveyFolder
from veilmap.surveys.posterior import Buildings, radio_map_of

_COUNTS = ("received", "added", "unpaired", "invitations", "invitations_used")
_ASK_AGAIN = 1.0  # seconds


@dataclass(frozen=True)
class Standing:
    """How a survey stands at one aggregator."""

    role: Role
    state: str
    received: int
    added: int
    unpaired: int
    invitations: int
    invitations_used: int
    clock_off: float  # seconds that its clock is ahead of ours
    rejected: Mapping[str, int]  # by reason


@dataclass
class Collector:
    """Who opens a survey, with the key that its task names."""

    aggregators: Aggregators
    key: SigningKey

    def __post_init__(self) -> None:
        if self.key.public != self.task.collector_key:
            raise PrivacyError(
                "the task names another collector's key: use the one that was written with it"
            )

    @property
    def task(self) -> Task:
        """What both aggregators serve."""
        return self.aggregators.task

    def standing(self, role: Role) -> Standing:
        """How the survey stands at an aggregator."""
        began = time.time()
        told = object_in(self._asked("GET", role, "status"), f"the {role}")
        middle = (began + time.time()) / 2
        try:
            counts = {name: int(told[name]) for name in _COUNTS}
            ahead = float(told["time"]) - middle
            rejected = {str(reason)[:20]: int(one) for reason, one in told["rejected"].items()}
            return Standing(role, str(told["state"]), **counts, clock_off=ahead, rejected=rejected)
        except DAMAGED as error:
            raise DataError(f"the {role}'s status cannot be read: {error}") from None

    def open(self, *, early: bool, waiting: Callable[[int], None]) -> dict[str, str]:
        """Have both open one and the same sum: what they signed of it.

        ``early`` ends the survey now; ``waiting`` is told how many reports are added so far.
        """
        while True:
            answer = self._asked("POST", "leader", "opening", {"early": early})
            told = object_in(answer, "the leader")
            if answer.status_code != 202:
                return self._checked(told)
            added = told.get("added")
            waiting(added if isinstance(added, int) else 0)
            time.sleep(_ASK_AGAIN)

    def _checked(self, told: Any) -> dict[str, str]:
        try:
            found = {name: str(told[name]) for name in ("statement", *ROLES)}
            statement = json.loads(found["statement"])
            same = statement["task"] == self.task.digest and int(statement["reports"]) > 0
        except DAMAGED as error:
            raise DataError(f"the leader's answer is no opening: {error}") from None
        content = found["statement"].encode()
        signed = [is_signed(self.task.key(role), "opening", content, found[role]) for role in ROLES]
        if not same or not all(signed):
            raise PrivacyError("the opening is not signed by both aggregators: nothing is joined")
        return found

    def joined(self, opening: dict[str, str]) -> OpenedSum:
        """Both noisy shares together: the sum with the noise of both."""
        size = shares.ELEMENT_BYTES * self.task.survey.numbers
        parts = []
        for role in ROLES:
            content = self._asked("GET", role, "aggregate_share").content
            if len(content) != size:
                raise DataError(f"the {role}'s share has {len(content)} bytes, not {size}")
            try:
                parts.append(shares.from_bytes(content))
            except ValueError as error:
                raise DataError(f"the {role}'s share is malformed: {error}") from None
        total = shares.centred(shares.added(*parts))
        return noised(self.task.survey, total, participants_of(opening))

    def _asked(self, method: str, role: Role, what: str, content: Any = None) -> httpx.Response:
        url = f"{self.task.address(role)}/tasks/{self.task.digest}/{what}"
        body = b"" if content is None else json.dumps(content).encode()
        headers = self.key.headers(method, url, body)
        try:
            answer = asked(
                self.aggregators.client, method, url, content=body, headers=headers,
                most=shares.ELEMENT_BYTES * self.task.survey.numbers + MOST_BYTES,
            )  # fmt: skip
        except httpx.HTTPError as problem:
            raise Unreachable(f"the {role}, {url}, does not answer: {why_of(problem)}") from None
        if answer.is_success:
            return answer
        raise Refused(f"the {role}: {line_of(answer)}")


def participants_of(opening: dict[str, str]) -> int:
    """How many reports are in the sum."""
    return int(json.loads(opening["statement"])["reports"])


def open_into(
    folder: SurveyFolder,
    collector: Collector,
    *,
    early: bool = False,
    after: tuple[SurveyFolder, ...] = (),
    buildings: Buildings | None = None,
    waiting: Callable[[int], None] = lambda added: None,
) -> RadioMap:
    """Open a survey, write its folder, and make the map; what was interrupted goes on."""
    digest = collector.task.digest
    folder.check_free(
        lambda known: isinstance(known, dict) and task_in(known.get("statement", "")) == digest
    )
    folder.check_earlier(None, after)
    opening = collector.open(early=early, waiting=waiting)
    survey = collector.task.survey
    folder.begin(survey, participants_of(opening), None, after=after, opening=opening)
    found = collector.joined(opening)
    radio_map = radio_map_of(found, buildings)
    folder.save(found, radio_map)
    return radio_map
