"""What people use today, and the best this model could do: yardsticks for a radio map.

Each is an `Estimator` in scikit-learn's style: ``fit(data)`` returns itself, ``get_params`` and
``clone`` work, ``predict(user_xyz, bs_xyz)`` is in dB, and ``predict_links(data)`` also tells base
stations apart where several share a mast.
"""

from veilmap.baselines.base import Estimator
from veilmap.baselines.boosting import GradientBoosting
from veilmap.baselines.interpolation import NearestNeighbours, OrdinaryKriging, RegressionKriging
from veilmap.baselines.laws import LogDistance, TrueMap
from veilmap.model.evaluation import Predictor, mean_absolute_error

__all__ = [
    "Estimator",
    "GradientBoosting",
    "LogDistance",
    "NearestNeighbours",
    "OrdinaryKriging",
    "Predictor",
    "RegressionKriging",
    "TrueMap",
    "mean_absolute_error",
]
