"""Radio maps from measurements that never leave their owners."""

from veilmap import baselines
from veilmap.central import CentralRun, train_centrally
from veilmap.errors import VeilmapError
from veilmap.geometry import Crossings, Grid, trace
from veilmap.measurements import Measurements
from veilmap.radiomap import (
    LocalGradients,
    Propagation,
    RadioMap,
    local_gradient_blocks,
    local_gradients,
)
from veilmap.scene import Building, Scene
from veilmap.server import NoiseAwareStep

__version__ = "0.1.0"

__all__ = [
    "Building",
    "CentralRun",
    "Crossings",
    "Grid",
    "LocalGradients",
    "Measurements",
    "NoiseAwareStep",
    "Propagation",
    "RadioMap",
    "Scene",
    "VeilmapError",
    "baselines",
    "local_gradient_blocks",
    "local_gradients",
    "trace",
    "train_centrally",
]
