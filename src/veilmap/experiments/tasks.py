"""Pieces of work that experiments share, remembered by their settings and the code's version."""

import hashlib
import inspect
import json
import os
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import veilmap
from veilmap import _files
from veilmap._describe import described
from veilmap.errors import VeilmapError

Outcome = Mapping[str, NDArray]
"""What a task gives: named arrays."""

# These decide how results look, not what they are.
_ONLY_SHOW = {
    "__init__.py", "_html.py", "cli.py", "commands", "demo.py", "pictures.py", "plots", "reports",
    "sources.py", "tables.py", "benchmarks", "experiments", "web",
}  # fmt: skip
_ROOT = Path(inspect.getfile(veilmap)).parent
_LIBRARIES = ("numpy", "numba", "scipy", "shapely")


class Task(ABC):
    """A frozen dataclass whose fields decide its outcome."""

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
        return type(self).__name__


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
            with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
                return {name: stored[name] for name in stored.files if name != "settings"}
        except (OSError, EOFError, ValueError, zipfile.BadZipFile) as error:
            raise VeilmapError(f"{path} is damaged; delete it to have it computed anew") from error

    def save(self, task: Task, outcome: Outcome) -> None:
        """Keep an outcome, whole or not at all."""
        # The settings are for people who wonder what a file is.
        with _files.replacing(self._path(task)) as temporary:
            arrays: dict[str, Any] = {"settings": _settings(task), **outcome}
            np.savez_compressed(temporary, **arrays)

    def _path(self, task: Task) -> Path:
        return self.folder / f"{type(task).__name__.lower()}-{key(task)}.npz"


def key(task: Task) -> str:
    """What names a task's outcome: its settings and the version of all code behind it."""
    source = Path(inspect.getfile(type(task))).read_bytes()
    content = _settings(task).encode() + hashlib.sha256(source).digest() + code_version()
    return hashlib.sha256(content).hexdigest()[:20]


def _settings(task: Task) -> str:
    return json.dumps(described(task), sort_keys=True)


@cache
def code_version(root: Path = _ROOT) -> bytes:
    """A digest of every module that decides results, and of the libraries under them."""
    digest = hashlib.sha256()
    shared = [root / "experiments" / "trials.py"]
    for path in sorted(root.rglob("*.py")) + shared:
        inside = path.relative_to(root)
        if inside.parts[0] in _ONLY_SHOW and path not in shared:
            continue
        digest.update(os.fsencode(inside) + b"\0" + path.read_bytes())
    for library in _LIBRARIES:
        digest.update(f"{library} {version(library)}".encode())
    return digest.digest()
