"""A run in words: what it is, what it promises, how to make it again."""

import math
import shlex
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from veilmap import auditing
from veilmap._describe import described
from veilmap.errors import VeilmapError
from veilmap.federation import NoiseAwareStep, Participation
from veilmap.federation.residual import ThenField
from veilmap.federation.steps import StepRule
from veilmap.federation.training import settings_of
from veilmap.mechanisms import NoGuarantee, from_description
from veilmap.models import Model
from veilmap.propagation import Propagation
from veilmap.reports.subjects import Subject

NO_UPLOADS = "This run kept no uploads: train with `--keep-uploads` to see attacks."
ONLY_FIELDS = (
    "This run kept only rounds that learn a residual field, which no attack here reads: keep"
    " earlier rounds too to see attacks."
)

_MECHANISMS = {
    "none": "no noise: gradients are clipped to norm C = {clip:g} and leave as they are",
    "uniform": "uniform noise: gradients are clipped to norm C = {clip:g} and get Gaussian noise"
    " of μ = {noise_budget:g} times their energy, the same in every cell",
    "aligned": "geometry-aligned noise: gradients are clipped to norm C = {clip:g} and get"
    " Gaussian noise of μ = {noise_budget:g} times their energy, on a slope that leans away from"
    " the user (ρ = {tradeoff:g})",
    "aggregate": "noise on the sum: contributions are clipped to norm C = {clip:g}, and every user"
    " adds a share of discrete Gaussian noise, in all z = {noise_multiplier:.3g} times the largest"
    " contribution",
}

_TRUST = {
    "uploads": "every user's upload",
    "sums": "only sums over a round's users; who took part is not hidden",
}

# Options of `veilmap train`, by the fields of mechanisms.
_OPTIONS = {
    "noise_budget": "--budget", "tradeoff": "--tradeoff", "epsilon": "--epsilon",
    "delta": "--delta", "clip": "--clip", "dropout": "--allow-missing",
}  # fmt: skip


def facts(subject: Subject) -> list[tuple[str, str]]:
    """What a reader should know first."""
    run, config = subject.run, subject.config
    rows, columns = run.radio_map.grid.shape
    users, links = config["data"]["users"], config["data"]["links"]
    made = command(subject)
    return [
        ("Mechanism", mechanism(run.transcript.mechanism)),
        ("The server sees", _TRUST[run.transcript.server_sees]),
        ("Promise", promise(subject)),
        ("Rounds", _rounds(subject)),
        ("Learned from", f"{users:,} users with {links:,} links"),
        ("Map", f"{columns} × {rows} cells of {run.radio_map.grid.cell_size:g} m"),
        ("Map error", _map_error(subject.mae_db)),
        ("Measurements", _measurements(subject)),
        *([("To make it again", f"`{made}`")] if made else []),
    ]


def mechanism(public: Mapping[str, Any]) -> str:
    """What clients do to their gradients."""
    return _MECHANISMS[public["name"]].format(**public)


def promise(subject: Subject) -> str:
    """The guarantee and what it rests on, or why there is none."""
    words = auditing.promise(subject.run) + "."
    public = subject.run.transcript.mechanism
    if isinstance(from_description(public).guarantee, NoGuarantee):
        return words
    words += (
        " It rests on sums being all that the server sees, and on at least"
        f" {1 - public['dropout']:.0%} of a round's users adding their noise."
    )
    if subject.config["seed"] is not None:
        words += (
            " This run's noise came from a seed: whoever knows the seed can take the noise off,"
            " so for them nothing is promised."
        )
    return words


def _rounds(subject: Subject) -> str:
    """How many were played, and how many of them came to nothing."""
    history, asked = subject.run.history, subject.config["rounds"]
    words = f"{len(history)}" if len(history) == asked else f"{len(history)} of {asked}"
    unopened = sum(not row.opened for row in history)
    return f"{words}, {unopened} of them without enough answers" if unopened else words


def _map_error(mae_db: float) -> str:
    if math.isnan(mae_db):
        return "not measured: no test users were at hand"
    return f"{mae_db:.2f} dB on average (MAE) on test users"


def _measurements(subject: Subject) -> str:
    if subject.data is None:
        return f"not at hand: {subject.missing}"
    if subject.source is None:
        return "named by hand for this report, and the run's own"
    if subject.source.data is None:
        return f"synthetic city {subject.source.city}, whose truth is known"
    return subject.source.data.name


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
