"""What commands take: options as they are declared, and what their texts mean."""

import math
from collections.abc import Sequence
from typing import Any

import typer

from veilmap._util.options import options_of
from veilmap.errors import ConfigurationError
from veilmap.privacy.mechanisms import MECHANISMS


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


def of_mechanisms(name: str) -> Any:
    """The option that sets a field of mechanisms; its help names those that have the field."""
    having = {key: kind for key, kind in MECHANISMS.items() if name in options_of(kind)}
    known = options_of(*having.values())[name]
    whose = "" if len(having) == len(MECHANISMS) else f" ({', '.join(having)})"
    return option(None, known.help.removesuffix(".") + f"{whose}.", known.flag)


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
