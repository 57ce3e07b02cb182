"""How time and memory grow with the number of links."""

import resource
import sys
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from suite._figure import Figure, alternate, in_a_fresh_process
from veilmap.data.measurements import Measurements
from veilmap.geometry.grid import Grid
from veilmap.geometry.tracing import trace
from veilmap.model.gradients import local_gradient_blocks
from veilmap.model.radio_map import RadioMap

_LINKS_PER_USER = 200
_LINKS = (10_000, 100_000, 1_000_000)
_HEIGHT = 4.0  # the start of training: no link is blocked early, every walk is long

_PEAK = """
import sys
from suite import growth
growth.one_pass(int(sys.argv[1]), int(sys.argv[2]))
print(growth.peak_bytes())
"""


def measure(seed: int) -> list[Figure]:
    """Growth exponent of the pass over links × cells crossed, and memory per link."""
    radio_map = RadioMap(Grid(), np.full(10_000, _HEIGHT))
    crossed, seconds = [], []
    for links in _LINKS:
        data = random_links(links, seed)
        first = min(links, 20_000)
        sample = trace(radio_map.grid, data.user_xyz[:first], data.bs_xyz[:first])
        crossed.append(len(sample.cells) / first * links)
        (time,) = alternate(
            partial(sum_of_gradients, radio_map, data), repeats=max(1, 10**6 // links // 10)
        )
        seconds.append(time)
    exponent = np.polyfit(np.log(crossed), np.log(seconds), 1)[0]
    small, large = (_peak_of_pass(links, seed) for links in (_LINKS[1], _LINKS[2]))
    return [
        Figure("growth of the pass: exponent of time in cells crossed", exponent, at_most=1.1),
        Figure("time per cell crossed, 1e6 links", 1e9 * seconds[-1] / crossed[-1], "ns"),
        Figure("cells crossed per link", crossed[-1] / _LINKS[-1]),
        Figure("peak memory per link", (large - small) / (_LINKS[2] - _LINKS[1]), "bytes"),
        Figure("peak memory of the pass, 1e6 links", large / 1e6, "MB"),
    ]


def random_links(links: int, seed: int) -> Measurements:
    """Links between random ground points and random points 50 m up, with made-up gains."""
    rng = np.random.default_rng(seed)
    ends = rng.uniform(0, 300, (2, links, 3))
    ends[0, :, 2], ends[1, :, 2] = 1.5, 50.0
    user = np.arange(links) // _LINKS_PER_USER
    bs = np.arange(links) % _LINKS_PER_USER
    return Measurements(user, ends[0], ends[1], rng.normal(-85, 10, links), bs)


def sum_of_gradients(radio_map: RadioMap, data: Measurements) -> NDArray[np.float64]:
    """Σ J_i ∂F_i/∂h, a block of users at a time, as training sums it."""
    total = np.zeros(radio_map.grid.cells)
    for block in local_gradient_blocks(radio_map, data):
        total += block.counts @ block.height_gradient
    return total


def one_pass(links: int, seed: int) -> None:
    """One whole pass; run in a process of its own to see the memory it takes."""
    sum_of_gradients(RadioMap(Grid(), np.full(10_000, _HEIGHT)), random_links(links, seed))


def peak_bytes() -> int:
    """The most memory this process has held.

    Linux counts a process's peak anew when it starts a program; `getrusage` would show the
    parent's where that was larger.
    """
    status = Path("/proc/self/status")
    if status.exists():
        line = next(row for row in status.read_text().splitlines() if row.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _peak_of_pass(links: int, seed: int) -> int:
    return int(in_a_fresh_process(_PEAK, links, seed))
