"""Reading files that may be anybody's: regular ones only, without waiting, and not too much."""

import errno
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from veilmap._util import limits, seals
from veilmap.errors import DataError

_TYPES = {
    stat.S_IFIFO: "a pipe", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket", stat.S_IFDIR: "a folder", stat.S_IFLNK: "a symbolic link",
}  # fmt: skip


@contextmanager
def opened(path: str | Path, most: int, *, follow: bool = True) -> Iterator[BinaryIO]:
    """A regular file of at most ``most`` bytes, opened without waiting for anybody.

    Without ``follow`` a symbolic link is refused: what is in a folder shall not lead out of it.
    """
    path = Path(path)
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    try:
        handle = os.open(path, flags)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise DataError(f"{path} is a symbolic link, which is not followed here") from None
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            raise DataError(f"{path} does not exist") from None
        raise DataError(f"{path} cannot be read: {reason(error)}") from None
    except ValueError as error:
        raise DataError(f"{path} cannot be read: {error}") from None
    try:
        found = os.fstat(handle)
        check_regular(path, found)
        if found.st_size > most:
            raise DataError(f"{path} is too large: {found.st_size:,} bytes, over {most:,}")
        with os.fdopen(handle, "rb", closefd=False) as file:
            yield file
    finally:
        os.close(handle)


def read_bytes(path: str | Path, most: int = limits.FILE_BYTES, *, follow: bool = True) -> bytes:
    """A file's content, at most ``most`` bytes."""
    with opened(path, most, follow=follow) as file:
        size = os.fstat(file.fileno()).st_size
        try:
            content = file.read(size + 1)
        except OSError as error:
            raise DataError(f"{path} cannot be read: {reason(error)}") from None
    if len(content) > size:
        raise DataError(f"{path} grows while it is read; wait until it is written")
    return content


def read_json(
    path: str | Path,
    most: int = limits.DESCRIPTION_BYTES,
    *,
    follow: bool = True,
    sealed: bool = False,
) -> Any:
    """What a JSON file holds, at most so many bytes and levels; of a ``sealed`` one if it is whole.

    An error says what is wrong, and with which file.
    """
    content = read_bytes(path, most, follow=follow)
    if sealed:
        seals.check(content, str(path))
    found = parsed_json(content, str(path))
    if sealed:
        if not isinstance(found, dict):
            raise DataError(f"{path} does not hold what it should")
        found.pop(seals.NAME, None)
    return found


def unlinked(path: Path) -> Path:
    """``path``, unless it is a symbolic link: what is in a folder shall not lead out of it."""
    if path.is_symlink():
        raise DataError(f"{path} is a symbolic link, which is not followed here")
    return path


def parsed_json(content: bytes | str, where: str) -> Any:
    """What JSON text says; ``where`` it is from."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        why = "nested too deep" if isinstance(error, RecursionError) else str(error)
        raise DataError(f"{where} is not JSON: {why}") from None
    level = [found]
    for _ in range(limits.JSON_DEPTH):
        level = [part for whole in level for part in _parts(whole) if isinstance(part, dict | list)]
        if not level:
            return found
    raise DataError(f"{where} is JSON nested more than {limits.JSON_DEPTH} levels deep")


def _parts(whole: Any) -> Any:
    if isinstance(whole, dict):
        return whole.values()
    return whole if isinstance(whole, list) else ()


def check_regular(path: Path, found: os.stat_result) -> None:
    """Refuse what is no file, such as a pipe, which would be waited for."""
    if not stat.S_ISREG(found.st_mode):
        kind = _TYPES.get(stat.S_IFMT(found.st_mode), "something else")
        raise DataError(f"{path} is {kind}, not a file")


def reason(error: Exception) -> str:
    """What the operating system says, without the path."""
    return getattr(error, "strerror", None) or str(error)
