"""`veilmap reproduce`."""

import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from veilmap.cli.options import argument, option, pairs
from veilmap.cli.output import console, progress_bar, writable_file, writable_folder

if TYPE_CHECKING:
    from veilmap.paper.running import TaskPlan
    from veilmap.paper.tasks import Outcome, Store, Task


def reproduce(
    names: list[str] | None = argument(
        "Experiments, or all; without any, they are listed.", default=None, show_default=False
    ),
    quick: bool = option(False, "Small settings: to see that it runs, in seconds.", "--quick"),
    seeds: str = option("", "Cities to repeat it on, such as 0,1,2,3,4."),
    settings: list[str] | None = option(None, "A setting: budgets=1,10 (repeatable).", "--set"),
    out: Path = option(Path("veilmap-reproduction"), "Folder for reports, figures and results."),
    json_out: Path | None = option(None, "Also write all numbers to this file.", "--json"),
    workers: int | None = option(None, "Processes; by default one for each core.", min=1),
) -> None:
    """Compute the paper's tables, figures and theorems, beside the paper's own figures.

    Everything computed is kept in OUT/computed: stop at any time and run the same command
    again to go on; another setting computes only what it touches.
    """
    from veilmap._util import files
    from veilmap.cli import tables
    from veilmap.paper import experiments, running
    from veilmap.paper.tasks import Store
    from veilmap.reports import reproduction

    if not names:
        console.print(tables.experiment_list(experiments.EXPERIMENTS))
        return
    given = pairs("--set", settings, "NAME=VALUE such as budgets=1,10")
    given |= {"seeds": seeds} if seeds else {}
    chosen = experiments.chosen(names, quick=quick, settings=given)
    writable_folder(out)
    writable_file(json_out)
    store = Store(out / "computed")
    plan = running.TaskPlan.of((task for one in chosen for task in one.tasks()), store)
    processes = running.processes(plan, workers)
    started = time.perf_counter()
    outcomes = _run(plan, store, processes)
    about = reproduction.about(
        _command(names, quick, seeds, settings or []),
        time.perf_counter() - started,
        computed=len(plan.left),
        remembered=len(plan.done),
        workers=processes,
        quick=quick,
    )
    results = [experiment.result(outcomes) for experiment in chosen]
    for result in results:
        for table in result.tables:
            console.print(tables.result_table(table))
        console.print(tables.findings(result))
    stem = "report" if "all" in names else "-".join(result.name for result in results)
    written = reproduction.write(results, about, out, stem)
    if json_out is not None:
        files.write_json(reproduction.as_dict(results), json_out)
        written.append(json_out)
    shown = ", ".join(str(path) for path in written if path.suffix != ".png")
    console.print(f"{about[1]} Wrote {shown} and {out}/figures/")


def _run(plan: "TaskPlan", store: "Store", processes: int) -> "dict[Task, Outcome]":
    """Run what is left, with a bar that counts by how long things take."""
    from veilmap.paper import running

    with progress_bar() as progress:
        total = sum(task.weight for task in plan.left)
        bar = progress.add_task("computing", total=total, note="", visible=bool(plan.left))

        def on_done(task: "Task") -> None:
            progress.update(bar, advance=task.weight, note=task.label)

        return running.run(plan, store, workers=processes, on_done=on_done)


def _command(names: Sequence[str], quick: bool, seeds: str, settings: Sequence[str]) -> str:
    """What to type for the same results."""
    parts = ["veilmap", "reproduce", *names]
    parts += ["--quick"] * quick + (["--seeds", seeds] if seeds else [])
    parts += [part for text in settings for part in ("--set", text)]
    return shlex.join(parts)
