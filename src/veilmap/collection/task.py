"""What everybody agrees on before a survey of real participants: its task, named by its digest."""

import hashlib
import json
import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Literal, get_args
from urllib.parse import urlsplit

from veilmap._util import checks, files, reading
from veilmap._util.plain import DAMAGED, from_plain, plain, to_plain
from veilmap.collection.admission import Invitations, ProofOfWork
from veilmap.collection.pine.parameters import NormProofs
from veilmap.collection.pine.reports import check_good
from veilmap.collection.shares import PRIME
from veilmap.errors import ConfigurationError, DataError, VeilmapError
from veilmap.privacy.mechanisms.lattice import LARGEST_DEVIATION
from veilmap.surveys.design import Survey

Role = Literal["leader", "helper"]
ROLES: tuple[Role, ...] = get_args(Role)

_REACH = 16  # deviations of noise that the sum has room for
_MOST_BYTES = 10_000_000  # of a task's file: 40,000 base stations
_KEY = re.compile(r"[0-9a-f]{64}")
_HOST = re.compile(r"[A-Za-z0-9.:\[\]-]+")


@plain
@dataclass(frozen=True)
class Task:
    """A survey's design, who adds it up, when, and who may take part.

    Parameters
    ----------
    survey : Survey
        Its noise must be for two aggregators.
    leader, helper : str
        Addresses at which clients reach the aggregators, such as ``https://radio.example.org``.
    leader_key, helper_key, collector_key : str
        Ed25519 public keys, in hexadecimal digits, by which they know each other.
    opens, closes : str
        When reports are taken, as ISO text in UTC.
    most_reports : int
        More are refused.
    admission : Invitations or ProofOfWork
    pairing_hours : float
        A half whose other half has not come by then is deleted; an hour at least, in which a
        client gets through to both.
    proofs : NormProofs, optional
        With which every contribution is shown to be no longer than C; without them one participant
        can spoil the sum.
    """

    survey: Survey
    leader: str
    helper: str
    leader_key: str
    helper_key: str
    collector_key: str
    opens: str
    closes: str
    most_reports: int
    admission: Invitations | ProofOfWork
    pairing_hours: float = 24.0
    proofs: NormProofs | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.survey, Survey):
            raise ConfigurationError("survey must be a Survey", "survey")
        if self.survey.aggregators != 2:
            raise ConfigurationError(
                "the survey's noise is for one machine that holds all measurements; design it for"
                " two aggregators: veilmap survey design --aggregators 2",
                "survey",
            )
        if not isinstance(self.admission, Invitations | ProofOfWork):
            raise ConfigurationError("admission must be Invitations or ProofOfWork", "admission")
        for role in ROLES:
            object.__setattr__(self, role, origin(role, getattr(self, role)))
        if self.leader == self.helper:
            raise ConfigurationError("leader and helper are at the same address", "helper")
        keys = [self.leader_key, self.helper_key, self.collector_key]
        for name in ("leader_key", "helper_key", "collector_key"):
            if not _KEY.fullmatch(str(getattr(self, name))):
                raise ConfigurationError(f"{name} must be 64 hexadecimal digits", name)
        if len(set(keys)) < len(keys):
            raise ConfigurationError("leader, helper and collector need keys of their own")
        for name in ("opens", "closes"):
            object.__setattr__(self, name, _time(name, getattr(self, name)))
        if self.opens >= self.closes:
            raise ConfigurationError(f"the survey closes {self.closes}, before it opens", "closes")
        most = checks.whole("most_reports", self.most_reports, least=self.survey.participants)
        object.__setattr__(self, "most_reports", most)
        hours = checks.number("pairing_hours", self.pairing_hours, least=1, most=24 * 365)
        object.__setattr__(self, "pairing_hours", hours)
        if self.survey.deviation > LARGEST_DEVIATION:
            raise ConfigurationError(
                f"noise of deviation {self.survey.deviation:,.0f} cannot be drawn: design the"
                " survey for a larger ε, or with a smaller C",
                "survey",
            )
        self._check_room()
        self._check_proofs()

    def _check_room(self) -> None:
        """Sums must be told modulo q: no entry of a contribution is larger than its length, C."""
        noise = 2 * _REACH * self.survey.deviation
        room = math.floor((PRIME / 2 - noise) / self.survey.clip)
        if self.most_reports > room:
            raise ConfigurationError(
                f"sums of {self.most_reports:,} reports of length {self.survey.clip} overflow: take"
                f" {room:,} at most",
                "most_reports",
            )

    def _check_proofs(self) -> None:
        """They must be of this survey's contributions, and as good as those that are chosen."""
        if self.proofs is None:
            return
        if not isinstance(self.proofs, NormProofs):
            raise ConfigurationError("proofs must be NormProofs", "proofs")
        if (self.proofs.dimension, self.proofs.bound) != (self.survey.numbers, self.survey.clip):
            raise ConfigurationError(
                "proofs are of other contributions than this survey's", "proofs"
            )
        check_good(self.proofs, self.survey)

    @cached_property
    def content(self) -> bytes:
        """The task as both aggregators publish it, byte for byte."""
        text = json.dumps(to_plain(self), sort_keys=True, separators=(",", ":"))
        return text.encode("ascii")

    @cached_property
    def digest(self) -> str:
        """SHA-256 of `content`: the name of the task, which reports are bound to."""
        return hashlib.sha256(self.content).hexdigest()

    @property
    def digest_bytes(self) -> bytes:
        """The digest as reports have it."""
        return bytes.fromhex(self.digest)

    @property
    def opens_at(self) -> datetime:
        """When reports are taken from."""
        return datetime.fromisoformat(self.opens)

    @property
    def closes_at(self) -> datetime:
        """When reports are taken until."""
        return datetime.fromisoformat(self.closes)

    def address(self, role: Role) -> str:
        """Where an aggregator is reached."""
        return self.leader if role == "leader" else self.helper

    def key(self, role: Role) -> str:
        """The public key of an aggregator."""
        return self.leader_key if role == "leader" else self.helper_key

    def save(self, path: Path) -> None:
        """Write what `load` reads, byte for byte what is published."""
        files.write_text(self.content.decode(), path)

    @classmethod
    def load(cls, path: Path) -> "Task":
        """Read a task from its file."""
        return cls.parse(reading.read_bytes(path, _MOST_BYTES), str(path))

    @classmethod
    def parse(cls, content: bytes, where: str) -> "Task":
        """The task that bytes from outside hold; ``where`` they are from."""
        if len(content) > _MOST_BYTES:
            raise DataError(f"{where} is too large for the task of a survey")
        try:
            found = from_plain(reading.parsed_json(content, where), cls)
        except (VeilmapError, *DAMAGED) as error:
            why = files.printable(str(error))  # names in it may be anybody's
            raise DataError(
                f"{where} holds no task of a survey ({why}); veilmap survey publish writes one"
            ) from None
        if found.content != content:
            raise DataError(f"{where} does not hold a task as veilmap survey publish writes it")
        return found


def origin(name: str, address: object) -> str:
    """An address without path: scheme, host and perhaps port."""
    try:
        parts = urlsplit(str(address))
        known = parts.hostname is not None and parts.port != 0
    except ValueError:
        known = False
    if not known or parts.scheme not in ("http", "https") or parts.path not in ("", "/"):
        raise ConfigurationError(
            f"{name} must be an address such as https://radio.example.org, not {address!r}", name
        )
    if parts.query or parts.fragment or "@" in parts.netloc or not _HOST.fullmatch(parts.netloc):
        raise ConfigurationError(f"{name} must be scheme, host and port alone", name)
    if parts.scheme == "http" and parts.hostname not in ("127.0.0.1", "localhost", "::1"):
        raise ConfigurationError(f"{name} must begin with https://, except on loopback", name)
    host = f"[{parts.hostname}]" if ":" in str(parts.hostname) else parts.hostname
    usual = {"http": 80, "https": 443}[parts.scheme]
    port = "" if parts.port in (None, usual) else f":{parts.port}"
    return f"{parts.scheme}://{host}{port}"  # one address is written in one way


def _time(name: str, text: object) -> str:
    """A moment as ISO text in UTC, to the second."""
    try:
        found = datetime.fromisoformat(str(text))
    except ValueError:
        raise ConfigurationError(
            f"{name} must be a time such as 2026-12-01T18:00Z, not {text!r}", name
        ) from None
    if found.tzinfo is None:
        raise ConfigurationError(f"{name} must name its time zone, as in {text}Z", name)
    try:
        return found.astimezone(UTC).isoformat(timespec="seconds")
    except OverflowError:
        raise ConfigurationError(f"{name} is beyond all calendars: {text}", name) from None
