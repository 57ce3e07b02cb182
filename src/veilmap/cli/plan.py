"""`veilmap plan`."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from veilmap.cli.options import area_of, declared, option
from veilmap.cli.output import console, sentence, working, writable_file, write_json
from veilmap.cli.survey import known_stations
from veilmap.privacy.mechanisms import AggregateGaussian

if TYPE_CHECKING:
    from veilmap.federation.planning import PrivacyPlan


def plan(
    users: int = option(..., "How many will take part.", min=2),
    epsilon: float = option(..., "ε of the promise to every user."),
    delta: float | None = declared("delta", AggregateGaussian, None),
    area: str | None = option(None, "WEST,SOUTH,EAST,NORTH in metres; default: a city of 300 m."),
    stations: str = option("200", "How many base stations, or a file of them."),
    cells: int | None = option(
        None,
        "Cells of the map of obstacles, or of a tile's window with its users; default: 10000, or"
        " those of 3 m in the area.",
        min=1,
    ),
    links: int = option(200, "Links of each user.", min=1),
    within: float | None = option(None, "Acceptable loss in dB: take the plan of fewest bytes."),
    contribute: float = option(1.0, "Probability of a gradient in an answer, else noise alone."),
    allow_missing: float = declared("dropout", AggregateGaussian),
    json_out: Path | None = option(None, "Also write the plan to this file.", "--json"),
) -> None:
    """Plan a promise both ways, rounds of obstacles and one sum, and say what to expect."""
    from veilmap.cli import tables
    from veilmap.compare.ways import ways

    writable_file(json_out)
    with working("planning both ways …"):
        found = ways(
            users,
            epsilon,
            delta,
            area=None if area is None else area_of(area),
            stations=int(stations) if stations.isdigit() else known_stations(Path(stations)),
            cells=cells,
            links=links,
            within=within,
            contribute=contribute,
            dropout=allow_missing,
        )
    described = found.as_dict()
    console.print(tables.plan_table(described))
    console.print(tables.trust_table(described))
    for way, why in found.refused.items():
        console.print(f"{sentence(way)}: {why}")
    console.print(found.advice)
    if found.rounds is not None:
        described["rounds"]["command"] = _command(found.rounds)
        console.print(found.rounds.assumptions)
        console.print(described["rounds"]["command"], soft_wrap=True)
    write_json(described, json_out)


def _command(plan: "PrivacyPlan") -> str:
    """The training as a command line."""
    from veilmap.runs import command

    used = plan.mechanism
    words = ["veilmap", "train", "DATA", *command.mechanism_options(used.name, vars(used))]
    words += ["--rounds", str(plan.rounds), *command.participation_options(plan.participation)]
    return shlex.join(words)
