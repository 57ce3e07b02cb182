"""The command line: thin, friendly, one clear line when something is wrong."""

import sys
from collections.abc import Callable, Sequence

import click
import typer

from veilmap import __version__
from veilmap._util.options import options_of
from veilmap.cli import (
    aggregator,
    audit,
    compare,
    contribute,
    data,
    demo,
    export,
    federation,
    plan,
    report,
    reproduce,
    serve,
    survey,
    train,
)
from veilmap.cli.options import option
from veilmap.cli.output import spell_out, visible
from veilmap.cli.reading import with_command
from veilmap.errors import VeilmapError
from veilmap.federation.participation import Participation
from veilmap.geometry.tiling import Tiling
from veilmap.privacy.mechanisms import MECHANISMS

app = typer.Typer(
    name="veilmap",
    help="Radio maps from measurements that never leave their owners.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)

_STOPPED = 130


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"veilmap {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: bool = option(
        False, "Show version.", "--version", callback=_show_version, is_eager=True
    ),
) -> None:
    pass


_COMMANDS: dict[Callable[..., None], str] = {
    demo.demo: "`veilmap demo --seed 3 --out my-demo`, `veilmap demo --open`",
    train.train: "`veilmap train links.parquet --mechanism aligned --budget 50 --out run`",
    plan.plan: "`veilmap plan --users 20000 --epsilon 2`,"
    " `veilmap plan --users 1000000 --epsilon 1 --within 0.2`",
    audit.audit: "`veilmap train --keep-uploads 1,50,100,150,200 --out run` then"
    " `veilmap audit run`",
    report.report: "`veilmap report run`, `veilmap report run --user 17 --out run.html`,"
    " `veilmap report run-a run-b --out both.html`",
    export.export: "`veilmap export run gain.tif --station site-7`,"
    " `veilmap export run lines.geojson --bs 120,80,25 --levels -110,-100,-90`,"
    " `veilmap export run at.csv --bs-latlon 48.2,16.37,25 --points schools.csv`,"
    " `veilmap export run server.png --layer best-server`",
    reproduce.reproduce: "`veilmap reproduce all`, `veilmap reproduce headline --seeds 0,1,2,3,4`,"
    " `veilmap reproduce fig-tradeoff --set tradeoffs=1,10 --json tradeoff.json`",
    compare.compare: "`veilmap compare links.parquet --schemes blocks --block 100`,"
    " `veilmap compare links.parquet --methods k-nn,central --folds 3 --json scores.json`",
    contribute.contribute: "`veilmap contribute https://radio.example.org/take-part#CODE walk.csv`,"
    " `veilmap contribute https://radio.example.org --receipt receipt.json --check`",
    serve.serve: "`veilmap serve`, `veilmap serve run-a run-b --open`,"
    " `veilmap serve runs/ --host 0.0.0.0 --port 8000`",
}
for command, examples in _COMMANDS.items():
    app.command(epilog=f"Examples: {examples}")(command)
app.add_typer(data.app, name="data")
app.add_typer(federation.app, name="federation")
app.add_typer(survey.app, name="survey")
app.add_typer(aggregator.app, name="aggregator")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command; a user's mistake is one line on standard error and exit code 2."""
    spell_out()
    try:
        code = app(args=arguments, standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError:  # has shown the help already
        raise SystemExit(0) from None
    except click.ClickException as error:
        context: click.Context | None = getattr(error, "ctx", None)
        where = f" (see '{context.command_path} --help')" if context else ""
        _fail(error.format_message().replace("\n", " ").rstrip(".") + where)
    except VeilmapError as error:
        _fail(_with_flag(error, sys.argv[1:] if arguments is None else arguments))
    except (click.Abort, KeyboardInterrupt):
        code = _STOPPED
    if code == _STOPPED:  # typer turns Ctrl-C into this exit code
        sys.stderr.write("veilmap: stopped\n")
    raise SystemExit(code or 0)


def _with_flag(error: VeilmapError, arguments: Sequence[str]) -> str:
    """The message with the flag of the parameter that it is about."""
    if error.remedy is not None:
        return with_command(error)
    message, name = str(error), getattr(error, "parameter", None) or ""
    declared = options_of(*MECHANISMS.values(), Participation, Tiling).get(name)
    flag = declared.flag if declared else _flags(arguments).get(name)
    if flag is None or flag in message:
        return message
    return flag + message.removeprefix(name) if message.startswith(name) else f"{message} ({flag})"


def _flags(arguments: Sequence[str]) -> dict[str, str]:
    """The flags of the command that these arguments name, by the parameters that they set."""
    command = typer.main.get_command(app)
    for word in arguments:
        if isinstance(command, click.Group) and word in command.commands:
            command = command.commands[word]
    options = (param for param in command.params if isinstance(param, click.Option))
    return {option.name or "": max(option.opts, key=len) for option in options}


def _fail(message: str) -> None:
    sys.stderr.write(f"veilmap: {visible(message)}\n")
    raise SystemExit(2) from None
