"""Writing files so that a reader never meets half of one."""

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from veilmap.errors import VeilmapError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside ``path`` that takes its place once the block has succeeded."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(
            dir=path.parent, prefix=f".{path.stem}-", suffix=path.suffix
        )
    except OSError as error:
        raise VeilmapError(f"cannot write {path}: {error.strerror}") from error
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)  # mkstemp's 0600 would surprise the next reader
        temporary.replace(path)
    except OSError as error:
        raise VeilmapError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)


def write_json(content: Any, path: Path, *, indent: int | None = 2) -> None:
    """Write ``content`` as JSON, whole or not at all."""
    write_text(json.dumps(content, indent=indent) + "\n", path)


def write_text(text: str, path: Path) -> None:
    """Write ``text`` as UTF-8, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def existing(path: str | Path) -> Path:
    """``path`` if it is a file that can be opened, else a clear error."""
    path = Path(path)
    if not path.exists():
        raise VeilmapError(f"{path} does not exist")
    if path.is_dir():
        raise VeilmapError(f"{path} is a folder, not a file")
    return path
