"""Attacker error against the noise budget, aligned noise against uniform."""

from dataclasses import dataclass

import numpy as np

from veilmap._util.arrays import Floats
from veilmap.figures.content import Curves, Kind, Line, Panel
from veilmap.paper.experiment import Experiment, Finding, Outcomes, Result, Row, Spread, Table
from veilmap.paper.tasks import Task
from veilmap.paper.trials import POWERS, power_name
from veilmap.privacy.mechanisms import GeometryAligned, Mechanism, UniformNoise

_MODEST = 2.0  # ν up to which the paper's order must hold


@dataclass(frozen=True, kw_only=True)
class FigBudget(Experiment, order=4, small={"budgets": (1.0, 50.0)}):
    """Attacker error against noise budget.

    RMSE in metres of centroid attackers over nine rounds from first to last, against the
    budget μ: geometry-aligned noise (ρ = 1) and uniform noise of the same energy.
    """

    budgets: tuple[float, ...] = (0.5, 1.0, 5.0, 10.0, 20.0, 50.0)
    tradeoff: float = 1.0

    def tasks(self) -> list[Task]:
        """Training under both kinds of noise with every budget."""
        return self.trials(mechanism for mu in self.budgets for mechanism in self._pair(mu))

    def _pair(self, budget: float) -> tuple[Mechanism, Mechanism]:
        aligned = GeometryAligned(noise_budget=budget, tradeoff=self.tradeoff)
        return UniformNoise(noise_budget=budget), aligned

    def result(self, outcomes: Outcomes) -> Result:
        """A panel per ν, and where the order of the two holds."""
        errors = np.array(
            [[self.stacked(outcomes, "rmse", m) for m in self._pair(mu)] for mu in self.budgets]
        )  # (μ, kind, seed, ν, round)
        return self.made(
            tables=(self._table(errors.mean(axis=-1)),),
            pictures=(self._picture(errors.mean(axis=-1)),),
            findings=self._findings(errors),
        )

    def _table(self, errors: Floats) -> Table:
        columns = ("μ", "noise", *(power_name(power) for power in POWERS))
        rows: list[Row] = []
        for i, mu in enumerate(self.budgets):
            for kind, name in enumerate(("uniform", "aligned")):
                spreads = [Spread.of(errors[i, kind, :, k], digits=0) for k in range(len(POWERS))]
                rows.append((f"{mu:g}" if kind == 0 else "", name, *spreads))
        return Table("RMSE in m, mean over rounds", columns, tuple(rows))

    def _picture(self, errors: Floats) -> Curves:
        kinds: tuple[tuple[int, str, Kind], ...] = (
            (1, f"aligned, ρ = {self.tradeoff:g}", "line"),
            (0, "uniform", "dashed"),
        )
        x = np.array(self.budgets)
        panels = []
        for k, power in enumerate(POWERS):
            own = {kind: errors[:, kind, :, k] for kind, _, _ in kinds}  # (μ, seed)
            lines = tuple(
                Line(name, x, own[kind].mean(axis=1), _deviation(own[kind]), style)
                for kind, name, style in kinds
            )
            panels.append(
                Panel(power_name(power), "noise budget μ", "attacker RMSE (m)", lines, log_x=True)
            )
        return Curves("fig-budget", "Centroid attackers against the noise budget", tuple(panels))

    def _findings(self, errors: Floats) -> tuple[Finding, ...]:
        modest = [k for k, power in enumerate(POWERS) if power <= _MODEST]
        mean = errors.mean(axis=(2, 4))  # (μ, kind, ν)
        lead = mean[:, 1] - mean[:, 0]
        first = errors[..., 0].mean(axis=2)
        first_lead = first[:, 1] - first[:, 0]
        rising = np.diff(mean[:, :, modest], axis=0)
        return (
            Finding(
                "Aligned noise misleads more than uniform at every μ, for ν ≤ 2.",
                bool((lead[:, modest] > 0).all()),
                f"lead {lead[:, modest].min():.1f} to {lead[:, modest].max():.1f} m",
            ),
            self._order("Aligned noise misleads more than uniform at every μ and every ν.", lead),
            self._order("The same holds in the first round alone.", first_lead),
            Finding(
                "The attacker's error rises with μ, for ν ≤ 2.",
                bool((rising > -1.0).all()),
                f"smallest step from one μ to the next {rising.min():+.1f} m",
            ),
        )

    def _order(self, claim: str, lead: Floats) -> Finding:
        """Whether aligned leads everywhere, else where not (within a metre is a draw)."""
        behind = [
            f"{power_name(power)} at μ = "
            + ", ".join(
                f"{mu:g}" for mu, away in zip(self.budgets, lead[:, k], strict=True) if away < -1
            )
            for k, power in enumerate(POWERS)
            if (lead[:, k] < -1).any()
        ]
        if not behind:
            return Finding(claim, True, f"lead {lead.min():.1f} to {lead.max():.1f} m")
        return Finding(
            claim,
            False,
            "uniform leads for " + "; ".join(behind) + ". Large ν look at the largest entries"
            " only: while the gradient's peak stands above the noise they find it under either",
        )


def _deviation(values: Floats) -> Floats | None:
    return values.std(axis=1, ddof=1) if values.shape[1] > 1 else None
