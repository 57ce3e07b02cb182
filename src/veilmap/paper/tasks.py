"""Pieces of work that experiments share, remembered by their settings and the code's version."""

import ast
import hashlib
import inspect
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

from veilmap._util import archives
from veilmap._util.arrays import Array
from veilmap._util.plain import to_plain
from veilmap.errors import DataError

Outcome = Mapping[str, Array]
"""What a task gives: named arrays."""

_ROOT = Path(__file__).parents[1]  # of the package
_LIBRARIES = ("numpy", "numba", "scipy", "shapely")


class Task(ABC):
    """A frozen dataclass whose fields decide its outcome."""

    about: ClassVar[str] = ""
    """The label, with fields as {self.field}; by default the name of the class."""

    @abstractmethod
    def run(self) -> Outcome:
        """Do the work; the same settings always give the same arrays."""

    @property
    def weight(self) -> float:
        """About how long it takes, in seconds on a slow core: for progress and order."""
        return 1.0

    @property
    def label(self) -> str:
        """A few words for the progress bar."""
        return (self.about or type(self).__name__).format(self=self)


@dataclass(frozen=True)
class Store:
    """Outcomes in a folder, one file each. Another setting or version has another file."""

    folder: Path

    def load(self, task: Task) -> Outcome | None:
        """The stored outcome, or None."""
        path = self._path(task)
        if not path.exists():
            return None
        try:
            stored = archives.load(path)
        except DataError as error:
            raise DataError(f"{path} is damaged; delete it to have it computed anew") from error
        return {name: values for name, values in stored.items() if name != "settings"}

    def save(self, task: Task, outcome: Outcome) -> None:
        """Keep an outcome, whole or not at all."""
        # The settings are for people who wonder what a file is.
        arrays: dict[str, Any] = {"settings": _settings(task), **outcome}
        archives.save(self._path(task), arrays, compressed=True, secret=False)

    def _path(self, task: Task) -> Path:
        return self.folder / f"{type(task).__name__.lower()}-{key(task)}.npz"


def key(task: Task) -> str:
    """What names a task's outcome: its settings and the version of all code behind it."""
    source = Path(inspect.getfile(type(task)))
    version_of_code = code_version(source.resolve())
    return hashlib.sha256(_settings(task).encode() + version_of_code).hexdigest()[:20]


def _settings(task: Task) -> str:
    return json.dumps(to_plain(task), sort_keys=True)


@cache
def code_version(source: Path, root: Path = _ROOT) -> bytes:
    """A digest of a module, of all modules of the package that it leads to, and of libraries."""
    digest = hashlib.sha256()
    for path in sorted(_behind(source, root)):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    for library in _LIBRARIES:
        digest.update(f"{library} {version(library)}".encode())
    return digest.digest()


def _behind(source: Path, root: Path) -> set[Path]:
    """A module's file and those of all modules of the package that it imports, or they do."""
    found: set[Path] = set()
    waiting = [source]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting += _imported(path, root)
    return found


def _imported(path: Path, root: Path) -> Iterator[Path]:
    """The files of the package that a file imports, wherever in it."""
    if path == root / "__init__.py":
        return  # imports nothing but names that others ask it for
    for node in ast.walk(ast.parse(path.read_bytes())):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            package, *inside = name.split(".")
            if package == root.name:
                module = root.joinpath(*inside)
                yield from filter(Path.exists, (module.with_suffix(".py"), module / "__init__.py"))
