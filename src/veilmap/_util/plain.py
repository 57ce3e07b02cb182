"""Configuration objects as plain data and back: one pair for every frozen dataclass of ours.

Plain data are what JSON holds. An object becomes {"type": its class, field: value, …}; tuples
become lists, and paths text. Classes whose objects are read back are marked with `plain`.
"""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

from veilmap.errors import DataError

T = TypeVar("T")

_KINDS: dict[str, type] = {}

# What reading a damaged or hostile JSON file raises, and taking it apart.
DAMAGED = (
    ArithmeticError, AttributeError, LookupError, OSError, RecursionError, TypeError, ValueError,
)  # fmt: skip


def plain(kind: type[T]) -> type[T]:
    """Mark a frozen dataclass whose objects can be read back; as a decorator."""
    if _KINDS.setdefault(kind.__name__, kind) is not kind:
        raise DataError(f"two classes whose objects are read back are named {kind.__name__}")
    return kind


def is_plain(name: str) -> bool:
    """Whether objects of a class of this name can be read back."""
    return name in _KINDS


def to_plain(value: Any) -> Any:
    """A frozen dataclass, or what is made of some, as plain data."""
    if is_dataclass(value) and not isinstance(value, type):
        inner = {field.name: to_plain(getattr(value, field.name)) for field in fields(value)}
        return {"type": type(value).__name__} | inner
    if isinstance(value, tuple | list):
        return [to_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def from_plain(content: Any, kind: type[T]) -> T:
    """The object of a class, or of one below it, that `to_plain` made ``content`` of."""
    try:
        found = _object(content)
    except (TypeError, KeyError) as error:
        raise DataError(f"this is no {kind.__name__}: {error}") from error
    if not isinstance(found, kind):
        raise DataError(f"this is no {kind.__name__}, but {type(found).__name__}")
    return found


def _object(content: Any) -> Any:
    if isinstance(content, list):
        return tuple(_object(item) for item in content)
    if not isinstance(content, Mapping):
        return content
    name = str(content.get("type"))
    if name not in _KINDS:
        raise DataError(f"no {name!r} is known; there are {', '.join(sorted(_KINDS))}")
    return _KINDS[name](**{key: _object(item) for key, item in content.items() if key != "type"})


def differences(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> list[str]:
    """What differs between two descriptions, one short phrase each."""
    found = []
    for key in sorted(old.keys() | new.keys()):
        before, after = old.get(key), new.get(key)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            found += differences(before, after, f"{prefix}{key}.")
        elif before != after:
            found.append(f"{prefix}{key} was {before}, now {after}")
    return found
