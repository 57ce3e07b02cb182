"""The command line: thin, friendly, one clear line when something is wrong."""

import math
import os
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import click
import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from veilmap import __version__
from veilmap.errors import VeilmapError
from veilmap.federation import HistoryRow
from veilmap.federation.messages import ClientId
from veilmap.geometry import Grid
from veilmap.measurements import Measurements
from veilmap.mechanisms import MECHANISMS, Mechanism
from veilmap.scene import Scene

if TYPE_CHECKING:
    from rich.progress import Progress

app = typer.Typer(
    name="veilmap",
    help="Radio maps from measurements that never leave their owners.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)

_console = Console()

Seed = Annotated[int, typer.Option(min=0, help="Fixes all randomness.")]


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"veilmap {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show version.")
    ] = False,
) -> None:
    pass


@app.command(epilog="Example: `veilmap demo --seed 3 --out my-demo`")
def demo(
    seed: Seed = 0,
    out: Annotated[Path, typer.Option(help="Folder for figures and the map.")] = Path(
        "veilmap-demo"
    ),
    rounds: Annotated[int, typer.Option(min=2, help="Training rounds of each scheme.")] = 120,
    users: Annotated[int, typer.Option(min=1, help="Users who measure.")] = 100,
) -> None:
    """Learn a city's map with and without noise, attack it, compare and draw."""
    from veilmap import demo as the_demo

    _writable_folder(out)
    with _progress() as progress:
        bars = {name: progress.add_task(name, total=rounds, note="") for name in the_demo.SCHEMES}

        def on_round(name: str, row: HistoryRow) -> None:
            note = f"loss {row.loss:5.1f} dB²"
            progress.update(bars[name], completed=row.round + 1, note=note)

        result = the_demo.run(out, seed=seed, users=users, rounds=rounds, on_round=on_round)

    table = Table(
        title=f"Map error on 200 unseen users; centroid attacker in the first and last round"
        f" (seed {seed})"
    )
    table.add_column("method", no_wrap=True)
    for title in ("MAE (dB)", "first (m)", "last (m)", "s"):
        table.add_column(title, justify="right")
    for row in result.rows:
        first, last = (_number(v, 0) for v in (row.first_error_m, row.last_error_m))
        table.add_row(
            row.name, _number(row.mae_db, 2) or "–", first, last, row.note or f"{row.seconds:.1f}"
        )
    _console.print(table)
    _console.print(
        "The noise misleads an attacker who takes centroids. It is obfuscation, not a proven"
        " guarantee: an attacker who knows it can do better."
    )
    _console.print("Wrote " + ", ".join(path.name for path in result.files) + f" to {out}/")


@app.command(
    epilog="Example: `veilmap train links.parquet --mechanism aligned --budget 50 --out run`"
)
def train(
    data: Annotated[
        Path | None,
        typer.Argument(help="Measurements, .csv or .parquet; without it, a synthetic city."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the run.")] = Path("veilmap-run"),
    mechanism: Annotated[
        str, typer.Option(help=f"What clients do to gradients: {', '.join(MECHANISMS)}.")
    ] = "aligned",
    budget: Annotated[float, typer.Option(help="μ: noise energy / gradient energy.")] = 10.0,
    tradeoff: Annotated[float, typer.Option(help="ρ: larger spreads the noise evenly.")] = 1.0,
    clip: Annotated[float, typer.Option(help="C: bound of a gradient's norm.")] = 1.0,
    rounds: Annotated[int, typer.Option(min=1, help="Training rounds.")] = 200,
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="Of noise; without it noise is cryptographically random."),
    ] = None,
    city: Annotated[int, typer.Option(min=0, help="Which synthetic city.")] = 0,
    test: Annotated[
        Path | None, typer.Option(help="Measurements for the map's error, .csv or .parquet.")
    ] = None,
    cell_size: Annotated[float, typer.Option(help="Side of the map's cells, in metres.")] = 3.0,
    share: Annotated[float, typer.Option(help="Share of users asked each round.")] = 1.0,
    dropout: Annotated[float, typer.Option(help="Share of them who never answer.")] = 0.0,
    late: Annotated[float, typer.Option(help="Share of them who answer too late.")] = 0.0,
    keep_uploads: Annotated[
        str, typer.Option(help="Rounds whose uploads to keep: 1,50,200 or all.")
    ] = "",
    keep_users: Annotated[
        str, typer.Option(help="Keep only these users' uploads: ids such as 3,7.")
    ] = "",
    checkpoint_every: Annotated[int, typer.Option(min=1, help="Rounds between them.")] = 10,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in OUT.")] = False,
) -> None:
    """Learn a radio map from users who keep their measurements."""
    from veilmap import federation
    from veilmap.federation.history import last_mae

    _writable_folder(out)
    links, unseen, grid = _measurements(data, test, city, cell_size)
    with _progress() as progress:
        # Not shown before a round is done: a mistake should leave one line and no bar.
        task = progress.add_task(mechanism, total=rounds, note="", visible=False)

        def on_round(row: HistoryRow) -> None:
            note = f"loss {row.loss:5.1f} dB²"
            progress.update(task, completed=row.round + 1, note=note, visible=True)

        run = federation.train(
            links, grid, mechanism=_mechanism(mechanism, budget, tradeoff, clip), rounds=rounds,
            seed=seed, participation=federation.Participation(share, dropout, late),
            keep_uploads=_rounds(keep_uploads, rounds),
            keep_users=_users(keep_users, links), test=unseen, out=out, resume=resume,
            checkpoint_every=checkpoint_every, on_round=on_round,
        )  # fmt: skip
    mae = last_mae(run.history)
    tested = "" if math.isnan(mae) else f", map MAE {mae:.2f} dB on test users"
    _console.print(f"loss {run.history[-1].loss:.2f} dB²{tested}")
    _console.print(f"Wrote the run to {out}/")


@app.command(epilog="Example: `veilmap bench --json bench.json`")
def bench(
    seed: Seed = 0,
    out: Annotated[
        Path | None, typer.Option("--json", "--out", help="Also write all figures to this file.")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(help="Run only this benchmark (may be repeated).")
    ] = None,
) -> None:
    """Measure speed, growth, memory, accuracy and start-up on this machine."""
    from veilmap import benchmarks

    if out is not None:
        _writable_folder(out.parent)
    figures = []
    for name in benchmarks.chosen(only):
        with _console.status(f"measuring {name} …"):
            figures += benchmarks.run(name, seed)
    table = Table(title="Benchmarks (ratios within this run)")
    table.add_column("what")
    table.add_column("measured", justify="right")
    table.add_column("bar", justify="right")
    table.add_column("")
    for figure in figures:
        table.add_row(figure.name, figure.shown, figure.bar_shown, figure.verdict)
    _console.print(table)
    if out is not None:
        benchmarks.save(figures, out)
        _console.print(f"Wrote {out}")


def _progress() -> "Progress":
    from rich.progress import Progress, TextColumn, TimeRemainingColumn

    columns = (*Progress.get_default_columns()[:3], TimeRemainingColumn())
    return Progress(*columns, TextColumn("{task.fields[note]}"), console=_console)


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _measurements(
    data: Path | None, test: Path | None, city: int, cell_size: float
) -> tuple[Measurements, Measurements | None, Grid]:
    """The users' links, links to test on, and the grid: from files, or a synthetic city's."""
    unseen = Measurements.load(test) if test else None
    if data is not None:
        links = Measurements.load(data)
        ends = np.vstack([links.user_xyz[:, :2], links.bs_xyz[:, :2]])
        return links, unseen, Grid.covering(ends, cell_size)
    scene = Scene.synthetic(city, cell_size=cell_size)
    if unseen is None:
        unseen = scene.measure(users=200, seed=2 * city + 1)
    return scene.measure(seed=2 * city), unseen, scene.grid


def _mechanism(name: str, budget: float, tradeoff: float, clip: float) -> Mechanism:
    """The named mechanism with the options it knows."""
    if name not in MECHANISMS:
        raise VeilmapError(f"no mechanism {name!r}; there are {', '.join(MECHANISMS)}")
    kind = MECHANISMS[name]
    options = {"noise_budget": budget, "tradeoff": tradeoff, "clip": clip}
    known = {field.name for field in fields(kind)}
    return kind(**{key: value for key, value in options.items() if key in known})


def _rounds(text: str, rounds: int) -> set[int] | Literal["all"]:
    """Rounds from 0 out of a text such as 1,50, where people count from 1."""
    if text.strip() == "all":
        return "all"
    try:
        chosen = {int(part) - 1 for part in text.split(",") if part.strip()}
    except ValueError:
        raise VeilmapError(
            f"--keep-uploads takes rounds such as 1,50 or all, not {text!r}"
        ) from None
    if any(not 0 <= number < rounds for number in chosen):
        raise VeilmapError(f"--keep-uploads: rounds count from 1 to {rounds}, not {text}")
    return chosen


def _users(text: str, links: Measurements) -> set[ClientId] | None:
    """The named users, or None for all."""
    if not text.strip():
        return None
    known: dict[str, ClientId] = {str(user): user for user in links.users.tolist()}
    wanted = [part.strip() for part in text.split(",") if part.strip()]
    for name in wanted:
        if name not in known:
            raise VeilmapError(f"--keep-users: no user {name} in the measurements")
    return {known[name] for name in wanted}


def _writable_folder(folder: Path) -> None:
    """Fail before the work, not after it; make nothing yet."""
    parents = (folder, *folder.absolute().parents)
    nearest = next(parent for parent in parents if parent.exists())
    if not nearest.is_dir():
        raise VeilmapError(f"{nearest} is a file; name a folder to write to")
    if not os.access(nearest, os.W_OK):
        raise VeilmapError(f"cannot write to the folder {nearest}; name another one")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command; a user's mistake is one line on standard error and exit code 2."""
    try:
        code = app(args=arguments, standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError:  # has shown the help already
        raise SystemExit(0) from None
    except click.ClickException as error:
        context: click.Context | None = getattr(error, "ctx", None)
        where = f" (see '{context.command_path} --help')" if context else ""
        _fail(error.format_message().replace("\n", " ").rstrip(".") + where)
    except VeilmapError as error:
        _fail(str(error))
    except (click.Abort, KeyboardInterrupt):
        sys.stderr.write("veilmap: stopped\n")
        raise SystemExit(130) from None
    raise SystemExit(code or 0)


def _fail(message: str) -> None:
    sys.stderr.write(f"veilmap: {message}\n")
    raise SystemExit(2) from None


if __name__ == "__main__":
    main()
