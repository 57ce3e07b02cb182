"""Settings of experiments given as text, such as budgets=1,10."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, get_args

from veilmap.errors import ConfigurationError
from veilmap.paper.experiment import Experiment


def changed(experiments: Sequence[Experiment], settings: Mapping[str, str]) -> list[Experiment]:
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
