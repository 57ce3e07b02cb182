"""A small network from position to target, by its equations, and users of it."""

import numpy as np

import veilmap as vm
from veilmap.model.gradient_models import FunctionModel

AREA = vm.Grid(25.0, (12, 12))  # 300 m


def scaled(records):
    return records.columns[:, :2] / 150 - 1


def predicted(parameters, records):
    hidden = np.tanh(scaled(records) @ parameters["w1"].T + parameters["b1"])
    return hidden @ parameters["w2"][0] + parameters["b2"][0]


def gradient(parameters, records):
    """Of the mean squared error."""
    z = scaled(records)
    hidden = np.tanh(z @ parameters["w1"].T + parameters["b1"])
    off = hidden @ parameters["w2"][0] + parameters["b2"][0] - records.target
    slope = 2 * off / len(records)
    delta = slope[:, None] * parameters["w2"][0] * (1 - hidden**2)
    return {
        "w1": delta.T @ z,
        "b1": delta.sum(0),
        "w2": slope[None] @ hidden,
        "b2": slope.sum()[None],
    }


def network(seed=0, width=12):
    rng = np.random.default_rng(seed)
    parameters = {
        "w1": rng.normal(size=(width, 2)),
        "b1": rng.normal(size=width),
        "w2": rng.normal(size=(1, width)) / np.sqrt(width),
        "b2": np.zeros(1),
    }
    return FunctionModel(parameters, gradient, ("w1", "b1"), scaled)


def users(count, records=1, seed=0, spread=0.0):
    """Users anywhere, with so many records within ``spread`` metres (deviation) of a place."""
    rng = np.random.default_rng(seed)
    made = {}
    for user in range(count):
        xy = rng.uniform(30, 270, 2) + spread * rng.normal(size=(records, 2))
        made[user] = vm.Records(np.clip(xy, 0, 300), rng.normal(0, 1, records))
    return made
