"""Radio maps from measurements that never leave their owners."""

from veilmap import (
    accounting,
    attacks,
    baselines,
    buildings,
    exporting,
    federation,
    layers,
    mechanisms,
    theory,
)
from veilmap.auditing import Audit, audit
from veilmap.buildings import Building
from veilmap.errors import VeilmapError
from veilmap.federation import NoiseAwareStep, Participation, PlainDescent, Run, Transcript, train
from veilmap.geometry import Crossings, Grid, trace
from veilmap.measurements import Measurements
from veilmap.mechanisms import AggregateGaussian, GeometryAligned, NoNoise, UniformNoise
from veilmap.radiomap import (
    LocalGradients,
    Propagation,
    RadioMap,
    local_gradient_blocks,
    local_gradients,
)
from veilmap.scene import Scene

__version__ = "0.5.0"

__all__ = [
    "AggregateGaussian",
    "Audit",
    "Building",
    "Crossings",
    "GeometryAligned",
    "Grid",
    "LocalGradients",
    "Measurements",
    "NoNoise",
    "NoiseAwareStep",
    "Participation",
    "PlainDescent",
    "Propagation",
    "RadioMap",
    "Run",
    "Scene",
    "Transcript",
    "UniformNoise",
    "VeilmapError",
    "accounting",
    "attacks",
    "audit",
    "baselines",
    "buildings",
    "exporting",
    "federation",
    "layers",
    "local_gradient_blocks",
    "local_gradients",
    "mechanisms",
    "theory",
    "trace",
    "train",
]
