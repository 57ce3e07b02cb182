"""What commands share: the terminal, progress bars, checks before work begins."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from veilmap._util.options import options_of
from veilmap.errors import ConfigurationError
from veilmap.privacy.mechanisms import MECHANISMS

if TYPE_CHECKING:
    from rich.progress import Progress

console = Console()

Seed = Annotated[int, typer.Option(min=0, help="Fixes all randomness.")]


def flag(name: str, *kinds: type) -> Any:
    """The option that sets a field, as its dataclass declares it."""
    known = options_of(*kinds)[name]
    return typer.Option(known.flag, help=known.help)


def of_mechanisms(name: str) -> Any:
    """The option of a mechanism's field, which says for which mechanisms it is."""
    having = [key for key, kind in MECHANISMS.items() if name in options_of(kind)]
    known = options_of(*MECHANISMS.values())[name]
    whose = "" if len(having) == len(MECHANISMS) else f" ({', '.join(having)})"
    return typer.Option(known.flag, help=known.help.removesuffix(".") + f"{whose}.")


Budget = Annotated[float | None, of_mechanisms("noise_budget")]
Tradeoff = Annotated[float | None, of_mechanisms("tradeoff")]
Epsilon = Annotated[float | None, of_mechanisms("epsilon")]
Delta = Annotated[float | None, of_mechanisms("delta")]
Clip = Annotated[float | None, of_mechanisms("clip")]
Contribute = Annotated[float | None, of_mechanisms("contribute")]
AllowMissing = Annotated[float | None, of_mechanisms("dropout")]
Sees = Annotated[
    str | None,
    typer.Option(help="uploads, or only sums; by default what the mechanism is made for."),
]


def progress_bar() -> "Progress":
    """A bar with the time that is left and a note."""
    from rich.progress import Progress, TextColumn, TimeRemainingColumn

    columns = (*Progress.get_default_columns()[:3], TimeRemainingColumn())
    return Progress(*columns, TextColumn("{task.fields[note]}"), console=console)


def listed(text: str) -> list[str]:
    """The parts of a text such as a,b."""
    return [part.strip() for part in text.split(",") if part.strip()]


def counted(option: str, text: str) -> list[int]:
    """Rounds of a text such as 1,50, counted from 0."""
    try:
        return [int(part) - 1 for part in text.split(",") if part.strip()]
    except ValueError:
        either = " or all" if option == "--keep-uploads" else ""
        raise ConfigurationError(
            f"{option} takes rounds such as 1,50{either}, not {text!r}"
        ) from None


def writable_file(path: Path) -> None:
    """Fail before the work, not after it."""
    if path.is_dir():
        raise ConfigurationError(f"{path} is a folder; name a file to write to")
    writable_folder(path.parent)


def writable_folder(folder: Path) -> None:
    """Fail before the work, not after it; make nothing yet."""
    parents = (folder, *folder.absolute().parents)
    nearest = next(parent for parent in parents if parent.exists())
    if not nearest.is_dir():
        raise ConfigurationError(f"{nearest} is a file; name a folder to write to")
    if not os.access(nearest, os.W_OK):
        raise ConfigurationError(f"cannot write to the folder {nearest}; name another one")


def folder_names(runs: Sequence[Path]) -> list[str]:
    """A name for each run that no other has: its folder's, numbered where they are alike."""
    names = [path.resolve().name for path in runs]
    return [
        name if names.count(name) == 1 else f"{number + 1}-{name}"
        for number, name in enumerate(names)
    ]
