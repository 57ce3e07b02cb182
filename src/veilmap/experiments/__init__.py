"""Every table, figure and theorem of the paper, each in a file of its own.

An `Experiment` holds settings, says which tasks it needs and makes a `Result` from their
outcomes. Running, remembering, drawing and reporting are shared by all.
"""

from collections.abc import Mapping, Sequence

from veilmap.errors import VeilmapError
from veilmap.experiments.base import Experiment
from veilmap.experiments.choices import Choices
from veilmap.experiments.convergence import Convergence
from veilmap.experiments.fig_allocation import FigAllocation
from veilmap.experiments.fig_budget import FigBudget
from veilmap.experiments.fig_gradients import FigGradients
from veilmap.experiments.fig_model import FigModel
from veilmap.experiments.fig_tradeoff import FigTradeoff
from veilmap.experiments.headline import Headline
from veilmap.experiments.options import changed
from veilmap.experiments.results import Finding, Result, Spread, Table
from veilmap.experiments.table_accuracy import TableAccuracy
from veilmap.experiments.table_leakage import TableLeakage
from veilmap.experiments.theorem_attenuation import TheoremAttenuation
from veilmap.experiments.theorem_decomposition import TheoremDecomposition

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
            raise VeilmapError(
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
