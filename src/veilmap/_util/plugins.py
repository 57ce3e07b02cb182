"""What other packages add to ours: found by entry points, imported when somebody asks for it.

A package names what it adds in a group of entry points (``importlib.metadata``). Installing it is
consent to run its code; nothing else here imports anything by a name that was read from a file.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from functools import cache, cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

from veilmap.errors import PluginError, VeilmapError

T = TypeVar("T")

_log = logging.getLogger("veilmap")


class Registry(Mapping[str, T]):
    """Our own objects of a kind by name, and behind them those of other packages.

    A plug-in has the name of its entry point. Looking one up that cannot be used raises a
    `PluginError`; iteration leaves it out, and says so once in a warning of one line.

    Parameters
    ----------
    group : str
        The group of entry points.
    ours : mapping from name to object
    checked : function of a name and what the entry point refers to
        Gives the object, or raises an error that says what is wrong with it.
    taken : names, optional
        Further ones that mean something else here.
    """

    def __init__(
        self,
        group: str,
        ours: Mapping[str, T],
        checked: Callable[[str, Any], T],
        taken: tuple[str, ...] = (),
    ) -> None:
        self._group, self._ours, self._checked = group, dict(ours), checked
        self._taken = {*ours, *taken}
        self._loaded: dict[str, T | PluginError] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """All names, also of plug-ins that cannot be used: nothing is imported."""
        return (*self._ours, *(name for name in self._found if name not in self._taken))

    @property
    def others(self) -> list[T]:
        """Those of other packages that can be used."""
        return [self[name] for name in self if name not in self._ours]

    def package_of(self, made: T) -> str | None:
        """The package whose plug-in this is; None for ours and for what is no plug-in."""
        for name, known in self._loaded.items():
            if known is made:
                return _package(self._found[name][0])
        return None

    def __getitem__(self, name: str) -> T:
        if name in self._ours:
            return self._ours[name]
        if name not in self._found:
            raise KeyError(name)
        return self._plugin(name)

    def __contains__(self, name: object) -> bool:
        return name in self._ours or name in self._found

    def __iter__(self) -> Iterator[str]:
        yield from self._ours
        for name in self._found:
            try:
                self._plugin(name)
            except PluginError as error:
                warn(str(error))
            else:
                yield name

    def __len__(self) -> int:
        return sum(1 for _ in self)

    @cached_property
    def _found(self) -> dict[str, list[EntryPoint]]:
        found: dict[str, list[EntryPoint]] = {}
        for entry in entry_points(group=self._group):
            found.setdefault(entry.name, []).append(entry)
        return found

    def _plugin(self, name: str) -> T:
        if name not in self._loaded:
            try:
                self._loaded[name] = self._load(name)
            except PluginError as error:
                self._loaded[name] = error
        made = self._loaded[name]
        if isinstance(made, PluginError):
            raise made
        return made

    def _load(self, name: str) -> T:
        entry, *others = self._found[name]
        if others:
            packages = " and ".join(sorted(map(_package, (entry, *others))))
            raise PluginError(f"{packages} both have a plug-in {name!r} ({self._group})")
        whose = f"the plug-in {name!r} of {_package(entry)} ({self._group})"
        if name in self._taken:
            raise PluginError(f"{whose} has a name that is veilmap's own")
        try:
            return self._checked(name, entry.load())
        except (Exception, SystemExit) as error:  # of a stranger's code
            raise PluginError(f"{whose} cannot be used: {_in_one_line(error)}") from error


@cache
def warn(line: str) -> None:
    """Say in one line, once, what of a plug-in is left out."""
    _log.warning("veilmap: left out: %s", line)


def _package(entry: EntryPoint) -> str:
    return f"the package {entry.dist.name}" if entry.dist else entry.module


def _in_one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text if isinstance(error, VeilmapError) else f"{type(error).__name__}: {text}"
