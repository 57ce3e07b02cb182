"""Plain descent as the convergence lemma has it, with books kept."""

from dataclasses import dataclass

import numpy as np

from veilmap.data.links import Links
from veilmap.figures.content import Values
from veilmap.model.gradients import LocalGradients, gradients_of
from veilmap.model.radio_map import Propagation, RadioMap
from veilmap.paper import theory
from veilmap.paper.tasks import Outcome, Task
from veilmap.paper.trials import AS_WRITTEN, city
from veilmap.privacy.mechanisms.base import UploadNoise, norms_of


@dataclass(frozen=True)
class Descent(Task):
    """Plain descent as the lemma has it: a step of h, then one of θ at the new h, no floor.

    ``heights_rate`` None takes half the largest that the lemma allows at the start, where
    its promise is best.

    Its outcome: the constants ``smoothness`` (largest found on the path; of h alone at the
    start, ``heights_smoothness``), ``dissimilarity``, ``heterogeneity``, ``heights_rate``,
    ``propagation_rate``; and for each round ``loss``, ``gradient`` and ``theta_gradient``
    (squared norms), ``fourth`` (Σ w‖g_i‖⁴), ``change`` and ``theta_change`` (of F by the two
    steps, the first as the mean over noise n and −n), ``clipped`` (share of users),
    ``excess`` (noise energy over its budget).
    """

    seed: int
    mechanism: UploadNoise
    heights_rate: float | None
    rounds: int
    users: int

    def run(self) -> Outcome:
        """Descend and keep books."""
        path = _Path(self)
        start, heights_only = path.largest_curvature(), path.largest_curvature(of_theta=False)
        spread = theory.dissimilarity(path.local.heights, path.local.counts)
        even = theory.heterogeneity(path.local.counts)
        budget = getattr(self.mechanism, "noise_budget", 0.0)
        largest = theory.largest_heights_rate(start, spread, even, budget)
        rates = (self.heights_rate or 0.5 * largest, 1 / start)
        curvatures, rows = [start], []
        for number in range(self.rounds):
            rows.append(path.step(*rates))
            if number in (self.rounds // 2, self.rounds - 1):
                curvatures.append(path.largest_curvature())
        books = {key: np.array([row[key] for row in rows]) for key in rows[0]}
        constants = {
            "smoothness": max(*curvatures, float(books["secant"].max())),
            "heights_smoothness": heights_only,
            "dissimilarity": float(books["dissimilarity"].max()),
            "heterogeneity": even,
            "heights_rate": rates[0],
            "propagation_rate": rates[1],
        }
        return books | {key: np.array(value) for key, value in constants.items()}

    @property
    def weight(self) -> float:
        """Some six passes a round."""
        return 5 + 8e-4 * self.rounds * self.users

    @property
    def label(self) -> str:
        """The noise and the city."""
        return f"descent, {self.mechanism.name}, city {self.seed}"


class _Path:
    """A point (h, θ) that descends, and what is known there."""

    def __init__(self, task: Descent) -> None:
        own = city(task.seed, task.users)
        self.grid = own.scene.grid
        self.links = own.data.links
        # All links as one user's: F itself.
        everyone = np.array([0, len(own.data)])
        links = self.links
        self.pooled = Links(everyone, links.user_xyz, links.bs_xyz, links.gain_db)
        self.mechanism = task.mechanism
        self.rng = np.random.default_rng([task.seed, 1])
        start = AS_WRITTEN.start(self.grid).radio_map
        self.point = np.append(start.heights.ravel(), start.propagation.as_array())
        self.local = self._local()

    def step(self, heights_rate: float, theta_rate: float) -> dict[str, float]:
        """One round; what the lemma speaks of in it."""
        here, local = self.point, self.local
        weights = local.counts / local.counts.sum()
        norms = norms_of(local.heights)
        mean = weights @ local.heights
        down, noise, excess = self._sent(local, norms, weights)
        h, theta = here[:-4], here[-4:]
        moved = [h - heights_rate * (down + side * noise) for side in (1, -1)]
        before = float(weights @ local.loss)
        # n and −n are equally likely; their mean is free of what is linear in n.
        after = [self._pooled(np.append(to, theta)) for to in moved]
        by_theta = after[0].propagation[0]
        self.point = np.append(moved[0], theta - theta_rate * by_theta)
        self.local = self._local()
        end = float(weights @ self.local.loss)
        return {
            "loss": before,
            "gradient": float(mean @ mean),
            "theta_gradient": float(by_theta @ by_theta),
            "fourth": float(weights @ norms**4),
            "dissimilarity": theory.dissimilarity(local.heights, local.counts),
            "change": float(np.mean([a.loss[0] for a in after])) - before,
            "theta_change": end - float(after[0].loss[0]),
            "excess": excess,
            "clipped": float(np.mean(norms > self.mechanism.clip)),
            "secant": self._secant(here, mean, weights @ local.propagation, weights),
        }

    def _sent(
        self, local: LocalGradients, norms: Values, weights: Values
    ) -> tuple[Values, Values, float]:
        """Mean clipped gradient, mean noise, and the noise's energy over its budget."""
        clip = self.mechanism.clip
        clipped = local.heights * (clip / np.maximum(norms, clip))[:, None]
        variances = self.mechanism.variances(clipped, self.grid, self.links.mean_positions())
        # A sum of independent Gaussians is one Gaussian: no need to draw every user's.
        noise = np.sqrt(weights**2 @ variances) * self.rng.standard_normal(self.grid.cells)
        allowed = float(weights**2 @ norms_of(clipped) ** 2)
        budget = float(getattr(self.mechanism, "noise_budget", 0.0)) * allowed
        energy = float(weights**2 @ variances.sum(axis=1))
        excess = energy / budget if budget > 0 else 0.0
        return weights @ clipped, noise, excess

    def _secant(
        self, before: Values, by_heights: Values, by_theta: Values, weights: Values
    ) -> float:
        """Change of ∇F over the last round per distance gone: a lower bound of L."""
        now = np.append(weights @ self.local.heights, weights @ self.local.propagation)
        change = np.linalg.norm(now - np.append(by_heights, by_theta))
        return float(change / np.linalg.norm(self.point - before))

    def largest_curvature(self, of_theta: bool = True) -> float:
        """L at the present point, of h and θ together or of h alone."""

        def gradient(point: Values) -> Values:
            found = self._pooled(point)
            by_theta = found.propagation[0] if of_theta else 0 * self.point[-4:]
            return np.append(found.heights[0], by_theta)

        return theory.largest_curvature(gradient, self.point, iterations=30)

    def _map(self, point: Values) -> RadioMap:
        return RadioMap(self.grid, point[:-4], Propagation.from_array(point[-4:]))

    def _local(self) -> LocalGradients:
        return gradients_of(self._map(self.point), self.links)

    def _pooled(self, point: Values) -> LocalGradients:
        return gradients_of(self._map(point), self.pooled)
