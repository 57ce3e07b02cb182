"""What the paper leaves open, and what other choices give."""

from dataclasses import dataclass

import numpy as np

from veilmap._kernels import allocation
from veilmap._kernels.arguments import Axes, NoiseShape
from veilmap.federation import NoiseAwareStep, PlainDescent
from veilmap.federation.steps import StepRule
from veilmap.model.gradients import local_gradients
from veilmap.model.radio_map import RadioMap
from veilmap.paper import theory
from veilmap.paper.experiment import Cell, Experiment, Finding, Outcomes, Result, Spread, Table
from veilmap.paper.tasks import Outcome, Task
from veilmap.paper.trials import AS_WRITTEN, DEFAULT, POWERS, city
from veilmap.privacy.mechanisms import GeometryAligned, NoNoise
from veilmap.privacy.mechanisms.aligned import unit_free

_NU = POWERS.index(2.0)
_DEAD = 1e-12  # a largest gradient below this moves nothing
_BUDGET = 10.0  # μ of the noise that is allocated
_SHARPNESSES = 1.0, 0.2  # as the paper writes it, and soft


@dataclass(frozen=True)
class Start(Task):
    """``largest``: the largest norm of any user's gradient on a flat map."""

    seed: int
    height: float
    sharpness: float
    users: int

    def run(self) -> Outcome:
        """One pass."""
        own = city(self.seed, self.users)
        grid = own.scene.grid
        theta = AS_WRITTEN.start_propagation
        flat = RadioMap(grid, np.full(grid.shape, self.height), theta, self.sharpness)
        norms = np.linalg.norm(local_gradients(flat, own.data).height_gradient, axis=1)
        return {"largest": np.array(norms.max())}


@dataclass(frozen=True)
class Leaning(Task):
    """``error``: √P in metres over users on the start map, with ρ in raw or unit-free terms."""

    seed: int
    tradeoff: float
    raw: bool
    users: int

    def run(self) -> Outcome:
        """Allocate the noise with the given price of V and predict the attacker's error."""
        own = city(self.seed, self.users)
        grid, places = own.scene.grid, own.data.mean_positions()
        gradients = local_gradients(AS_WRITTEN.start(grid).radio_map, own.data).height_gradient
        clipped = gradients / np.maximum(np.linalg.norm(gradients, axis=1, keepdims=True), 1.0)
        energies = np.sum(clipped**2, axis=1)
        kappa = GeometryAligned(tradeoff=self.tradeoff).variance_weight(grid.cells)
        if self.raw:
            # P − ρV in m² and gradient⁴, divided by L² and with V = m̄² · (V/m̄²).
            mean = (1 + _BUDGET) * energies.mean() / grid.cells
            side = max(grid.extent[1] - grid.extent[0], grid.extent[3] - grid.extent[2])
            kappa = self.tradeoff * mean**2 / side**2 * (3 - 2 / grid.cells)
        x, y, unit = unit_free(grid, places)
        variances = np.zeros_like(clipped)
        shape = NoiseShape(budget=_BUDGET, kappa=kappa, axes=Axes(x=x, y=y))
        allocation.aligned_variances(
            start=0, stop=len(clipped), gradients=clipped, energies=energies, positions=unit,
            shape=shape, variances=variances,
        )  # fmt: skip
        squared = [
            theory.attacker_error(g, v, grid, p)
            for g, v, p in zip(clipped, variances, places, strict=True)
            if g.any()
        ]
        return {"error": np.sqrt(np.mean(squared))}


@dataclass(frozen=True, kw_only=True)
class Choices(Experiment, order=12, small={"starts": (4.0,), "floors": (-8.0,), "rates": (1e3,)}):
    """What the paper leaves open.

    Trainings without noise that differ in one choice each, and noise allocated with ρ in other
    units: the paper does not say, or says what cannot be trained.
    """

    starts: tuple[float, ...] = (0.0, 4.0, 10.0, 50.0)
    highest: float = 130.0
    floors: tuple[float, ...] = (-8.0, -4.0, 0.0)
    rates: tuple[float, ...] = (10.0, 100.0, 1000.0, 10000.0)
    tradeoffs: tuple[float, ...] = (1.0, 10.0, 50.0, 100.0)

    def tasks(self) -> list[Task]:
        """A training for each choice, and small things."""
        steps = [step for own in self._steps for step in own.values()]
        tasks = [task for step in steps for task in self.trials([NoNoise()], step)]
        heights, users = (*self.starts, self.highest), self.users
        for seed in self.seeds:
            tasks += [Start(seed, h, s, users) for h in heights for s in _SHARPNESSES]
            tasks += [
                Leaning(seed, rho, raw, users) for rho in self.tradeoffs for raw in (True, False)
            ]
        return tasks

    @property
    def _steps(self) -> tuple[dict[float, StepRule], ...]:
        """Step rules by starting height, by floor, and plain ones by rate."""
        return (
            {height: NoiseAwareStep(start_height=height) for height in self.starts},
            {floor: NoiseAwareStep(floor=floor) for floor in self.floors},
            {rate: PlainDescent(heights_rate=rate) for rate in self.rates},
        )

    def result(self, outcomes: Outcomes) -> Result:
        """A table for each open point."""
        _, floors, rates = self._steps
        plain = "Plain descent, h ≥ 0, start 4 m"
        return self.made(
            tables=(
                self._start_table(outcomes),
                self._training_table("Floor of the heights", "floor (m)", floors, outcomes),
                self._training_table(plain, "η_h (m²/dB²)", rates, outcomes),
                self._unit_table(outcomes),
            ),
            findings=self._findings(outcomes),
        )

    def _mae(self, outcomes: Outcomes, step: StepRule) -> Spread:
        return Spread.of(self.stacked(outcomes, "mae", NoNoise(), step)[:, -1], digits=2)

    def _largest(self, outcomes: Outcomes, height: float, sharpness: float) -> float:
        starts = [Start(seed, height, sharpness, self.users) for seed in self.seeds]
        return max(float(outcomes[start]["largest"]) for start in starts)

    def _errors(self, outcomes: Outcomes, tradeoff: float, raw: bool) -> Spread:
        leanings = [Leaning(seed, tradeoff, raw, self.users) for seed in self.seeds]
        return Spread.of(outcomes[leaning]["error"] for leaning in leanings)

    def _start_table(self, outcomes: Outcomes) -> Table:
        rows: dict[str, tuple[Cell, ...]] = {}
        for height in (*self.starts, self.highest):
            norms = [self._largest(outcomes, height, sharpness) for sharpness in _SHARPNESSES]
            shown = [f"{norm:.1e}" if norm >= _DEAD else f"{norm:.0e}: dead" for norm in norms]
            step = self._steps[0].get(height)
            mae = self._mae(outcomes, step) if step else "not tried"
            rows[f"{height:g}"] = (*shown, mae)
        columns = ("start (m)", "largest ‖g‖, as written", "largest ‖g‖, soft", "MAE, soft (dB)")
        title = "Starting height: is there a gradient, and what does our step make of it"
        return Table.by_name(title, columns, rows)

    def _training_table(
        self, title: str, column: str, steps: dict[float, StepRule], outcomes: Outcomes
    ) -> Table:
        rows = []
        for value, step in steps.items():
            rmse = self.stacked(outcomes, "rmse", NoNoise(), step)[:, _NU]
            first, last = (Spread.of(rmse[:, k]) for k in (0, -1))
            rows.append((f"{value:g}", self._mae(outcomes, step), first, last))
        columns = (column, "MAE (dB)", "attacker, first round (m)", "last round (m)")
        return Table(title, columns, tuple(rows))

    def _unit_table(self, outcomes: Outcomes) -> Table:
        rows = {
            f"{rho:g}": [self._errors(outcomes, rho, raw) for raw in (True, False)]
            for rho in self.tradeoffs
        }
        columns = ("ρ", "raw units: √P (m)", "unit-free: √P (m)")
        title = f"Units of ρ: P in m², V in gradient⁴, μ = {_BUDGET:g}"
        return Table.by_name(title, columns, rows)

    def _findings(self, outcomes: Outcomes) -> tuple[Finding, ...]:
        norm = self._largest(outcomes, self.highest, 1.0)
        plain = {rate: self._mae(outcomes, step).mean for rate, step in self._steps[2].items()}
        best = min(plain, key=lambda rate: plain[rate])
        ours = self._mae(outcomes, DEFAULT).mean
        raw = [self._errors(outcomes, rho, raw=True).mean for rho in self.tradeoffs]
        return (
            Finding(
                f"Training can start from h = H_max = {self.highest:g} m, as the paper writes.",
                norm >= _DEAD,
                f"the largest gradient of any user is {norm:.0e}: S is a product over some 70"
                " cells and vanishes with every factor",
            ),
            Finding(
                "Plain descent reaches what a noise-aware step reaches in the same rounds.",
                plain[best] <= ours + 0.2,
                f"{plain[best]:.2f} dB at its best rate ({best:g}), {ours:.2f} dB with ours",
            ),
            Finding(
                "ρ from 1 to 100 matters with P in m² and V in gradient⁴.",
                max(raw) - min(raw) > 1.0,
                f"√P moves by {max(raw) - min(raw):.2f} m: V is vanishingly small beside P, and all"
                " noise goes to one corner. We divide P by the side of the area squared and V by"
                " the mean energy squared",
            ),
        )
