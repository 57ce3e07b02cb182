"""Random grids, links, maps and measurements for property tests."""

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

import veilmap as vm
from veilmap.model.offsets import Offsets
from veilmap.model.propagation import Law


@st.composite
def grids(draw):
    return vm.Grid(
        cell_size=draw(st.sampled_from([0.5, 1.0, 3.0, 7.3])),
        shape=(draw(st.integers(1, 9)), draw(st.integers(1, 9))),
        origin=(draw(st.sampled_from([0.0, -4.7, 100.0])), draw(st.sampled_from([0.0, 12.25]))),
    )


@st.composite
def points(draw, grid):
    """Anywhere on or near the grid; often exactly on its lines and corners."""
    west, east, south, north = grid.extent
    if draw(st.booleans()):
        x = grid.origin[0] + grid.cell_size * draw(st.integers(-1, grid.shape[1] + 1))
    else:
        x = draw(st.floats(west - grid.cell_size, east + grid.cell_size))
    if draw(st.booleans()):
        y = grid.origin[1] + grid.cell_size * draw(st.integers(-1, grid.shape[0] + 1))
    else:
        y = draw(st.floats(south - grid.cell_size, north + grid.cell_size))
    return np.array([x, y, draw(st.floats(0, 60))])


@st.composite
def grids_and_links(draw):
    grid = draw(grids())
    return grid, draw(points(grid)), draw(points(grid))


@st.composite
def maps_and_data(draw):
    """A random map and the measurements of a few users with any number of links."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    grid = vm.Grid(draw(st.sampled_from([1.0, 3.0])), (draw(st.integers(2, 7)), 6), (-2.0, 5.0))
    heights = rng.uniform(-8, draw(st.sampled_from([2.0, 10.0, 40.0])), grid.shape)
    theta = vm.Propagation(*rng.uniform([-40, -30, -50, -40], [-25, -15, -35, -25]))
    radio_map = vm.RadioMap(grid, heights, theta, draw(st.sampled_from([0.3, 1.0, 2.0])))
    counts = rng.integers(1, 5, draw(st.integers(1, 4)))
    user = rng.permutation(np.repeat(np.arange(len(counts)) * 3 + 1, counts))
    west, east, south, north = grid.extent
    low, high = [west - 2, south - 2, 0.0], [east + 2, north + 2, 30.0]
    user_xyz, bs_xyz = rng.uniform(low, high, (2, len(user), 3))
    gain = rng.normal(-80, 10, len(user))
    return radio_map, vm.Measurements(user, user_xyz, bs_xyz, gain)


@st.composite
def rich_maps_and_data(draw):
    """A random map with up to four laws and offsets, and measurements of a few users."""
    plain, data = draw(maps_and_data())
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    powers = draw(st.sampled_from([(), (0.03,), (0.5, 0.1), (0.3, 0.1, 0.02)]))
    between = tuple(Law(*rng.uniform([-50, -40], [-30, -20]), power) for power in powers)
    data = replace(
        data,
        bs=rng.choice(["a", "b", "c"], len(data)),
        device=rng.integers(0, 2, len(data)),
    )
    known = [
        Offsets(),
        Offsets(("b", "a"), (), (3.0, -5.0)),
        Offsets(("c", "zz"), (1, 0), (2.0, 9.0, -1.0, 4.0)),
    ]
    offsets = draw(st.sampled_from(known))
    theta = replace(plain.propagation, between=between)
    return vm.RadioMap(plain.grid, plain.heights, theta, plain.sharpness, offsets), data
