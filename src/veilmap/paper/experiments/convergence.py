"""The convergence lemma and its corollary, held against runs."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields

import numpy as np

from veilmap._util.arrays import Bools, Floats
from veilmap.data.links import Links
from veilmap.figures.content import Curves, Line, Panel
from veilmap.model.gradients import LocalGradients, gradients_of
from veilmap.model.propagation import Propagation
from veilmap.model.radio_map import RadioMap
from veilmap.paper import theory
from veilmap.paper.experiment import Cell, Experiment, Finding, Outcomes, Result, Spread, Table
from veilmap.paper.tasks import Outcome, Task
from veilmap.paper.trials import AS_WRITTEN, city
from veilmap.privacy.mechanisms import GeometryAligned, NoNoise, UniformNoise
from veilmap.privacy.mechanisms.base import norms_of
from veilmap.privacy.mechanisms.upload import UploadNoise

_UNCLIPPED = 50.0  # C above every gradient's norm on these paths

_RUNS: dict[str, tuple[UploadNoise, float | None]] = {
    "none, C = 50": (NoNoise(clip=_UNCLIPPED), None),
    "uniform 10, C = 50": (UniformNoise(noise_budget=10, clip=_UNCLIPPED), None),
    "aligned 10, C = 50": (GeometryAligned(noise_budget=10, clip=_UNCLIPPED), None),
    "aligned 50, C = 1": (GeometryAligned(noise_budget=50), None),
    "aligned 50, C = 1, as written": (GeometryAligned(noise_budget=50), AS_WRITTEN.heights_rate),
}


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

    about = "descent, {self.mechanism.name}, city {self.seed}"

    def run(self) -> Outcome:
        """Descend and keep books."""
        path = _Path(self)
        start, heights_only = path.largest_curvature(), path.largest_curvature(of_theta=False)
        spread = theory.dissimilarity(path.local.height_gradient, path.local.counts)
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


class _Path:
    """A point (h, θ) that descends, and what is known there."""

    def __init__(self, task: Descent) -> None:
        own = city(task.seed, task.users)
        self.grid, self.links = own.scene.grid, own.data.links
        # All links as one user's: F itself.
        everyone, links = np.array([0, len(own.data)]), self.links
        self.pooled = Links(everyone, links.user_xyz, links.bs_xyz, links.gain_db)
        self.mechanism = task.mechanism
        self.rng = np.random.default_rng([task.seed, 1])
        start = AS_WRITTEN.start(self.grid).radio_map
        self.point = np.append(start.heights.ravel(), start.propagation.as_array())
        self.local = self._at(self.point, self.links)

    def step(self, heights_rate: float, theta_rate: float) -> dict[str, float]:
        """One round; what the lemma speaks of in it."""
        here, local = self.point, self.local
        weights = local.counts / local.counts.sum()
        norms = norms_of(local.height_gradient)
        mean = weights @ local.height_gradient
        down, noise, excess = self._sent(local, norms, weights)
        h, theta = here[:-4], here[-4:]
        moved = [h - heights_rate * (down + side * noise) for side in (1, -1)]
        before = float(weights @ local.loss)
        # n and −n are equally likely; their mean is free of what is linear in n.
        after = [self._at(np.append(to, theta), self.pooled) for to in moved]
        by_theta = after[0].theta_gradient[0]
        self.point = np.append(moved[0], theta - theta_rate * by_theta)
        self.local = self._at(self.point, self.links)
        end = float(weights @ self.local.loss)
        return {
            "loss": before,
            "gradient": float(mean @ mean),
            "theta_gradient": float(by_theta @ by_theta),
            "fourth": float(weights @ norms**4),
            "dissimilarity": theory.dissimilarity(local.height_gradient, local.counts),
            "change": float(np.mean([a.loss[0] for a in after])) - before,
            "theta_change": end - float(after[0].loss[0]),
            "excess": excess,
            "clipped": float(np.mean(norms > self.mechanism.clip)),
            "secant": self._secant(here, mean, weights @ local.theta_gradient, weights),
        }

    def _sent(
        self, local: LocalGradients, norms: Floats, weights: Floats
    ) -> tuple[Floats, Floats, float]:
        """Mean clipped gradient, mean noise, and the noise's energy over its budget."""
        clip = self.mechanism.clip
        clipped = local.height_gradient * (clip / np.maximum(norms, clip))[:, None]
        variances = self.mechanism.variances(clipped, self.grid, self.links.mean_positions())
        # A sum of independent Gaussians is one Gaussian: no need to draw every user's.
        noise = np.sqrt(weights**2 @ variances) * self.rng.standard_normal(self.grid.cells)
        allowed = float(weights**2 @ norms_of(clipped) ** 2)
        budget = float(getattr(self.mechanism, "noise_budget", 0.0)) * allowed
        energy = float(weights**2 @ variances.sum(axis=1))
        excess = energy / budget if budget > 0 else 0.0
        return weights @ clipped, noise, excess

    def _secant(
        self, before: Floats, by_heights: Floats, by_theta: Floats, weights: Floats
    ) -> float:
        """Change of ∇F over the last round per distance gone: a lower bound of L."""
        now = np.append(weights @ self.local.height_gradient, weights @ self.local.theta_gradient)
        change = np.linalg.norm(now - np.append(by_heights, by_theta))
        return float(change / np.linalg.norm(self.point - before))

    def largest_curvature(self, of_theta: bool = True) -> float:
        """L at the present point, of h and θ together or of h alone."""

        def gradient(point: Floats) -> Floats:
            found = self._at(point, self.pooled)
            by_theta = found.theta_gradient[0] if of_theta else 0 * self.point[-4:]
            return np.append(found.height_gradient[0], by_theta)

        return theory.largest_curvature(gradient, self.point, iterations=30)

    def _at(self, point: Floats, links: Links) -> LocalGradients:
        radio_map = RadioMap(self.grid, point[:-4], Propagation.from_array(point[-4:]))
        return gradients_of(radio_map, links)


@dataclass(frozen=True, kw_only=True)
class Convergence(Experiment, order=11):
    """The convergence bounds against runs.

    Plain descent exactly as the lemma has it (a step of h, then one of θ at the new h, no
    floor), with half the largest η_h that the lemma allows and η_θ = 1/L. L is the largest
    curvature found on the path (power iteration and secants), B the largest dissimilarity. The
    last run takes the rate that trains.
    """

    rounds: int = 60
    budgets: tuple[float, ...] = (0.0, 1.0, 10.0, 50.0)

    def tasks(self) -> list[Task]:
        """Every run in every city."""
        return [self._task(seed, name) for name in _RUNS for seed in self.seeds]

    def _task(self, seed: int, name: str) -> Descent:
        mechanism, rate = _RUNS[name]
        return Descent(seed, mechanism, rate, self.rounds, self.users)

    def result(self, outcomes: Outcomes) -> Result:
        """Constants, checks, and the gradient's norm against its bound."""
        found = {name: [outcomes[self._task(s, name)] for s in self.seeds] for name in _RUNS}
        checked = {name: [Checked(name, o) for o in own] for name, own in found.items()}
        return self.made(
            tables=(_constants(checked), _checks_table(checked), self._rates(checked)),
            pictures=(_picture(checked),),
            findings=_findings(checked),
        )

    def _rates(self, checked: dict[str, list["Checked"]]) -> Table:
        """η* for each μ, and the largest μ for rates that were used."""
        own = [c.constants for c in checked["none, C = 50"]]
        allowed = {
            f"largest η_h at μ = {mu:g} (m²/dB²)": [
                theory.largest_heights_rate(*c, mu) for c in own
            ]
            for mu in self.budgets
        } | {
            f"largest μ at η_h = {rate:g}": [theory.largest_noise_budget(*c, rate) for c in own]
            for rate in (AS_WRITTEN.heights_rate, 1e-4)
        }
        title = "What the lemma allows, with the constants of the first run"
        rows = {name: [_scientific(values)] for name, values in allowed.items()}
        return Table.by_name(title, ("", ""), rows)


@dataclass(frozen=True)
class Checked:
    """One run beside its bounds."""

    name: str
    outcome: Outcome

    @property
    def bound(self) -> theory.DescentBound:
        """The lemma's constants."""
        mechanism, _ = _RUNS[self.name]
        budget = getattr(mechanism, "noise_budget", 0.0)
        found = {
            field.name: float(self.outcome[field.name])
            for field in fields(theory.DescentBound)
            if field.name in self.outcome
        }
        return theory.DescentBound(noise_budget=budget, clip=mechanism.clip, **found)

    @property
    def clipping(self) -> Floats:
        """What clipping may cost in each round by the proof; nothing where nobody is clipped."""
        fourth = np.where(self.outcome["clipped"] > 0, self.outcome["fourth"], 0.0)
        return theory.clipping_loss(self.bound.heights_rate, self.bound.clip, 1.0) * fourth

    def held(self, kappa_0: float | Floats) -> Bools:
        """Whether the bound of the h step holds, by round; F's rounding is allowed for."""
        o = self.outcome
        slack = 1e-12 * o["loss"]
        return o["change"] <= -self.bound.kappa_h * o["gradient"] + kappa_0 + slack

    @property
    def theta_held(self) -> Bools:
        """The same for the θ step."""
        o = self.outcome
        slack = 1e-12 * o["loss"]
        return o["theta_change"] <= -self.bound.kappa_theta * o["theta_gradient"] + slack

    @property
    def norms(self) -> Floats:
        """‖∇F‖ by round."""
        return np.sqrt(self.outcome["gradient"] + self.outcome["theta_gradient"])

    @property
    def average_bound(self) -> float:
        """What the lemma summed over rounds says √(mean ‖∇F‖²) is at most (clipping as proven)."""
        if self.bound.kappa <= 0:
            return float("inf")
        fall = self.outcome["loss"][0] / len(self.norms)
        return float(np.sqrt((fall + self.clipping.mean()) / self.bound.kappa))

    @property
    def constants(self) -> tuple[float, float, float]:
        """L, B and J̃."""
        return self.bound.smoothness, self.bound.dissimilarity, self.bound.heterogeneity


def _scientific(values: Iterable[float]) -> str:
    numbers = np.array(list(values))
    mean, several = numbers.mean(), len(numbers) > 1
    return f"{mean:.3g}" + (f" ± {numbers.std(ddof=1):.1g}" if several else "")


def _constants(checked: dict[str, list[Checked]]) -> Table:
    shown: dict[str, Callable[[Checked], float]] = {
        "L": lambda c: c.bound.smoothness,
        "B": lambda c: c.bound.dissimilarity,
        "J̃": lambda c: c.bound.heterogeneity,
        "η_h": lambda c: c.bound.heights_rate,
        "η_θ": lambda c: c.bound.propagation_rate,
        "κ_h": lambda c: c.bound.kappa_h,
        "κ_θ": lambda c: c.bound.kappa_theta,
        "κ_0, printed": lambda c: c.bound.kappa_0,
        "κ_0, proven": lambda c: float(c.clipping.max()),
    }
    rows = {
        name: [_scientific(map(of, own)) for own in checked.values()] for name, of in shown.items()
    }
    return Table.by_name("Constants (F in dB², h in m)", ("", *checked), rows)


def _checks_table(checked: dict[str, list[Checked]]) -> Table:
    runs = checked.values()

    def rounds(promise: str, held: Callable[[Checked], Bools]) -> list[Cell]:
        return [
            f"{sum(int(held(c).sum()) for c in own)} of {sum(len(c.norms) for c in own)}"
            if all(getattr(c.bound, promise) > 0 for c in own)
            else "no promise"
            for own in runs
        ]

    def by_run(of: Callable[[Checked], float]) -> list[Cell]:
        return [Spread.of(map(of, own)) for own in runs]

    def bound(of: Callable[[Checked], float]) -> list[Cell]:
        return [_scientific(map(of, own)) if own[0].bound.kappa > 0 else "none" for own in runs]

    rows = {
        "h step, κ_0 printed": rounds("kappa_h", lambda c: c.held(c.bound.kappa_0)),
        "h step, κ_0 proven": rounds("kappa_h", lambda c: c.held(c.clipping)),
        "θ step": rounds("kappa_theta", lambda c: c.theta_held),
        "F at start (dB²)": by_run(lambda c: float(c.outcome["loss"][0])),
        "F at end (dB²)": by_run(lambda c: float(c.outcome["loss"][-1])),
        "RMS ‖∇F‖": by_run(lambda c: float(np.sqrt(np.mean(c.norms**2)))),
        "its bound": bound(lambda c: c.average_bound),
        "corollary's limit": bound(lambda c: c.bound.limit()),
    }
    title = "Rounds in which the bounds hold, and ‖∇F‖ over all rounds"
    return Table.by_name(title, ("", *checked), rows)


def _picture(checked: dict[str, list[Checked]]) -> Curves:
    decrease: dict[str, Line] = {}
    norm: dict[str, Line] = {}
    for name, own in checked.items():
        first = own[0]
        rounds = np.arange(1.0, len(first.norms) + 1)
        if first.bound.kappa_h > 0 and first.outcome["clipped"].max() == 0:
            drop = -first.outcome["change"] / first.outcome["gradient"]
            decrease[name] = Line(name, rounds, drop)
            level = np.full(len(rounds), first.bound.kappa_h)
            promised = f"promised at μ = {first.bound.noise_budget:g}"
            decrease[promised] = Line(promised, rounds, level, kind="dashed")
        norm[name] = Line(name, rounds, first.norms)
        if first.bound.kappa > 0:
            limit = f"corollary's limit, C = {first.bound.clip:g}"
            level = np.full(len(rounds), first.bound.limit())
            norm[limit] = Line(limit, rounds, level, kind="dashed")
    return Curves(
        "convergence",
        "Left: loss decrease of a step of h per ‖g‖², measured and promised (where nothing is"
        " clipped). Right: the gradient's norm and what the corollary allows",
        (
            Panel("decrease / ‖g‖²", "round", "m²/dB²", tuple(decrease.values()), log_y=True),
            Panel("‖∇F‖", "round", "dB²/m and dB", tuple(norm.values()), log_y=True),
        ),
        share_y=False,
    )


def _findings(checked: dict[str, list[Checked]]) -> tuple[Finding, ...]:
    within = {n: own for n, own in checked.items() if all(c.bound.kappa_h > 0 for c in own)}
    beyond = [name for name in checked if name not in within]
    runs = [c for own in within.values() for c in own]
    rounds = sum(len(c.norms) for c in runs)
    printed = sum(int(c.held(c.bound.kappa_0).sum()) for c in runs)
    proven = sum(int(c.held(c.clipping).sum()) for c in runs)
    theta = sum(int(c.theta_held.sum()) for c in runs)
    excess = max(float(c.outcome["excess"].max()) for c in runs)
    free = checked["none, C = 50"]
    gain = [AS_WRITTEN.heights_rate / theory.largest_heights_rate(*c.constants, 0) for c in free]
    one = checked["aligned 50, C = 1"]
    steep, flat = (
        float(np.mean([c.outcome[key] for c in free]))
        for key in ("smoothness", "heights_smoothness")
    )
    return (
        Finding(
            "The bound on a step of h holds in every round, where η_h is below the largest.",
            printed == proven == rounds,
            f"as printed in {printed}, as the proof gives it in {proven} of {rounds} rounds."
            f" Noise spent up to {excess:.3f} of its budget (users with hardly any gradient get"
            " the noise of a small one)",
        ),
        Finding(
            "The bound on a step of θ holds in every round.",
            theta == rounds,
            f"in {theta} of {rounds} rounds",
        ),
        Finding(
            "The mean of ‖∇F‖² stays below what the lemma gives for it.",
            all(np.sqrt(np.mean(c.norms**2)) <= c.average_bound for c in runs),
            "in every run with an η_h that is allowed",
        ),
        Finding(
            "With the paper's C = 1 the corollary's limit says something about the gradient.",
            all(c.bound.limit() < c.norms.max() for c in one),
            f"it allows ‖∇F‖ = {np.mean([c.bound.limit() for c in one]):.0f}, while no gradient on"
            f" the path exceeds {max(c.norms.max() for c in one):.0f}: κ_0 grows with B⁴L⁴/C²",
        ),
        Finding(
            "The rates that train lie within what the lemma allows.",
            not beyond,
            f"η_h = {AS_WRITTEN.heights_rate:g} is {np.mean(gain):.1e} times the largest. B² is"
            f" about N, since users' gradients hardly overlap, and L = {steep:.0f} is θ's; of the"
            f" heights alone it is {flat:.2f}",
        ),
    )
