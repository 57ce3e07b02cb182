"""Columns as numbers, ids and times, with a mark at what cannot be read."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from veilmap._util.arrays import Array, Bools, Floats, Ints
from veilmap.ingest import times as times_as_text

_EMPTY = pa.array(["", "-", "NA", "N/A", "#N/A", "n/a", "NaN", "nan", "NULL", "null", "None"])
_NUMBER = r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$"
_WHOLE = r"^(0|-?[1-9]\d{0,17})$"
_LONGEST_ID = 200
# Seconds since 1970 stay below this until the year 5138; milliseconds passed it in 1973.
_TOO_LATE_S = 1e11
_YEAR_9999_S = 253_402_300_799.0
_COMPACT = 19_000_101_000_000.0, 20_991_231_235_959.0  # as numbers: YYYYMMDDhhmmss


class Parsed(NamedTuple):
    """A column of numbers or seconds.

    Values are NaN where there is none: the file says nothing (``empty``), or what is no number or
    time (``unreadable``).
    """

    values: Floats
    empty: Bools
    unreadable: Bools

    def repeated(self, times: int) -> "Parsed":
        """Each row so many times."""
        parts: tuple[Array, ...] = tuple(np.repeat(part, times) for part in self)
        return Parsed(*parts)


@dataclass(frozen=True)
class Ids:
    """A column of ids, as numbers into the list of distinct ones.

    Row i has ``distinct[codes[i]]``, unless it is ``missing``.
    """

    distinct: Array
    codes: Ints
    missing: Bools

    def repeated(self, times: int) -> "Ids":
        """Each row so many times."""
        return Ids(self.distinct, np.repeat(self.codes, times), np.repeat(self.missing, times))

    def rows(self) -> Array:
        """The id of each row."""
        return self.distinct[self.codes]


def numbers(column: pa.ChunkedArray, decimal: str = ".") -> Parsed:
    """A column of numbers; of text, what reads as a number counts."""
    kind = _plain(column.type)
    if pa.types.is_string(kind):
        return _numbers_of_text(column, decimal)
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        empty = column.is_null().to_numpy()
        return Parsed(np.full(len(empty), np.nan), empty, ~empty)
    values = column.cast(pa.float64(), safe=False).to_numpy()
    return Parsed(values, np.isnan(values), np.zeros(len(values), dtype=bool))


def ids(column: pa.ChunkedArray) -> Ids:
    """A column of ids; text that holds whole numbers only becomes whole numbers."""
    kind = _plain(column.type)
    if pa.types.is_floating(kind):
        column = pc.if_else(pc.is_nan(column), None, column)
    elif not pa.types.is_integer(kind):
        column = _as_text(column)
        unusable = pc.or_(pc.equal(column, ""), pc.greater(pc.utf8_length(column), _LONGEST_ID))
        column = pc.if_else(unusable, None, column)
    missing = column.is_null().to_numpy()
    coded = column.combine_chunks().dictionary_encode()
    if isinstance(coded, pa.ChunkedArray):
        coded = coded.combine_chunks()
    codes = coded.indices.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    distinct = _distinct(coded.dictionary)
    return Ids(distinct if len(distinct) else np.zeros(1, np.int64), codes, missing)


def times(column: pa.ChunkedArray, dates: str | None = None) -> tuple[Parsed, str]:
    """A column of times as seconds since 1970, UTC where the file names no zone, and a note.

    ``dates`` says whether the day or the month is first, where that cannot be seen. The note names
    the layout of what is not ISO 8601; it is empty otherwise.
    """
    (seconds, empty, unreadable), note = _seconds(column, dates)
    never = np.abs(seconds) > _YEAR_9999_S
    return Parsed(np.where(never, np.nan, seconds), empty, unreadable | never), note


def _seconds(column: pa.ChunkedArray, dates: str | None) -> tuple[Parsed, str]:
    kind = _plain(column.type)
    if pa.types.is_timestamp(kind):
        whole = column.cast(pa.timestamp("us", tz=column.type.tz)).cast(pa.int64())
        seconds = whole.cast(pa.float64(), safe=False).to_numpy() / 1e6
        return Parsed(seconds, np.isnan(seconds), np.zeros(len(seconds), dtype=bool)), ""
    if pa.types.is_string(kind):
        return _times_of_text(column, dates)
    counted = numbers(column)
    known = counted.values[~counted.empty]
    if len(known) and (known >= _COMPACT[0]).all() and (known <= _COMPACT[1]).all():
        return _times_of_text(column.cast(pa.int64()).cast(pa.string()), dates)
    usual = np.median(np.abs(counted.values[~counted.empty])) if not counted.empty.all() else 0.0
    units = (1.0, 1e3, 1e6, 1e9)  # seconds, milliseconds, microseconds, nanoseconds
    unit = next((unit for unit in units if usual / unit <= _TOO_LATE_S), 1.0)
    return Parsed(counted.values / unit, counted.empty, counted.unreadable), ""


def _times_of_text(column: pa.ChunkedArray, dates: str | None) -> tuple[Parsed, str]:
    trimmed, empty = _trimmed(column)
    layout = times_as_text.layout_of(pc.if_else(pa.array(empty), None, trimmed), dates)
    seconds = times_as_text.seconds(trimmed, layout)
    note = "" if layout is times_as_text.ISO else f"times are read as {layout.name}"
    return Parsed(seconds, empty, ~empty & np.isnan(seconds)), note


def _plain(kind: pa.DataType) -> pa.DataType:
    """A type without how it is kept."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return pa.string() if pa.types.is_large_string(kind) or str(kind) == "string_view" else kind


def _trimmed(column: pa.ChunkedArray) -> tuple[pa.ChunkedArray, Bools]:
    """Text without blanks around it, and where it says nothing."""
    trimmed = pc.utf8_trim_whitespace(column.cast(pa.string()))
    return trimmed, pc.or_kleene(pc.is_null(column), pc.is_in(trimmed, _EMPTY)).to_numpy()


def _numbers_of_text(column: pa.ChunkedArray, decimal: str) -> Parsed:
    trimmed, empty = _trimmed(column)
    if decimal == ",":
        trimmed = pc.replace_substring(trimmed, ",", ".")
    legible = pc.fill_null(pc.match_substring_regex(trimmed, _NUMBER), False)
    readable = pc.if_else(legible, trimmed, None)
    values = readable.cast(pa.float64()).to_numpy()
    return Parsed(values, empty, ~empty & ~legible.to_numpy())


def _as_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    try:
        return column.cast(pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return pa.chunked_array([pa.nulls(len(column), pa.string())])


def _distinct(dictionary: pa.Array) -> Array:
    """Few distinct ids, as whole numbers if all are."""
    if pa.types.is_string(dictionary.type):
        if len(dictionary) and pc.all(pc.match_substring_regex(dictionary, _WHOLE)).as_py():
            return np.asarray(dictionary.cast(pa.int64()).to_numpy(zero_copy_only=False))
        return np.asarray(dictionary.to_numpy(zero_copy_only=False).astype(str))
    values = dictionary.to_numpy(zero_copy_only=False)
    if values.dtype.kind == "f" and (values == np.round(values)).all():
        return np.asarray(values.astype(np.int64))
    return np.asarray(values)
