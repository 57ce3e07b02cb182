"""The same clients and server on Flower: simulated in one command, or deployed on devices.

Flower carries messages, starts apps and authenticates nodes; nothing of that is written here.
It is an optional extra, and this package is the only place that imports it. Other people's
Flower apps can use the noise alone: `GeometryAlignedMod`, `UniformNoiseMod`; `RecordingMod`
records what they send, for `veilmap.audit_gradients`.
"""

import importlib
import os
from typing import TYPE_CHECKING, Any

from veilmap._util import extras

if TYPE_CHECKING:
    from veilmap.flower.mods import GeometryAlignedMod, NoiseMod, UniformNoiseMod
    from veilmap.flower.recording import RecordingMod
    from veilmap.flower.simulation import Simulation

__all__ = [
    "GeometryAlignedMod",
    "NoiseMod",
    "RecordingMod",
    "Simulation",
    "UniformNoiseMod",
    "require",
]
_HOMES = {"RecordingMod": "recording", "Simulation": "simulation"}


def require(*, simulation: bool = False) -> None:
    """Raise an error where Flower is missing, and switch off its telemetry where it is not."""
    os.environ.update(extras.WITHOUT_TELEMETRY)
    for module in ("flwr", "ray") if simulation else ("flwr",):
        extras.require(module, "the Flower engine", "flower")


def __getattr__(name: str) -> Any:
    """What imports Flower when it is used."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    require(simulation=name == "Simulation")
    return getattr(importlib.import_module(f"veilmap.flower.{_HOMES.get(name, 'mods')}"), name)
