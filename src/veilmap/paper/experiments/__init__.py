"""Every table, figure and theorem of the paper, each in a file of its own.

An `Experiment` holds settings, says which tasks it needs and makes a `Result` from their
outcomes. Running, remembering, drawing and reporting are shared by all.
"""

from collections.abc import Mapping, Sequence

from veilmap.errors import ConfigurationError
from veilmap.paper.experiments.base import Experiment
from veilmap.paper.experiments.choices import Choices
from veilmap.paper.experiments.convergence import Convergence
from veilmap.paper.experiments.fig_allocation import FigAllocation
from veilmap.paper.experiments.fig_budget import FigBudget
from veilmap.paper.experiments.fig_gradients import FigGradients
from veilmap.paper.experiments.fig_model import FigModel
from veilmap.paper.experiments.fig_tradeoff import FigTradeoff
from veilmap.paper.experiments.headline import Headline
from veilmap.paper.experiments.options import changed
from veilmap.paper.experiments.results import Finding, Result, Spread, Table
from veilmap.paper.experiments.table_accuracy import TableAccuracy
from veilmap.paper.experiments.table_leakage import TableLeakage
from veilmap.paper.experiments.theorem_attenuation import TheoremAttenuation
from veilmap.paper.experiments.theorem_decomposition import TheoremDecomposition

EXPERIMENTS: dict[str, type[Experiment]] = {
    experiment.name: experiment
    for experiment in (
        Headline, TableLeakage, TableAccuracy, FigBudget, FigTradeoff, FigGradients,
        FigAllocation, FigModel, TheoremAttenuation, TheoremDecomposition, Convergence, Choices,
    )
}  # fmt: skip


def chosen(
    names: Sequence[str], *, quick: bool = False, settings: Mapping[str, str] | None = None
) -> list[Experiment]:
    """The named experiments, or with "all" every one, with settings given as text.

    A setting applies to those that have it; one that none has is a mistake.
    """
    for name in names:
        if name not in (*EXPERIMENTS, "all"):
            raise ConfigurationError(
                f"no experiment {name!r}; there are {', '.join(EXPERIMENTS)} and all"
            )
    wanted = EXPERIMENTS if "all" in names else dict.fromkeys(names)
    made = [EXPERIMENTS[name].quick() if quick else EXPERIMENTS[name]() for name in wanted]
    return changed(made, settings or {})


__all__ = [
    "EXPERIMENTS",
    "Experiment",
    "Finding",
    "Result",
    "Spread",
    "Table",
    "chosen",
]
