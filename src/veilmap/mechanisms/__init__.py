"""What a client does to its gradient before it leaves."""

from veilmap.mechanisms.aligned import GeometryAligned
from veilmap.mechanisms.base import Mechanism, Protected
from veilmap.mechanisms.none import NoNoise
from veilmap.mechanisms.uniform import UniformNoise

MECHANISMS: dict[str, type[Mechanism]] = {
    "none": NoNoise,
    "uniform": UniformNoise,
    "aligned": GeometryAligned,
}

__all__ = ["MECHANISMS", "GeometryAligned", "Mechanism", "NoNoise", "Protected", "UniformNoise"]
