"""What a map says about every place, as layers that other tools can show."""

from veilmap.layers.layer import Layer
from veilmap.layers.predictions import best_server, gain, los_probability, obstacle_heights
from veilmap.layers.uncertainty import bootstrap, deviation, link_coverage, resampled, spread

__all__ = [
    "Layer",
    "best_server",
    "bootstrap",
    "deviation",
    "gain",
    "link_coverage",
    "los_probability",
    "obstacle_heights",
    "resampled",
    "spread",
]
