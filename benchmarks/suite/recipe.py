"""What the server's schedules are worth: the default step against a plainer one.

The plainer step has one filter width and one sharpness throughout, and a gentler pull
towards open ground. Cities are ones that no default was chosen on.
"""

import numpy as np

from suite._figure import Figure
from veilmap.baselines import TrueMap, mean_absolute_error
from veilmap.federation import FlatPieces, Model, NoiseAwareStep, OpenGround, train
from veilmap.privacy.mechanisms import GeometryAligned, NoNoise
from veilmap.scenes.scene import Scene

_CITIES = 5
_PLAINER = NoiseAwareStep(
    start_sharpness=1.0,
    smoothing=2.0,
    last_smoothing=2.0,
    priors=(OpenGround(0.35), FlatPieces(0.4)),
)
_STEPS = {"plainer": _PLAINER, "default": NoiseAwareStep()}
_MECHANISMS = {"no noise": NoNoise(), "aligned 50": GeometryAligned(noise_budget=50)}


def measure(seed: int) -> list[Figure]:
    """Mean error above the true map of both steps, without and with noise."""
    excess: dict[tuple[str, str], list[float]] = {
        (step, mechanism): [] for step in _STEPS for mechanism in _MECHANISMS
    }
    for city in range(seed, seed + _CITIES):
        scene = Scene.synthetic(city)
        data = scene.measure(seed=2 * city)
        unseen = scene.measure(users=200, seed=2 * city + 1)
        floor = mean_absolute_error(TrueMap(scene).fit(data), unseen)
        for (step, mechanism), values in excess.items():
            run = train(
                data,
                scene.grid,
                mechanism=_MECHANISMS[mechanism],
                seed=city,
                model=Model(step=_STEPS[step]),
            )
            error = mean_absolute_error(run.radio_map, unseen)
            values.append(error - floor)
    return [
        Figure(f"above true heights, {mechanism}, {step} step", float(np.mean(values)), "dB")
        for (step, mechanism), values in excess.items()
    ]
