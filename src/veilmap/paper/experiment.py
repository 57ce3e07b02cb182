"""What every experiment has: settings, the tasks they need, and a result made from outcomes."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from veilmap._util import checks
from veilmap.errors import ConfigurationError
from veilmap.federation.steps import StepRule
from veilmap.figures.content import Picture, Values
from veilmap.paper.results import Finding, Result, Table
from veilmap.paper.tasks import Outcome, Task
from veilmap.paper.trials import DEFAULT, Trial, looked_at
from veilmap.privacy.mechanisms import Mechanism

Outcomes = Mapping[Task, Outcome]


@dataclass(frozen=True, kw_only=True)
class Experiment(ABC):
    """One table, figure or theorem of the paper.

    Parameters
    ----------
    seeds : tuple of int
        Cities, each with its own users, measurements and noise. Tables give mean ± sample
        deviation over them; pictures of a single user take the first.
    rounds, users : int
        Of every training.
    """

    seeds: tuple[int, ...] = (0, 1, 2)
    rounds: int = 200
    users: int = 100

    name: ClassVar[str]
    order: ClassVar[int]
    """Where it stands among the others."""
    title: ClassVar[str]
    shows: ClassVar[str]
    small: ClassVar[Mapping[str, Any]] = {}
    """Settings of its quick version, beside seeds, rounds and users."""

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

    def stacked(
        self, outcomes: Outcomes, what: str, mechanism: Mechanism, step: StepRule = DEFAULT
    ) -> Values:
        """One array of all seeds' trials, (seeds, …)."""
        return np.array([outcomes[self.trial(seed, mechanism, step)][what] for seed in self.seeds])

    def look(self, number: int) -> int:
        """Where in a trial's arrays the looked-at round nearest to ``number`` stands."""
        return int(np.argmin(np.abs(np.array(looked_at(self.rounds)) - number)))

    def made(
        self,
        *,
        tables: tuple[Table, ...] = (),
        pictures: tuple[Picture, ...] = (),
        findings: tuple[Finding, ...] = (),
    ) -> Result:
        """A result under this experiment's name."""
        return Result(self.name, self.title, self.shows, tables, pictures, findings)


def power_name(power: float) -> str:
    """ν as people write it."""
    return "ν = ∞" if power == float("inf") else f"ν = {power:g}"
