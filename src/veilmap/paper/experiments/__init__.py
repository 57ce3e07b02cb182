"""Every table, figure and theorem of the paper, each in a file of its own.

An `Experiment` holds settings, says which tasks it needs and makes a `Result` from their
outcomes. Running, remembering, drawing and reporting are shared by all. A file in this folder is
an experiment as soon as it defines one.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from pkgutil import iter_modules

from veilmap.errors import ConfigurationError
from veilmap.paper.experiment import Experiment
from veilmap.paper.settings import changed

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
    return changed(made, settings or {})
