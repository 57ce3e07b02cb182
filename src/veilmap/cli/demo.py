"""`veilmap demo`."""

from pathlib import Path

from veilmap.cli.options import option
from veilmap.cli.output import console, progress_bar, writable_folder
from veilmap.cli.serve import show
from veilmap.errors import ConfigurationError
from veilmap.federation import HistoryRow


def demo(
    seed: int = option(0, "Fixes all randomness.", min=0),
    out: Path = option(Path("veilmap-demo"), "Folder for figures and the map."),
    rounds: int = option(100, "Training rounds of each scheme.", min=2),
    users: int = option(100, "Users who measure.", min=1),
    open_page: bool = option(False, "Keep runs in OUT/runs and open them in a browser.", "--open"),
) -> None:
    """Learn a city's map with and without noise, attack it, compare and draw."""
    from veilmap.cli import tables
    from veilmap.reports import demo as the_demo

    writable_folder(out)
    runs = _free_for_runs(out / "runs") if open_page else None
    with progress_bar() as progress:
        bars = {name: progress.add_task(name, total=rounds, note="") for name in the_demo.SCHEMES}

        def on_round(name: str, row: HistoryRow) -> None:
            note = f"loss {row.loss:5.1f} dB²"
            progress.update(bars[name], completed=row.round + 1, note=note)

        rows, written = the_demo.run(
            out, seed=seed, users=users, rounds=rounds, on_round=on_round, runs_in=runs
        )

    console.print(tables.demo_table(rows, seed))
    console.print(
        "The paper's noise misleads an attacker who takes centroids; one who knows it finds"
        " users all the same (veilmap audit has stronger attacks still). Sums hide them, with"
        " noise of their own even provably: docs/privacy.md."
    )
    console.print("Wrote " + ", ".join(path.name for path in written) + f" to {out}/")
    if runs is not None:
        # Nobody's data: its users are as synthetic as its city.
        show([runs], new_runs=runs, study=True, open_page=True)


def _free_for_runs(folder: Path) -> Path:
    """The folder, unless it holds runs already or nothing could show them."""
    from veilmap.web.serving import require_server

    require_server()
    if folder.exists():
        raise ConfigurationError(
            f"{folder} is there already: look at it with veilmap serve {folder}, or name another"
            " --out"
        )
    return folder
