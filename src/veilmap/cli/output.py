"""Where commands write: the terminal, and files that are checked before work begins."""

import codecs
import io
import os
import sys
import threading
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from veilmap._util import files
from veilmap.errors import ConfigurationError

if TYPE_CHECKING:
    from rich.progress import Progress

QUIET_SECONDS = 2.0  # work that takes longer says what it does, where no bar can be drawn
_AGAIN_SECONDS = 10.0  # and how far it is

# What we write, in ASCII; for terminals and locales that know no more.
_SPELLED = {
    "α": "alpha", "β": "beta", "δ": "delta", "ε": "epsilon", "θ": "theta", "μ": "mu", "ν": "nu",
    "ρ": "rho", "σ": "sigma", "ψ": "psi", "Δ": "Delta", "–": "-", "−": "-", "×": "x", "±": "+/-",
    "≤": "<=", "≥": ">=", "→": "->", "∞": "infinity", "✓": "+", "✗": "x", "·": ".", "√": "root ",
    "°": " degrees", "≈": "~", "’": "'",
}  # fmt: skip


class _PlainConsole(Console):
    """A terminal on which a text is a text: no markup, no emoji by name, no control characters.

    Paths and ids come from strangers.
    """

    def __init__(self) -> None:
        super().__init__(markup=False, emoji=False)

    def render_str(self, text: str, **how: Any) -> Text:
        """The text as it is shown."""
        return super().render_str("\n".join(map(visible, text.split("\n"))), **how)


console = _PlainConsole()


def visible(line: str) -> str:
    """A line that does nothing to a terminal but be there."""
    return "".join(
        letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in line
    )


def spell_out() -> None:
    """Have standard output and error spell out what their encoding lacks."""
    codecs.register_error("veilmap.spelled", _spelled)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="veilmap.spelled")


def _spelled(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    letter = error.object[error.start]
    spelled = _SPELLED.get(letter) or unicodedata.normalize("NFKD", letter)
    plain = "".join(one for one in spelled if one.isascii())
    return plain or "?", error.start + 1


@contextmanager
def working(text: str) -> Iterator[Callable[[str], None]]:
    """Say what is being done for as long as it takes; what it yields changes the text."""
    shown = text

    def change(to: str) -> None:
        nonlocal shown
        shown = to
        if console.is_terminal:
            status.update(Text(visible(to)))

    if console.is_terminal:
        with console.status(Text(visible(text))) as status:
            yield change
    else:
        with _said_now_and_then(lambda: shown):
            yield change


@contextmanager
def progress_bar() -> "Iterator[Progress]":
    """A bar with the time that is left and a note."""
    from rich.progress import Progress, ProgressColumn, Task, TimeRemainingColumn

    class Note(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(visible(str(task.fields["note"])))

    columns = (*Progress.get_default_columns()[:3], TimeRemainingColumn(), Note())
    with Progress(*columns, console=console) as bar:
        if console.is_terminal:
            yield bar
        else:
            with _said_now_and_then(lambda: _standing(bar)):
                yield bar


def _standing(bar: "Progress") -> str:
    """How far the tasks of a bar are."""
    tasks = [task for task in bar.tasks if not task.finished]
    return ", ".join(
        f"{task.description} {task.completed:g}"
        + ("" if task.total is None else f" of {task.total:g}")
        for task in tasks
    )


@contextmanager
def _said_now_and_then(say: Callable[[], str]) -> Iterator[None]:
    """Lines on standard error, for logs, while the block takes longer than a reader waits for."""
    done = threading.Event()

    def report() -> None:
        before, pause = "", QUIET_SECONDS
        while not done.wait(pause):
            now = say()
            if now and now != before:
                sys.stderr.write(f"{visible(now)}\n")
                sys.stderr.flush()
                before, pause = now, _AGAIN_SECONDS

    reporter = threading.Thread(target=report, daemon=True)
    reporter.start()
    try:
        yield
    finally:
        done.set()
        reporter.join()


def write_json(content: Any, path: Path | None) -> None:
    """Write the file that ``--json`` names, if it names one."""
    if path is not None:
        files.write_json(content, path)
        console.print(f"Wrote {path}")


def sentence(text: str) -> str:
    """The text with a capital letter."""
    return text[:1].upper() + text[1:]


def writable_file(*paths: Path | None) -> None:
    """Fail before the work, not after it, where a file cannot be written."""
    for path in filter(None, paths):
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
        name if names.count(name) == 1 else f"{number}-{name}"
        for number, name in enumerate(names, start=1)
    ]
