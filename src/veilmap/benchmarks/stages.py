"""Every stage on the way of the data: its time, a named alternative's, and how it grows.

Alternatives get the same input in the same run. They are what one would write without our
kernels, or a limit: a part of the work that no such stage can do without.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from veilmap import _threads
from veilmap.accounting import calibrated
from veilmap.attacks import MatchedFilter, WeightedCentroid
from veilmap.attacks.candidates import Candidates
from veilmap.baselines import NearestNeighbours
from veilmap.benchmarks._figure import alternate
from veilmap.benchmarks._stage import Stage, growth_exponent
from veilmap.benchmarks.growth import random_links, sum_of_gradients
from veilmap.federation import NoiseAwareStep, train
from veilmap.federation.client import Clients
from veilmap.federation.messages import Broadcast, Update
from veilmap.federation.server import RoundSum
from veilmap.federation.transcript import SeenRound, Transcript
from veilmap.geometry import Crossings, Grid, offsets_of, trace
from veilmap.gradients import LocalGradients, local_gradients
from veilmap.measurements import Measurements
from veilmap.mechanisms import AggregateGaussian, GeometryAligned, NoNoise, UniformNoise
from veilmap.mechanisms.aligned import unit_free
from veilmap.mechanisms.base import LEAST_NORM, UploadNoise, norms_of
from veilmap.mechanisms.fitting import fitted
from veilmap.mechanisms.lattice import DiscreteGaussian, discrete_gaussian
from veilmap.mechanisms.sums import RunningSum
from veilmap.noise import Draw, draw
from veilmap.radiomap import RadioMap, log_distance
from veilmap.scene import Scene
from veilmap.tiling import Tiles

_BUDGET = 50.0
_GROUND = 300.0  # side of the city, in metres
_ROUNDS = 200  # of a whole training
_TRAINED = 60  # before the stages are measured: neither a flat map nor a finished one

# Turns of each measurement fill about this many seconds, so that all stages take 90 at most.
_SECONDS = 1.0
_LEAST_TURNS, _MOST_TURNS = 2, 25

_LINKS = (2_000, 8_000, 32_000, 128_000)
_USERS = (100, 400, 1600)  # with a row each; fewer would fit the processor's caches
_CROWDS = (64, 256, 1024)  # with links each
_SIDES = (50, 100, 200, 400)  # of maps, in cells
_PLACES = (16, 32, 64)  # along a side of the grid of places

# Of the slowest alternatives only every tenth part is run.
_SHARE = 10

Work = Callable[[], object]


@dataclass(frozen=True)
class Setting:
    """The paper's setting, in the middle of a training.

    Attributes
    ----------
    data, unseen : Measurements
    radio_map : RadioMap
        What was broadcast.
    gradients : (N, M) float
        The users' own, clipped.
    transcript : Transcript
        One round of a server that sees uploads with geometry-aligned noise.
    """

    data: Measurements
    unseen: Measurements
    radio_map: RadioMap
    gradients: NDArray[np.float64]
    transcript: Transcript

    @classmethod
    def synthetic(cls, seed: int, users: int = 100, links: int = 200) -> "Setting":
        """A city, and a training that was stopped."""
        scene = Scene.synthetic(seed)
        data = scene.measure(users, links, seed=2 * seed)
        unseen = scene.measure(users, links, seed=2 * seed + 1)
        run = train(
            data, scene.grid, mechanism=GeometryAligned(noise_budget=_BUDGET), rounds=_TRAINED,
            seed=seed, keep_uploads={_TRAINED - 1},
        )  # fmt: skip
        radio_map = run.transcript.rounds[_TRAINED - 1].broadcast.radio_map
        rows = clipped(local_gradients(radio_map, data).heights)
        return cls(data, unseen, radio_map, rows, run.transcript)

    @property
    def grid(self) -> Grid:
        """Of the map."""
        return self.radio_map.grid

    @property
    def places(self) -> NDArray[np.float64]:
        """Of the users, (N, 2)."""
        return self.data.mean_positions()

    @property
    def seen(self) -> SeenRound:
        """The one round."""
        return self.transcript.uploads(_TRAINED - 1)


@dataclass(frozen=True)
class Case:
    """How one stage is measured.

    Attributes
    ----------
    name, against, grows_with : str
        As in `Stage`.
    ours, other : callables
        The stage and its alternative on the paper's setting.
    sizes : tuple of int
    at : callable
        The stage on so many links, users, cells or places, ready to be timed.
    share : int
        The alternative does one part in so many of the work, and its time counts as often.
    """

    name: str
    ours: Work
    against: str
    other: Work
    grows_with: str
    sizes: tuple[int, ...]
    at: Callable[[int], Work]
    share: int = 1

    def measured(self) -> Stage:
        """The row of the table."""
        own, other = _medians(self.ours, self.other)
        exponent = growth_exponent(self.sizes, _medians(*map(self.at, self.sizes)))
        ratio = self.share * other / own
        return Stage(self.name, self.grows_with, 1e3 * own, self.against, ratio, exponent)


def measure(seed: int) -> list[Stage]:
    """All stages on the paper's setting: 100 users × 200 links, 100 × 100 cells."""
    setting = Setting.synthetic(seed)
    return [stage(setting).measured() for stage in STAGES]


def _medians(*calls: Work) -> list[float]:
    """Median seconds of each call, in as many turns as there is time for."""
    for call in calls:
        call()  # compiles, and pays for memory once
    started = time.perf_counter()
    for call in calls:
        call()
    turn = 2 * (time.perf_counter() - started)
    repeats = min(_MOST_TURNS, max(_LEAST_TURNS, int(_SECONDS / turn)))
    return alternate(*calls, repeats=repeats, burst=1)


def _cut_into(cells: int) -> Grid:
    """The ground of synthetic cities in so many cells."""
    side = round(cells**0.5)
    return Grid(_GROUND / side, (side, side))


# ---- Tracing


def _tracing(setting: Setting) -> Case:
    def at(links: int) -> Work:
        ends = random_links(links, 0)
        return partial(trace, setting.grid, ends.user_xyz, ends.bs_xyz)

    ends = setting.grid, setting.data.user_xyz, setting.data.bs_xyz
    return Case(
        "tracing links", partial(trace, *ends),
        "NumPy sorting all crossings", partial(sorted_crossings, *ends),
        "links", _LINKS, at,
    )  # fmt: skip


def sorted_crossings(
    grid: Grid, user_xyz: NDArray[np.float64], bs_xyz: NDArray[np.float64]
) -> Crossings:
    """The same as `trace` for links whose ends are on the grid and not on its lines.

    All crossings with grid lines are listed, and sorted link by link in one call.
    """
    upward = (user_xyz[:, 2] <= bs_xyz[:, 2])[:, None]
    low, high = np.where(upward, user_xyz, bs_xyz), np.where(upward, bs_xyz, user_xyz)
    x, y = ((low[:, :2] - grid.origin) / grid.cell_size).T.copy()
    step_x, step_y = ((high - low)[:, :2] / grid.cell_size).T.copy()
    links = np.arange(len(low))
    keys = np.concatenate([links, links + 1, _cuts(x, step_x), _cuts(y, step_y)])
    keys.sort()
    chord = np.diff(keys)
    inside = np.flatnonzero(chord > 1e-10)  # not where one link ends and the next begins
    chord = chord[inside]
    middle = keys[inside] + 0.5 * chord
    own = middle.astype(np.int64)
    along = middle - own
    column = (x[own] + along * step_x[own]).astype(np.int64)
    row = (y[own] + along * step_y[own]).astype(np.int64)
    length, rise = np.hypot(step_x, step_y) * grid.cell_size, high[:, 2] - low[:, 2]
    return Crossings(
        offsets_of(np.bincount(own, minlength=len(low))), row * grid.shape[1] + column,
        chord * length[own], low[:, 2][own] + along * rise[own],
    )  # fmt: skip


def _cuts(start: NDArray[np.float64], step: NDArray[np.float64]) -> NDArray[np.float64]:
    """Number of the link + t of every crossing with lines across one axis."""
    ends = np.sort(np.column_stack([start, start + step]), axis=1)
    first = np.ceil(ends[:, 0]).astype(np.int64)
    counts = np.ceil(ends[:, 1]).astype(np.int64) - first
    own = np.repeat(np.arange(len(start)), counts)
    line = first[own] + np.arange(len(own)) - offsets_of(counts)[own]
    return own + (line - start[own]) / step[own]


# ---- Loss and gradients


def _gradients(setting: Setting) -> Case:
    def at(links: int) -> Work:
        return partial(local_gradients, setting.radio_map, random_links(links, 0))

    links = setting.data.links
    crossings = trace(setting.grid, links.user_xyz, links.bs_xyz)
    return Case(
        "loss and gradients", partial(local_gradients, setting.radio_map, setting.data),
        "NumPy, cells traced before",
        partial(traced_gradients, setting.radio_map, setting.data, crossings),
        "links", _LINKS, at,
    )  # fmt: skip


def traced_gradients(
    radio_map: RadioMap, data: Measurements, crossings: Crossings
) -> LocalGradients:
    """The same as `local_gradients`, whole arrays at a time, with the cells already known."""
    links, cells, k = data.links, radio_map.grid.cells, radio_map.sharpness
    e = np.exp(k * (radio_map.heights.ravel()[crossings.cells] - crossings.heights))
    s = np.exp(-np.add.reduceat(np.log1p(e), crossings.offsets[:-1]))
    log_d = log_distance(links.user_xyz, links.bs_xyz)
    theta = radio_map.propagation.as_array()
    clear, blocked = theta[0] + theta[1] * log_d, theta[2] + theta[3] * log_d
    residual = links.gain_db - (blocked + (clear - blocked) * s)
    user = np.repeat(np.arange(links.users), links.counts)
    slope = -2 * residual / links.counts[user]  # ∂F_i/∂γ
    walked = np.diff(crossings.offsets)
    entries = np.repeat(-slope * (clear - blocked) * s * k, walked) * (e / (1 + e))
    places = np.repeat(user * cells, walked) + crossings.cells
    by_heights = np.zeros((links.users, cells))
    by_heights.ravel()[:] = np.bincount(places, entries, by_heights.size)
    shares = slope * np.array([s, s * log_d, 1 - s, (1 - s) * log_d])
    by_theta = np.add.reduceat(shares, links.offsets[:-1], axis=1).T
    loss = np.add.reduceat(residual**2, links.offsets[:-1]) / links.counts
    return LocalGradients(loss, by_heights, by_theta, links.counts)


# ---- Allocation of noise


def _allocation(setting: Setting) -> Case:
    mechanism = GeometryAligned(noise_budget=_BUDGET)

    def at(cells: int) -> Work:
        grid = _cut_into(cells)
        rows = local_gradients(RadioMap(grid, np.full(cells, 4.0)), setting.data).heights
        return partial(mechanism.variances, clipped(rows), grid, setting.places)

    rows, some = setting.gradients, slice(None, None, _SHARE)
    return Case(
        "allocating aligned noise",
        partial(mechanism.variances, rows, setting.grid, setting.places),
        "SciPy's BFGS, exact slopes",
        partial(bfgs_variances, mechanism, rows[some], setting.grid, setting.places[some]),
        "cells", tuple(side**2 for side in _SIDES[:3]), at, _SHARE,
    )  # fmt: skip


def bfgs_variances(
    mechanism: GeometryAligned,
    gradients: NDArray[np.float64],
    grid: Grid,
    user_xy: NDArray[np.float64],
) -> NDArray[np.float64]:
    """The same as `variances`, user by user, with SciPy looking for the best plane."""
    x, y, places = unit_free(grid, user_xy)
    centres = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
    kappa = mechanism.variance_weight(grid.cells)
    budget = mechanism.noise_budget
    result = np.empty_like(gradients)
    for row, place, own in zip(gradients, places, result, strict=True):
        energy = max(row @ row, (LEAST_NORM * mechanism.clip) ** 2)
        unit = (1 + budget) * energy / grid.cells  # the mean energy after noise
        own[:] = unit * _best_noise(row**2 / unit, centres, place, kappa, budget)
    return result


def _best_noise(
    q: NDArray[np.float64],
    centres: NDArray[np.float64],
    place: NDArray[np.float64],
    kappa: float,
    budget: float,
) -> NDArray[np.float64]:
    """σ² = max(0, a·c + b − q) that maximises |e|² − κ mean z² (docs/allocation.md)."""
    from scipy.optimize import minimize

    spent, counts = len(q) * budget / (1 + budget), np.arange(1, len(q) + 1)

    def noise(v: NDArray[np.float64]) -> NDArray[np.float64]:
        above = centres @ (v / kappa) - q
        b = np.min((spent - np.cumsum(-np.sort(-above))) / counts)
        return np.maximum(0, above + b)

    def climbed(v: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        z = q + noise(v)
        e = z @ centres / len(q) - place
        return float(v @ v + kappa * (z @ z) / len(q) - 2 * v @ e), 2 * (v - e)

    return noise(minimize(climbed, -place, jac=True, method="BFGS").x)


# ---- Noise


def _uniform(setting: Setting) -> Case:
    return _noise("uniform noise", UniformNoise(noise_budget=_BUDGET), setting)


def _aligned(setting: Setting) -> Case:
    return _noise("aligned noise, allocated", GeometryAligned(noise_budget=_BUDGET), setting)


def _noise(name: str, mechanism: UploadNoise, setting: Setting) -> Case:
    def at(users: int) -> Work:
        rows = np.resize(setting.gradients, (users, setting.grid.cells))
        places = np.resize(setting.places, (users, 2))
        return partial(mechanism.protect, rows, setting.grid, places, _draws(users))

    users = len(setting.gradients)
    return Case(
        name, at(users), "NumPy's standard_normal alone",
        partial(normals, np.empty_like(setting.gradients), _generators(users)),
        "users", _USERS, at,
    )  # fmt: skip


def _lattice(setting: Setting) -> Case:
    users, cells = setting.gradients.shape
    promised = fitted(calibrated(AggregateGaussian(), _ROUNDS), users)
    # Its table is made once a training, and is not timed.
    sampler = discrete_gaussian(promised.share_deviation(cells, 4, users))

    def at(users: int) -> Work:
        return partial(whole_noise, sampler, np.zeros((users, cells), np.int64), _draws(users))

    return Case(
        "discrete Gaussian noise", at(users), "NumPy's normals, rounded",
        partial(
            rounded_noise, sampler.deviation, np.zeros((users, cells), np.int64),
            _generators(users),
        ),
        "users", _USERS, at,
    )  # fmt: skip


def whole_noise(sampler: DiscreteGaussian, rows: NDArray[np.int64], draws: list[Draw]) -> None:
    """Add every user's share of noise, as `AggregateGaussian` does."""

    def part(start: int, stop: int) -> None:
        for i in range(start, stop):
            sampler.add_to(rows[i], draws[i])

    _threads.run_parts(part, _threads.even_parts(len(rows)))


def normals(rows: NDArray[np.float64], generators: list[np.random.Generator]) -> None:
    """Normal numbers and nothing else, on as many threads as ours."""

    def part(start: int, stop: int) -> None:
        for i in range(start, stop):
            generators[i].standard_normal(out=rows[i])

    _threads.run_parts(part, _threads.even_parts(len(rows)))


def rounded_noise(
    deviation: float, rows: NDArray[np.int64], generators: list[np.random.Generator]
) -> None:
    """Add rounded normal numbers: quick to write, and nothing is proven of them."""

    def part(start: int, stop: int) -> None:
        for i in range(start, stop):
            numbers = generators[i].standard_normal(rows.shape[1])
            rows[i] += np.rint(deviation * numbers).astype(np.int64)

    _threads.run_parts(part, _threads.even_parts(len(rows)))


def _draws(users: int) -> list[Draw]:
    return [draw(0, user, 0) for user in range(users)]


def _generators(users: int) -> list[np.random.Generator]:
    """As quick ones as ours."""
    return [np.random.Generator(np.random.SFC64(user)) for user in range(users)]


# ---- Sums


def _screening(setting: Setting) -> Case:
    protected = UniformNoise(noise_budget=_BUDGET).protect(
        setting.gradients, setting.grid, setting.places, _draws(len(setting.gradients))
    )
    weights = setting.data.links.counts.astype(np.float64)

    def at(users: int) -> Work:
        uploads = np.resize(protected.uploads, (users, setting.grid.cells))
        updates = [Update(user, 0, 200, row, np.zeros(4)) for user, row in enumerate(uploads)]
        return partial(_summed, Broadcast(0, setting.radio_map, users), updates)

    return Case(
        "screening and summing uploads", at(len(weights)), "NumPy's weights @ uploads alone",
        lambda: weights @ protected.uploads, "users", _USERS, at,
    )  # fmt: skip


def _summed(broadcast: Broadcast, updates: list[Update]) -> RoundSum:
    total = RoundSum(broadcast, UniformNoise(noise_budget=_BUDGET).largest_upload())
    total.add(updates)
    return total


def _adding_up(setting: Setting) -> Case:
    def at(users: int) -> Work:
        return partial(added_up, setting.radio_map, random_links(200 * users, 0))

    return Case(
        "gradients added up as made", partial(added_up, setting.radio_map, setting.data),
        "dense rows, weights @ rows", partial(dense_sum, setting.radio_map, setting.data),
        "users", _CROWDS, at,
    )  # fmt: skip


def added_up(radio_map: RadioMap, data: Measurements) -> NDArray[np.float64]:
    """Σ J_i ḡ_i without an upload of anybody."""
    links, tiles = data.links, Tiles.single(radio_map.grid)
    total = RunningSum.empty(tiles.cells.tolist(), len(radio_map.theta), whole=False)
    clients = Clients(range(links.users), links, NoNoise(), seed=0)
    broadcast = Broadcast(0, radio_map, links.users)
    clients.add_up(broadcast, tiles, np.array([links.users]), total)
    return total.total()[0]


def dense_sum(radio_map: RadioMap, data: Measurements) -> NDArray[np.float64]:
    """The same with everybody's gradient in memory, and one product."""
    made = local_gradients(radio_map, data)
    return (made.counts / np.maximum(1, norms_of(made.heights))) @ made.heights


def clipped(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Gradients no longer than 1."""
    return rows / np.maximum(1, norms_of(rows))[:, None]


# ---- The server's step


def _step(setting: Setting) -> Case:
    from scipy.ndimage import gaussian_filter

    def at(cells: int) -> Work:
        grid = _cut_into(cells)
        return partial(_stepped, grid, np.random.default_rng(0).standard_normal(cells))

    mean = setting.seen.uploads.astype(np.float64).mean(axis=0)
    step = NoiseAwareStep()
    width = 0.5 * (step.smoothing + step.last_smoothing)  # half-way
    return Case(
        "server step", partial(_stepped, setting.grid, mean),
        "SciPy's gaussian_filter alone",
        partial(gaussian_filter, mean.reshape(setting.grid.shape), width),
        "cells", tuple(side**2 for side in _SIDES), at,
    )  # fmt: skip


def _stepped(grid: Grid, by_cells: NDArray[np.float64]) -> RadioMap:
    step = NoiseAwareStep()
    half_way = replace(step.start(grid), round=_ROUNDS // 2)
    return step(half_way, by_cells, np.ones(4), _ROUNDS).radio_map


# ---- Prediction


def _prediction(setting: Setting) -> Case:
    def at(links: int) -> Work:
        ends = random_links(links, 0)
        return partial(setting.radio_map.predict, ends.user_xyz, ends.bs_xyz)

    ends = setting.unseen.user_xyz, setting.unseen.bs_xyz
    neighbours = NearestNeighbours().fit(setting.data)
    return Case(
        "prediction", partial(setting.radio_map.predict, *ends),
        "k-NN in SciPy's k-d tree", partial(neighbours.predict, *ends),
        "links", _LINKS, at,
    )  # fmt: skip


# ---- Attacks


def _centroid(setting: Setting) -> Case:
    uploads, attack = setting.seen.uploads, WeightedCentroid()

    def at(users: int) -> Work:
        rows = np.resize(uploads, (users, setting.grid.cells))
        return partial(attack.positions, rows, setting.transcript)

    return Case(
        "centroid attack", at(len(uploads)), "NumPy's squares @ centres",
        partial(plain_centroids, uploads, setting.grid), "users", _USERS, at,
    )  # fmt: skip


def plain_centroids(uploads: NDArray[np.float32], grid: Grid) -> NDArray[np.float64]:
    """The same for uploads that are not all zeros."""
    energy = uploads.astype(np.float64) ** 2
    return energy @ grid.centres / energy.sum(axis=1)[:, None]


def _matched_filter(setting: Setting) -> Case:
    attack, whole = MatchedFilter(), setting.transcript

    def at(places: int) -> Work:
        coarse = replace(Candidates.of(whole, attack.altitude), grid=_cut_into(places))
        return lambda: attack.locate(whole, replace(coarse))  # a copy remembers no gains

    walks = setting.grid.cells * len(whole.base_stations)
    sample = random_links(walks // _SHARE, 0)
    return Case(
        "matched filter, one round", partial(attack.locate, whole),
        "gradients of as many links", partial(sum_of_gradients, setting.radio_map, sample),
        "places", tuple(side**2 for side in _PLACES), at, _SHARE,
    )  # fmt: skip


STAGES = (
    _tracing, _gradients, _allocation, _uniform, _aligned, _lattice, _screening, _adding_up,
    _step, _prediction, _centroid, _matched_filter,
)  # fmt: skip
