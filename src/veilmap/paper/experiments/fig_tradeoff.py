"""Attacker error against the trade-off ρ."""

from dataclasses import dataclass

import numpy as np

from veilmap.figures.content import Curves, Line, Panel
from veilmap.paper.experiment import Experiment, Finding, Outcomes, Result, Row, Spread, Table
from veilmap.paper.tasks import Task
from veilmap.paper.trials import POWERS
from veilmap.privacy.mechanisms import GeometryAligned, Mechanism, UniformNoise

_PAPER = {1.0: "above 220", 100.0: "about 150"}  # m, at large μ
_NU = POWERS.index(2.0)


@dataclass(frozen=True, kw_only=True)
class FigTradeoff(Experiment, order=5, small={"budgets": (1.0, 50.0), "tradeoffs": (1.0, 50.0)}):
    """Attacker error against the trade-off ρ.

    RMSE in metres of the centroid attacker with ν = 2 over nine rounds from first to last: a
    small ρ leans the noise as far from the user as it goes, a large one flattens it.
    """

    budgets: tuple[float, ...] = (1.0, 5.0, 10.0, 50.0)
    tradeoffs: tuple[float, ...] = (1.0, 10.0, 50.0, 100.0)

    def tasks(self) -> list[Task]:
        """Training with every ρ and μ, and with uniform noise."""
        return self.trials(mechanism for curve in self._curves().values() for mechanism in curve)

    def _curves(self) -> dict[str, list[Mechanism]]:
        curves: dict[str, list[Mechanism]] = {
            f"ρ = {rho:g}": [GeometryAligned(noise_budget=mu, tradeoff=rho) for mu in self.budgets]
            for rho in self.tradeoffs
        }
        return curves | {"uniform": [UniformNoise(noise_budget=mu) for mu in self.budgets]}

    def result(self, outcomes: Outcomes) -> Result:
        """A curve per ρ."""
        found = {
            name: [
                Spread.of(self.stacked(outcomes, "rmse", m)[:, _NU].mean(axis=1), digits=0)
                for m in curve
            ]
            for name, curve in self._curves().items()
        }
        return self.made(
            tables=(self._table(found),),
            pictures=(self._picture(found),),
            findings=self._findings(found),
        )

    def _table(self, found: dict[str, list[Spread]]) -> Table:
        printed = {f"ρ = {rho:g}": text for rho, text in _PAPER.items()}
        columns = ("noise", *(f"μ = {mu:g}" for mu in self.budgets), "paper, large μ")
        rows: dict[str, Row] = {
            name: (*spreads, printed.get(name, "")) for name, spreads in found.items()
        }
        return Table.by_name("RMSE in m of the centroid attacker, ν = 2", columns, rows)

    def _picture(self, found: dict[str, list[Spread]]) -> Curves:
        lines = tuple(
            Line(
                name,
                np.array(self.budgets),
                np.array([s.mean for s in spreads]),
                np.array([s.deviation for s in spreads]) if len(self.seeds) > 1 else None,
                "dashed" if name == "uniform" else "line",
            )
            for name, spreads in found.items()
        )
        panel = Panel("", "noise budget μ", "attacker RMSE (m)", lines, log_x=True)
        return Curves("fig-tradeoff", "The centroid attacker (ν = 2) against ρ", (panel,))

    def _findings(self, found: dict[str, list[Spread]]) -> tuple[Finding, ...]:
        first, last = (f"ρ = {f(self.tradeoffs):g}" for f in (min, max))
        least, most = ([s.mean for s in found[name]] for name in (first, last))
        flat = [s.mean for s in found["uniform"]]
        apart = [a - b for a, b in zip(least, most, strict=True)]
        lowest = np.min([[s.mean for s in spreads] for spreads in found.values()], axis=0)
        return (
            Finding(
                f"{first} misleads more than {last} at every μ.",
                min(apart) > 0,
                f"by {min(apart):.0f} to {max(apart):.0f} m; at μ = {max(self.budgets):g}"
                f" {least[-1]:.0f} against {most[-1]:.0f} m",
            ),
            Finding(
                "Every ρ misleads more than uniform noise.",
                bool((lowest == flat).all()),
                f"at μ = {max(self.budgets):g} uniform noise gives {flat[-1]:.0f} m,"
                f" {last} {most[-1]:.0f} m",
            ),
        )
