"""Predicted against measured attacker error as cells grow smaller."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from veilmap.attacks.centroid import centroids
from veilmap.federation import PlainDescent
from veilmap.figures.content import Curves, Line, Panel
from veilmap.geometry.grid import Grid
from veilmap.model.gradients import local_gradients
from veilmap.paper import theory
from veilmap.paper.experiment import Experiment, Finding, Outcomes, Result, Spread, Table
from veilmap.paper.tasks import Outcome, Task
from veilmap.paper.trials import city
from veilmap.privacy.mechanisms import GeometryAligned, NoNoise, UniformNoise
from veilmap.privacy.mechanisms.upload import BudgetedNoise

_START = PlainDescent()  # its flat map, with the paper's sharpness


@dataclass(frozen=True)
class Refined(Task):
    """Attacker errors on a grid of some cell size.

    Its outcome, for each user: ``limit`` and ``predicted`` (users,), ``squared`` (users,
    draws), all in m².
    """

    seed: int
    mechanism: BudgetedNoise
    cell_size: float
    users: int
    draws: int

    about = "{self.mechanism.name}, cells of {self.cell_size:g} m, city {self.seed}"

    def run(self) -> Outcome:
        """Gradients on that grid, their noise, and what the attacker makes of each draw."""
        own = city(self.seed, self.users)
        grid = _regridded(own.scene.grid, self.cell_size)
        raw = local_gradients(_START.start(grid).radio_map, own.data).height_gradient
        places = own.data.mean_positions()
        norms = np.linalg.norm(raw, axis=1, keepdims=True)
        clipped = raw * NoNoise().clip / np.maximum(norms, NoNoise().clip)
        noise = self.mechanism.variances(clipped, grid, places)
        rng = np.random.default_rng([self.seed, grid.cells])
        rows = []
        for i in np.flatnonzero(norms > 0):
            known = clipped[i], noise[i], grid, places[i]
            root, squared = np.sqrt(noise[i]), []
            for _ in range(self.draws):
                upload = clipped[i] + root * rng.standard_normal(grid.cells)
                error = centroids(upload[None] ** 2, grid)[0] - places[i]
                squared.append(error @ error)
            limit = theory.localization_limit(*known).limit
            rows.append((limit, theory.attacker_error(*known), squared))
        columns = (np.array(column) for column in zip(*rows, strict=True))
        return dict(zip(("limit", "predicted", "squared"), columns, strict=True))

    @property
    def weight(self) -> float:
        """Two passes over all cells for every draw."""
        return 0.5 + 4e-8 * (300 / self.cell_size) ** 2 * self.users * self.draws


def _regridded(grid: Grid, cell_size: float) -> Grid:
    west, east, south, north = grid.extent
    shape = (round((north - south) / cell_size), round((east - west) / cell_size))
    return Grid(cell_size, shape, grid.origin, grid.crs)


@dataclass(frozen=True, kw_only=True)
class TheoremDecomposition(
    Experiment, order=10, small={"cell_sizes": (12.0, 6.0, 3.0), "walked": 3, "draws": 10}
):
    """The attacker's error has a limit on fine grids.

    The squared error of the centroid attacker (ν = 2) on gradients of the start map, against
    the theorem's limit ‖Δ_g + μΔ_n‖²/(1 + μ)², on grids of ever smaller cells.
    """

    cell_sizes: tuple[float, ...] = (12.0, 6.0, 3.0, 1.5, 0.75)
    budget: float = 10.0
    walked: int = 10
    draws: int = 40

    def tasks(self) -> list[Task]:
        """Both kinds of noise on every grid."""
        return [
            self._task(seed, mechanism, size)
            for mechanism in self._mechanisms
            for size in self.cell_sizes
            for seed in self.seeds
        ]

    @property
    def _mechanisms(self) -> tuple[BudgetedNoise, BudgetedNoise]:
        return GeometryAligned(noise_budget=self.budget), UniformNoise(noise_budget=self.budget)

    def _task(self, seed: int, mechanism: BudgetedNoise, size: float) -> Refined:
        return Refined(seed, mechanism, size, self.walked, self.draws)

    def result(self, outcomes: Outcomes) -> Result:
        """How far single errors lie from the limit, and their mean from the prediction."""
        gaps: dict[str, list[Spread]] = {}
        rows = []
        for mechanism in self._mechanisms:
            gaps[mechanism.name] = []
            for size in self.cell_sizes:
                own = [outcomes[self._task(seed, mechanism, size)] for seed in self.seeds]
                gap = Spread.of((_gap(outcome) for outcome in own), digits=2)
                gaps[mechanism.name].append(gap)
                measured = Spread.of(np.sqrt(o["squared"].mean()) for o in own)
                limit = Spread.of(np.sqrt(o["limit"].mean()) for o in own)
                bias = Spread.of((_bias(outcome) for outcome in own), digits=3)
                cells = f"{round(300 / size) ** 2:,}"
                rows.append((mechanism.name, f"{size:g}", cells, limit, measured, gap, bias))
        columns = ("noise", "cell (m)", "M", "limit (m)", "RMSE (m)", "gap (%)", "of P (%)")
        title = "RMS gap of single squared errors to the limit; of their mean to the finite-M P"
        return self.made(
            tables=(Table(title, columns, tuple(rows)),),
            pictures=(self._picture(gaps),),
            findings=self._findings(gaps),
        )

    def _picture(self, gaps: dict[str, list[Spread]]) -> Curves:
        cells = np.array([(300 / size) ** 2 for size in self.cell_sizes])
        lines = [
            Line(name, cells, np.array([spread.mean for spread in spreads]))
            for name, spreads in gaps.items()
        ]
        slope = lines[0].y[0] * np.sqrt(cells[0] / cells)
        lines.append(Line("falling like 1/√M", cells, slope, kind="dashed"))
        panel = Panel(
            "", "cells M", "RMS gap to the limit (%)", tuple(lines), log_x=True, log_y=True
        )
        return Curves("theorem-decomposition", "Single errors close in on the limit", (panel,))

    def _findings(self, gaps: dict[str, list[Spread]]) -> tuple[Finding, ...]:
        def shrinks(spreads: list[Spread]) -> bool:
            means = [spread.mean for spread in spreads]
            return all(b < a for a, b in pairwise(means))

        says = "; ".join(
            f"{name}: {spreads[0].mean:.1f} % at the coarsest to {spreads[-1].mean:.2f} %"
            for name, spreads in gaps.items()
        )
        claim = "The gap between the attacker's error and its limit shrinks with every finer grid."
        return (Finding(claim, all(map(shrinks, gaps.values())), says),)


def _gap(outcome: Outcome) -> float:
    """RMS over users and draws of (squared error − limit)/limit, in percent."""
    limit = outcome["limit"][:, None]
    return 100 * float(np.sqrt(np.mean((outcome["squared"] / limit - 1) ** 2)))


def _bias(outcome: Outcome) -> float:
    """The mean squared error against P with its correction for finite M, in percent."""
    return 100 * float(outcome["squared"].mean() / outcome["predicted"].mean() - 1)
