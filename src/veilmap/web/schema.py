"""What the API answers with; ``page/types.d.ts`` says the same to the page."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

State = Literal["finished", "running", "waiting", "paused", "stopped", "failed", "unreadable"]
JobState = Literal["waiting", "running", "done", "stopped", "failed"]
JobKind = Literal["train", "audit", "replicas"]


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """A run in a list."""

    id: str
    name: str
    label: str
    state: State
    played: int
    rounds: int
    mae_db: float | None
    users: int | None
    problem: str | None
    study: str | None = None


@dataclass(frozen=True)
class Station:
    """A base station, in metres."""

    id: str
    x: float
    y: float
    z: float


@dataclass(frozen=True)
class LayerInfo:
    """A layer that can be asked for, or why it cannot."""

    name: str
    title: str
    per_station: bool
    why_not: str | None
    comparable: bool


@dataclass(frozen=True)
class GridInfo:
    """The map's cells and their ground, in metres."""

    rows: int
    columns: int
    cell_size: float
    west: float
    east: float
    south: float
    north: float
    crs: str | None


@dataclass(frozen=True, kw_only=True)
class RunDetail(RunSummary):
    """All that the page must know to show a run."""

    grid: GridInfo
    stations: list[Station]
    layers: list[LayerInfo]
    mechanism: dict[str, float | int | str | None]
    server_sees: Literal["uploads", "sums"]
    promise: str
    kept: list[int]
    user_ids: list[str]
    why_no_attacks: str | None
    measured: bool
    has_buildings: bool
    command: str | None


@dataclass(frozen=True)
class HistoryRow:
    """A round; None for what is not known."""

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
class History:
    """All rounds so far."""

    rows: list[HistoryRow]
    study: str | None = None


@dataclass(frozen=True)
class Progress:
    """What happened since the last event."""

    state: State
    played: int
    rounds: int
    problem: str | None
    rows: list[HistoryRow]
    study: str | None = None


@dataclass(frozen=True)
class Job:
    """Work on this host."""

    id: str
    kind: JobKind
    run: str
    state: JobState
    share: float | None
    problem: str | None


@dataclass(frozen=True)
class Overview:
    """Which runs there are, and what is being worked on."""

    version: str
    runs: list[RunSummary]
    jobs: list[Job]
    can_start: bool


@dataclass(frozen=True)
class Buildings:
    """Outer rings of footprints, in the map's metres."""

    polygons: list[list[tuple[float, float]]]


@dataclass(frozen=True)
class TradeoffPoint:
    """A run's map error against its strongest attack, in metres."""

    run: str
    label: str
    mae_db: float | None
    attack: str
    when: str
    median: float
    low: float
    high: float
    prior: float
    promise: str
    study: str | None = None


@dataclass(frozen=True)
class MissingAudit:
    """A run that was not audited, and why it cannot be."""

    run: str
    label: str
    why_not: str | None


@dataclass(frozen=True)
class Tradeoff:
    """All audited runs, and the others."""

    points: list[TradeoffPoint]
    missing: list[MissingAudit]


@dataclass(frozen=True)
class Refusal:
    """What went wrong, in one line for people."""

    error: str


@dataclass(frozen=True)
class ArrayInfo:
    """An array of a pack."""

    name: str
    rows: int
    columns: int


@dataclass(frozen=True)
class LayerHeader:
    """What the values of a layer are."""

    name: str
    title: str
    unit: str
    categories: bool
    low: float
    high: float
    grid: GridInfo
    how: str
    notes: list[str]


@dataclass(frozen=True)
class Estimate:
    """Where an attack places a user, in metres."""

    attack: str
    x: float
    y: float
    error: float | None


@dataclass(frozen=True)
class Scheme:
    """One way to protect a gradient, and what attacks make of it."""

    name: str
    title: str
    estimates: list[Estimate]


@dataclass(frozen=True)
class Place:
    """A place on the ground, in metres."""

    x: float
    y: float


@dataclass(frozen=True)
class SeenHeader:
    """One user in one round, counted from 1."""

    user: str
    round: int
    summed: int | None
    position: Place | None
    norm: float | None
    schemes: list[Scheme]
    pending: list[str]
    grid: GridInfo
    how: str
    notes: list[str]


def packed(header: LayerHeader | SeenHeader, arrays: Mapping[str, NDArray]) -> bytes:
    """A line of JSON, then the arrays as float32, row 0 southern: images are large as text."""
    shapes = [ArrayInfo(name, *values.shape) for name, values in arrays.items()]
    content = asdict(header) | {"arrays": [asdict(shape) for shape in shapes]}
    text = json.dumps(content, allow_nan=False).encode()
    line = text + b" " * (-(len(text) + 1) % 4) + b"\n"  # so that the floats are aligned
    return line + b"".join(values.astype("<f4").tobytes() for values in arrays.values())


def unpacked(body: bytes) -> tuple[dict[str, Any], dict[str, NDArray[np.float32]]]:
    """What `packed` put together."""
    line, _, rest = body.partition(b"\n")
    header = json.loads(line)
    arrays, start = {}, 0
    for one in header["arrays"]:
        count = one["rows"] * one["columns"]
        values = np.frombuffer(rest, "<f4", count, start)
        arrays[one["name"]] = values.reshape(one["rows"], one["columns"])
        start += 4 * count
    return header, arrays


def known(value: float | None) -> float | None:
    """None for what is not a finite number: JSON has no others."""
    return value if value is not None and np.isfinite(value) else None
