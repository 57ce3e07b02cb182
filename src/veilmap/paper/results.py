"""What an experiment answers with: tables, pictures, and findings in words."""

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from veilmap.figures.content import Picture


@dataclass(frozen=True)
class Spread:
    """A figure over several seeds: mean ± sample deviation.

    Attributes
    ----------
    values : tuple of float
        One for each seed.
    digits : int
        Shown after the point.
    """

    values: tuple[float, ...]
    digits: int = 1

    @classmethod
    def of(cls, values: Iterable[float], digits: int = 1) -> "Spread":
        """From any numbers."""
        return cls(tuple(float(value) for value in values), digits)

    @property
    def mean(self) -> float:
        """Over the seeds."""
        return statistics.fmean(self.values)

    @property
    def deviation(self) -> float:
        """Sample deviation over the seeds; NaN for a single one."""
        return statistics.stdev(self.values) if len(self.values) > 1 else math.nan

    def __str__(self) -> str:
        mean = f"{self.mean:.{self.digits}f}"
        return mean if math.isnan(self.deviation) else f"{mean} ± {self.deviation:.{self.digits}f}"


Cell = str | int | float | Spread
Row = tuple[Cell, ...]


@dataclass(frozen=True)
class Table:
    """Rows under columns; cells are words, plain numbers or spreads."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]

    def text(self) -> list[list[str]]:
        """The rows as they are shown."""
        return [[_shown(cell) for cell in row] for row in self.rows]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        rows = [[_plain(cell) for cell in row] for row in self.rows]
        return {"title": self.title, "columns": list(self.columns), "rows": rows}


@dataclass(frozen=True)
class Finding:
    """A statement of the paper and whether it holds here.

    Attributes
    ----------
    claim : str
        What should hold.
    holds : bool
    measured : str
        The figures that decide it; where it does not hold, also where and why.
    """

    claim: str
    holds: bool
    measured: str

    @property
    def verdict(self) -> str:
        """A word for lists."""
        return "holds" if self.holds else "does not hold"


@dataclass(frozen=True)
class Result:
    """All that one experiment gives."""

    name: str
    title: str
    shows: str
    tables: tuple[Table, ...] = ()
    pictures: tuple[Picture, ...] = field(default=(), repr=False)
    findings: tuple[Finding, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "name": self.name,
            "title": self.title,
            "shows": self.shows,
            "tables": [table.as_dict() for table in self.tables],
            "pictures": [picture.as_dict() for picture in self.pictures],
            "findings": [vars(finding) for finding in self.findings],
        }


def _shown(cell: Cell) -> str:
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)


def _plain(cell: Cell) -> Any:
    if isinstance(cell, Spread):
        deviation = None if math.isnan(cell.deviation) else cell.deviation
        return {"mean": cell.mean, "deviation": deviation, "values": list(cell.values)}
    return None if isinstance(cell, float) and not math.isfinite(cell) else cell
