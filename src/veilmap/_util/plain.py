"""Configuration objects as plain data, for files, transcripts and comparisons."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any


def described(value: Any) -> Any:
    """A frozen dataclass as {"type": its class, field: value, …}, tuples as lists."""
    if is_dataclass(value) and not isinstance(value, type):
        inner = {field.name: described(getattr(value, field.name)) for field in fields(value)}
        return {"type": type(value).__name__} | inner
    if isinstance(value, tuple | list):
        return [described(item) for item in value]
    return value


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
