"""How good the learned map is on unseen users, beside the baselines."""

import numpy as np

from suite._figure import Figure
from veilmap.baselines import NearestNeighbours, OrdinaryKriging, TrueMap, mean_absolute_error
from veilmap.federation import train
from veilmap.scenes.scene import Scene

_SEEDS = 3


def measure(seed: int) -> list[Figure]:
    """Margins over the baselines for three cities, each the worst of the three."""
    errors = np.array([_errors(seed + number) for number in range(_SEEDS)])
    learned, neighbours, kriging, true = errors.T
    return [
        Figure("map below k-NN, worst", (neighbours - learned).min(), "dB", at_least=1),
        Figure("map below kriging, worst", (kriging - learned).min(), "dB", at_least=1),
        Figure("map above true heights, worst", (learned - true).max(), "dB", at_most=0.4),
        Figure("MAE of the learned map, mean", learned.mean(), "dB"),
        Figure("MAE of true heights on this grid, mean", true.mean(), "dB"),
        Figure("MAE of k nearest neighbours, mean", neighbours.mean(), "dB"),
        Figure("MAE of ordinary kriging, mean", kriging.mean(), "dB"),
    ]  # fmt: skip


def _errors(seed: int) -> list[float]:
    scene = Scene.synthetic(seed)
    data = scene.measure(seed=2 * seed)
    unseen = scene.measure(users=200, seed=2 * seed + 1)
    learned = train(data, scene.grid).radio_map
    fitted = [
        baseline.fit(data) for baseline in (NearestNeighbours(), OrdinaryKriging(), TrueMap(scene))
    ]
    return [mean_absolute_error(predictor, unseen) for predictor in (learned, *fitted)]
