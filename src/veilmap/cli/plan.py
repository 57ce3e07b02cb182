"""`veilmap plan`."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from veilmap.cli.options import declared, of_mechanisms, option
from veilmap.cli.output import console, writable_file, write_json
from veilmap.privacy.mechanisms import AggregateGaussian

if TYPE_CHECKING:
    from veilmap.federation.planning import PrivacyPlan


def plan(
    users: int = option(..., "How many will take part.", min=2),
    epsilon: float = option(..., "ε of the promise to every user."),
    delta: float | None = of_mechanisms("delta"),
    cells: int = option(10_000, "Cells of the map, or of a tile's window with its users.", min=1),
    links: int = option(200, "Links of each user.", min=1),
    within: float | None = option(None, "Acceptable loss in dB: take the plan of fewest bytes."),
    contribute: float = option(1.0, "Probability of a gradient in an answer, else noise alone."),
    allow_missing: float = declared("dropout", AggregateGaussian),
    json_out: Path | None = option(None, "Also write the plan to this file.", "--json"),
) -> None:
    """Choose rounds, cohort, clip and noise for a promise, and say what to expect."""
    from veilmap.cli import tables
    from veilmap.federation import planning

    writable_file(json_out)
    chosen = planning.plan(
        users,
        epsilon,
        delta,
        cells=cells,
        links=links,
        within=within,
        contribute=contribute,
        dropout=allow_missing,
    )
    described = chosen.as_dict(chosen.seconds()) | {"command": _command(chosen)}
    console.print(tables.plan_table(described))
    console.print(chosen.assumptions)
    console.print(described["command"], soft_wrap=True)
    write_json(described, json_out)


def _command(plan: "PrivacyPlan") -> str:
    """The training as a command line."""
    from veilmap.runs import command

    used = plan.mechanism
    words = ["veilmap", "train", "DATA", *command.mechanism_options(used.name, vars(used))]
    words += ["--rounds", str(plan.rounds), *command.participation_options(plan.participation)]
    return shlex.join(words)
