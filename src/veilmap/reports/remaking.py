"""The command that makes a run again, where its folder says enough to know it."""

import shlex
from dataclasses import fields

from veilmap._describe import described
from veilmap.errors import VeilmapError
from veilmap.federation import NoiseAwareStep, Participation
from veilmap.federation.residual import ThenField
from veilmap.federation.steps import StepRule
from veilmap.federation.training import settings_of
from veilmap.mechanisms import from_description
from veilmap.models import Model
from veilmap.propagation import Propagation
from veilmap.reports.subjects import Subject

# Options of `veilmap train`, by the fields of mechanisms.
_OPTIONS = {
    "noise_budget": "--budget", "tradeoff": "--tradeoff", "epsilon": "--epsilon",
    "delta": "--delta", "clip": "--clip", "dropout": "--allow-missing",
}  # fmt: skip


def command(subject: Subject) -> str | None:
    """The command that makes the run again, where its folder says enough to know it."""
    source, config = subject.source, subject.config
    if source is None or subject.data is None:
        return None
    try:
        settings = settings_of(config)
    except VeilmapError:
        return None  # public buildings, or a step rule of its own
    model = _model_options(settings["step"], measured=source.data is not None)
    if model is None:
        return None
    options: dict[str, object] = {"--test": source.test, **_mechanism_options(subject), **model}
    if source.data is None:
        options |= {"--city": source.city, "--users": source.users}
    options |= {
        "--cell-size": source.cell_size, "--rounds": config["rounds"], "--seed": config["seed"],
        "--calibrate": ",".join(settings["calibrate"]) or None,
        **_crowd_options(settings["participation"]),
        "--keep-uploads": ",".join(str(n + 1) for n in sorted(subject.run.transcript.rounds)),
    }  # fmt: skip
    words = ["veilmap", "train", *([str(source.data)] if source.data else [])]
    for name, value in options.items():
        if value not in (None, ""):
            words += [name, f"{value:.12g}" if isinstance(value, float) else str(value)]
    if subject.data.antennas is not None and "antennas" not in config:
        words.append("--no-antennas")
    return shlex.join(words)


def _mechanism_options(subject: Subject) -> dict[str, object]:
    """The mechanism, and the trust model where it is not the one it is made for."""
    used = from_description(subject.config["mechanism"])
    options: dict[str, object] = {"--mechanism": used.name}
    for each in fields(used):
        if each.name in _OPTIONS:
            options[_OPTIONS[each.name]] = getattr(used, each.name)
    sees = subject.config["server_sees"]
    if sees != ("sums" if used.needs_sums else "uploads"):
        options["--server-sees"] = sees
    return options


def _model_options(step: StepRule, *, measured: bool) -> dict[str, object] | None:
    """Degrees of obstruction and the residual field; None if the command line has no such step."""
    options: dict[str, object] = {}
    if isinstance(step, ThenField):
        if described(step) != described(ThenField(step.spacing, step.first)):
            return None
        options["--residual"], step = step.spacing, step.first
    if not isinstance(step, NoiseAwareStep):
        return None
    degrees = step.start_propagation.laws
    usual = (
        Model(degrees=degrees).step
        if measured
        else NoiseAwareStep(start_propagation=Propagation.of_degrees(degrees))
    )
    if described(step) != described(usual):
        return None
    return options | ({"--degrees": degrees} if degrees > 2 else {})


def _crowd_options(who: Participation) -> dict[str, object]:
    """Who takes part, where it is not everybody."""
    usual = Participation()
    return {
        f"--{each.name}": getattr(who, each.name)
        for each in fields(who)
        if getattr(who, each.name) != getattr(usual, each.name)
    }
