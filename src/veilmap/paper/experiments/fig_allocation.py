"""Four ways to spend a noise budget, and what the attacker makes of each."""

from dataclasses import dataclass

import numpy as np

from veilmap._util.arrays import Bools, Floats
from veilmap.attacks.centroid import centroids
from veilmap.figures.content import ATTACKER, Curves, Line, MapPanel, Maps, Panel
from veilmap.geometry.grid import Grid
from veilmap.paper import theory
from veilmap.paper.experiment import Experiment, Finding, Outcomes, Result, Table
from veilmap.paper.experiments.fig_gradients import typical_gradient
from veilmap.paper.tasks import Task
from veilmap.paper.trials import DEFAULT, Snapshot
from veilmap.privacy import noise
from veilmap.privacy.mechanisms import GeometryAligned, NoNoise, UniformNoise

_SHOWN = 1e-3  # energies below this share of the mean are drawn alike


@dataclass(frozen=True, kw_only=True)
class FigAllocation(Experiment, order=7):
    """Where to put the noise.

    The energy of one user's upload (round 1, when it peaks at the user) under four ways to
    spend the same budget, with the attacker's estimate (ν = 2) in each: raw; all noise on the
    far edge, which misleads most but leaves the peak in plain sight; uniform; and the linear
    plane, which misleads nearly as much.
    """

    budget: float = 10.0
    tradeoff: float = 1.0
    tradeoffs: tuple[float, ...] = (1.0, 10.0, 50.0, 100.0)

    def tasks(self) -> list[Task]:
        """The map that users receive in round 1."""
        return [self._snapshot]

    @property
    def _snapshot(self) -> Snapshot:
        return Snapshot(self.seeds[0], NoNoise(), DEFAULT, self.rounds, self.users)

    def result(self, outcomes: Outcomes) -> Result:
        """Maps, profiles and the paper's two objectives for each way."""
        raw, position, grid = typical_gradient(self._snapshot, outcomes)
        draws = [noise.draw(self.seeds[0], "fig-allocation", 0)]
        gradient = NoNoise().protect(raw[None], grid, position[None], draws).uploads[0]
        normals = draws[0].normals(grid.cells)
        ways = self._ways(gradient, position, grid)
        uploads = {name: gradient + np.sqrt(v) * normals for name, v in ways.items()}
        found = {name: centroids(u[None] ** 2, grid)[0] for name, u in uploads.items()}
        return self.made(
            tables=(
                _table(gradient, ways, found, position, grid),
                self._covered(gradient, position, grid),
            ),
            pictures=(
                self._maps(uploads, found, position, grid),
                _profiles(uploads, found, position, grid),
            ),
            findings=_findings(gradient, ways, position, grid),
        )

    def _covered(self, gradient: Floats, position: Floats, grid: Grid) -> Table:
        """How much of the gradient lies under noise, by ρ."""
        rows = []
        for rho in self.tradeoffs:
            plane = GeometryAligned(noise_budget=self.budget, tradeoff=rho)
            variances = plane.variances(gradient, grid, position)
            shares = _hidden(gradient, variances), float(np.mean(variances > 0))
            rows.append((f"{rho:g}", *(f"{100 * share:.1f}" for share in shares)))
        columns = ("ρ", "of the gradient's energy (%)", "of the cells (%)")
        return Table("What lies under the plane's noise", columns, tuple(rows))

    def _ways(self, gradient: Floats, position: Floats, grid: Grid) -> dict[str, Floats]:
        """σ² of each way to spend the budget."""
        plane = GeometryAligned(noise_budget=self.budget, tradeoff=self.tradeoff)
        level = UniformNoise(noise_budget=self.budget)
        edge = _far_edge(position, grid)
        energy = self.budget * gradient @ gradient
        return {
            "(a) no noise": np.zeros(grid.cells),
            "(b) far edge only": np.where(edge, energy / edge.sum(), 0.0),
            "(c) uniform": level.variances(gradient, grid, position),
            f"(d) plane, ρ = {self.tradeoff:g}": plane.variances(gradient, grid, position),
        }

    def _maps(
        self, uploads: dict[str, Floats], found: dict[str, Floats], position: Floats, grid: Grid
    ) -> Maps:
        typical = (1 + self.budget) * np.sum(uploads["(a) no noise"] ** 2) / grid.cells
        panels = tuple(
            MapPanel(
                f"{name}: {np.linalg.norm(found[name] - position):.0f} m off",
                np.log10(np.maximum(upload**2 / typical, _SHOWN)).reshape(grid.shape),
                position,
                {ATTACKER: found[name]},
            )
            for name, upload in uploads.items()
        )
        caption = f"One user's upload, noise budget μ = {self.budget:g} spent in four ways"
        scale = "log10(energy / mean)"
        return Maps("fig-allocation", caption, grid, scale, (panels,), (np.log10(_SHOWN), 2.0))


def _far_edge(position: Floats, grid: Grid) -> Bools:
    """The cells along the side of the map that is farthest from the user."""
    west, east, south, north = grid.extent
    x, y = position
    sides = {
        x - west: grid.centres[:, 0] == grid.x[0],
        east - x: grid.centres[:, 0] == grid.x[-1],
        y - south: grid.centres[:, 1] == grid.y[0],
        north - y: grid.centres[:, 1] == grid.y[-1],
    }
    return sides[max(sides)]


def _profiles(
    uploads: dict[str, Floats], found: dict[str, Floats], position: Floats, grid: Grid
) -> Curves:
    """Energy summed over y against x, as the paper draws it."""
    panels = []
    for name, upload in uploads.items():
        profile = (upload**2).reshape(grid.shape).sum(axis=0)
        top = float(profile.max())
        marks = (
            Line("user", np.full(2, position[0]), np.array([0, top]), kind="dashed"),
            Line("attacker", np.full(2, found[name][0]), np.array([0, top]), kind="dashed"),
        )
        panels.append(
            Panel(
                name,
                "x, east (m)",
                "energy summed over y (dB⁴/m²)",
                (Line("upload", grid.x, profile), *marks),
            )
        )
    caption = "The same from the side: energy summed over y"
    return Curves("fig-allocation-profile", caption, tuple(panels), share_y=False)


def _objectives(
    gradient: Floats, variances: Floats, position: Floats, grid: Grid
) -> tuple[float, float]:
    """√P in metres, and V relative to the mean energy squared."""
    error = theory.attacker_error(gradient, variances, grid, position)
    mean = float(np.mean(gradient**2 + variances))
    return float(np.sqrt(error)), theory.spatial_variance(gradient, variances) / mean**2


def _hidden(gradient: Floats, variances: Floats) -> float:
    """Share of the gradient's energy in cells that get noise."""
    return float(np.sum(gradient[variances > 0] ** 2) / np.sum(gradient**2))


def _table(
    gradient: Floats,
    ways: dict[str, Floats],
    found: dict[str, Floats],
    position: Floats,
    grid: Grid,
) -> Table:
    rows = []
    for name, variances in ways.items():
        root, spread = _objectives(gradient, variances, position, grid)
        away = float(np.linalg.norm(found[name] - position))
        rows.append((name, f"{root:.0f}", f"{away:.0f}", f"{spread:.3g}"))
    columns = ("noise", "√P (m)", "this draw (m)", "V / mean energy²")
    return Table("The paper's two objectives", columns, tuple(rows))


def _findings(
    gradient: Floats, ways: dict[str, Floats], position: Floats, grid: Grid
) -> tuple[Finding, ...]:
    (_, edge, level, plane) = (_objectives(gradient, v, position, grid) for v in ways.values())
    hidden = _hidden(gradient, list(ways.values())[-1])
    alone = theory.spatial_variance(np.zeros(grid.cells), np.ones(grid.cells))
    return (
        Finding(
            "The plane misleads more than uniform noise and is smoother than noise on the edge.",
            plane[0] > level[0] and plane[1] < edge[1],
            f"√P {plane[0]:.0f} against {level[0]:.0f} m; V {plane[1]:.3g} against {edge[1]:.3g}",
        ),
        Finding(
            "The plane covers the gradient's peak.",
            hidden > 0.5,
            f"{100 * hidden:.1f} % of the gradient's energy lies in cells with noise: around the"
            " user the plane is below the gradient's square or below 0, and those cells leave as"
            " they are",
        ),
        Finding(
            "Uniform noise has spatial variance 0, as the paper's text says.",
            level[1] < 1e-6,
            f"V is {level[1]:.3g} times the mean energy squared for this user, and {alone:.2f}"
            " times for uniform noise alone: the square of Gaussian noise scatters by 2σ⁴ a cell",
        ),
    )
