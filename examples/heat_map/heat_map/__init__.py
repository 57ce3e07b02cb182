"""Where do people walk? A heat map from phones that keep their walks."""

import numpy as np

import veilmap as vm

GRID = vm.Grid(cell_size=10.0, shape=(30, 30))
"""300 m × 300 m in 10 m cells: the heat map has a number for each."""


def home(node):
    """Where node ``node`` lives: the place to hide."""
    return tuple(np.random.default_rng(node).uniform(20, 280, 2))


def walks(node, points=400):
    """Places node ``node`` has been to, (points, 2), most of them near its home."""
    rng = np.random.default_rng([node, 1])
    places = np.array(home(node)) + rng.normal(scale=25.0, size=(points, 2))
    return np.clip(places, 0.0, 299.9)


def visits(node):
    """Share of the node's time in each cell, (rows, columns)."""
    counts = np.bincount(GRID.cell_of(walks(node)), minlength=GRID.cells)
    return (counts / counts.sum()).reshape(GRID.shape)
