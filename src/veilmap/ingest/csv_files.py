"""Tables as text: what separates columns, how decimals are written, which lines are broken."""

import codecs
import csv
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

from veilmap._util import limits, reading
from veilmap.data.table_files import unreadable_as
from veilmap.errors import ConfigurationError, DataError
from veilmap.ingest import exporters
from veilmap.ingest.tables import RawTable

_SEPARATORS = {",": "','", ";": "';'", "\t": "tab"}
_SAMPLE_BYTES = 1 << 16
_LINES_COMPARED = 20
_LINE_END = re.compile(r"\r\n|\n|\r")
_QUOTED = re.compile(r'"[^"]*"')
_WITH_COMMA = re.compile(r"[+-]?\d+,\d+")
_WITH_POINT = re.compile(r"[+-]?\d+\.\d+")
_THOUSANDS = re.compile(r"[+-]?\d{1,3},\d{3}")


@dataclass(frozen=True)
class CsvFile:
    """A table of text with its names in the first line, or of an exporter that leaves it out.

    ``content`` are its bytes where they are not the file's own.
    """

    path: Path
    encoding: str | None = None
    content: bytes | None = field(default=None, repr=False)

    @cached_property
    def _decoded(self) -> tuple[bytes, str]:
        content = (
            reading.read_bytes(self.path, limits.TEXT_BYTES)
            if self.content is None
            else self.content
        )
        return _as_utf8(self.path, content, self.encoding)

    @property
    def _text(self) -> bytes:
        return self._decoded[0]

    @cached_property
    def _unnamed(self) -> Sequence[str]:
        return exporters.unnamed_columns(self._lines[0].strip())

    @cached_property
    def _lines(self) -> list[str]:
        """The first lines, for a look at how the file is written."""
        end = max(_SAMPLE_BYTES, self._text.find(b"\n") + 1)  # all of a very long first line
        lines = _LINE_END.split(self._text[:end].decode(errors="ignore"))
        return lines[:-1] if len(lines) > 1 else lines  # the last one is empty, or cut

    @cached_property
    def _separator(self) -> str:
        """The one sign that parts the names, and every line as often where there are several."""
        bare = [_QUOTED.sub("", line) for line in self._lines[: _LINES_COMPARED + 1]]
        found = [sign for sign in _SEPARATORS if sign in bare[0]]
        if len(found) > 1:
            full = [line for line in bare if line.strip()]
            found = [s for s in found if len({line.count(s) for line in full}) == 1] or found
        if len(found) > 1:
            shown = " and ".join(_SEPARATORS[sign] for sign in found)
            raise DataError(
                f"{self.path}, line 1 has both {shown}: cannot tell which separates the columns;"
                " quote names that hold one"
            )
        return found[0] if found else ","

    @cached_property
    def names(self) -> list[str]:
        """The columns' names."""
        if not self._lines[0].strip():
            raise DataError(f"{self.path}, line 1 is empty; it should name the columns")
        if self._unnamed:
            return list(self._unnamed)
        try:
            found = next(csv.reader(self._lines[:1], delimiter=self._separator))
        except csv.Error as error:
            raise DataError(f"{self.path}, line 1 does not name columns: {error}") from None
        if len(found) > limits.COLUMNS:
            raise DataError(f"{self.path} names {len(found):,} columns, over {limits.COLUMNS:,}")
        return found

    def load(self, wanted: Sequence[str], text: Collection[str] = ()) -> RawTable:
        """The ``wanted`` columns; those in ``text`` as they are written."""
        decimal = _decimal(self.path, self._lines[1:], self._separator)
        types = dict.fromkeys(text, pa.string())
        convert = pa.csv.ConvertOptions(
            include_columns=list(wanted), column_types=types, decimal_point=decimal
        )
        table, broken = self._parsed(convert)
        first = 1 if self._unnamed else 2
        numbers = np.arange(first, table.num_rows + len(broken) + first)
        notes = [f"columns are separated by {_SEPARATORS[self._separator]}"]
        notes += ["numbers have a decimal comma"] * (decimal == ",")
        if self._unnamed:
            notes.append("line 1 does not name the columns: they are taken in the usual order")
        encoding = self._decoded[1]
        if encoding.lower().replace("_", "-") != "utf-8":
            notes.append(f"text is read as {encoding}")
        apart = np.array(broken, dtype=np.int64)
        rest = np.setdiff1d(numbers, apart, assume_unique=True)
        return RawTable(self.path, table, rest, "line", apart, decimal, notes=tuple(notes))

    def _parsed(self, convert: pa.csv.ConvertOptions) -> tuple[pa.Table, list[int]]:
        """The table, and the numbers of lines with too many or too few fields."""
        broken: list[int] = []

        def note(row: pa.csv.InvalidRow) -> str:
            broken.append(row.number)
            return "skip"

        def parse(threads: bool) -> pa.Table:
            return pa.csv.read_csv(
                pa.BufferReader(self._text),
                read_options=pa.csv.ReadOptions(
                    use_threads=threads, column_names=list(self._unnamed) or None
                ),
                # Empty lines become rows of nothing, so that lines can be counted.
                parse_options=pa.csv.ParseOptions(
                    delimiter=self._separator, ignore_empty_lines=False, invalid_row_handler=note
                ),
                convert_options=convert,
            )

        with unreadable_as(self.path, "CSV"):
            table = parse(threads=True)
            if broken:  # only a single thread knows line numbers
                broken.clear()
                table = parse(threads=False)
        return table, broken


def _guessed(data: bytes) -> str:
    """The encoding of some text: Unicode, or what Windows and phones wrote in Western Europe."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if b"\0" in data[:_SAMPLE_BYTES]:
        return "utf-8"  # it is no text, and the message will say so
    for encoding in ("utf-8", "cp1252"):
        try:
            data.decode(encoding)
        except UnicodeDecodeError:
            continue
        return encoding
    return "latin-1"


def _as_utf8(path: Path, data: bytes, wanted: str | None) -> tuple[bytes, str]:
    """Text as UTF-8, and the encoding that it was in."""
    encoding = _guessed(data) if wanted is None else wanted
    if not data or data.isspace():
        raise DataError(f"{path} is empty")
    try:
        if encoding.lower().replace("_", "-") not in ("utf-8", "utf8"):
            data = data.decode(encoding).encode()
        elif data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise ConfigurationError(
                f"{path} is UTF-16 text; read it with encoding='utf-16'", "encoding"
            )
        else:
            data.decode()
    except LookupError:
        raise ConfigurationError(
            f"there is no encoding {encoding!r}; try 'utf-8' or 'latin-1'", "encoding"
        ) from None
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        where = f"{path}, line {line}: not {encoding} text"
        if b"\0" in data[:_SAMPLE_BYTES]:
            raise DataError(f"{where}; it does not look like text") from None
        raise ConfigurationError(
            f"{where}; for text of another kind, give its encoding, such as 'latin-1'", "encoding"
        ) from None
    data = data.removeprefix(codecs.BOM_UTF8)
    if b"\0" in data[:_SAMPLE_BYTES]:
        raise DataError(f"{path} does not look like text; is its ending right?")
    # Empty lines at the end are no rows.
    data = data.rstrip(b"\r\n") + b"\n" if data.endswith((b"\n\n", b"\n\r\n")) else data
    return data, encoding


def _decimal(path: Path, lines: Sequence[str], separator: str) -> str:
    if separator == ",":
        return "."
    fields = [field.strip().strip('"') for line in lines for field in line.split(separator)]
    commas = [field for field in fields if _WITH_COMMA.fullmatch(field)]
    points = [field for field in fields if _WITH_POINT.fullmatch(field)]
    if not commas:
        return "."
    if points:
        raise DataError(
            f"{path} writes numbers both as {commas[0]} and as {points[0]};"
            " write all of them with a decimal point"
        )
    if all(_THOUSANDS.fullmatch(field) for field in commas):
        raise DataError(
            f"{path}: the comma in numbers such as {commas[0]} may part thousands or decimals;"
            " write them with a decimal point"
        )
    return ","
