"""Checksums inside files of any format that can hold a text: whoever reads one sees damage.

A file is made with `BLANK` in it; `sealed` puts the SHA-256 of the whole file, with the digits
taken as zeros, in place of the zeros. It tells accidents, not forgers: anybody can seal.
"""

import re
from hashlib import sha256

from veilmap.errors import DataError

NAME = "checksum"
"""Of the field or attribute that holds it, where a format names its parts."""

_MARK = b"veilmap-sha256:"
_DIGITS = 64

BLANK = (_MARK + b"0" * _DIGITS).decode()

_SEAL = re.compile(re.escape(_MARK) + rb"([0-9a-f]{64})")


def sealed(content: bytes | memoryview) -> bytearray:
    """A file's content with its checksum in place of `BLANK`."""
    whole = bytearray(content)
    at = whole.index(BLANK.encode()) + len(_MARK)
    whole[at : at + _DIGITS] = _digest(whole, at)
    return whole


def check(content: bytes, where: str) -> None:
    """Refuse what was changed since it was sealed, or never was sealed."""
    found = _SEAL.search(content)
    if found is None:
        raise DataError(f"{where} has no checksum: it is damaged, or of another version")
    if _digest(content, found.start(1)) != found[1]:
        raise DataError(f"{where} is damaged: its checksum does not match")


def _digest(content: bytes | bytearray, at: int) -> bytes:
    view = memoryview(content)
    digest = sha256(view[:at])
    digest.update(b"0" * _DIGITS)
    digest.update(view[at + _DIGITS :])
    return digest.hexdigest().encode()
