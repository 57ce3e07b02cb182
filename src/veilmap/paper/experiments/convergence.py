"""The convergence lemma and its corollary, held against runs."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veilmap.figures.content import Curves, Line, Panel, Values
from veilmap.paper import theory
from veilmap.paper.descent import Descent
from veilmap.paper.experiment import Experiment, Outcomes
from veilmap.paper.results import Finding, Result, Row, Spread, Table
from veilmap.paper.tasks import Outcome, Task
from veilmap.paper.trials import AS_WRITTEN
from veilmap.privacy.mechanisms import GeometryAligned, NoNoise, UniformNoise
from veilmap.privacy.mechanisms.base import UploadNoise

_UNCLIPPED = 50.0  # C above every gradient's norm on these paths

_RUNS: dict[str, tuple[UploadNoise, float | None]] = {
    "none, C = 50": (NoNoise(clip=_UNCLIPPED), None),
    "uniform 10, C = 50": (UniformNoise(noise_budget=10, clip=_UNCLIPPED), None),
    "aligned 10, C = 50": (GeometryAligned(noise_budget=10, clip=_UNCLIPPED), None),
    "aligned 50, C = 1": (GeometryAligned(noise_budget=50), None),
    "aligned 50, C = 1, as written": (GeometryAligned(noise_budget=50), AS_WRITTEN.heights_rate),
}


@dataclass(frozen=True, kw_only=True)
class Convergence(Experiment):
    """The lemma's bounds checked round by round."""

    rounds: int = 60
    budgets: tuple[float, ...] = (0.0, 1.0, 10.0, 50.0)

    name = "convergence"
    order = 11
    title = "The convergence bounds against runs"
    shows = (
        "Plain descent exactly as the lemma has it (a step of h, then one of θ at the new h, no"
        " floor), with half the largest η_h that the lemma allows and η_θ = 1/L. L is the largest"
        " curvature found on the path (power iteration and secants), B the largest dissimilarity."
        " The last run takes the rate that trains."
    )

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
        own = checked["none, C = 50"]
        rows: list[Row] = [
            (f"largest η_h at μ = {mu:g} (m²/dB²)", _scientific(c.largest_rate(mu) for c in own))
            for mu in self.budgets
        ]
        rate = AS_WRITTEN.heights_rate
        rows.append(
            (f"largest μ at η_h = {rate:g}", _scientific(c.largest_budget(rate) for c in own))
        )
        rate = 1e-4
        rows.append(
            (f"largest μ at η_h = {rate:g}", _scientific(c.largest_budget(rate) for c in own))
        )
        return Table(
            "What the lemma allows, with the constants of the first run", ("", ""), tuple(rows)
        )


@dataclass(frozen=True)
class Checked:
    """One run beside its bounds."""

    name: str
    outcome: Outcome

    @property
    def bound(self) -> theory.DescentBound:
        """The lemma's constants."""
        mechanism, _ = _RUNS[self.name]
        o = self.outcome
        return theory.DescentBound(
            float(o["smoothness"]),
            float(o["dissimilarity"]),
            float(o["heterogeneity"]),
            getattr(mechanism, "noise_budget", 0.0),
            mechanism.clip,
            float(o["heights_rate"]),
            float(o["propagation_rate"]),
        )

    @property
    def clipping(self) -> Values:
        """What clipping may cost in each round by the proof; nothing where nobody is clipped."""
        fourth = np.where(self.outcome["clipped"] > 0, self.outcome["fourth"], 0.0)
        return theory.clipping_loss(self.bound.heights_rate, self.bound.clip, 1.0) * fourth

    def held(self, kappa_0: float | Values) -> NDArray[np.bool_]:
        """Whether the bound of the h step holds, by round; F's rounding is allowed for."""
        o = self.outcome
        slack = 1e-12 * o["loss"]
        return o["change"] <= -self.bound.kappa_h * o["gradient"] + kappa_0 + slack

    @property
    def theta_held(self) -> NDArray[np.bool_]:
        """The same for the θ step."""
        o = self.outcome
        slack = 1e-12 * o["loss"]
        return o["theta_change"] <= -self.bound.kappa_theta * o["theta_gradient"] + slack

    @property
    def norms(self) -> Values:
        """‖∇F‖ by round."""
        return np.sqrt(self.outcome["gradient"] + self.outcome["theta_gradient"])

    @property
    def average_bound(self) -> float:
        """What the lemma summed over rounds says √(mean ‖∇F‖²) is at most (clipping as proven)."""
        if self.bound.kappa <= 0:
            return float("inf")
        fall = self.outcome["loss"][0] / len(self.norms)
        return float(np.sqrt((fall + self.clipping.mean()) / self.bound.kappa))

    def largest_rate(self, budget: float) -> float:
        """η* for a budget."""
        b = self.bound
        return theory.largest_heights_rate(b.smoothness, b.dissimilarity, b.heterogeneity, budget)

    def largest_budget(self, rate: float) -> float:
        """The largest μ for a rate."""
        b = self.bound
        return theory.largest_noise_budget(b.smoothness, b.dissimilarity, b.heterogeneity, rate)


def _scientific(values: Iterable[float]) -> str:
    numbers = np.array(list(values))
    mean, several = numbers.mean(), len(numbers) > 1
    return f"{mean:.3g}" + (f" ± {numbers.std(ddof=1):.1g}" if several else "")


def _constants(checked: dict[str, list[Checked]]) -> Table:
    def by_run(name: str, of: Callable[[Checked], float]) -> Row:
        return (name, *(_scientific(of(c) for c in own) for own in checked.values()))

    rows = (
        by_run("L", lambda c: c.bound.smoothness),
        by_run("B", lambda c: c.bound.dissimilarity),
        by_run("J̃", lambda c: c.bound.heterogeneity),
        by_run("η_h", lambda c: c.bound.heights_rate),
        by_run("η_θ", lambda c: c.bound.propagation_rate),
        by_run("κ_h", lambda c: c.bound.kappa_h),
        by_run("κ_θ", lambda c: c.bound.kappa_theta),
        by_run("κ_0, printed", lambda c: c.bound.kappa_0),
        by_run("κ_0, proven", lambda c: float(c.clipping.max())),
    )
    return Table("Constants (F in dB², h in m)", ("", *checked), rows)


def _checks_table(checked: dict[str, list[Checked]]) -> Table:
    def rounds(name: str, promise: str, held: Callable[[Checked], NDArray[np.bool_]]) -> Row:
        counts = [
            f"{sum(int(held(c).sum()) for c in own)} of {sum(len(c.norms) for c in own)}"
            if all(getattr(c.bound, promise) > 0 for c in own)
            else "no promise"
            for own in checked.values()
        ]
        return (name, *counts)

    def by_run(name: str, of: Callable[[Checked], float]) -> Row:
        return (name, *(Spread.of(map(of, own)) for own in checked.values()))

    def bound(name: str, of: Callable[[Checked], float]) -> Row:
        shown = [
            _scientific(map(of, own)) if own[0].bound.kappa > 0 else "none"
            for own in checked.values()
        ]
        return (name, *shown)

    rows = (
        rounds("h step, κ_0 printed", "kappa_h", lambda c: c.held(c.bound.kappa_0)),
        rounds("h step, κ_0 proven", "kappa_h", lambda c: c.held(c.clipping)),
        rounds("θ step", "kappa_theta", lambda c: c.theta_held),
        by_run("F at start (dB²)", lambda c: float(c.outcome["loss"][0])),
        by_run("F at end (dB²)", lambda c: float(c.outcome["loss"][-1])),
        by_run("RMS ‖∇F‖", lambda c: float(np.sqrt(np.mean(c.norms**2)))),
        bound("its bound", lambda c: c.average_bound),
        bound("corollary's limit", lambda c: c.bound.limit()),
    )
    title = "Rounds in which the bounds hold, and ‖∇F‖ over all rounds"
    return Table(title, ("", *checked), rows)


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
    gain = [AS_WRITTEN.heights_rate / c.largest_rate(0) for c in free]
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
