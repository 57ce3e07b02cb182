"""For other people's Flower apps: noise for parameters that have positions."""

from veilmap.federation.flower import require

require()

from veilmap.federation.flower.mods import (  # noqa: E402
    GeometryAlignedMod,
    NoiseMod,
    UniformNoiseMod,
)

__all__ = ["GeometryAlignedMod", "NoiseMod", "UniformNoiseMod"]
