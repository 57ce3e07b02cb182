"""What keeps a file from being read, found out all at once with the options that help."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from veilmap.data.measurements import BadRowsError, on_bad_hint
from veilmap.errors import ConfigurationError, DataError, VeilmapError

if TYPE_CHECKING:
    from veilmap.ingest.options import Options

_MOST = 12


class FixableError(ConfigurationError):
    """A problem that other options solve: ``change`` are fields of `Options`."""

    def __init__(self, message: str, parameter: str | None, **change: Any) -> None:
        super().__init__(message, parameter)
        self.change: Mapping[str, Any] = change


@dataclass(frozen=True)
class Remedy:
    """Options with which a file can be read, as was tried; ``change`` are those that are new."""

    path: Path
    options: "Options"
    change: Mapping[str, Any]


class TableError(DataError):
    """Several problems that keep a file from being read, one sentence each."""

    def __init__(self, path: Path, problems: Sequence[str], remedy: Remedy | None) -> None:
        listed = "; ".join(f"({n}) {text}" for n, text in enumerate(problems, 1))
        self.summary = f"{path} cannot be read as it is: {listed}"
        change = remedy.change if remedy else {}
        tried = ", ".join(f"{name}={value!r}" for name, value in change.items())
        super().__init__(self.summary + f"; it can be read with {tried}" * bool(tried))
        self.problems = tuple(problems)
        self.remedy = remedy


def every_problem(
    path: Path, options: "Options", error: VeilmapError, read: Callable[["Options"], object]
) -> VeilmapError:
    """The ``error`` of a first attempt, or a report of all that further attempts meet.

    What can be solved is solved as suggested, and the file read again: the options of the report
    have been tried.
    """
    changes: dict[str, Any] = {}
    problems, tried, met = [], options, error
    remedy = None
    for _ in range(_MOST):
        problems.append(_sentence(path, met))
        change = _change(met, tried)
        if change is None:
            break
        changes |= change
        tried = replace(tried, **change)
        try:
            read(tried)
        except VeilmapError as another:
            met = another
        else:
            remedy = Remedy(path, tried, changes)
            break
    if len(problems) > 1:
        return TableError(path, problems, remedy)
    error.remedy = remedy
    return error


def _change(error: VeilmapError, options: "Options") -> dict[str, Any] | None:
    if isinstance(error, BadRowsError):
        return {"on_bad": "drop"}
    if not isinstance(error, FixableError):
        return None
    change = dict(error.change)
    if "columns" in change:
        change["columns"] = {**options.columns, **change["columns"]}
    return change if any(getattr(options, name) != new for name, new in change.items()) else None


def _sentence(path: Path, error: VeilmapError) -> str:
    text = str(error).removeprefix(f"{path}: ").removeprefix(f"{path} ")
    return text.removesuffix(on_bad_hint())
