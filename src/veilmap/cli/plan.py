"""`veilmap plan`."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from veilmap.cli.options import AllowMissing, Delta, console, writable_folder

if TYPE_CHECKING:
    from veilmap.federation.planning import PrivacyPlan


def plan(
    users: Annotated[int, typer.Option(min=2, help="How many will take part.")],
    epsilon: Annotated[float, typer.Option(help="ε of the promise to every user.")],
    delta: Delta = None,
    cells: Annotated[
        int, typer.Option(min=1, help="Cells of the map, or of a tile's window with its users.")
    ] = 10_000,
    links: Annotated[int, typer.Option(min=1, help="Links of each user.")] = 200,
    within: Annotated[
        float | None,
        typer.Option(help="A loss in dB that is good enough: the plan with the fewest bytes."),
    ] = None,
    contribute: Annotated[
        float, typer.Option(help="Probability of a gradient in an answer, else noise alone.")
    ] = 1.0,
    allow_missing: AllowMissing = None,
    json_out: Annotated[
        Path | None, typer.Option("--json", help="Also write the plan to this file.")
    ] = None,
) -> None:
    """Choose rounds, cohort, clip and noise for a promise, and say what to expect."""
    from veilmap._util import files
    from veilmap.cli import tables
    from veilmap.federation import planning

    if json_out is not None:
        writable_folder(json_out.parent)
    options = {} if allow_missing is None else {"dropout": allow_missing}
    chosen = planning.plan(
        users,
        epsilon,
        delta,
        cells=cells,
        links=links,
        within=within,
        contribute=contribute,
        **options,
    )
    described = chosen.as_dict(chosen.seconds()) | {"command": _command(chosen)}
    console.print(tables.plan_table(described))
    console.print(chosen.assumptions)
    console.print(described["command"], soft_wrap=True)
    if json_out is not None:
        files.write_json(described, json_out)
        console.print(f"Wrote {json_out}")


def _command(plan: "PrivacyPlan") -> str:
    """The training as a command line."""
    from veilmap.runs import command

    used = plan.mechanism
    words = ["veilmap", "train", "DATA", *command.mechanism_options(used.name, vars(used))]
    words += ["--rounds", str(plan.rounds), *command.participation_options(plan.participation)]
    return shlex.join(words)
