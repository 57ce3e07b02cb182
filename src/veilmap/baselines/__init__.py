"""What people use today, and the best this model could do: yardsticks for a radio map.

Each has ``fit(data)``, which returns itself, ``predict(user_xyz, bs_xyz)`` in dB, and
``predict_links(data)``, which also knows which base station is which where several share a mast.
"""

from veilmap.baselines.base import Baseline
from veilmap.baselines.boosting import GradientBoosting
from veilmap.baselines.kriging import OrdinaryKriging, RegressionKriging
from veilmap.baselines.log_distance import LogDistance
from veilmap.baselines.neighbours import NearestNeighbours
from veilmap.baselines.true_map import TrueMap
from veilmap.model.evaluation import Predictor, mean_absolute_error

__all__ = [
    "Baseline",
    "GradientBoosting",
    "LogDistance",
    "NearestNeighbours",
    "OrdinaryKriging",
    "Predictor",
    "RegressionKriging",
    "TrueMap",
    "mean_absolute_error",
]
