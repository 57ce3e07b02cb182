"""What commands take: options as they are declared, and what their texts mean."""

import functools
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import typer

from veilmap._util import plugins
from veilmap._util.options import Option, options_of
from veilmap.errors import ConfigurationError
from veilmap.privacy import mechanisms
from veilmap.privacy.mechanisms import MECHANISMS, Mechanism


def option(default: Any, meaning: str, *flags: str, **bounds: Any) -> Any:
    """An option of a command, ``--`` and its parameter's name unless it has other flags."""
    return typer.Option(default, *flags, help=meaning, **bounds)


def argument(meaning: str, *, default: Any = ..., **more: Any) -> Any:
    """An argument of a command, required unless it has a default."""
    return typer.Argument(default, help=meaning, **more)


def declared(name: str, kind: type, default: Any = ...) -> Any:
    """The option that sets a field, as its dataclass declares it."""
    known = options_of(kind)[name]
    return option(known.default if default is ... else default, known.help, known.flag)


def with_mechanism_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command with an option for each flag that a mechanism declares, ours or another's.

    Those that are given are its parameter ``protection``, values by their flags.
    """
    signature = inspect.signature(command, eval_str=True)
    own = list(signature.parameters.values())
    place = next(i for i, one in enumerate(own) if one.name == "protection")
    added = _of_mechanisms({flag for one in own for flag in _flags_of(one)})
    keys = {parameter.name: flag for flag, parameter in added.items()}

    @functools.wraps(command)
    def protecting(**arguments: Any) -> None:
        given = {flag: arguments.pop(key) for key, flag in keys.items()}
        chosen = {flag: value for flag, value in given.items() if value is not None}
        command(**arguments, protection=chosen)

    parameters = [*own[:place], *added.values(), *own[place + 1 :]]
    protecting.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return protecting


def _flags_of(parameter: inspect.Parameter) -> Sequence[str]:
    """The flags of a command's option."""
    given: Sequence[str] | None = getattr(parameter.default, "param_decls", None)
    return given or ("--" + parameter.name.replace("_", "-"),)


def _of_mechanisms(taken: set[str]) -> dict[str, inspect.Parameter]:
    """A parameter for each flag of mechanisms; its help is the first's, and names who has it."""
    having: dict[str, dict[str, Option]] = {}
    for name, kind in MECHANISMS.items():
        for one in options_of(kind).values():
            having.setdefault(one.flag, {})[name] = one
    found = {}
    for flag, of_kinds in having.items():
        if flag in taken:
            plugins.warn(f"{flag} of {', '.join(of_kinds)}, which means something else here")
            continue
        one = next(iter(of_kinds.values()))
        whose = "" if len(of_kinds) == len(MECHANISMS) else f" ({', '.join(of_kinds)})"
        found[flag] = inspect.Parameter(
            "mechanism_" + flag.removeprefix("--").replace("-", "_"),
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=option(None, one.help.removesuffix(".") + f"{whose}.", flag),
            annotation=str | None if one.choices else float | None,
        )
    return found


def mechanism_from(name: str, protection: Mapping[str, float | str]) -> Mechanism:
    """The mechanism of that name with options by their flags."""
    own = options_of(MECHANISMS[name]) if name in MECHANISMS else {}
    field_of = {one.flag: field for field, one in options_of(*MECHANISMS.values()).items()}
    field_of |= {one.flag: field for field, one in own.items()}
    # An option of others, whose field may have the name of one that this mechanism has.
    others = {flag for flag, field in field_of.items() if field in own and own[field].flag != flag}
    called = {flag if flag in others else field_of.get(flag, flag): flag for flag in protection}
    given = {key: protection[flag] for key, flag in called.items()}
    return mechanisms.named(name, given, called=called)


DATA = option(None, "The users' measurements; by default where the run says they are.")
TEST = option(None, "Measurements for the map's error, .csv or .parquet.")
SERVER_SEES = option(None, "uploads, shuffled or sums; by default what the mechanism is made for.")


def listed(text: str) -> list[str]:
    """The parts of a text such as a,b."""
    return [part.strip() for part in text.split(",") if part.strip()]


def counted(flag: str, text: str, example: str) -> list[int]:
    """The whole numbers of a text such as 1,50, one at least."""
    try:
        found = [int(part) for part in listed(text)]
    except ValueError:
        found = []
    if not found:
        raise ConfigurationError(f"{flag} takes {example}, not {text!r}")
    return found


def numbers(flag: str, text: str, count: int | None = None) -> list[float]:
    """The numbers of a text such as 1,2,3."""
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or not all(map(math.isfinite, found)) or count not in (None, len(found)):
        wanted = f"{count} numbers" if count else "numbers"
        raise ConfigurationError(f"{flag} takes {wanted} with commas between, not {text!r}")
    return found


def area_of(text: str) -> tuple[float, float, float, float]:
    """The edges that ``--area`` names: west, south, east and north."""
    west, south, east, north = numbers("--area", text, 4)
    if not (west < east and south < north):
        raise ConfigurationError(f"--area takes WEST,SOUTH,EAST,NORTH in metres, not {text!r}")
    return west, south, east, north


def pairs(flag: str, texts: Sequence[str] | None, example: str) -> dict[str, str]:
    """Values by their names, out of texts such as gain=rsrp."""
    found: dict[str, str] = {}
    for text in texts or ():
        name, _, value = (part.strip() for part in text.partition("="))
        if not (name and value):
            raise ConfigurationError(f"{flag} takes {example}, not {text!r}")
        if name in found:
            raise ConfigurationError(f"{flag} names {name} twice: {found[name]} and {value}")
        found[name] = value
    return found
