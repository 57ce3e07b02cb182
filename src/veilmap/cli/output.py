"""Where commands write: the terminal, and files that are checked before work begins."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from veilmap._util import files
from veilmap.errors import ConfigurationError

if TYPE_CHECKING:
    from rich.progress import Progress

console = Console()


def progress_bar() -> "Progress":
    """A bar with the time that is left and a note."""
    from rich.progress import Progress, TextColumn, TimeRemainingColumn

    columns = (*Progress.get_default_columns()[:3], TimeRemainingColumn())
    return Progress(*columns, TextColumn("{task.fields[note]}"), console=console)


def write_json(content: Any, path: Path | None) -> None:
    """Write the file that ``--json`` names, if it names one."""
    if path is not None:
        files.write_json(content, path)
        console.print(f"Wrote {path}")


def sentence(text: str) -> str:
    """The text with a capital letter."""
    return text[:1].upper() + text[1:]


def writable_file(*paths: Path | None) -> None:
    """Fail before the work, not after it, where a file cannot be written."""
    for path in filter(None, paths):
        if path.is_dir():
            raise ConfigurationError(f"{path} is a folder; name a file to write to")
        writable_folder(path.parent)


def writable_folder(folder: Path) -> None:
    """Fail before the work, not after it; make nothing yet."""
    parents = (folder, *folder.absolute().parents)
    nearest = next(parent for parent in parents if parent.exists())
    if not nearest.is_dir():
        raise ConfigurationError(f"{nearest} is a file; name a folder to write to")
    if not os.access(nearest, os.W_OK):
        raise ConfigurationError(f"cannot write to the folder {nearest}; name another one")


def folder_names(runs: Sequence[Path]) -> list[str]:
    """A name for each run that no other has: its folder's, numbered where they are alike."""
    names = [path.resolve().name for path in runs]
    return [
        name if names.count(name) == 1 else f"{number}-{name}"
        for number, name in enumerate(names, start=1)
    ]
