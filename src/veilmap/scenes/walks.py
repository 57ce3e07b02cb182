"""People who move through a scene: home, work, and the way between them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from veilmap._util.arrays import Floats, Ints
from veilmap.errors import ConfigurationError

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from veilmap.scenes.scene import Scene

# Shares of a user's links: most people are at home or at work most of the time.
HOME, WORK = 0.4, 0.25
_LONGEST_STOP = 0.1  # of each place on the way: fewer links than at work, however few places
FEWEST_LINKS = 3  # per place on average: then every place on the way has one

# Half of the eight neighbours of a cell, as (rows, columns); edges go both ways.
_NEIGHBOURS = ((0, 1), (1, 0), (1, 1), (1, -1))


@dataclass(frozen=True)
class Streets:
    """Where one can walk: one outdoor point in each cell, and how points are joined.

    Neighbouring points are joined where no building stands between them.
    """

    points: Floats  # (V, 3), all within reach of each other
    lengths: "csr_array"  # (V, V), in metres

    @classmethod
    def of(cls, scene: "Scene", rng: np.random.Generator, altitude: float) -> "Streets":
        """The largest connected part of a scene's open ground; points are random in their cells."""
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import connected_components

        grid = scene.grid
        # Off the centres: no attack may profit from comparing cells of the same grid.
        xy = grid.centres + grid.cell_size * rng.uniform(-0.5, 0.5, (grid.cells, 2))
        points = np.column_stack([xy, np.full(grid.cells, altitude)])
        first, second = _neighbours(grid.shape)
        outdoors = ~scene._indoors(points)
        both = outdoors[first] & outdoors[second]
        first, second = first[both], second[both]
        clear = scene.line_of_sight(points[first], points[second])
        first, second = first[clear], second[clear]
        apart = np.linalg.norm(points[first] - points[second], axis=1)
        graph = csr_array((apart, (first, second)), shape=(grid.cells, grid.cells))
        part = connected_components(graph, directed=False)[1]
        joined = np.flatnonzero(part == np.bincount(part[outdoors]).argmax())
        if len(joined) < 2:
            raise ConfigurationError("there is no open ground to walk on; lower the density")
        return cls(points[joined], graph[joined][:, joined])

    def way(self, start: int, end: int) -> Floats:
        """The shortest way between two of the points, (·, 3)."""
        from scipy.sparse.csgraph import dijkstra

        before = dijkstra(self.lengths, directed=False, indices=end, return_predecessors=True)[1]
        way = [start]
        while way[-1] != end:
            way.append(int(before[way[-1]]))
        return self.points[way]


def routes(scene: "Scene", users: int, altitude: float, rng: np.random.Generator) -> list[Floats]:
    """For each user the corners of the way from home to work, (·, 3)."""
    streets = Streets.of(scene, rng, altitude)
    ends = [rng.choice(len(streets.points), 2, replace=False) for _ in range(users)]
    return [streets.way(int(home), int(work)) for home, work in ends]


def stops(route: Floats, places: int, rng: np.random.Generator) -> Floats:
    """Home, work, and random points on the way between them, (places, 3)."""
    steps = np.linalg.norm(np.diff(route, axis=0), axis=1)
    walked = np.concatenate([[0.0], np.cumsum(steps)])
    chosen = np.sort(rng.uniform(0, walked[-1], places - 2))
    between = np.column_stack([np.interp(chosen, walked, axis) for axis in route.T])
    return np.vstack([route[[0, -1]], between])


def links_at(places: int, links: int) -> Ints:
    """How many of a user's ``links`` are measured at home, at work and at each other place."""
    elsewhere = max(places - 2, 1)
    share = min((1 - HOME - WORK) / elsewhere, _LONGEST_STOP)
    shares = np.array([HOME, WORK, *[share] * (places - 2)])
    ends = np.round(links * np.cumsum(shares) / shares.sum())
    return np.diff(ends, prepend=0).astype(np.int64)


def _neighbours(shape: tuple[int, int]) -> tuple[Ints, Ints]:
    """Pairs of neighbouring cells, each once."""
    number = np.arange(shape[0] * shape[1]).reshape(shape)
    pairs = []
    for rows, columns in _NEIGHBOURS:
        here = number[: shape[0] - rows, max(-columns, 0) : shape[1] - max(columns, 0)]
        there = number[rows:, max(columns, 0) : shape[1] - max(-columns, 0)]
        pairs.append((here.ravel(), there.ravel()))
    first, second = (np.concatenate(ends) for ends in zip(*pairs, strict=True))
    return first, second
