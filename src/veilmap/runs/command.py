"""Runs as command lines: what was trained, anybody can train again, and what is to be."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from veilmap._util.options import options_of
from veilmap._util.plain import to_plain
from veilmap.errors import RunFolderError, VeilmapError
from veilmap.federation import NoiseAwareStep, Participation
from veilmap.federation.config import RunConfig
from veilmap.federation.residual import ThenField
from veilmap.federation.selection import ModelChoice
from veilmap.federation.steps import StepRule
from veilmap.model.propagation import Propagation
from veilmap.privacy.mechanisms import MECHANISMS, Mechanism, named
from veilmap.runs.source import Source

_KEPT = 5  # rounds of a new run whose uploads are kept


def command(
    config: RunConfig, source: Source, kept: Sequence[int], *, no_antennas: bool = False
) -> str | None:
    """The command that makes a run again, where its folder says enough to know it.

    It keeps uploads of the rounds ``kept``, from 0; ``no_antennas`` where the measurements have
    antennas that the run did not use.
    """
    try:
        model = model_options(config, source)
    except VeilmapError:
        return None  # public buildings, or a step rule of its own
    words = ["veilmap", "train", *source_options(source), *_mechanism_of(config), *model]
    words += ["--no-antennas"] if no_antennas else []
    words += ["--rounds", str(config.rounds)]
    words += [] if config.seed is None else ["--seed", str(config.seed)]
    words += ["--keep-uploads", ",".join(str(number + 1) for number in kept)] if kept else []
    return shlex.join(words)


@dataclass(frozen=True)
class NewTraining:
    """A run to be: where its measurements come from, and how it is trained.

    ``parameters`` are the mechanism's, its own defaults where left out. With ``sums`` the server
    sees only sums, also where the mechanism would not need it. ``extras`` are further options.
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
        declared = options_of(*MECHANISMS.values())
        called = {name: known.flag.removeprefix("--") for name, known in declared.items()}
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


def source_options(source: Source) -> list[str]:
    """Where measurements come from."""
    where = {"--city": source.city, "--users": source.users} if source.data is None else {}
    file = [] if source.data is None else [_file(source.data)]
    area = None if source.area is None else ",".join(map(_exact, source.area))
    stations, test = (path and _file(path) for path in (source.stations, source.test))
    public = {"--area": area, "--stations": stations}
    others = {"--test": test, "--cell-size": source.cell_size}
    return [*file, *_words({**where, **public, **others})]


def _file(path: Path) -> str:
    """A path as an argument, which no name of a file turns into an option."""
    return f"./{path}" if str(path).startswith("-") else str(path)


def mechanism_options(name: str, parameters: Mapping[str, Any]) -> list[str]:
    """A mechanism by its name and attributes; those that the command line does not set are left."""
    own = {
        known.flag: parameters[attribute]
        for attribute, known in options_of(MECHANISMS[name]).items()
        if attribute in parameters
        and not (known.choices and parameters[attribute] == known.default)
    }
    return ["--mechanism", name, *_words(own)]


def model_options(config: RunConfig, source: Source) -> list[str]:
    """What else decides a run: its model and who takes part."""
    settings = config.settings()
    options = _step_options(settings["model"].step, measured=source.data is not None)
    options["--calibrate"] = ",".join(settings["model"].calibrate) or None
    if settings["tiling"] is not None:
        options |= {"--tile": settings["tiling"].side, "--tile-margin": settings["tiling"].margin}
    robust = ["--robust"] if settings["robust"] else []
    return [*_words(options), *robust, *participation_options(settings["participation"])]


def participation_options(who: Participation) -> list[str]:
    """Who takes part, where it is not everybody."""
    usual = Participation()
    options = {
        f"--{each.name}": getattr(who, each.name)
        for each in fields(who)
        if each.name != "in_turns" and getattr(who, each.name) != getattr(usual, each.name)
    }
    return [*_words(options), *(["--in-turns"] if who.in_turns else [])]


def _mechanism_of(config: RunConfig) -> list[str]:
    """The mechanism, and the trust model where it is not the one it is made for."""
    used, sees = config.mechanism, config.server_sees
    usual = "sums" if used.needs_sums else "uploads"
    trust = [] if sees == usual else ["--server-sees", sees]
    return [*mechanism_options(used.name, to_plain(used)), *trust]


def _step_options(step: StepRule, *, measured: bool) -> dict[str, object]:
    """Degrees of obstruction and the residual field."""
    options: dict[str, object] = {}
    if isinstance(step, ThenField):
        if to_plain(step) != to_plain(ThenField(step.spacing, step.first)):
            raise RunFolderError("the command line has no such residual field")
        options["--residual"], step = step.spacing, step.first
    degrees = step.start_propagation.laws if isinstance(step, NoiseAwareStep) else 2
    if to_plain(step) != to_plain(usual_step(degrees, measured=measured)):
        raise RunFolderError("the command line has no such step rule")
    return options | ({"--degrees": degrees} if degrees > 2 else {})


def usual_step(degrees: int, *, measured: bool) -> StepRule:
    """The server's step of `veilmap train` for measured links, or for a synthetic city's."""
    if measured:
        return ModelChoice(degrees=degrees).step
    return NoiseAwareStep(start_propagation=Propagation.of_degrees(degrees))


def _words(options: Mapping[str, object]) -> list[str]:
    """Options that are set, nothing rounded: the run is to be the one that is meant."""
    words = []
    for name, value in options.items():
        if value is not None:
            words += [name, _exact(value) if isinstance(value, float) else str(value)]
    return words


def _exact(value: float) -> str:
    return repr(float(value)).removesuffix(".0")
