"""Radio maps from measurements that never leave their owners.

Public names are imported when they are first used, so that ``import veilmap`` is quick and has
no side effects.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from veilmap._util.version import __version__ as __version__
from veilmap.errors import VeilmapError

if TYPE_CHECKING:
    from veilmap import (
        attacks,
        baselines,
        compare,
        export,
        federation,
        flower,
        layers,
    )
    from veilmap.auditing.audit import Audit, audit
    from veilmap.auditing.gradients import GradientAudit, audit_gradients
    from veilmap.auditing.seen_gradients import Recorded, Sums, Uploads
    from veilmap.auditing.surveys import SurveyAudit
    from veilmap.auditing.walks import WalksAudit, audit_walks, reidentify
    from veilmap.compare.regressor import RadioMapRegressor
    from veilmap.data.antennas import Antennas
    from veilmap.data.folders import MeasurementFolder
    from veilmap.data.measurements import Measurements
    from veilmap.federation import (
        InProcess,
        Model,
        NoiseAwareStep,
        Participation,
        PlainDescent,
        Recording,
        Run,
        Transcript,
        selection,
        train,
    )
    from veilmap.geometry.grid import Grid
    from veilmap.geometry.tiling import Tiling
    from veilmap.geometry.tracing import Crossings, trace
    from veilmap.model import gradient_models
    from veilmap.model.gradient_models import Records
    from veilmap.model.gradients import LocalGradients, local_gradient_blocks, local_gradients
    from veilmap.model.propagation import Propagation
    from veilmap.model.radio_map import RadioMap
    from veilmap.paper import theory
    from veilmap.privacy import accounting, batches, mechanisms
    from veilmap.privacy.mechanisms import (
        AggregateGaussian,
        GeometryAligned,
        NoNoise,
        PrivUnit,
        UniformNoise,
    )
    from veilmap.scenes import buildings
    from veilmap.scenes.buildings import Building
    from veilmap.scenes.scene import Scene
    from veilmap.surveys.design import Station, Survey
    from veilmap.surveys.planning import Expectation, expected
    from veilmap.surveys.surroundings import Surroundings
    from veilmap.surveys.surveying import SurveyResult, survey


_MODULES = {
    "accounting": "veilmap.privacy.accounting",
    "attacks": "veilmap.attacks",
    "baselines": "veilmap.baselines",
    "batches": "veilmap.privacy.batches",
    "buildings": "veilmap.scenes.buildings",
    "compare": "veilmap.compare",
    "export": "veilmap.export",
    "federation": "veilmap.federation",
    "flower": "veilmap.flower",
    "gradient_models": "veilmap.model.gradient_models",
    "layers": "veilmap.layers",
    "mechanisms": "veilmap.privacy.mechanisms",
    "selection": "veilmap.federation.selection",
    "theory": "veilmap.paper.theory",
}
_CONTENTS = {
    "veilmap.auditing.audit": ["Audit", "audit"],
    "veilmap.auditing.gradients": ["GradientAudit", "audit_gradients"],
    "veilmap.auditing.seen_gradients": ["Recorded", "Sums", "Uploads"],
    "veilmap.auditing.surveys": ["SurveyAudit"],
    "veilmap.auditing.walks": ["WalksAudit", "audit_walks", "reidentify"],
    "veilmap.compare.regressor": ["RadioMapRegressor"],
    "veilmap.data.antennas": ["Antennas"],
    "veilmap.data.folders": ["MeasurementFolder"],
    "veilmap.data.measurements": ["Measurements"],
    "veilmap.federation": [
        "InProcess", "Model", "NoiseAwareStep", "Participation", "PlainDescent", "Recording", "Run",
        "Transcript", "train",
    ],
    "veilmap.geometry.grid": ["Grid"],
    "veilmap.geometry.tiling": ["Tiling"],
    "veilmap.geometry.tracing": ["Crossings", "trace"],
    "veilmap.model.gradient_models": ["Records"],
    "veilmap.model.gradients": ["LocalGradients", "local_gradient_blocks", "local_gradients"],
    "veilmap.model.propagation": ["Propagation"],
    "veilmap.model.radio_map": ["RadioMap"],
    "veilmap.privacy.mechanisms": [
        "AggregateGaussian", "GeometryAligned", "NoNoise", "PrivUnit", "UniformNoise",
    ],
    "veilmap.scenes.buildings": ["Building"],
    "veilmap.scenes.scene": ["Scene"],
    "veilmap.surveys.design": ["Station", "Survey"],
    "veilmap.surveys.planning": ["Expectation", "expected"],
    "veilmap.surveys.surroundings": ["Surroundings"],
    "veilmap.surveys.surveying": ["SurveyResult", "survey"],
}  # fmt: skip
_HOMES = {name: module for module, names in _CONTENTS.items() for name in names}

__all__ = ["VeilmapError", *_MODULES, *_HOMES]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        found = import_module(_MODULES[name])
    elif name in _HOMES:
        found = getattr(import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
