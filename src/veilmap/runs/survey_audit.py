"""What an audit of a survey has written down, read as if a stranger had written it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from veilmap._util import checks, reading
from veilmap._util.plain import DAMAGED
from veilmap.auditing.measured import DISTANCES, Measured
from veilmap.auditing.verdict import Verdict

_MOST_ATTACKS = 100
_LONGEST = 200  # letters of a name


@dataclass(frozen=True)
class Membership:
    """How well somebody who knows everyone else tells whether a participant took part.

    Numbers here and below are NaN where they were not measured. What is allowed is the most that
    the promise leaves possible.
    """

    knows: str
    users: float
    auc: Measured
    auc_allowed: float
    found: Measured  # share of participants, at 5 % false alarms
    found_allowed: float


@dataclass(frozen=True)
class Canaries:
    """The ε that planted participants prove the survey to have at least."""

    canaries: float
    guesses: float
    right: float
    epsilon_at_least: float
    confidence: float


@dataclass(frozen=True)
class Location:
    """How close an attack comes to where participants were; distances are in metres."""

    attack: str
    knows: str
    users: float
    median: Measured
    rmse: Measured
    within_95: Measured
    found: Mapping[int, Measured]  # share of participants found within so many metres


@dataclass(frozen=True)
class SurveyAudit:
    """An audit beside a survey's folder."""

    epsilon: float  # the claimed one
    membership: Membership | None
    canaries: Canaries | None
    location: tuple[Location, ...]
    verdict: Verdict | None

    @classmethod
    def read(cls, path: Path, digest: str) -> "SurveyAudit | None":
        """The audit of the survey of that digest; None where there is none or it is damaged."""
        try:
            content = reading.read_json(path)
            if content["survey"] != digest:
                return None
            members, planted = content.get("membership"), content.get("canaries")
            places = list(content.get("location") or ())[:_MOST_ATTACKS]
            return cls(
                _number(content.get("epsilon")),
                _membership(members) if members else None,
                _canaries(planted) if planted else None,
                tuple(map(_location, places)),
                _verdict(content),
            )
        except DAMAGED:
            return None


def _verdict(content: Mapping[str, Any]) -> Verdict | None:
    """The verdict; None where it is damaged or lacks a number."""
    try:
        return Verdict.read(content["verdict"])
    except DAMAGED:
        return None


def _membership(content: Mapping[str, Any]) -> Membership:
    return Membership(
        _name(content["knows"]),
        _number(content["users"]),
        _measured(content["auc"]),
        _number(content["auc_allowed"]),
        _measured(content["found_at_5_percent"]),
        _number(content["found_at_5_percent_allowed"]),
    )


def _canaries(content: Mapping[str, Any]) -> Canaries:
    names = ("canaries", "guesses", "right", "epsilon_at_least", "confidence")
    return Canaries(*(_number(content[name]) for name in names))


def _location(content: Mapping[str, Any]) -> Location:
    return Location(
        _name(content["attack"]),
        _name(content["knows"]),
        _number(content["users"]),
        _measured(content["median"]),
        _measured(content["rmse"]),
        _measured(content["within_95"]),
        {metres: _measured(content["found"].get(str(metres))) for metres in DISTANCES},
    )


def _name(content: Any) -> str:
    if not isinstance(content, str):
        raise TypeError(f"{content!r} is no name")
    return content[:_LONGEST]


def _number(content: Any) -> float:
    return math.nan if content is None else checks.number("a number of the audit", content)


def _measured(content: Mapping[str, Any] | None) -> Measured:
    found = content or {}
    return Measured(*(_number(found.get(name)) for name in ("value", "low", "high")))
