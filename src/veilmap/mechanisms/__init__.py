"""What a client does to its gradient before it leaves."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from veilmap.errors import VeilmapError
from veilmap.mechanisms.aggregate import AggregateGaussian
from veilmap.mechanisms.aligned import GeometryAligned
from veilmap.mechanisms.base import Answer, Contribution, Mechanism, Protected, UploadNoise
from veilmap.mechanisms.guarantees import Guarantee, NoGuarantee, PrivateSums
from veilmap.mechanisms.none import NoNoise
from veilmap.mechanisms.uniform import UniformNoise

MECHANISMS: dict[str, type[Mechanism]] = {
    "none": NoNoise,
    "uniform": UniformNoise,
    "aligned": GeometryAligned,
    "aggregate": AggregateGaussian,
}

__all__ = [
    "MECHANISMS",
    "AggregateGaussian",
    "Answer",
    "Contribution",
    "GeometryAligned",
    "Guarantee",
    "Mechanism",
    "NoGuarantee",
    "NoNoise",
    "PrivateSums",
    "Protected",
    "UniformNoise",
    "UploadNoise",
    "from_description",
]


def from_description(public: Mapping[str, Any]) -> Mechanism:
    """The mechanism whose name and parameters a transcript or a run's configuration holds."""
    kinds = {kind.__name__: kind for kind in MECHANISMS.values()}
    kind = kinds.get(public.get("type", ""))
    if kind is None:
        raise VeilmapError(f"no mechanism {public.get('type')!r}; there are {', '.join(kinds)}")
    names = {field.name for field in fields(kind)}
    return kind(**{name: value for name, value in public.items() if name in names})
