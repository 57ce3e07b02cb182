"""Reading tables of columns, with errors that name the line.

Parquet files are measured by what they say of themselves before any column is read: a small file
can hold thousands of times its size.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet

from veilmap._util import files, limits
from veilmap._util.arrays import Array
from veilmap.errors import DataError, VeilmapError

# Ids stay as they are written; all other columns are numbers.
_TEXT_COLUMNS = ("user", "bs", "device")


@contextmanager
def unreadable_as(path: Path, format_name: str) -> Iterator[None]:
    """What a library raises in here becomes one line of ours."""
    try:
        yield
    except VeilmapError:
        raise
    except Exception as error:  # of many kinds, some of them private
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(f"{path} cannot be read as {format_name}: {reason}") from None


def read(
    path: Path,
    kind: Literal["csv", "parquet"],
    *,
    required: Sequence[str],
    optional: Sequence[str] = (),
) -> dict[str, Array]:
    """The wanted columns of a file as arrays; missing numbers become NaN."""
    with unreadable_as(path, kind):
        table = read_csv(path) if kind == "csv" else None
        names = parquet_schema(path).names if table is None else table.column_names
    missing = [name for name in required if name not in names]
    if missing:
        raise DataError(
            f"{path} lacks the column{'s' * (len(missing) > 1)} {', '.join(missing)};"
            f" it has {files.printable(', '.join(names))}"
        )
    wanted = [*required, *(name for name in optional if name in names)]
    for name in wanted:
        if names.count(name) > 1:
            raise DataError(f"{path} has the column {name} more than once")
    if table is None:
        table = read_parquet(path, wanted)
    return {name: _column(path, kind, name, table.column(name)) for name in wanted}


def names(path: Path) -> list[str]:
    """The columns of a Parquet file."""
    with unreadable_as(path, "parquet"):
        return list(parquet_schema(path).names)


def note(path: Path, kind: Literal["csv", "parquet"], name: str) -> str | None:
    """A remark in a Parquet file's metadata, if it is there."""
    if kind == "csv":
        return None
    with unreadable_as(path, kind):
        found = (parquet_schema(path).metadata or {}).get(name.encode())
        return found.decode() if found else None


def read_csv(path: Path) -> pa.Table:
    """A whole table of text."""
    size = files.existing(path).stat().st_size
    if size > limits.TEXT_BYTES:
        raise DataError(f"{path} has {size:,} bytes, more than {limits.TEXT_BYTES:,}")
    return pa.csv.read_csv(path)


def parquet_schema(path: Path) -> pa.Schema:
    """Columns of a Parquet file, and its remarks."""
    schema = pa.parquet.read_schema(files.existing(path))
    if len(schema.names) > limits.COLUMNS:
        raise DataError(f"{path} has {len(schema.names):,} columns, more than {limits.COLUMNS:,}")
    return schema


def read_parquet(path: Path, columns: Sequence[str]) -> pa.Table:
    """The named columns of a Parquet file, if it says that they are not too large."""
    with unreadable_as(path, "parquet"):
        most = limits.unpacked(files.existing(path).stat().st_size)
        schema = parquet_schema(path)
        kinds = {name: _kind(path, schema.field(name)) for name in columns}
        # Text stays as numbers of a dictionary: a long text may be meant in every row.
        texts = [name for name, kind in kinds.items() if _is_text(kind)]
        file = pa.parquet.ParquetFile(path, read_dictionary=texts)
        _check_size(path, file.metadata, len(columns), most)
        table = file.read(columns=list(columns))
        table.validate(full=True)  # text may be damaged
        for name in texts:
            _check_text(path, name, table.column(name), most)
        return table.cast(pa.schema([schema.field(name) for name in table.column_names]))


def _kind(path: Path, field: pa.Field) -> pa.DataType:
    """Of which type the values of a column are; only such as take one place a row."""
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    single = pa.types.is_primitive(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind)
    if single or _is_text(kind):
        return kind
    raise DataError(f"{path}: column {field.name} holds {files.printable(str(kind), 50)} values")


def _check_size(path: Path, about: pa.parquet.FileMetaData, columns: int, most: int) -> None:
    packed = sum(about.row_group(n).total_byte_size for n in range(about.num_row_groups))
    size = max(packed, 8 * columns * about.num_rows)
    if size > most:
        raise DataError(
            f"{path} would take {size:,} bytes for {about.num_rows:,} rows, more than {most:,}"
        )


def _check_text(path: Path, name: str, column: pa.ChunkedArray, most: int) -> None:
    """Refuse a column of text that is too large once every row has its own."""
    size = 0
    for chunk in column.chunks:
        lengths = pa.compute.binary_length(chunk.dictionary).cast(pa.int64())
        size += pa.compute.sum(lengths.take(chunk.indices)).as_py() or 0
    if size > most:
        raise DataError(f"{path}: column {name} would take {size:,} bytes, more than {most:,}")


def _is_text(kind: pa.DataType) -> bool:
    tests = pa.types.is_string, pa.types.is_large_string, pa.types.is_binary
    return any(test(kind) for test in (*tests, pa.types.is_large_binary))


def _column(path: Path, kind: str, name: str, column: pa.ChunkedArray) -> Array:
    if name in _TEXT_COLUMNS:
        return np.asarray(column.to_numpy())
    try:
        return np.asarray(column.cast(pa.float64()).to_numpy())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        row, text = _first_not_a_number(column)
        # A CSV's first line holds the names, and people count lines from 1.
        where = f"line {row + 2}" if kind == "csv" else f"row {row}"
        raise DataError(f"{path}, {where}: {name} is {text!r}, not a number") from None


def _first_not_a_number(column: pa.ChunkedArray) -> tuple[int, object]:
    for row, value in enumerate(column.to_pylist()):
        try:
            np.float64(value if value is not None else "nan")
        except (TypeError, ValueError):
            return row, value
    return 0, column.type
