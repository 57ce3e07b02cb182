"""What the centroid attacker learns when nothing is hidden."""

from dataclasses import dataclass, replace

from veilmap._util.arrays import Floats
from veilmap.federation.steps import StepRule
from veilmap.paper.experiment import Experiment, Finding, Outcomes, Result, Spread, Table
from veilmap.paper.tasks import Task
from veilmap.paper.trials import DEFAULT, POWERS, STEPS, Trial, power_name
from veilmap.privacy.mechanisms import Mechanism, NoNoise

_PAPER = {
    "1": ("7.25", "6.90", "8.26", "8.61", "9.00"),
    "100": ("20.69", "23.42", "17.67", "17.23", "18.41"),
    "200": ("27.44", "28.93", "30.27", "30.00", "31.44"),
    "average": ("22.10", "24.32", "23.52", "23.86", "24.24"),
}  # for ν = 1, 2, 5, 10, ∞; RMSE in m
_WHY = {
    "as written": "plain descent hardly moves the map, so gradients stay at their users",
    "floor 0": "the setting nearest to the paper's figures",
    "default": "heights below ground free the cells around users of gradient, what is left sits"
    " at the walls far from them",
}


@dataclass(frozen=True, kw_only=True)
class TableLeakage(Experiment, order=2):
    """Location leakage without defence.

    RMSE in metres of the weighted-centroid attacker who sees clipped gradients without noise,
    in the first, the middle and the last round and over nine rounds from first to last. Three
    settings: as the paper writes it (h ≥ 0, plain descent), its h ≥ 0 with our server step,
    and our default (heights down to −8 m).
    """

    powers: tuple[float, ...] = POWERS

    def tasks(self) -> list[Task]:
        """Training without noise in every setting and city."""
        return [task for step in STEPS.values() for task in self.trials([NoNoise()], step)]

    def trial(self, seed: int, mechanism: Mechanism, step: StepRule = DEFAULT) -> Trial:
        """A training watched by this experiment's attackers."""
        return replace(super().trial(seed, mechanism, step), powers=self.powers)

    def result(self, outcomes: Outcomes) -> Result:
        """The paper's table beside ours."""
        spreads = {
            name: self._by_round(self.stacked(outcomes, "rmse", NoNoise(), step))
            for name, step in STEPS.items()
        }
        paper, own = (("round", *map(power_name, nu)) for nu in (POWERS, self.powers))
        ours = (
            Table.by_name(f"Ours, {setting}: RMSE in m", own, rows)
            for setting, rows in spreads.items()
        )
        tables = (Table.by_name("The paper: RMSE in m", paper, _PAPER), *ours)
        return self.made(tables=tables, findings=self._findings(spreads))

    def _by_round(self, rmse: Floats) -> dict[str, list[Spread]]:
        """RMSE (seeds, ν, rounds) of every ν in the first, middle and last round and on average."""
        shown = {
            str(number): rmse[:, :, self.look(number)]
            for number in (1, self.rounds // 2, self.rounds)
        }
        shown["average"] = rmse.mean(axis=2)
        return {name: [Spread.of(column) for column in by.T] for name, by in shown.items()}

    def _findings(self, spreads: dict[str, dict[str, list[Spread]]]) -> tuple[Finding, ...]:
        first = [s.mean for rows in spreads.values() for s in rows["1"]]
        below = max(first) < 10
        findings = [
            Finding(
                "In the first round the attacker is within metres of the user (paper: 7 to 9 m).",
                below,
                f"{min(first):.1f} to {max(first):.1f} m over all settings and ν"
                + ("" if below else "; the largest are at small ν, which average over the map"),
            )
        ]
        for name, rows in spreads.items():
            early, last = ([s.mean for s in rows[n]] for n in ("1", f"{self.rounds}"))
            grows = all(b > a for a, b in zip(early, last, strict=True))
            claim = f"It grows to tens of metres by the last round ({name}; paper: 27 to 31 m)."
            measured = f"{min(last):.0f} to {max(last):.0f} m; {_WHY[name]}"
            findings.append(Finding(claim, grows and min(last) >= 10, measured))
        return tuple(findings)
