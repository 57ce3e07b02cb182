"""Coordinates of θ in which its parts hardly depend on each other."""

import numpy as np

AT_100_M = np.kron(np.eye(2), [[1.0, 0.0], [-2.0, 1.0]])
"""∂F/∂(gain at 100 m, slope) = A ∂F/∂(intercept, slope) for each of the two laws.

β = (gain at 100 m) − 2α: intercepts at 1 m are far from any data, and a change of slope
alone would move every gain.
"""
