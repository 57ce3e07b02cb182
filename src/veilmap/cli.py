"""The command line: thin, friendly, one clear line when something is wrong."""

import math
import os
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

import click
import typer
from rich.console import Console

from veilmap import __version__, accounting
from veilmap.errors import VeilmapError
from veilmap.federation import HistoryRow
from veilmap.federation.messages import ClientId
from veilmap.federation.transcript import ServerSees
from veilmap.measurements import Measurements
from veilmap.mechanisms import MECHANISMS, Mechanism
from veilmap.sources import Source

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
    rounds: Annotated[int, typer.Option(min=2, help="Training rounds of each scheme.")] = 100,
    users: Annotated[int, typer.Option(min=1, help="Users who measure.")] = 100,
) -> None:
    """Learn a city's map with and without noise, attack it, compare and draw."""
    from veilmap import demo as the_demo
    from veilmap import tables

    _writable_folder(out)
    with _progress() as progress:
        bars = {name: progress.add_task(name, total=rounds, note="") for name in the_demo.SCHEMES}

        def on_round(name: str, row: HistoryRow) -> None:
            note = f"loss {row.loss:5.1f} dB²"
            progress.update(bars[name], completed=row.round + 1, note=note)

        result = the_demo.run(out, seed=seed, users=users, rounds=rounds, on_round=on_round)

    _console.print(tables.demo_table(result.rows, seed))
    _console.print(
        "The paper's noise misleads an attacker who takes centroids; one who knows it finds"
        " users all the same (veilmap audit has stronger attacks still). Sums hide them, with"
        " noise of their own even provably: docs/privacy.md."
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
    budget: Annotated[
        float | None, typer.Option(help="μ: noise energy / gradient energy (uniform, aligned).")
    ] = None,
    tradeoff: Annotated[
        float | None, typer.Option(help="ρ: larger spreads the noise evenly (aligned).")
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="ε of the promise to every user (aggregate).")
    ] = None,
    delta: Annotated[
        float | None, typer.Option(help="δ of the promise, below 1/users (aggregate).")
    ] = None,
    clip: Annotated[float | None, typer.Option(help="C: bound of a gradient's norm.")] = None,
    server_sees: Annotated[
        str | None,
        typer.Option(help="uploads, or only sums; by default what the mechanism is made for."),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Training rounds.")] = 200,
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="Of noise; without it noise is cryptographically random."),
    ] = None,
    city: Annotated[int, typer.Option(min=0, help="Which synthetic city.")] = 0,
    users: Annotated[int, typer.Option(min=1, help="Users of the synthetic city.")] = 100,
    test: Annotated[
        Path | None, typer.Option(help="Measurements for the map's error, .csv or .parquet.")
    ] = None,
    cell_size: Annotated[float, typer.Option(help="Side of the map's cells, in metres.")] = 3.0,
    share: Annotated[float, typer.Option(help="Share of users asked each round.")] = 1.0,
    dropout: Annotated[float, typer.Option(help="Share of them who never answer.")] = 0.0,
    late: Annotated[float, typer.Option(help="Share of them who answer too late.")] = 0.0,
    allow_missing: Annotated[
        float | None,
        typer.Option(help="Share of noise that may be missing from a sum (aggregate)."),
    ] = None,
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
    source = Source(data, test, city, users, cell_size)
    links, unseen, grid = source.load()
    chosen = _mechanism(
        mechanism, noise_budget=budget, tradeoff=tradeoff, epsilon=epsilon, delta=delta, clip=clip,
        dropout=allow_missing,
    )  # fmt: skip
    with _progress() as progress:
        # Not shown before a round is done: a mistake should leave one line and no bar.
        task = progress.add_task(mechanism, total=rounds, note="", visible=False)

        def on_round(row: HistoryRow) -> None:
            note = f"loss {row.loss:5.1f} dB²"
            progress.update(task, completed=row.round + 1, note=note, visible=True)

        run = federation.train(
            links, grid, mechanism=chosen, rounds=rounds, seed=seed,
            participation=federation.Participation(share, dropout, late),
            server_sees=_trust(server_sees), keep_uploads=_rounds(keep_uploads, rounds),
            keep_users=_users(keep_users, links), test=unseen, out=out, resume=resume,
            checkpoint_every=checkpoint_every, on_round=on_round,
        )  # fmt: skip
    source.save(out)
    mae, spent = last_mae(run.history), run.history[-1].epsilon
    tested = "" if math.isnan(mae) else f", map MAE {mae:.2f} dB on test users"
    promised = "" if math.isnan(spent) else f", ε = {spent:.3g} spent"
    _console.print(f"loss {run.history[-1].loss:.2f} dB²{tested}{promised}")
    if promised and seed is not None:
        _console.print("With a seed anyone who knows it can recompute the noise: research only.")
    if run.stopped:
        _console.print(run.stopped)
    _console.print(f"Wrote the run to {out}/")


@app.command(
    epilog="Example: `veilmap train --keep-uploads 1,50,100,150,200 --out run` then"
    " `veilmap audit run`"
)
def audit(
    runs: Annotated[list[Path], typer.Argument(help="Folders of finished runs.")],
    data: Annotated[
        Path | None,
        typer.Option(help="The users' measurements; by default where the run says they are."),
    ] = None,
    test: Annotated[
        Path | None, typer.Option(help="Measurements for the map's error, .csv or .parquet.")
    ] = None,
    rounds: Annotated[
        str, typer.Option(help="Kept rounds to attack, such as 1,50; by default up to five.")
    ] = "",
    out: Annotated[
        Path | None, typer.Option(help="Folder for figures and JSON; by default RUN/audit.")
    ] = None,
    json_out: Annotated[
        Path | None, typer.Option("--json", help="Also write the figures' numbers to this file.")
    ] = None,
) -> None:
    """Attack runs in every way we know and show what the strongest attack finds.

    With several runs, also draw their map error against it.
    """
    from veilmap import auditing, reports, tables
    from veilmap.auditing import Audit
    from veilmap.federation import Run

    folder = out or (runs[0] / "audit" if len(runs) == 1 else Path("veilmap-audit"))
    _writable_folder(folder)
    names = _folder_names(runs)
    loaded = [(path, Run.load(path), *_truth(path, data, test)) for path in runs]
    audits: dict[str, Audit] = {}
    for name, (path, run, truth, unseen) in zip(names, loaded, strict=True):
        with _console.status(f"attacking {path} …"):
            found = auditing.audit(run, truth, rounds=_chosen_rounds(rounds), test=unseen)
        _console.print(tables.audit_table(found, path))
        _console.print(tables.audit_headline(found))
        label = reports.label(found)
        audits[label if label not in audits else f"{label} ({name})"] = found
        own = folder if len(runs) == 1 else folder / name
        files = reports.write_audit(found, run.radio_map, own)
        _console.print("Wrote " + ", ".join(file.name for file in files) + f" to {own}/")
    if len(runs) > 1:
        _console.print(tables.tradeoff_table(audits))
        _console.print(f"Wrote {reports.write_tradeoff(audits, folder)}")
    if json_out is not None:
        reports.write_json({name: found.as_dict() for name, found in audits.items()}, json_out)
        _console.print(f"Wrote {json_out}")


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
    from veilmap import benchmarks, tables

    if out is not None:
        _writable_folder(out.parent)
    figures = []
    for name in benchmarks.chosen(only):
        with _console.status(f"measuring {name} …"):
            figures += benchmarks.run(name, seed)
    _console.print(tables.benchmark_table(figures))
    if out is not None:
        benchmarks.save(figures, out)
        _console.print(f"Wrote {out}")


def _progress() -> "Progress":
    from rich.progress import Progress, TextColumn, TimeRemainingColumn

    columns = (*Progress.get_default_columns()[:3], TimeRemainingColumn())
    return Progress(*columns, TextColumn("{task.fields[note]}"), console=_console)


def _mechanism(name: str, **options: float | None) -> Mechanism:
    """The named mechanism; an option that it does not know is a mistake."""
    if name not in MECHANISMS:
        raise VeilmapError(f"no mechanism {name!r}; there are {', '.join(MECHANISMS)}")
    kind = MECHANISMS[name]
    given = {key: value for key, value in options.items() if value is not None}
    unknown = given.keys() - {field.name for field in fields(kind)}
    if unknown:
        if unknown & {"epsilon", "delta"}:
            accounting.guarantee_of(kind())  # says why there is none
        flags = {"noise_budget": "budget", "dropout": "allow-missing"}
        names = ", ".join(f"--{flags.get(key, key)}" for key in sorted(unknown))
        raise VeilmapError(f"the mechanism {name} has no {names}")
    return kind(**given)


def _trust(text: str | None) -> ServerSees | None:
    if text not in (None, "uploads", "sums"):
        raise VeilmapError(f"--server-sees is uploads or sums, not {text!r}")
    return cast("ServerSees | None", text)


def _rounds(text: str, rounds: int) -> set[int] | Literal["all"]:
    """Rounds from 0 out of a text such as 1,50, where people count from 1."""
    if text.strip() == "all":
        return "all"
    chosen = _counted("--keep-uploads", text)
    if any(not 0 <= number < rounds for number in chosen):
        raise VeilmapError(f"--keep-uploads: rounds count from 1 to {rounds}, not {text}")
    return set(chosen)


def _chosen_rounds(text: str) -> list[int] | None:
    """The kept rounds to audit, or None for the default."""
    return _counted("--rounds", text) or None


def _counted(option: str, text: str) -> list[int]:
    try:
        return [int(part) - 1 for part in text.split(",") if part.strip()]
    except ValueError:
        either = " or all" if option == "--keep-uploads" else ""
        raise VeilmapError(f"{option} takes rounds such as 1,50{either}, not {text!r}") from None


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


def _truth(
    path: Path, data: Path | None, test: Path | None
) -> tuple[Measurements, Measurements | None]:
    """The measurements behind a run, and test data where there are any."""
    from veilmap.federation.folder import RunFolder
    from veilmap.federation.training import fingerprint

    if data is not None:
        truth, unseen = Measurements.load(data), Measurements.load(test) if test else None
    else:
        truth, unseen, _ = Source.of_run(path, test).load()
    if fingerprint(truth) != RunFolder(path).config()["data"]:
        raise VeilmapError(f"{path} was trained on other measurements; name them with --data")
    return truth, unseen


def _folder_names(runs: Sequence[Path]) -> list[str]:
    """A name for each run that no other has: its folder's, numbered where they are alike."""
    names = [path.resolve().name for path in runs]
    return [
        name if names.count(name) == 1 else f"{number + 1}-{name}"
        for number, name in enumerate(names)
    ]


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
