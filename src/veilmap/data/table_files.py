"""Reading tables of columns, with errors that name the line."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from veilmap._util.arrays import Array
from veilmap.errors import DataError

# Ids stay as they are written; all other columns are numbers.
_TEXT_COLUMNS = ("user", "bs", "device")


@contextmanager
def unreadable_as(path: Path, format_name: str) -> Iterator[None]:
    """What a library raises in here becomes one line of ours."""
    try:
        yield
    except (pa.ArrowException, RuntimeError, ValueError, OSError) as error:
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
        table = pa.csv.read_csv(path) if kind == "csv" else pa.parquet.read_table(path)
    missing = [name for name in required if name not in table.column_names]
    if missing:
        raise DataError(
            f"{path} lacks the column{'s' * (len(missing) > 1)} {', '.join(missing)};"
            f" it has {', '.join(table.column_names)}"
        )
    wanted = [*required, *(name for name in optional if name in table.column_names)]
    return {name: _column(path, kind, name, table.column(name)) for name in wanted}


def names(path: Path) -> list[str]:
    """The columns of a Parquet file."""
    with unreadable_as(path, "parquet"):
        return list(pa.parquet.read_schema(path).names)


def note(path: Path, kind: Literal["csv", "parquet"], name: str) -> str | None:
    """A remark in a Parquet file's metadata, if it is there."""
    if kind == "csv":
        return None
    found = (pa.parquet.read_schema(path).metadata or {}).get(name.encode())
    return found.decode() if found else None


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
