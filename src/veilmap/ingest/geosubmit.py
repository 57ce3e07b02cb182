"""Reports of cells in JSON, as apps submit them to Ichnaea, beaconDB and others, as a table."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from veilmap._util import limits, reading
from veilmap.errors import DataError
from veilmap.ingest.tables import RawTable

_REPORT = ("timestamp",)
_POSITION = ("latitude", "longitude", "accuracy", "source")
_CELL = ("radioType", "mobileCountryCode", "mobileNetworkCode", "locationAreaCode", "cellId",
         "primaryScramblingCode", "arfcn", "asu", "serving", "signalStrength")  # fmt: skip


@dataclass(frozen=True)
class GeosubmitFile:
    """A file of reports: a row is a cell of a report, and rows are called by their report."""

    path: Path

    @property
    def names(self) -> list[str]:
        """The columns' names."""
        return [*_REPORT, *_POSITION, *_CELL]

    @cached_property
    def _rows(self) -> tuple[list[dict[str, Any]], list[int]]:
        rows, numbers = [], []
        for number, report in enumerate(_reports(self.path)):
            for row in _cells(report):
                rows.append(row)
                numbers.append(number)
        return rows, numbers

    def load(self, wanted: Sequence[str], text: Collection[str] = ()) -> RawTable:
        """The ``wanted`` columns; those in ``text`` as they are written."""
        rows, numbers = self._rows
        columns = {}
        for name in wanted:
            values = [row.get(name) for row in rows]
            columns[name] = _text(values) if name in text else _numbers(values)
        table = pa.table(columns)
        return RawTable(self.path, table, np.array(numbers, dtype=np.int64), "item")


def _reports(path: Path) -> Iterator[dict[str, Any]]:
    content = reading.read_json(path, limits.JSON_BYTES)
    items = content.get("items") if isinstance(content, dict) else content
    if not isinstance(items, list) or not any(isinstance(one, dict) for one in items):
        raise DataError(f"{path} has no reports of geosubmit version 2: a list named items")
    for item in items:
        yield item if isinstance(item, dict) else {}


def _cells(report: dict[str, Any]) -> Iterator[dict[str, Any]]:
    position, seen = report.get("position"), report.get("cellTowers")
    own = {name: report.get(name) for name in _REPORT}
    if isinstance(position, dict):
        own |= {name: position.get(name) for name in _POSITION}
    for cell in seen if isinstance(seen, list) else ():
        if isinstance(cell, dict):
            yield {**own, **{name: cell.get(name) for name in _CELL}}


def _text(values: list[Any]) -> pa.Array:
    return pa.array([None if one is None else str(one) for one in values], pa.string())


def _numbers(values: list[Any]) -> pa.Array:
    """Numbers, or text where something else is among them."""
    plain = all(one is None or (isinstance(one, int | float) and not isinstance(one, bool))
                for one in values)  # fmt: skip
    if not plain:
        return _text(values)
    return pa.array([None if one is None else float(one) for one in values], pa.float64())
