"""What the server receives from one user under growing noise."""

from dataclasses import dataclass

import numpy as np

from veilmap._util.arrays import Floats
from veilmap.attacks.centroid import centroids
from veilmap.figures.content import ATTACKER, MapPanel, Maps
from veilmap.geometry.grid import Grid
from veilmap.model.gradients import local_gradients
from veilmap.paper.experiment import Experiment, Outcomes, Result
from veilmap.paper.tasks import Task
from veilmap.paper.trials import DEFAULT, Snapshot, city
from veilmap.privacy import noise
from veilmap.privacy.mechanisms import GeometryAligned, NoNoise, UniformNoise
from veilmap.privacy.mechanisms.upload import UploadNoise


@dataclass(frozen=True, kw_only=True)
class FigGradients(Experiment, order=6):
    """Gradient magnitudes under growing noise.

    The magnitude of one user's upload over the map, from the same gradient halfway through
    training: without noise, then with budgets that grow to the right. Uniform noise hides the
    peak under a level field; aligned noise under a slope that pulls the attacker's estimate (ν
    = 2) away from the user.
    """

    budgets: tuple[float, ...] = (1.0, 10.0, 50.0)
    tradeoff: float = 1.0

    def tasks(self) -> list[Task]:
        """The map halfway through training."""
        return [self._snapshot]

    @property
    def _snapshot(self) -> Snapshot:
        halfway = self.rounds // 2
        return Snapshot(self.seeds[0], NoNoise(), DEFAULT, self.rounds, self.users, halfway)

    def result(self, outcomes: Outcomes) -> Result:
        """Two rows of maps."""
        gradient, position, grid = typical_gradient(self._snapshot, outcomes)
        uniform = [NoNoise(), *(UniformNoise(noise_budget=mu) for mu in self.budgets)]
        aligned = [
            NoNoise(),
            *(GeometryAligned(noise_budget=mu, tradeoff=self.tradeoff) for mu in self.budgets),
        ]
        rows = tuple(
            tuple(self._panel(name, mechanism, gradient, position, grid) for mechanism in row)
            for name, row in (("uniform", uniform), ("aligned", aligned))
        )
        caption = "One user's upload under growing noise: uniform above, aligned below"
        scale = "√|gradient| (dB per √m)"
        return self.made(pictures=(Maps("fig-gradients", caption, grid, scale, rows),))

    def _panel(
        self, name: str, mechanism: UploadNoise, gradient: Floats, position: Floats, grid: Grid
    ) -> MapPanel:
        draws = [noise.draw(self.seeds[0], "fig-gradients", 0)]
        upload = mechanism.protect(gradient[None], grid, position[None], draws).uploads[0]
        estimate = centroids(upload[None] ** 2, grid)[0]
        away = np.linalg.norm(estimate - position)
        budget = getattr(mechanism, "noise_budget", 0)
        title = f"{name}, μ = {budget:g}" if budget else "no noise"
        values = np.sqrt(np.abs(upload)).reshape(grid.shape)
        return MapPanel(f"{title}: {away:.0f} m off", values, position, {ATTACKER: estimate})


def typical_gradient(snapshot: Snapshot, outcomes: Outcomes) -> tuple[Floats, Floats, Grid]:
    """Gradient and position of the user whose gradient is as large as the median one."""
    data = city(snapshot.seed, snapshot.users).data
    received = snapshot.map(outcomes[snapshot])
    gradients = local_gradients(received, data).height_gradient
    order = np.argsort(np.linalg.norm(gradients, axis=1))
    user = int(order[len(order) // 2])
    return gradients[user], data.mean_positions()[user], received.grid
