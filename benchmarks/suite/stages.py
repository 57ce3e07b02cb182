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

from suite import _alternatives as plain
from suite._figure import alternate
from suite._stage import Stage, growth_exponent
from suite.growth import random_links, sum_of_gradients
from veilmap._util import threads
from veilmap.attacks import MatchedFilter, WeightedCentroid
from veilmap.attacks.candidates import Candidates
from veilmap.baselines import NearestNeighbours
from veilmap.data.measurements import Measurements
from veilmap.federation import NoiseAwareStep, Recording, train
from veilmap.federation.client import Clients
from veilmap.federation.messages import Broadcast, Update
from veilmap.federation.server import RoundSum
from veilmap.federation.transcript import SeenRound, Transcript
from veilmap.geometry.grid import Grid
from veilmap.geometry.tiling import Tiles
from veilmap.geometry.tracing import trace
from veilmap.model.gradients import local_gradients
from veilmap.model.radio_map import RadioMap
from veilmap.privacy.accounting import calibrated
from veilmap.privacy.mechanisms import AggregateGaussian, GeometryAligned, NoNoise, UniformNoise
from veilmap.privacy.mechanisms.base import norms_of
from veilmap.privacy.mechanisms.fitting import fitted
from veilmap.privacy.mechanisms.lattice import DiscreteGaussian, discrete_gaussian
from veilmap.privacy.mechanisms.sums import RunningSum
from veilmap.privacy.mechanisms.upload import UploadNoise
from veilmap.privacy.noise import Draw, draw
from veilmap.scenes.scene import Scene

_BUDGET = 50.0
_BARE = NoNoise()
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
            data,
            scene.grid,
            mechanism=GeometryAligned(noise_budget=_BUDGET),
            rounds=_TRAINED,
            seed=seed,
            recording=Recording(keep_uploads={_TRAINED - 1}),
        )
        radio_map = run.transcript.rounds[_TRAINED - 1].broadcast.radio_map
        rows = clipped(local_gradients(radio_map, data).height_gradient)
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
        "NumPy sorting all crossings", partial(plain.sorted_crossings, *ends),
        "links", _LINKS, at,
    )  # fmt: skip


# ---- Loss and gradients


def _gradients(setting: Setting) -> Case:
    def at(links: int) -> Work:
        return partial(local_gradients, setting.radio_map, random_links(links, 0))

    links = setting.data.links
    crossings = trace(setting.grid, links.user_xyz, links.bs_xyz)
    return Case(
        "loss and gradients", partial(local_gradients, setting.radio_map, setting.data),
        "NumPy, cells traced before",
        partial(plain.traced_gradients, setting.radio_map, setting.data, crossings),
        "links", _LINKS, at,
    )  # fmt: skip


# ---- Allocation of noise


def _allocation(setting: Setting) -> Case:
    mechanism = GeometryAligned(noise_budget=_BUDGET)

    def at(cells: int) -> Work:
        grid = _cut_into(cells)
        rows = local_gradients(RadioMap(grid, np.full(cells, 4.0)), setting.data).height_gradient
        return partial(mechanism.variances, clipped(rows), grid, setting.places)

    rows, some = setting.gradients, slice(None, None, _SHARE)
    return Case(
        "allocating aligned noise",
        partial(mechanism.variances, rows, setting.grid, setting.places),
        "SciPy's BFGS, exact slopes",
        partial(plain.bfgs_variances, mechanism, rows[some], setting.grid, setting.places[some]),
        "cells", tuple(side**2 for side in _SIDES[:3]), at, _SHARE,
    )  # fmt: skip


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
        partial(plain.normals, np.empty_like(setting.gradients), _generators(users)),
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
            plain.rounded_noise, sampler.deviation, np.zeros((users, cells), np.int64),
            _generators(users),
        ),
        "users", _USERS, at,
    )  # fmt: skip


def whole_noise(sampler: DiscreteGaussian, rows: NDArray[np.int64], draws: list[Draw]) -> None:
    """Add every user's share of noise, as `AggregateGaussian` does."""

    def part(start: int, stop: int) -> None:
        for i in range(start, stop):
            sampler.add_to(rows[i], draws[i])

    threads.run_parts(part, threads.even_parts(len(rows)))


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
    total = RoundSum(broadcast, UniformNoise(noise_budget=_BUDGET).largest_upload(cells=1))
    total.add(updates)
    return total


def _adding_up(setting: Setting) -> Case:
    def at(users: int) -> Work:
        return partial(added_up, setting.radio_map, random_links(200 * users, 0))

    return Case(
        "gradients added up as made", partial(added_up, setting.radio_map, setting.data),
        "dense rows, weights @ rows", partial(plain.dense_sum, setting.radio_map, setting.data),
        "users", _CROWDS, at,
    )  # fmt: skip


def _adding_noise(setting: Setting) -> Case:
    noisy = GeometryAligned(noise_budget=_BUDGET)

    def at(users: int) -> Work:
        return partial(added_up, setting.radio_map, random_links(200 * users, 0), noisy)

    return Case(
        "noisy gradients added up as made",
        partial(added_up, setting.radio_map, setting.data, noisy),
        "our uploads, made and screened and summed",
        partial(uploads_added_up, setting.radio_map, setting.data, noisy), "users", _CROWDS, at,
    )  # fmt: skip


def added_up(
    radio_map: RadioMap, data: Measurements, mechanism: UploadNoise = _BARE
) -> NDArray[np.float64]:
    """Σ J_i g̃_i without an upload of anybody."""
    tiles, clients = Tiles.single(radio_map.grid), _clients(data, mechanism)
    total = RunningSum.empty(tiles.cells.tolist(), len(radio_map.theta), whole=False)
    cohort = clients.links.users
    clients.add_up(Broadcast(0, radio_map, cohort), tiles, np.array([cohort]), total)
    return total.total()[0]


def uploads_added_up(
    radio_map: RadioMap, data: Measurements, mechanism: UploadNoise
) -> NDArray[np.float64]:
    """The same from everybody's upload."""
    clients = _clients(data, mechanism)
    broadcast = Broadcast(0, radio_map, clients.links.users)
    total = RoundSum(broadcast, mechanism.largest_upload(radio_map.trained_cells))
    total.add(clients.answer(broadcast)[0])
    return total.sum.height_gradient


def _clients(data: Measurements, mechanism: UploadNoise) -> Clients:
    return Clients(range(data.links.users), data.links, mechanism, seed=0)


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
        partial(plain.centroids, uploads, setting.grid), "users", _USERS, at,
    )  # fmt: skip


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
    _adding_noise,
    _step, _prediction, _centroid, _matched_filter,
)  # fmt: skip
