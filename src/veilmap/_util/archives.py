"""Named arrays as .npz files: sealed when written, measured before they are unpacked."""

import io
import math
import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import ArrayLike

from veilmap._util import files, limits, reading, seals
from veilmap._util.arrays import Array
from veilmap.errors import DataError

_ENDING = ".npy"
_KINDS = "biufU"  # of numbers and text; never objects, which run code when they are read
_LONGEST_HEADER = 10_000

_BROKEN = (
    zipfile.BadZipFile, zlib.error, struct.error, ArithmeticError, LookupError, MemoryError,
    OSError, NotImplementedError, RuntimeError, SyntaxError, TypeError, ValueError, EOFError,
)  # fmt: skip


def save(
    path: Path, arrays: Mapping[str, ArrayLike], *, compressed: bool = False, secret: bool = True
) -> None:
    """Write arrays, whole or not at all; what is the owner's alone as `files.replacing` has it."""
    content = _packed(arrays, compressed)
    unpacked = sum(np.asarray(values).nbytes for values in arrays.values())
    if compressed and unpacked > limits.unpacked(len(content)):  # nearly all of it is zeros
        content = _packed(arrays, compressed=False)
    files.write_bytes(content, path, secret=secret)


def _packed(arrays: Mapping[str, ArrayLike], compressed: bool) -> bytearray:
    packing = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", packing) as archive:
        for name, values in arrays.items():
            about = zipfile.ZipInfo(name + _ENDING)  # without the time: the same arrays, same bytes
            about.compress_type = packing
            with archive.open(about, "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.asarray(values), allow_pickle=False)
        archive.comment = seals.BLANK.encode()
    return seals.sealed(whole.getbuffer())


def load(path: Path, *, follow: bool = True) -> dict[str, Array]:
    """The arrays of a file, which hold numbers or text; what is damaged or too large is refused."""
    content = reading.read_bytes(path, follow=follow)
    seals.check(content, str(path))
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            parts = archive.infolist()
            _check_sizes(parts, len(content))
            return {_name(part): _array(archive, part) for part in parts}
    except DataError as error:
        raise DataError(f"{path} {error}") from None
    except _BROKEN as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(f"{path} is damaged: {reason}") from None


def _check_sizes(parts: list[zipfile.ZipInfo], packed: int) -> None:
    """Refuse an archive by what its list of contents says, before anything is unpacked."""
    if len(parts) > limits.ARRAYS or len({part.filename for part in parts}) < len(parts):
        raise DataError(f"holds more than {limits.ARRAYS} arrays, or two of one name")
    size, most = sum(part.file_size for part in parts), limits.unpacked(packed)
    if size > most:
        raise DataError(f"would unpack to {size:,} bytes, more than {most:,}")


def _name(part: zipfile.ZipInfo) -> str:
    if not part.filename.endswith(_ENDING):
        raise DataError(f"holds {part.filename[:50]!r}, which is no array")
    return part.filename.removesuffix(_ENDING)


def _array(archive: zipfile.ZipFile, part: zipfile.ZipInfo) -> Array:
    with archive.open(part) as opened:
        file = cast("BinaryIO", opened)
        shape, fortran, kind = _header(file)
        size = math.prod(shape) * kind.itemsize
        if kind.kind not in _KINDS or file.tell() + size != part.file_size:
            raise DataError("holds what is no array of numbers or text, or of another size")
        values = bytearray(file.read(size))
        if file.read(1) or len(values) != size:  # the end is where zipfile checks its CRC
            raise DataError("holds an array of another size than it says")
    order: Any = "F" if fortran else "C"
    return np.ndarray(shape, kind, values, order=order)


def _header(file: BinaryIO) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether columns come first, and type."""
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(file, max_header_size=_LONGEST_HEADER)
    return np.lib.format.read_array_header_2_0(file, max_header_size=_LONGEST_HEADER)
