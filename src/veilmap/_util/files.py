"""Writing files so that a reader never meets half of one, and that one process writes at a time."""

import contextlib
import fcntl
import json
import os
import re
import secrets
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from veilmap._util import reading, seals
from veilmap.errors import DataError

_SECONDS_BETWEEN_TRIES = 0.05

# Names of files that are being written. A writer holds its own locked, so that one which is not
# was left by a process that was killed.
_TEMPORARY = re.compile(r"\.veilmap-[0-9a-f]{16}\.part(\.\w+)?")


@contextmanager
def replacing(path: Path, *, secret: bool = False) -> Iterator[Path]:
    """A temporary path beside ``path`` that takes its place once the block has succeeded.

    A ``secret`` is readable by its owner alone, from its first byte on; so are folders that are
    made for it.
    """
    temporary = path.parent / f".veilmap-{secrets.token_hex(8)}.part{path.suffix}"
    try:
        make_folder(path.parent, secret=secret)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(temporary, flags, 0o600)
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror}") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield temporary
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        if not secret:
            umask = os.umask(0)
            os.umask(umask)
            temporary.chmod(0o666 & ~umask)
        temporary.replace(path)
        _sync_folder(path.parent)  # the new name is durable only then
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        os.close(handle)
        with contextlib.suppress(OSError):  # why it could not be written is said already
            temporary.unlink(missing_ok=True)


def make_folder(folder: Path, *, secret: bool = False) -> None:
    """Make a folder and those above it that are missing, durably; a ``secret`` one for its owner.

    One that is there stays as it is.
    """
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    for one in reversed(missing):
        one.mkdir(mode=0o700 if secret else 0o777, exist_ok=True)
        _sync_folder(one.parent)


def remove_unfinished(folder: Path) -> None:
    """Delete what killed writers have left in a folder of our own, and nothing else.

    Neither links nor what they lead to, nor what somebody still writes.
    """
    if folder.is_symlink() or not folder.is_dir():
        return
    for entry in os.scandir(folder):
        if _TEMPORARY.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
            with contextlib.suppress(OSError):
                _remove_if_left(Path(entry.path))


def _remove_if_left(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()
    finally:
        os.close(handle)


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
            make_folder(path.parent, secret=True)
            # Through a link, or for a pipe, something else would be emptied or waited for.
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            handle = os.open(path, flags, 0o600)
        except OSError as error:
            raise DataError(f"cannot write {path}: {error.strerror}") from error
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise DataError(f"{path} is no file that could be locked")
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
    open_log(path).close()


def open_log(path: Path) -> IO[bytes]:
    """A file to add to, which its owner alone can read from its first byte on."""
    try:
        make_folder(path.parent, secret=True)
        flags = os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
        return os.fdopen(os.open(path, flags, 0o600), "ab")
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror}") from error


def write_json(
    content: Any,
    path: Path,
    *,
    indent: int | None = 2,
    secret: bool = False,
    sealed: bool = False,
) -> None:
    """Write ``content`` as JSON, whole or not at all; ``sealed`` with a checksum of the file."""
    whole = content | {seals.NAME: seals.BLANK} if sealed else content
    data = (json.dumps(whole, indent=indent) + "\n").encode()
    write_bytes(seals.sealed(data) if sealed else data, path, secret=secret)


def write_text(text: str, path: Path, *, secret: bool = False) -> None:
    """Write ``text`` as UTF-8, whole or not at all."""
    write_bytes(text.encode(), path, secret=secret)


def write_bytes(content: bytes | bytearray, path: Path, *, secret: bool = False) -> None:
    """Write a file's content, whole or not at all."""
    with replacing(path, secret=secret) as temporary:
        temporary.write_bytes(content)


def printable(text: str, most: int = 500) -> str:
    """A stranger's text for a terminal: without control characters, cut."""
    return "".join(letter for letter in text if letter.isprintable())[:most]


def existing(path: str | Path) -> Path:
    """``path`` if it is a file that can be opened, else a clear error."""
    path = Path(path)
    try:
        reading.check_regular(path, path.stat())
    except (FileNotFoundError, NotADirectoryError):
        raise DataError(f"{path} does not exist") from None
    except (OSError, ValueError) as error:  # one with a zero byte in it
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path} cannot be read: {reading.reason(error)}") from None
    return path
