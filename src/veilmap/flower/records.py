"""Broadcasts and updates as Flower's records: all that travels, and nothing else."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from veilmap._util.plain import to_plain
from veilmap.federation.messages import (
    LARGEST_WEIGHT,
    MOST_CELLS,
    Broadcast,
    ClientId,
    Update,
)
from veilmap.flower.fields import Fields, UnreadableError, array, parsed
from veilmap.geometry.grid import Grid
from veilmap.model.radio_map import RadioMap
from veilmap.privacy.mechanisms import Mechanism

ARRAYS, _FACTS = "arrays", "facts"

# What a message may hold, far more than any of ours does.
_MOST_USERS = 100_000  # of one node
_LARGEST_COUNT = 2**62
_LARGEST_REAL = 1e9  # a cell's side and the map's corner in metres, a filter's width
_LONGEST_TEXT = 2**24  # a mechanism, a coordinate system, antennas
_MOST_AXES = 3

# Arrays of an answer, a row for each user, and the fields of `Update` that they are.
_SENT = {"heights": "height_gradient", "propagation": "theta_gradient"}


@dataclass(frozen=True)
class Question:
    """A broadcast, and which of a node's users are to answer it.

    ``mechanism`` describes the one by which the server will read their sum; it is not told
    where single uploads are asked for.
    """

    broadcast: Broadcast
    users: tuple[ClientId, ...]
    mechanism: Mapping[str, Any] | None = None


def question(
    broadcast: Broadcast, users: Sequence[ClientId], mechanism: Mechanism | None = None
) -> RecordDict:
    """A broadcast on its way to a node."""
    received, grid = broadcast.radio_map, broadcast.radio_map.grid
    facts: dict[str, Any] = {
        "round": broadcast.round,
        "cohort": broadcast.cohort,
        "filter-width": broadcast.filter_width,
        "cell-size": grid.cell_size,
        "shape": list(grid.shape),
        "origin": list(grid.origin),
        "users": json.dumps(list(users)),
        "crs": grid.crs or "",
    }
    if mechanism is not None:
        facts["mechanism"] = json.dumps(to_plain(mechanism))
    parts = received.as_arrays()
    arrays = {name: part for name, part in parts.items() if isinstance(part, np.ndarray)}
    facts |= {name: part for name, part in parts.items() if name not in arrays}
    return _packed(arrays, facts)


def read_question(content: RecordDict) -> Question:
    """What a node was sent; whether a training comes to such numbers, `Broadcast.check` says."""
    try:
        facts = Fields.of(content, _FACTS)
        rows, columns = facts.wholes("shape", 2, 1, MOST_CELLS)
        if rows * columns > MOST_CELLS:
            raise UnreadableError(f"has a map of {rows * columns} cells")
        x, y = facts.reals("origin", 2, -_LARGEST_REAL, _LARGEST_REAL)
        size = facts.real("cell-size", 0, _LARGEST_REAL)
        grid = Grid(size, (rows, columns), (x, y), facts.text("crs", _LONGEST_TEXT) or None)
        radio_map = RadioMap.from_arrays(grid, {**facts.values, **_arrays_of(content)})
        width = facts.real("filter-width", 0, _LARGEST_REAL)
        counts = (facts.whole(name, 0, _LARGEST_COUNT) for name in ("round", "cohort"))
        number, cohort = counts
        mechanism = None
        if "mechanism" in facts.values:
            mechanism = parsed("mechanism", facts.text("mechanism", _LONGEST_TEXT))
        users = tuple(facts.ids("users", _MOST_USERS))
        return Question(Broadcast(number, radio_map, cohort, width), users, mechanism)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise UnreadableError(f"not a veilmap broadcast: {error}") from error


def digest(content: RecordDict) -> str:
    """A digest of a broadcast, the same for all nodes that are sent the same one."""
    result = hashlib.sha256()
    for name, part in sorted(content.array_records[ARRAYS].items()):
        head = json.dumps([name, part.dtype, list(part.shape), part.stype, len(part.data)])
        result.update(head.encode() + part.data)
    facts = dict(content.config_records[_FACTS])
    facts.pop("users", None)  # each node has its own
    result.update(json.dumps(facts, sort_keys=True, default=bytes.hex).encode())
    return result.hexdigest()


def answer(updates: Sequence[Update]) -> RecordDict:
    """The updates of a node's users on their way to the server."""
    facts = {
        "round": updates[0].round if updates else -1,
        "users": json.dumps([update.client for update in updates]),
        "weights": [update.weight for update in updates],
    }
    arrays = {
        name: np.array([getattr(update, field) for update in updates])
        for name, field in _SENT.items()
    }
    return _packed(arrays, facts)


def read_answer(content: RecordDict) -> list[Update]:
    """What the server was sent; whether it fits the round, the round's sum says."""
    try:
        facts = Fields.of(content, _FACTS)
        users = facts.ids("users", _MOST_USERS)
        number = facts.whole("round", -1, _LARGEST_COUNT)
        weights = facts.wholes("weights", len(users), 1, LARGEST_WEIGHT)
        if not users:
            return []
        stored = content.array_records[ARRAYS]
        heights, theta = (array(name, stored.get(name), "<f8", 2) for name in _SENT)
        rows = zip(users, weights, heights, theta, strict=True)
        return [Update(user, number, weight, *gradients) for user, weight, *gradients in rows]
    except (KeyError, TypeError, ValueError) as error:
        raise UnreadableError(f"sent something else than veilmap does: {error}") from error


def names(users: Iterable[ClientId]) -> RecordDict:
    """Whom a node speaks for."""
    return RecordDict({_FACTS: ConfigRecord({"users": json.dumps(list(users))})})


def read_names(content: RecordDict) -> list[ClientId]:
    """The users of a node that introduced itself."""
    try:
        return Fields.of(content, _FACTS).ids("users", _MOST_USERS)
    except UnreadableError as error:
        raise UnreadableError(f"did not say whom it speaks for: {error}") from error


def _packed(arrays: dict[str, np.ndarray], facts: dict[str, Any]) -> RecordDict:
    stored = ArrayRecord({name: Array(np.ascontiguousarray(a)) for name, a in arrays.items()})
    return RecordDict({ARRAYS: stored, _FACTS: ConfigRecord(facts)})


def _arrays_of(content: RecordDict) -> dict[str, np.ndarray]:
    """All arrays of real numbers of a message."""
    found = {}
    for name, stored in content.array_records[ARRAYS].items():
        axes = len(stored.shape)
        if axes > _MOST_AXES:
            raise UnreadableError(f"has {name[:20]} of {axes} axes")
        found[name] = array(name, stored, "<f8", axes)
    return found
