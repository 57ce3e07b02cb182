"""What every experiment has: settings, the tasks they need, and a result made from outcomes.

A result is tables, pictures, and findings in words.
"""

import math
import statistics
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, SupportsFloat

import numpy as np

from veilmap._util import checks
from veilmap._util.arrays import Floats
from veilmap.errors import ConfigurationError
from veilmap.federation.steps import StepRule
from veilmap.figures.content import Picture
from veilmap.paper.tasks import Outcome, Task
from veilmap.paper.trials import DEFAULT, Trial, looked_at
from veilmap.privacy.mechanisms import Mechanism

Outcomes = Mapping[Task, Outcome]


@dataclass(frozen=True)
class Spread:
    """A figure over several seeds: mean ± sample deviation, with ``digits`` after the point."""

    values: tuple[float, ...]
    digits: int = 1

    @classmethod
    def of(cls, values: Iterable[SupportsFloat], digits: int = 1) -> "Spread":
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

    @classmethod
    def by_name(
        cls, title: str, columns: tuple[str, ...], rows: Mapping[str, Iterable[Cell]]
    ) -> "Table":
        """A table whose rows begin with their names."""
        return cls(title, columns, tuple((name, *cells) for name, cells in rows.items()))

    def text(self) -> list[list[str]]:
        """The rows as they are shown."""
        return [
            [f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in row]
            for row in self.rows
        ]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        rows = [[_plain(cell) for cell in row] for row in self.rows]
        return {"title": self.title, "columns": list(self.columns), "rows": rows}


@dataclass(frozen=True)
class Finding:
    """A statement of the paper and whether it holds here.

    ``measured`` has the figures that decide it; where it does not hold, also where and why.
    """

    claim: str
    holds: bool
    measured: str

    @property
    def verdict(self) -> str:
        """A word for lists."""
        return "holds" if self.holds else "does not hold"


Tables = tuple[Table, ...]
Findings = tuple[Finding, ...]


@dataclass(frozen=True)
class Result:
    """All that one experiment gives."""

    name: str
    title: str
    shows: str
    tables: Tables = ()
    pictures: tuple[Picture, ...] = field(default=(), repr=False)
    findings: Findings = ()

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


def _plain(cell: Cell) -> Any:
    if isinstance(cell, Spread):
        deviation = None if math.isnan(cell.deviation) else cell.deviation
        return {"mean": cell.mean, "deviation": deviation, "values": list(cell.values)}
    return None if isinstance(cell, float) and not math.isfinite(cell) else cell


@dataclass(frozen=True, kw_only=True)
class Experiment(ABC):
    """One table, figure or theorem of the paper.

    It has the name of its file; the first line of its docstring is its title, the rest says what
    it shows. Tables give mean ± sample deviation over seeds, pictures of a single user take the
    first.
    """

    seeds: tuple[int, ...] = (0, 1, 2)  # cities, each with its own users, measurements and noise
    rounds: int = 200  # of every training, like users
    users: int = 100

    name: ClassVar[str]
    title: ClassVar[str]
    shows: ClassVar[str]
    order: ClassVar[int]  # where it stands among the others
    small: ClassVar[Mapping[str, Any]]  # settings of its quick version beside those above

    def __init_subclass__(cls, *, order: int, small: Mapping[str, Any] | None = None) -> None:
        cls.name = cls.__module__.rpartition(".")[2].replace("_", "-")
        cls.title, _, shows = (cls.__doc__ or "").partition(".\n")
        cls.shows = " ".join(shows.split())
        cls.order, cls.small = order, small or {}

    def __post_init__(self) -> None:
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise ConfigurationError("seeds must be different numbers, at least one", "seeds")
        for seed in self.seeds:
            checks.whole("seeds", seed, least=0)
        checks.whole("rounds", self.rounds, least=4)
        checks.whole("users", self.users, least=2)

    @classmethod
    def quick(cls) -> Self:
        """A version that takes seconds: for trying things out, not for figures."""
        return cls(**{"seeds": (0, 1), "rounds": 8, "users": 8, **cls.small})

    @abstractmethod
    def tasks(self) -> list[Task]:
        """The work its result is made from."""

    @abstractmethod
    def result(self, outcomes: Outcomes) -> Result:
        """Put the outcomes of all tasks together."""

    def trial(self, seed: int, mechanism: Mechanism, step: StepRule = DEFAULT) -> Trial:
        """A training with this experiment's rounds and users."""
        return Trial(seed, mechanism, step, self.rounds, self.users)

    def trials(self, mechanisms: Iterable[Mechanism], step: StepRule = DEFAULT) -> list[Task]:
        """Trainings under each mechanism in every city."""
        return [self.trial(seed, own, step) for own in mechanisms for seed in self.seeds]

    def stacked(
        self, outcomes: Outcomes, what: str, mechanism: Mechanism, step: StepRule = DEFAULT
    ) -> Floats:
        """One array of all seeds' trials, (seeds, …)."""
        return np.array([outcomes[self.trial(seed, mechanism, step)][what] for seed in self.seeds])

    def look(self, number: int) -> int:
        """Where in a trial's arrays the looked-at round nearest to ``number`` stands."""
        return int(np.argmin(np.abs(np.array(looked_at(self.rounds)) - number)))

    def made(
        self, *, tables: Tables = (), pictures: tuple[Picture, ...] = (), findings: Findings = ()
    ) -> Result:
        """A result under this experiment's name."""
        return Result(self.name, self.title, self.shows, tables, pictures, findings)
