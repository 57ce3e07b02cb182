"""Broadcasts and updates as Flower's records: all that travels, and nothing else."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from veilmap._util.plain import to_plain
from veilmap.federation.messages import Broadcast, ClientId, Update
from veilmap.geometry.grid import Grid
from veilmap.model.radio_map import RadioMap
from veilmap.privacy.mechanisms import Mechanism

ARRAYS, _FACTS = "arrays", "facts"


class UnreadableError(ValueError):
    """A message that is not one of ours; its text says what is wrong with it."""


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
    """What a node was sent."""
    arrays, facts = _unpacked(content)
    try:
        rows, columns = facts["shape"]
        x, y = facts["origin"]
        crs = str(facts["crs"]) or None
        grid = Grid(facts["cell-size"], (int(rows), int(columns)), (float(x), float(y)), crs)
        radio_map = RadioMap.from_arrays(grid, {**facts, **arrays})
        width = float(facts["filter-width"])
        broadcast = Broadcast(int(facts["round"]), radio_map, int(facts["cohort"]), width)
        mechanism = json.loads(facts["mechanism"]) if "mechanism" in facts else None
        return Question(broadcast, tuple(json.loads(facts["users"])), mechanism)
    except (KeyError, TypeError, ValueError) as error:
        raise UnreadableError(f"not a veilmap broadcast: {error}") from error


def digest(content: RecordDict) -> str:
    """A digest of a broadcast, the same for all nodes that are sent the same one."""
    result = hashlib.sha256()
    for name, array in sorted(content.array_records[ARRAYS].items()):
        head = json.dumps([name, array.dtype, list(array.shape), array.stype, len(array.data)])
        result.update(head.encode() + array.data)
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
        "heights": np.array([update.height_gradient for update in updates]),
        "propagation": np.array([update.theta_gradient for update in updates]),
    }
    return _packed(arrays, facts)


def read_answer(content: RecordDict) -> list[Update]:
    """What the server was sent; values are checked later, with the round's sum."""
    arrays, facts = _unpacked(content)
    try:
        users, weights = json.loads(facts["users"]), facts["weights"]
        rows = zip(users, weights, arrays["heights"], arrays["propagation"], strict=True)
        return [
            Update(user, int(facts["round"]), int(weight), heights, theta)
            for user, weight, heights, theta in rows
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise UnreadableError(f"sent no update: {error}") from error


def names(users: Iterable[ClientId]) -> RecordDict:
    """Whom a node speaks for."""
    return RecordDict({_FACTS: ConfigRecord({"users": json.dumps(list(users))})})


def read_names(content: RecordDict) -> list[ClientId]:
    """The users of a node that introduced itself."""
    try:
        users = json.loads(str(content[_FACTS]["users"]))
    except (KeyError, TypeError, ValueError) as error:
        raise UnreadableError(f"did not say whom it speaks for: {error}") from error
    if not isinstance(users, list) or not all(isinstance(user, int | str) for user in users):
        raise UnreadableError("did not say whom it speaks for")
    return users


def _packed(arrays: dict[str, np.ndarray], facts: dict[str, Any]) -> RecordDict:
    stored = ArrayRecord({name: Array(np.ascontiguousarray(a)) for name, a in arrays.items()})
    return RecordDict({ARRAYS: stored, _FACTS: ConfigRecord(facts)})


def _unpacked(content: RecordDict) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    try:
        arrays: Any = content[ARRAYS]
        facts: Any = content[_FACTS]
        return {name: array.numpy() for name, array in arrays.items()}, dict(facts)
    except Exception as error:  # whatever a stranger's bytes make numpy say
        raise UnreadableError(f"sent something else than veilmap does: {error}") from error
