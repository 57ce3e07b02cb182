"""Runs as command lines: what the page starts anybody can type."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from veilmap.errors import VeilmapError
from veilmap.federation.training import settings_of
from veilmap.mechanisms import MECHANISMS, Mechanism, from_description, named
from veilmap.sources import Source

# Attributes of mechanisms and the options that set them.
_OPTIONS = {
    "noise_budget": "--budget",
    "tradeoff": "--tradeoff",
    "epsilon": "--epsilon",
    "delta": "--delta",
    "clip": "--clip",
    "dropout": "--allow-missing",
}
_KEPT = 5  # rounds of runs that the page starts


@dataclass(frozen=True)
class Plan:
    """A run to be: where its measurements come from, and how it is trained.

    Attributes
    ----------
    source : Source
    mechanism : str
    parameters : mapping from attribute to value
        Of the mechanism; what is left out is its own default.
    rounds : int
    seed : int or None
    sums : bool
        The server sees only sums, also where the mechanism would not need it.
    extras : options that the run it is like was trained with
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
        called = {name: option.removeprefix("--") for name, option in _OPTIONS.items()}
        return named(self.mechanism, self.parameters, called=called)

    @property
    def name(self) -> str:
        """For its folder."""
        where = self.source.data.stem if self.source.data else f"city{self.source.city}"
        short = {"noise_budget": "mu", "tradeoff": "rho", "epsilon": "eps", "clip": "C"}
        parts = [f"{short[key]}{value:g}" for key, value in self.parameters.items() if key in short]
        sums = ["sums"] if self.sums and self.mechanism != "aggregate" else []
        return "-".join([where, self.mechanism, *parts, *sums])

    def arguments(self, out: Path) -> list[str]:
        """Of `veilmap`, for a run in ``out``."""
        options = [*_source_options(self.source), "--mechanism", self.mechanism]
        for key, value in self.parameters.items():
            options += [_OPTIONS[key], _exact(value)]
        if self.sums and self.mechanism != "aggregate":
            options += ["--server-sees", "sums"]
        options += [*self.extras, "--rounds", str(self.rounds)]
        if self.seed is not None:
            options += ["--seed", str(self.seed)]
        kept = ",".join(str(number) for number in kept_rounds(self.rounds))
        # A checkpoint each round: the page shows each, and pausing loses none.
        watched = ["--keep-uploads", kept, "--checkpoint-every", "1"]
        return ["train", *options, *watched, "--out", str(out)]


def kept_rounds(rounds: int) -> list[int]:
    """From the first to the last, counted from 1."""
    steps = min(_KEPT, rounds)
    return sorted({1 + round(k * (rounds - 1) / max(steps - 1, 1)) for k in range(steps)})


def like(config: Mapping[str, Any]) -> list[str]:
    """The options with which another run was trained, but for its mechanism."""
    settings = settings_of(config)
    extras = []
    if settings["calibrate"]:
        extras += ["--calibrate", ",".join(settings["calibrate"])]
    first = config["step"].get("first", config["step"])
    degrees = 2 + len(first["start_propagation"]["between"])
    if degrees > 2:
        extras += ["--degrees", str(degrees)]
    public = config["participation"]
    for name in ("share", "dropout", "late"):
        if public[name] != (1.0 if name == "share" else 0.0):
            extras += [f"--{name}", _exact(public[name])]
    return extras


def described(config: Mapping[str, Any], source: Source | None) -> str:
    """The command that trains such a run, for people to read and copy."""
    mechanism = from_description(config["mechanism"])
    words = ["veilmap", "train", *(_source_options(source) if source else ["DATA"])]
    words += ["--mechanism", mechanism.name]
    for key, option in _OPTIONS.items():
        value = getattr(mechanism, key, None)
        if value is not None and value != getattr(MECHANISMS[mechanism.name](), key):
            words += [option, _exact(value)]
    if config["server_sees"] == "sums" and not mechanism.needs_sums:
        words += ["--server-sees", "sums"]
    try:
        words += like(config)
    except (VeilmapError, KeyError):
        words.append("…")  # a step or buildings of its own, which the folder does not hold
    words += ["--rounds", str(config["rounds"]), "--keep-uploads", "all"]
    return shlex.join(words).replace("'…'", "…")


def _source_options(source: Source) -> list[str]:
    size = [] if source.cell_size == 3.0 else ["--cell-size", _exact(source.cell_size)]
    test = ["--test", str(source.test)] if source.test else []
    if source.data is not None:
        return [str(source.data), *test, *size]
    return ["--city", str(source.city), "--users", str(source.users), *test, *size]


def _exact(value: float) -> str:
    """Nothing is rounded: the run is to be the one that was asked for."""
    return repr(float(value)).removesuffix(".0")
