"""What strangers send, read field by field: of its type and within its bounds, or refused.

Readers of messages stand beside the messages that they read (`records`, `secagg.session`,
`secagg.replies`); all of them read through here, so that no other error than `UnreadableError`
comes of what a stranger sends.
"""

import io
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import Array as StoredArray
from flwr.app import RecordDict

from veilmap._util.arrays import Array
from veilmap.federation.messages import ClientId

LONGEST_ID = 200  # characters of a user's id
_LARGEST_ID = 2**63  # of one that is a number
_AROUND_ID = 8  # characters of JSON beside an id
_PER_CHARACTER = 6  # bytes of an escaped one


class UnreadableError(ValueError):
    """A message that is not one of ours; its text says what is wrong with it."""


@dataclass(frozen=True)
class Fields:
    """The named values of one record of a message."""

    values: Mapping[str, Any]

    @classmethod
    def of(cls, content: RecordDict, record: str) -> "Fields":
        """Those of a record that may not be there."""
        if record not in content.config_records:
            raise UnreadableError(f"has no {record}")
        return cls(dict(content.config_records[record]))

    def whole(self, name: str, least: int, most: int) -> int:
        """A whole number."""
        return _whole(name, self._one(name), least, most)

    def real(self, name: str, low: float, high: float) -> float:
        """A number that is finite."""
        return _real(name, self._one(name), low, high)

    def text(self, name: str, longest: int) -> str:
        """A text of at most so many characters."""
        value = self._one(name)
        if type(value) is not str or len(value) > longest:
            raise UnreadableError(f"has a {name} that is no text of up to {longest} characters")
        return value

    def blob(self, name: str, longest: int) -> bytes:
        """Some bytes, at most so many."""
        return _blob(name, self._one(name), longest)

    def wholes(self, name: str, count: int, least: int, most: int) -> list[int]:
        """Exactly ``count`` whole numbers."""
        return [_whole(name, value, least, most) for value in self._list(name, count)]

    def reals(self, name: str, count: int, low: float, high: float) -> list[float]:
        """Exactly ``count`` numbers that are finite."""
        return [_real(name, value, low, high) for value in self._list(name, count)]

    def blobs(self, name: str, count: int, longest: int) -> list[bytes]:
        """Exactly ``count`` strings of bytes."""
        return [_blob(name, value, longest) for value in self._list(name, count)]

    def ids(self, name: str, most: int) -> list[ClientId]:
        """At most so many different ids of users, which travel as JSON."""
        longest = most * (LONGEST_ID * _PER_CHARACTER + _AROUND_ID)
        found = parsed(name, self.text(name, longest))
        if type(found) is not list or len(found) > most or not all(map(_is_id, found)):
            raise UnreadableError(f"has {name} that are no list of up to {most} ids")
        if len(set(found)) < len(found):
            raise UnreadableError(f"has {name} of whom one is there twice")
        return found

    def _one(self, name: str) -> Any:
        if name not in self.values:
            raise UnreadableError(f"has no {name}")
        return self.values[name]

    def _list(self, name: str, count: int) -> list[Any]:
        value = self._one(name)
        if not isinstance(value, list) or len(value) != count:
            raise UnreadableError(f"has no {count} {name}")
        return value


def parsed(name: str, text: str) -> Any:
    """A text as JSON; nested deeper than Python goes it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise UnreadableError(f"has a {name} that is no JSON") from None


def array(name: str, stored: object, kind: str, axes: int) -> Array:
    """An array of just this kind of number (such as "<f8") and so many axes."""
    if not isinstance(stored, StoredArray) or stored.stype != "numpy.ndarray":
        raise UnreadableError(f"has no array of {name}")
    return array_in(name, stored.data, kind, axes)


def array_in(name: str, data: bytes, kind: str, axes: int) -> Array:
    """The same from the bytes of an .npy file, the whole of which is there."""
    stream = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(stream)
        shape, by_columns, found = np.lib.format.read_array_header_1_0(stream)
    except Exception as error:  # whatever a stranger's header makes numpy say
        raise UnreadableError(f"has {name} that are no array") from error
    if version != (1, 0) or by_columns or found != np.dtype(kind) or len(shape) != axes:
        raise UnreadableError(f"has {name} of kind {found.str[:20]} and {len(shape)} axes")
    start = stream.tell()
    if min(shape, default=0) < 0 or len(data) - start != math.prod(shape) * found.itemsize:
        raise UnreadableError(f"has {name} of which some are missing")
    return np.frombuffer(data, found, offset=start).reshape(shape).copy()


def _whole(name: str, value: Any, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise UnreadableError(f"has a {name} that is no whole number from {least} to {most}")
    return value


def _real(name: str, value: Any, low: float, high: float) -> float:
    if type(value) not in (int, float) or not low <= value <= high:
        raise UnreadableError(f"has a {name} that is no number from {low:g} to {high:g}")
    return float(value)


def _blob(name: str, value: Any, longest: int) -> bytes:
    if type(value) is not bytes or len(value) > longest:
        raise UnreadableError(f"has a {name} that is not up to {longest} bytes")
    return value


def _is_id(value: Any) -> bool:
    if type(value) is str:
        return len(value) <= LONGEST_ID
    return type(value) is int and abs(value) < _LARGEST_ID
