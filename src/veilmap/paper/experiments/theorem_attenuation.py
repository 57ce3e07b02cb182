"""How gradients fade along rays from their user."""

from dataclasses import dataclass

import numpy as np

from veilmap.figures.content import Curves, Kind, Line, Panel
from veilmap.paper.experiments.base import Experiment, Outcomes
from veilmap.paper.experiments.fading import CASES, LEARNED, Fading
from veilmap.paper.experiments.results import Finding, Result, Row, Spread, Table
from veilmap.paper.experiments.tasks import Outcome, Task

_FAINT = 1e-12  # energies below this are drawn alike


@dataclass(frozen=True, kw_only=True)
class TheoremAttenuation(Experiment):
    """E{G²} against distance, with the theorem's condition met and not met."""

    walked: int = 20

    name = "theorem-attenuation"
    title = "Gradients fade with distance"
    shows = (
        "E{G²} over the measurement noise (exact, not sampled), along eight rays from each of 20"
        " users, relative to the user's largest. The theorem asks that the believed heights lie"
        " all above or all below the true ones, and says that E{G²} then never rises outwards."
    )

    @classmethod
    def quick(cls) -> "TheoremAttenuation":
        """Few users and rounds."""
        return cls(seeds=(0, 1), rounds=8, users=8, walked=3)

    def tasks(self) -> list[Task]:
        """Every case in every city."""
        return [self._task(seed, case) for case in CASES for seed in self.seeds]

    def _task(self, seed: int, case: str) -> Fading:
        return Fading(seed, case, self.walked, self.rounds, self.users)

    def result(self, outcomes: Outcomes) -> Result:
        """How often it rises, and how it falls."""
        found = {case: [outcomes[self._task(s, case)] for s in self.seeds] for case in CASES}
        return self.made(
            tables=(_table(found),), pictures=(_picture(found),), findings=_findings(found)
        )


def _table(found: dict[str, list[Outcome]]) -> Table:
    rows: list[Row] = []
    for case, own in found.items():
        rises, steps = (sum(int(outcome[key]) for outcome in own) for key in ("rises", "steps"))
        near, far = (
            Spread.of((outcome["share"][place] * 100 for outcome in own), digits)
            for place, digits in ((2, 2), (10, 4))
        )
        rows.append((case, CASES[case], f"{rises} of {steps}", near, far))
    columns = ("map against truth", "condition", "rises", "6 m (%)", "30 m (%)")
    title = "Steps outwards in which E{G²} rises, and its mean in percent of the largest"
    return Table(title, columns, tuple(rows))


def _picture(found: dict[str, list[Outcome]]) -> Curves:
    lines = []
    for case, own in found.items():
        share = np.mean([outcome["share"] for outcome in own], axis=0)
        distance = np.arange(0.0, 3.0 * len(share), 3.0)
        kind: Kind = "line" if CASES[case].startswith("met") else "dashed"
        lines.append(
            Line(f"{case} ({CASES[case]})", distance, np.maximum(share, _FAINT), kind=kind)
        )
    panel = Panel(
        "", "distance from the user (m)", "E{G²} / the user's largest", tuple(lines), log_y=True
    )
    return Curves("theorem-attenuation", "How gradients fade along rays from their user", (panel,))


def _findings(found: dict[str, list[Outcome]]) -> tuple[Finding, ...]:
    def rises(*cases: str) -> tuple[int, int]:
        totals = [
            sum(int(outcome[key]) for case in cases for outcome in found[case])
            for key in ("rises", "steps")
        ]
        return totals[0], totals[1]

    level, of_level = rises("flat map above a low city")
    met, of_met = rises("city + 4 m", "city − 4 m")
    learned, of_learned = rises(*LEARNED)
    return (
        Finding(
            "With the condition met and a level map, E{G²} never rises outwards.",
            level == 0,
            f"{level} rises in {of_level} steps",
        ),
        Finding(
            "With the condition met it never rises, whatever the map (the theorem as stated).",
            met == 0,
            f"{met} rises in {of_met} steps. The proof compares the sets of links over two cells,"
            " but not the terms: ∂S/∂h_m also grows with h_m − z_m, so a tall cell behind a low"
            " one can have the larger gradient. A level map excludes that"
            if met
            else f"no rise in {of_met} steps on these cities",
        ),
        Finding(
            "Beyond the condition gradients still fade on the whole (as the paper observes).",
            learned < 0.1 * of_learned,
            f"{learned} rises in {of_learned} steps on learned maps",
        ),
    )
