"""What a client does to its gradient before it leaves."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

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
)
from veilmap.privacy.mechanisms.private import PrivateMechanism
from veilmap.privacy.mechanisms.privunit import PrivUnit
from veilmap.privacy.mechanisms.upload import NoNoise, UniformNoise, UploadNoise

MECHANISMS: dict[str, type[Mechanism]] = {
    kind.name: kind
    for kind in (NoNoise, UniformNoise, GeometryAligned, PrivUnit, AggregateGaussian)
}

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
    "named",
]


def named(name: str, options: Mapping[str, Any], *, called: Mapping[str, str] = {}) -> Mechanism:
    """The mechanism of that name; an option that it does not know is a mistake.

    ``called`` says how options are named where they come from, for the message.
    """
    if name not in MECHANISMS:
        raise ConfigurationError(f"no mechanism {name!r}; there are {', '.join(MECHANISMS)}")
    kind = MECHANISMS[name]
    unknown = sorted(options.keys() - {field.name for field in fields(kind)})
    if unknown:
        if {"epsilon", "delta"} & set(unknown):
            reason = kind().guarantee
            assert isinstance(reason, NoGuarantee)  # else it would have an ε
            raise ConfigurationError(f"{kind.__name__} has no ε: {reason.reason}")
        wrong = ", ".join(called.get(option, option) for option in unknown)
        raise ConfigurationError(f"the mechanism {name} has no {wrong}")
    return kind(**options)
