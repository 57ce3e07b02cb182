"""The command line: thin, friendly, one clear line when something is wrong."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import click
import typer
from rich.console import Console
from rich.table import Table

from veilmap import __version__
from veilmap.errors import VeilmapError

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
    rounds: Annotated[int, typer.Option(min=1, help="Training rounds.")] = 200,
    users: Annotated[int, typer.Option(min=1, help="Users who measure.")] = 100,
) -> None:
    """Build the paper's city, learn its radio map, compare and draw it."""
    from rich.progress import Progress, TextColumn, TimeRemainingColumn

    from veilmap import demo as the_demo

    _writable_folder(out)
    columns = (*Progress.get_default_columns()[:3], TimeRemainingColumn())
    with Progress(*columns, TextColumn("loss {task.fields[loss]}"), console=_console) as progress:
        task = progress.add_task("learning the map", total=rounds, loss="…")

        def on_round(number: int, loss: float) -> None:
            progress.update(task, completed=number + 1, loss=f"{loss:5.1f} dB²")

        result = the_demo.run(out, seed=seed, users=users, rounds=rounds, on_round=on_round)

    table = Table(title=f"Error of the predicted gain on 200 unseen users (seed {seed})")
    table.add_column("method")
    table.add_column("MAE (dB)", justify="right")
    table.add_column("seconds", justify="right")
    for row in result.rows:
        error = "–" if row.mae_db is None else f"{row.mae_db:.2f}"
        table.add_row(row.name, error, row.note or f"{row.seconds:.1f}")
    _console.print(table)
    _console.print("Wrote " + ", ".join(path.name for path in result.files) + f" to {out}/")


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
