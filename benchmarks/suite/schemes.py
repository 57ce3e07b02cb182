"""The paper's three schemes on five cities: map error, centroid attacker, cost in time."""

import time
from dataclasses import dataclass

import numpy as np

from suite._figure import Figure
from veilmap.attacks import WeightedCentroid
from veilmap.baselines import TrueMap, mean_absolute_error
from veilmap.data.measurements import Measurements
from veilmap.federation import Recording, train
from veilmap.privacy.mechanisms import GeometryAligned, Mechanism, NoNoise, UniformNoise
from veilmap.scenes.scene import Scene

_CITIES = 5
_ROUNDS = 200
_SEEN = (0, 49, 99, 149, 199)  # rounds in which the attacker looks

_SCHEMES: dict[str, Mechanism] = {
    "none": NoNoise(),
    "uniform 10": UniformNoise(noise_budget=10),
    "uniform 50": UniformNoise(noise_budget=50),
    "aligned 10": GeometryAligned(noise_budget=10),
    "aligned 50": GeometryAligned(noise_budget=50),
}


@dataclass(frozen=True)
class _Outcome:
    """One run: the map's MAE (dB), the attacker's RMSE (m), seconds."""

    mae: float
    attacker: float
    seconds: float


def measure(seed: int) -> list[Figure]:
    """Means over five cities, and the differences that matter."""
    true: list[float] = []
    outcomes: dict[str, list[_Outcome]] = {name: [] for name in _SCHEMES}
    for city in range(seed, seed + _CITIES):
        scene = Scene.synthetic(city)
        data = scene.measure(seed=2 * city)
        unseen = scene.measure(users=200, seed=2 * city + 1)
        true.append(mean_absolute_error(TrueMap(scene).fit(data), unseen))
        for name, mechanism in _SCHEMES.items():
            outcomes[name].append(_outcome(scene, data, unseen, mechanism, city))
    mae, attacker, seconds = (
        {name: float(np.mean([getattr(o, key) for o in runs])) for name, runs in outcomes.items()}
        for key in ("mae", "attacker", "seconds")
    )
    floor = float(np.mean(true))
    return [
        Figure("MAE, no noise above true heights", mae["none"] - floor, "dB", at_most=0.3),
        Figure("MAE, aligned 50 above none", mae["aligned 50"] - mae["none"], "dB", at_most=0.44),
        *(
            Figure(
                f"MAE, aligned {budget} above uniform {budget}",
                mae[f"aligned {budget}"] - mae[f"uniform {budget}"],
                "dB",
                at_most=0.2,
            )
            for budget in (10, 50)
        ),
        Figure("centroid attacker, aligned 50", attacker["aligned 50"], "m", at_least=180),
        Figure("time, aligned 50 / none", seconds["aligned 50"] / seconds["none"], "×", at_most=4),
        Figure("MAE, true heights", floor, "dB"),
        *(Figure(f"MAE, {name}", value, "dB") for name, value in mae.items()),
        *(Figure(f"centroid attacker, {name}", value, "m") for name, value in attacker.items()),
        *(Figure(f"{_ROUNDS} rounds, {name}", value, "s") for name, value in seconds.items()),
    ]


def _outcome(
    scene: Scene, data: Measurements, unseen: Measurements, mechanism: Mechanism, seed: int
) -> _Outcome:
    positions = dict(zip(data.users.tolist(), data.mean_positions(), strict=True))
    started = time.perf_counter()
    run = train(
        data,
        scene.grid,
        mechanism=mechanism,
        rounds=_ROUNDS,
        seed=seed,
        recording=Recording(keep_uploads=_SEEN),
    )
    seconds = time.perf_counter() - started
    errors = WeightedCentroid(power=2).locate(run.transcript).errors(positions)
    attacker = np.sqrt(np.mean(np.concatenate([errors[number] for number in _SEEN]) ** 2))
    return _Outcome(mean_absolute_error(run.radio_map, unseen), float(attacker), seconds)
