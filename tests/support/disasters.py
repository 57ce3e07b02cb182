"""What can befall a process that writes files: it is killed, or its disk takes no more.

Python tells of every file operation before it is done (PEP 578); here one of them is the last, or
fails. What a killed process has begun to write is left as it is, and may be cut anywhere.
"""

import os
import sys
from contextlib import contextmanager
from pathlib import Path

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.chmod")


class Killed(BaseException):
    """The process ended here: nothing that it does afterwards happens."""


class Disaster:
    """Befalls the changes of files below a folder, from the ``after``-th on."""

    def __init__(self, folder, kind, after):
        self.folder, self.kind, self.left = str(folder), kind, after
        self.happened = False

    def meets(self, event, arguments):
        """What Python tells before it does something."""
        if not self._is_change(event, arguments):
            return
        self.left -= 1
        if self.left > 0:
            return
        self.happened = True
        if self.kind == "kill":
            raise Killed
        number = {"full": 28, "read-only": 30}[self.kind]
        if self.kind == "full" and event in ("os.remove", "os.rmdir"):
            return  # these make room
        raise OSError(number, os.strerror(number))

    def _is_change(self, event, arguments):
        if event == "open":
            path, mode, flags = arguments
            return self._is_ours(path) and bool(flags & _WRITES)
        return event in _CHANGES and self._is_ours(arguments[0])

    def _is_ours(self, path):
        return isinstance(path, str | os.PathLike) and os.fspath(path).startswith(self.folder)


_now = []


def _hook(event, arguments):
    if _now:
        _now[-1].meets(event, arguments)


sys.addaudithook(_hook)


@contextmanager
def befalling(folder, kind, after):
    """Within the block the disaster happens, if there are so many changes of files."""
    disaster = Disaster(folder, kind, after)
    _now.append(disaster)
    try:
        yield disaster
    finally:
        _now.remove(disaster)


def cut_unfinished(folder, share):
    """What was being written when a process was killed has come to the disk in part."""
    for path in Path(folder).rglob(".veilmap-*"):
        with path.open("r+b") as file:
            file.truncate(int(share * path.stat().st_size))
