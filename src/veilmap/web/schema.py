"""What the API takes and answers with, declared once.

FastAPI describes these classes (OpenAPI), and ``page/write_types.py`` turns the description into
``static/types.d.ts``, which the page is checked against.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import Query
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from veilmap.federation.transcript import ServerSees

RunState = Literal["finished", "running", "waiting", "paused", "stopped", "failed", "unreadable"]
JobState = Literal["waiting", "running", "done", "stopped", "failed"]
JobKind = Literal["train", "audit", "replicas"]
LayerName = Literal["gain", "los", "best-server", "heights", "uncertainty"]
ResultKind = Literal["run", "survey"]
SchemeName = Literal["no noise", "uniform", "aligned", "sent"]

_LARGEST = 1e7  # of numbers: no coordinate on Earth is larger
Number = Annotated[float, Query(ge=-_LARGEST, le=_LARGEST, allow_inf_nan=False)]


class _Answer:
    """An answer whose fields are all there, and described by the text under them."""

    __pydantic_config__ = ConfigDict(
        use_attribute_docstrings=True, json_schema_serialization_defaults_required=True
    )


@dataclass(frozen=True, kw_only=True)
class RunSummary(_Answer):
    """A run in a list, or a survey, which has one sum and no rounds."""

    kind: ResultKind = "run"
    id: str
    name: str
    """Its folder's name."""
    label: str
    """What made it, such as "aligned, μ = 50, ρ = 1" or "one sum, ε = 2"."""
    state: RunState
    played: int
    """Rounds so far."""
    rounds: int
    """Rounds asked for."""
    mae_db: float | None
    """The map's mean absolute error on test users, where it was measured."""
    users: int | None
    """Users who measure; null where they take part from nodes of their own."""
    problem: str | None
    """Why a run failed or cannot be read."""
    study: str | None = None
    """Words that mark what is shown beyond what was published of a run with a guarantee."""


@dataclass(frozen=True)
class Station(_Answer):
    """A base station, in metres; ``error_m`` is how far off an estimated position may be."""

    id: str
    x: float
    y: float
    z: float
    error_m: float | None = None


@dataclass(frozen=True)
class LayerInfo(_Answer):
    """A layer that can be asked for, or why it cannot."""

    name: LayerName
    title: str
    per_station: bool
    """Whether it belongs to one base station."""
    placeable: bool
    """Whether that may be a new one, at any place."""
    why_not: str | None
    """Why it cannot be shown now, in words for people; null where it can."""
    comparable: bool
    """Whether there is a true counterpart to compare it with."""


@dataclass(frozen=True)
class GridInfo(_Answer):
    """The map's cells and their ground, in metres."""

    rows: int
    columns: int
    cell_size: float
    west: float
    east: float
    south: float
    north: float
    crs: str | None
    """Such as "EPSG:32612"; null where coordinates are the map's own."""


@dataclass(frozen=True)
class AuditTable(_Answer):
    """Numbers of an audit as text; rows begin with their name."""

    caption: str
    columns: list[str]
    rows: list[list[str]]


@dataclass(frozen=True)
class Fact(_Answer):
    """Something that is known, in words."""

    name: str
    words: str


@dataclass(frozen=True)
class SurveyDetail(_Answer):
    """What a survey is beside its map."""

    facts: list[Fact]
    """Its design and its opening."""
    audit: list[AuditTable]
    why_no_audit: str | None
    """Why no audit is shown; null where one is."""


@dataclass(frozen=True, kw_only=True)
class RunDetail(RunSummary):
    """All that the page must know to show a run."""

    grid: GridInfo
    stations: list[Station]
    layers: list[LayerInfo]
    mechanism: dict[str, float | int | str | None]
    server_sees: ServerSees
    promise: str
    """What is promised to users, or why nothing is, in a sentence."""
    kept: list[int]
    """Kept rounds that attacks can read, counted from 1."""
    user_ids: list[str]
    """Ids of users, the first thousands of them; empty where nobody is known."""
    why_no_attacks: str | None
    """Why "what the server sees" cannot be shown; null where it can."""
    measured: bool
    """Whether measurements, and with them true positions and gradients, are on this host."""
    has_buildings: bool
    command: str | None
    """The command that trains such a run; null where its folder does not say enough."""
    survey: SurveyDetail | None
    """Of a survey; null for a run."""


@dataclass(frozen=True)
class RoundRow(_Answer):
    """A round of the history; null for what is not known."""

    round: int
    loss: float | None
    mae_db: float | None
    gradient_norm: float | None
    clip_share: float | None
    noise_energy: float | None
    epsilon: float | None
    clients: int
    dropped: int
    late: int
    refused: int
    opened: int
    upload_bytes: int
    notes: str
    seconds: float | None


@dataclass(frozen=True)
class History(_Answer):
    """All rounds so far."""

    rows: list[RoundRow]
    study: str | None = None


@dataclass(frozen=True)
class Progress(_Answer):
    """What happened to a run since the last event."""

    state: RunState
    played: int
    rounds: int
    problem: str | None
    rows: list[RoundRow]
    """Rows that were not sent before."""
    study: str | None = None


class _AsText:
    """Marks an object that is sent as a text of JSON, for the description of the API."""

    def __get_pydantic_json_schema__(self, core: Any, describe: Any) -> dict[str, Any]:
        content = {"contentMediaType": "application/json", "contentSchema": describe(core)}
        return {"type": "string", **content}


@dataclass(frozen=True)
class ProgressEvent(_Answer):
    """A server-sent event: "progress" while a run goes on, then one "end"."""

    event: Literal["progress", "end"]
    data: Annotated[Progress, _AsText()]
    """A `Progress`, as JSON."""


@dataclass(frozen=True)
class JobInfo(_Answer):
    """Work on this host."""

    id: str
    kind: JobKind
    run: str
    state: JobState
    share: float | None
    """From 0 to 1 where it is known."""
    problem: str | None
    """What went wrong."""


@dataclass(frozen=True)
class OptionInfo(_Answer):
    """An option of a mechanism, as it is declared; null for a bound that it does not have."""

    name: str
    help: str
    default: float
    least: float | None
    most: float | None


@dataclass(frozen=True)
class MechanismInfo(_Answer):
    """A mechanism that a new run can have, and its options."""

    name: str
    title: str
    """For people, with whose it is where it is not veilmap's."""
    needs_sums: bool
    """Whether it protects only sums, so that the server must see nothing else."""
    options: list[OptionInfo]


@dataclass(frozen=True)
class Overview(_Answer):
    """Which runs there are, and what is being worked on."""

    version: str
    runs: list[RunSummary]
    jobs: list[JobInfo]
    can_start: bool
    """Whether runs may be started here."""


@dataclass(frozen=True)
class Buildings(_Answer):
    """Outer rings of footprints, in the map's metres."""

    polygons: list[list[tuple[float, float]]]


@dataclass(frozen=True)
class AuditedRun(_Answer):
    """A run's map error against its strongest attack, in metres."""

    run: str
    label: str
    mae_db: float | None
    attack: str
    knows: str
    """What the attack was given, in words."""
    median: float
    """Median error over users."""
    low: float
    """Lower end of the median's 95 % interval."""
    high: float
    """Upper end of the median's 95 % interval."""
    near: float
    """Share of users placed within 50 m."""
    prior: float
    """Median error of guessing without any upload."""
    verdict: list[str]
    """What the audit comes to: what is found, what is promised, and what to change."""
    study: str | None = None


@dataclass(frozen=True)
class MissingAudit(_Answer):
    """A run that was not audited, and why it cannot be; null where it can."""

    run: str
    label: str
    why_not: str | None


@dataclass(frozen=True)
class Tradeoff(_Answer):
    """All audited runs, and the others."""

    points: list[AuditedRun]
    missing: list[MissingAudit]


@dataclass(frozen=True)
class Refusal(_Answer):
    """What went wrong, in one line for people."""

    error: str


@dataclass(frozen=True)
class ArrayInfo(_Answer):
    """An array behind a header."""

    name: str
    rows: int
    columns: int


@dataclass(frozen=True)
class _Header(_Answer):
    """The line of JSON before arrays of float32."""

    arrays: list[ArrayInfo] = field(default_factory=list, kw_only=True)
    """The arrays behind this header, in their order."""


@dataclass(frozen=True)
class LayerHeader(_Header):
    """What the values of a layer are."""

    name: str
    title: str
    unit: str
    categories: bool
    """Whether values are indices into the run's base stations."""
    low: float
    """Where the colours begin: 98 % of all values lie between low and high."""
    high: float
    grid: GridInfo
    """The cells that are shown: larger ones than the map's where it has very many."""
    how: str
    """What a value stands for there, such as "middle of 9 m × 9 m"; else empty."""
    notes: list[str]
    """What the reader should know."""


@dataclass(frozen=True)
class Estimate(_Answer):
    """Where an attack places a user, in metres."""

    attack: str
    x: float
    y: float
    error: float | None
    """Metres from the truth; null where it is not known here."""


@dataclass(frozen=True)
class Scheme(_Answer):
    """One way to protect a gradient, and what attacks make of it."""

    name: SchemeName
    """Also the name of its array."""
    title: str
    estimates: list[Estimate]


@dataclass(frozen=True)
class Position(_Answer):
    """A position on the ground, in metres."""

    x: float
    y: float


@dataclass(frozen=True)
class SeenHeader(_Header):
    """One user in one round, counted from 1; arrays are the schemes', and "noise" with σ."""

    user: str
    round: int
    summed: int | None
    """Over how many users the server sees only the sum; null for a single upload."""
    position: Position | None
    norm: float | None
    """‖g‖ of the user before clipping; null where measurements are not at hand."""
    schemes: list[Scheme]
    pending: list[str]
    """Attacks that are still being prepared: ask again."""
    grid: GridInfo
    """The cells that are shown, as in a layer."""
    how: str
    notes: list[str]


@dataclass(frozen=True)
class SumHeader(_Header):
    """What was opened of one base station, in contributions at every point.

    Arrays are "length", that of the sum with its noise, and "counts", the sum turned by the map.
    """

    station: str
    noise: float
    """Standard deviation of the noise on each count."""
    summary: str
    """What stands out of it, in a sentence."""
    grid: GridInfo
    """The points as cells, or larger ones, as in a layer."""
    how: str
    notes: list[str]


class NewRun(BaseModel):
    """What the form for a new run asks for."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    like: Annotated[str, Field(max_length=200)] | None = None
    """Train on the measurements of this run; null for a synthetic city."""
    city: Annotated[int, Field(ge=0, le=10_000)] = 0
    users: Annotated[int, Field(ge=1, le=2_000)] = 100
    mechanism: Annotated[str, Field(max_length=100)] = "aligned"
    """One of those that there are, by its name."""
    options: dict[str, float] = {}
    """Of the mechanism, by their names; what is left out is the mechanism's own default."""
    sums: bool = False
    rounds: Annotated[int, Field(ge=2, le=1_000)] = 100
    seed: Annotated[int, Field(ge=0, le=2**31)] | None = None


def packed(
    header: LayerHeader | SeenHeader | SumHeader, arrays: Mapping[str, NDArray[np.float64]]
) -> bytes:
    """A line of JSON, then the arrays as float32, row 0 southern: images are large as text."""
    shapes = [ArrayInfo(name, *values.shape) for name, values in arrays.items()]
    text = json.dumps(asdict(replace(header, arrays=shapes)), allow_nan=False).encode()
    line = text + b" " * (-(len(text) + 1) % 4) + b"\n"  # so that the floats are aligned
    return line + b"".join(values.astype("<f4").tobytes() for values in arrays.values())


def known(value: float | None) -> float | None:
    """None for what is not a finite number: JSON has no others."""
    return value if value is not None and np.isfinite(value) else None
