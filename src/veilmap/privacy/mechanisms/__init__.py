"""What a client does to its gradient before it leaves."""

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from veilmap._util.options import option, options_of
from veilmap._util.plain import is_plain, plain
from veilmap._util.plugins import Registry
from veilmap.errors import ConfigurationError
from veilmap.privacy.mechanisms.aggregate import AggregateGaussian
from veilmap.privacy.mechanisms.aligned import GeometryAligned
from veilmap.privacy.mechanisms.base import (
    Answer,
    Contribution,
    Mechanism,
    NoGuarantee,
    PrivateSums,
    PrivateUploads,
    finite_norms,
)
from veilmap.privacy.mechanisms.private import PrivateMechanism
from veilmap.privacy.mechanisms.privunit import PrivUnit
from veilmap.privacy.mechanisms.upload import NoNoise, UniformNoise, UploadNoise

_OURS = (NoNoise, UniformNoise, GeometryAligned, PrivUnit, AggregateGaussian)

_NAME, _FLAG = re.compile(r"[a-z][a-z0-9-]*"), re.compile(r"--[a-z][a-z0-9-]*")


def _checked(name: str, kind: Any) -> type[Mechanism]:
    """A plug-in's class, if commands, forms and configurations can use it as they use ours."""
    if not (isinstance(kind, type) and issubclass(kind, Mechanism)):
        raise ConfigurationError("it is no subclass of veilmap.privacy.mechanisms.Mechanism")
    made = kind()
    if made.name != name or not _NAME.fullmatch(name):
        raise ConfigurationError(f"it needs one name of small letters, not {made.name!r}")
    if not isinstance(made, PrivateMechanism) and not isinstance(made.guarantee, NoGuarantee):
        raise ConfigurationError("it states a guarantee, so it must be a PrivateMechanism")
    for field, known in options_of(kind).items():
        number = isinstance(known.default, int | float) and not isinstance(known.default, bool)
        if not _FLAG.fullmatch(known.flag) or not (known.choices or number):
            raise ConfigurationError(
                f"its option {field} needs a flag such as --strength, and a number or choices"
            )
    return plain(kind)


MECHANISMS: Registry[type[Mechanism]] = Registry(
    "veilmap.mechanisms", {kind.name: kind for kind in _OURS}, _checked
)
"""Every kind of mechanism by its name: ours, then those of other packages."""

__all__ = [
    "MECHANISMS",
    "AggregateGaussian",
    "Answer",
    "Contribution",
    "GeometryAligned",
    "Mechanism",
    "NoGuarantee",
    "NoNoise",
    "PrivUnit",
    "PrivateMechanism",
    "PrivateSums",
    "PrivateUploads",
    "UniformNoise",
    "UploadNoise",
    "author_of",
    "finite_norms",
    "is_known",
    "named",
    "option",
]


def author_of(kind: type[Mechanism]) -> str | None:
    """Who answers for mechanisms that are not veilmap's: a package, or else a module."""
    if kind in _OURS:
        return None
    return MECHANISMS.package_of(kind) or f"the module {kind.__module__}"


def is_known(kind: str) -> bool:
    """Whether mechanisms of a class of this name can be read back, with those of plug-ins."""
    return is_plain(kind) or any(kind == known.__name__ for known in MECHANISMS.values())


def named(name: str, options: Mapping[str, Any], *, called: Mapping[str, str] = {}) -> Mechanism:
    """The mechanism of that name; an option that it does not know is a mistake.

    ``called`` says how options are named where they come from, for the message.
    """
    if name not in MECHANISMS:
        raise ConfigurationError(f"no mechanism {name!r}; there are {', '.join(MECHANISMS)}")
    kind = MECHANISMS[name]
    unknown = sorted(options.keys() - {field.name for field in fields(kind)})
    if unknown:
        if {"epsilon", "delta"} & set(unknown) and not issubclass(kind, PrivateMechanism):
            reason = kind().guarantee
            assert isinstance(reason, NoGuarantee)  # as the others have an ε
            raise ConfigurationError(f"{kind.__name__} has no ε: {reason.reason}")
        wrong = ", ".join(called.get(option, option) for option in unknown)
        raise ConfigurationError(f"the mechanism {name} has no {wrong}")
    return kind(**options)
