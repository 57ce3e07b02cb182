"""Radio maps from measurements that never leave their owners."""

from typing import TYPE_CHECKING, Any

from veilmap import (
    accounting,
    attacks,
    baselines,
    buildings,
    comparing,
    exporting,
    federation,
    layers,
    mechanisms,
    models,
    theory,
)
from veilmap.antennas import Antennas
from veilmap.auditing import Audit, audit
from veilmap.buildings import Building
from veilmap.crowds import MeasurementFolder
from veilmap.errors import VeilmapError
from veilmap.federation import NoiseAwareStep, Participation, PlainDescent, Run, Transcript, train
from veilmap.geometry import Crossings, Grid, trace
from veilmap.gradients import LocalGradients, local_gradient_blocks, local_gradients
from veilmap.measurements import Measurements
from veilmap.mechanisms import AggregateGaussian, GeometryAligned, NoNoise, UniformNoise
from veilmap.radiomap import Propagation, RadioMap
from veilmap.scene import Scene
from veilmap.tiling import Tiling

if TYPE_CHECKING:
    from veilmap.regressor import RadioMapRegressor

__version__ = "0.6.0"

__all__ = [
    "AggregateGaussian",
    "Antennas",
    "Audit",
    "Building",
    "Crossings",
    "GeometryAligned",
    "Grid",
    "LocalGradients",
    "MeasurementFolder",
    "Measurements",
    "NoNoise",
    "NoiseAwareStep",
    "Participation",
    "PlainDescent",
    "Propagation",
    "RadioMap",
    "RadioMapRegressor",
    "Run",
    "Scene",
    "Tiling",
    "Transcript",
    "UniformNoise",
    "VeilmapError",
    "accounting",
    "attacks",
    "audit",
    "baselines",
    "buildings",
    "comparing",
    "exporting",
    "federation",
    "layers",
    "local_gradient_blocks",
    "local_gradients",
    "mechanisms",
    "models",
    "theory",
    "trace",
    "train",
]


def __getattr__(name: str) -> Any:
    """What needs scikit-learn is imported when it is asked for."""
    if name == "RadioMapRegressor":
        from veilmap.regressor import RadioMapRegressor

        return RadioMapRegressor
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
