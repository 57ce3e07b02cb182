"""Every table, figure and theorem of the paper, each in a file of its own.

An `Experiment` holds settings, says which tasks it needs and makes a `Result` from their
outcomes. Running, remembering, drawing and reporting are shared by all. A file in this folder is
an experiment as soon as it defines one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, get_args

from veilmap.errors import ConfigurationError
from veilmap.paper.experiment import Experiment

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

_found = [one for one in Experiment.__subclasses__() if one.__module__.startswith(__name__)]
EXPERIMENTS: dict[str, type[Experiment]] = {
    experiment.name: experiment for experiment in sorted(_found, key=lambda one: one.order)
}


def chosen(
    names: Sequence[str], *, quick: bool = False, settings: Mapping[str, str] | None = None
) -> list[Experiment]:
    """The named experiments, or with "all" every one, with settings given as text.

    A setting applies to those that have it; one that none has is a mistake.
    """
    for name in names:
        if name not in (*EXPERIMENTS, "all"):
            known = ", ".join(EXPERIMENTS)
            raise ConfigurationError(f"no experiment {name!r}; there are {known} and all", "names")
    wanted = EXPERIMENTS if "all" in names else dict.fromkeys(names)
    made = [EXPERIMENTS[name].quick() if quick else EXPERIMENTS[name]() for name in wanted]
    return _changed(made, settings or {})


def _changed(experiments: Sequence[Experiment], settings: Mapping[str, str]) -> list[Experiment]:
    """The experiments with settings applied where they have them."""
    known = {field.name for experiment in experiments for field in fields(experiment)}
    for name in settings:
        if name not in known:
            listed = ", ".join(sorted(known))
            raise ConfigurationError(f"no setting {name!r} here; there are {listed}", name)
    return [_with(experiment, settings) for experiment in experiments]


def _with(experiment: Experiment, settings: Mapping[str, str]) -> Experiment:
    types = {field.name: field.type for field in fields(experiment)}
    own = {name: _read(name, text, types[name]) for name, text in settings.items() if name in types}
    return replace(experiment, **own)


def _read(name: str, text: str, kind: Any) -> Any:
    """``text`` as the setting's type: a number, or several between commas."""
    several = get_args(kind)
    one: Callable[[str], int | float] = several[0] if several else kind
    parts = [part.strip() for part in text.split(",") if part.strip()]
    try:
        values = tuple(one(part) for part in parts)
    except ValueError:
        wanted = "whole numbers" if one is int else "numbers"
        raise ConfigurationError(f"{name} takes {wanted}, not {text!r}", name) from None
    if several:
        if not values:
            raise ConfigurationError(f"{name} needs at least one number", name)
        return values
    if len(values) != 1:
        raise ConfigurationError(f"{name} takes one number, not {text!r}", name)
    return values[0]
