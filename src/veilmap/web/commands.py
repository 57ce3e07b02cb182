"""Runs that the page starts, as commands that anybody can type."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from veilmap.privacy.mechanisms import MECHANISMS, Mechanism, named
from veilmap.runs.command import OPTIONS, mechanism_options, source_options
from veilmap.runs.source import Source

_KEPT = 5  # rounds whose uploads are kept


@dataclass(frozen=True)
class NewTraining:
    """A run to be: where its measurements come from, and how it is trained.

    ``parameters`` are the mechanism's, its own defaults where left out. With ``sums`` the server
    sees only sums, also where the mechanism would not need it. ``extras`` are options that the
    run it is like was trained with.
    """

    source: Source
    mechanism: str
    parameters: Mapping[str, float]
    rounds: int
    seed: int | None
    sums: bool = False
    extras: Sequence[str] = ()

    def mechanism_checked(self) -> Mechanism:
        """The mechanism, unless it cannot be made."""
        called = {name: option.removeprefix("--") for name, option in OPTIONS.items()}
        return named(self.mechanism, self.parameters, called=called)

    @property
    def name(self) -> str:
        """For its folder."""
        where = self.source.data.stem if self.source.data else f"city{self.source.city}"
        short = {"noise_budget": "mu", "tradeoff": "rho", "epsilon": "eps", "clip": "C"}
        parts = [f"{short[key]}{value:g}" for key, value in self.parameters.items() if key in short]
        return "-".join([where, self.mechanism, *parts, *(["sums"] if self._says_sums else [])])

    def arguments(self, out: Path) -> list[str]:
        """Of `veilmap`, for a run in ``out``."""
        words = ["train", *source_options(self.source)]
        words += mechanism_options(self.mechanism, self.parameters)
        words += ["--server-sees", "sums"] if self._says_sums else []
        words += [*self.extras, "--rounds", str(self.rounds)]
        words += [] if self.seed is None else ["--seed", str(self.seed)]
        kept = ",".join(str(number) for number in kept_rounds(self.rounds))
        # A checkpoint each round: the page shows each, and pausing loses none.
        return [*words, "--keep-uploads", kept, "--checkpoint-every", "1", "--out", str(out)]

    @property
    def _says_sums(self) -> bool:
        return self.sums and not MECHANISMS[self.mechanism].needs_sums


def kept_rounds(rounds: int) -> list[int]:
    """From the first to the last, counted from 1."""
    steps = min(_KEPT, rounds)
    return sorted({1 + round(k * (rounds - 1) / max(steps - 1, 1)) for k in range(steps)})
