"""Writing files so that a reader never meets half of one, and that one process writes at a time."""

import contextlib
import fcntl
import json
import os
import socket
import tempfile
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

from veilmap.errors import DataError

_SECONDS_BETWEEN_TRIES = 0.05

BROKEN_ARCHIVE = (BadZipFile, zlib.error, KeyError, ValueError, EOFError, OSError)
"""What reading a damaged .npz file raises."""


@contextmanager
def replacing(path: Path, *, secret: bool = False) -> Iterator[Path]:
    """A temporary path beside ``path`` that takes its place once the block has succeeded.

    A ``secret`` is readable by its owner alone, from its first byte on.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(
            dir=path.parent, prefix=f".{path.stem}-", suffix=path.suffix
        )
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror}") from error
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        umask = os.umask(0)
        os.umask(umask)
        if not secret:
            temporary.chmod(0o666 & ~umask)  # mkstemp's 0600 would surprise the next reader
        temporary.replace(path)
        _sync_folder(path.parent)  # the new name is durable only then
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def locked(path: Path, *, wait: float = 0.0) -> Iterator[None]:
    """Hold the lock file ``path`` within the block; only one holder at a time, of any process.

    The operating system releases it when its holder dies, however it dies. Who only reads what
    it protects need not ask for it. While it is held the file says who holds it and since when;
    it stays behind, empty, unless its holder deletes it. ``wait`` are the seconds to wait for
    another holder before this is refused.
    """
    handle = _acquired(path, time.monotonic() + wait)
    try:
        since = datetime.now(UTC).isoformat(timespec="seconds")
        holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": since}
        os.pwrite(handle, json.dumps(holder).encode(), 0)
        try:
            yield
        finally:
            os.ftruncate(handle, 0)
            fcntl.flock(handle, fcntl.LOCK_UN)  # also where a forked child shares the handle
    finally:
        os.close(handle)


def _acquired(path: Path, deadline: float) -> int:
    """The open lock file, once it is locked; else it is said who has it."""
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise DataError(f"cannot write {path}: {error.strerror}") from error
        ours = False
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Where its last holder has deleted it, another may hold a new one.
            ours = path.exists() and path.stat().st_ino == os.fstat(handle).st_ino
            if ours:
                os.ftruncate(handle, 0)  # what a killed holder left
                return handle
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise DataError(f"{path} is locked by {_holder(handle)}") from None
            time.sleep(_SECONDS_BETWEEN_TRIES)
        except OSError as error:
            raise DataError(f"cannot lock {path}: {error.strerror}") from error
        finally:
            if not ours:
                os.close(handle)


def _holder(handle: int) -> str:
    """Who holds a lock, as far as it has said so."""
    with contextlib.suppress(ValueError, KeyError, TypeError):
        told = json.loads(os.pread(handle, 4096, 0))
        who = f"process {told['pid']} on {told['host']} since {told['since']}"
        return f"{who}; wait until it ends, or stop it"
    return "another process; wait until it ends"


def make_private(path: Path) -> None:
    """Make an empty file that its owner alone can read, unless there is one."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror}") from error


def write_json(content: Any, path: Path, *, indent: int | None = 2) -> None:
    """Write ``content`` as JSON, whole or not at all."""
    write_text(json.dumps(content, indent=indent) + "\n", path)


def write_text(text: str, path: Path, *, secret: bool = False) -> None:
    """Write ``text`` as UTF-8, whole or not at all."""
    with replacing(path, secret=secret) as temporary:
        temporary.write_text(text, encoding="utf-8")


def printable(text: str, most: int = 500) -> str:
    """A stranger's text for a terminal: without control characters, cut."""
    return "".join(letter for letter in text if letter.isprintable())[:most]


def existing(path: str | Path) -> Path:
    """``path`` if it is a file that can be opened, else a clear error."""
    path = Path(path)
    if not path.exists():
        raise DataError(f"{path} does not exist")
    if path.is_dir():
        raise DataError(f"{path} is a folder, not a file")
    return path
