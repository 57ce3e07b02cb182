"""Settings that people give: flag, meaning and bounds, declared once beside the field they set.

The command line's options, the page's form, the command that repeats a run and the checks of a
value all come from here.
"""

import math
from dataclasses import dataclass, field, fields
from typing import Any

from veilmap._util import checks
from veilmap.errors import ConfigurationError

_KEY = "option"


@dataclass(frozen=True)
class Option:
    """A setting as people know it, with the bounds of its value."""

    flag: str
    help: str  # one sentence, with symbol and unit
    default: Any
    above: float = -math.inf
    least: float = -math.inf
    below: float = math.inf
    most: float = math.inf
    choices: tuple[str, ...] = ()  # of a text; bounds are for numbers
    symbol: str = (
        ""  # that names it beside its value where there is little room; else it is left out
    )

    def checked(self, name: str, value: Any) -> float | str:
        """The value of a parameter: one of the choices, or a number within the bounds."""
        if self.choices:
            if value not in self.choices:
                known = " or ".join(map(repr, self.choices))
                raise ConfigurationError(f"{name} is {known}, not {value!r}", name)
            return str(value)
        bounds = {"above": self.above, "least": self.least, "below": self.below, "most": self.most}
        return checks.number(name, value, **bounds)


def option(default: Any, flag: str, meaning: str, **limits: Any) -> Any:
    """A dataclass field that people can set, with a number's bounds or a text's choices."""
    return field(default=default, metadata={_KEY: Option(flag, meaning, default, **limits)})


def options_of(*kinds: type) -> dict[str, Option]:
    """The options of some dataclasses by the names of their fields; the first one counts."""
    found: dict[str, Option] = {}
    for kind in kinds:
        for each in fields(kind):
            if _KEY in each.metadata:
                found.setdefault(each.name, each.metadata[_KEY])
    return found


def check_options(made: Any) -> None:
    """Check and convert all options of a frozen dataclass that has just been made."""
    for name, known in options_of(type(made)).items():
        value = getattr(made, name)
        if value is not None and not isinstance(value, bool):
            object.__setattr__(made, name, known.checked(name, value))
