"""Gaussian noise on the sum, a share from every client: a proven (ε, δ) guarantee."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from veilmap._kernels import few_cells
from veilmap._kernels.arguments import Rounding
from veilmap._util import checks
from veilmap._util.arrays import Array, Floats, Ints
from veilmap._util.options import option
from veilmap._util.plain import plain
from veilmap._util.threads import even_parts, run_all, run_parts
from veilmap.errors import ConfigurationError
from veilmap.geometry.grid import Grid
from veilmap.model.propagation import at_100_m
from veilmap.privacy.mechanisms.base import (
    Answer,
    Contribution,
    PrivateSums,
    finite_norms,
)
from veilmap.privacy.mechanisms.lattice import (
    LEAST_ON_SUM,
    ROUNDING,
    DiscreteGaussian,
    discrete_gaussian,
    unevenness,
)
from veilmap.privacy.mechanisms.private import PrivateMechanism
from veilmap.privacy.mechanisms.sums import LANES, Coins, Group, Rest, RunningSum, Summand
from veilmap.privacy.noise import Draw

# A sum of discrete Gaussians is not quite one: this much of ε is charged a sum for it, and this
# least deviation of a share on the lattice keeps to it on maps of millions of cells.
LEAST_DEVIATION = 2.1
_UNEVEN = 1e-11

# Rounding at random lengthens a vector: by ¼ of a squared step per entry that is not 0, at most
# and on average. So many entries are allowed for, and this share of the squared length. Where that
# does not do, the vector is made shorter: allowing for everybody would cost all of them noise.
_ENTRIES = 10_000
ROOM = 1 / 16

# Until `fitted` chooses: levels and bits that suit few users.
_LEVELS, _BITS = 1024, 32
_CERTAINTY = 50.0  # t: honest sums are taken for impossible with a probability below e^(−t)
_ROUNDINGS = 8  # that a mean is taken over
_PARAMETER_BYTES = 4  # of each number that is no cell's: they are few, and all users' agree


@plain
@dataclass(frozen=True, kw_only=True)
class AggregateGaussian(PrivateMechanism):
    """Clients clip, round to a lattice, and add a share of discrete Gaussian noise.

    Only the sum is ever opened (secure aggregation), and it carries all shares: every user
    has (ε, δ)-differential privacy over all rounds, for the gradients of h and θ alike.
    Users count equally; how many links one has is not told.

    Parameters
    ----------
    epsilon, delta : float
        The promise for the whole run.
    clip : float
        C: bound of a user's whole contribution.
    noise_multiplier : float, optional
        z: deviation of the noise on the sum over the largest contribution. By default
        `train` computes it for the number of rounds; if given, training stops before a
        round that would exceed ε.
    dropout : float
        Share of a round's users whose noise may be missing: those who drop out, or who are
        not honest. The noise of the others suffices; with fewer, the sum is not opened.
    contribute : float
        Probability with which a user's gradient is in its answer; else it is noise alone.
        Only the user knows, so that privacy is amplified even against the server.
    theta_clip : float
        Bound of θ's gradient, in dB² per dB at 100 m.
    theta_share : float
        Share of C that θ's gradient may take.
    levels : int, optional
        C in units of the lattice. By default `train` takes as many as fit the bits.
    bits : int, optional
        Of each cell of an upload: sums count modulo 2^bits. By default the least number of
        whole bytes with which `train` expects no sum to wrap around.
    """

    noise_multiplier: float | None = None
    contribute: float = option(
        1.0, "--contribute", "Probability that an answer holds a gradient, not noise alone.",
        above=0, most=1,
    )  # fmt: skip
    levels: int | None = None
    bits: int | None = None

    name = "aggregate"
    title = "Sums with a proven ε"
    needs_sums = True
    sums_in_place = True

    def __post_init__(self) -> None:
        super().__post_init__()
        settled: dict[str, float] = {}
        if self.noise_multiplier is not None:
            z = checks.number("noise_multiplier", self.noise_multiplier, above=0)
            settled["noise_multiplier"] = z
        for name, most in (("levels", math.inf), ("bits", 32)):
            if getattr(self, name) is not None:
                settled[name] = checks.whole(name, getattr(self, name), least=1, most=most)
        for name, value in settled.items():
            object.__setattr__(self, name, value)

    @property
    def in_words(self) -> str:
        """What clients do to their gradients, once their noise is fixed."""
        return (
            f"noise on the sum: contributions are clipped to norm C = {self.clip:g}, and every user"
            " adds a share of discrete Gaussian noise, in all"
            f" z = {self.noise_on_sum:.3g} times the largest contribution"
        )

    def with_noise(self, noise_multiplier: float) -> "AggregateGaussian":
        """The same with its noise fixed."""
        return replace(self, noise_multiplier=noise_multiplier)

    @property
    def guarantee(self) -> PrivateSums:
        """A Gaussian mechanism of distance 1/z with every opened sum."""
        return PrivateSums(1 / self.noise_on_sum, self.contribute, uneven=_UNEVEN)

    @property
    def noise_on_sum(self) -> float:
        """z, once it is fixed."""
        if self.noise_multiplier is None:
            raise ConfigurationError(
                "the noise of AggregateGaussian is not fixed yet: train does it,"
                " or accounting.calibrated(mechanism, rounds)"
            )
        return self.noise_multiplier

    def deviation_of_mean(self, cells: int, parameters: int, cohort: int) -> float:
        """σ of the noise in each cell of a round's mean over ``cohort`` answers, in units of C."""
        share = self.share_deviation(cells, parameters, cohort) / self.steps
        return share / (math.sqrt(cohort) * self.contribute)

    def largest_upload(self, cells: int) -> float:
        """No bound: single answers are not seen."""
        return math.inf

    @property
    def steps(self) -> int:
        """C in units of the lattice."""
        return self.levels or _LEVELS

    def sensitivity(self, cells: int, parameters: int) -> float:
        """Δ: bound of a contribution's norm on the lattice."""
        return math.sqrt(
            self._limit(self._heights_share, cells) + self._limit(self.theta_share, parameters)
        )

    def share_deviation(self, cells: int, parameters: int, cohort: int) -> float:
        """σ of one client's noise on the lattice, rounded up to three digits.

        n shares of σ²: together at least (zΔ)² and what `ROUNDING` takes, as long as n answers are
        in the sum.
        """
        answers = self.least_answers(cohort)
        on_sum = math.hypot(self.noise_on_sum * self.sensitivity(cells, parameters), ROUNDING)
        exact = on_sum / math.sqrt(answers)
        digit = 10.0 ** (math.floor(math.log10(exact)) - 2)
        rounded = math.ceil(exact / digit) * digit
        # Both with and without a user.
        uneven = 2 * (cells + parameters) * unevenness(rounded, cohort)
        if rounded < LEAST_DEVIATION or uneven > _UNEVEN or on_sum < LEAST_ON_SUM:
            raise ConfigurationError(
                f"each client's noise would be {rounded:.2g} steps of the lattice, too coarse to"
                f" be proven: take more than {self.steps} levels"
            )
        return rounded

    def summand(self, cells: int, parameters: int) -> Summand:
        """Clipped gradients of h on the lattice."""
        share = self._heights_share
        return Summand(share * self.clip, self.steps / self.clip, self._limit(share, cells))

    def coins(self, draws: Sequence[Draw]) -> Coins:
        """Seeds of the users' roundings, and their secret coins."""
        seeds = np.array([draw.words(1, "rounding")[0] for draw in draws], dtype=np.uint64)
        if self.contribute == 1:
            return Coins(seeds, np.ones(len(draws), dtype=np.bool_))
        heads = np.array([int(draw.words(1, "coin")[0]) for draw in draws], dtype=np.float64)
        return Coins(seeds, heads < self.contribute * 2.0**64)

    def answer(
        self, raw: Contribution, grid: Grid | None, draws: Sequence[Draw], cohort: int
    ) -> Answer:
        """Whole numbers: clipped gradients on the lattice plus noise shares."""
        users, cells = raw.height_gradient.shape
        coins, norms = self.coins(draws), finite_norms(np.ascontiguousarray(raw.height_gradient))
        sent = self._on_lattice(raw, norms, coins.seeds)
        sampler = self._sampler(cells, sent.shape[1] - cells, cohort)

        def part(start: int, stop: int) -> None:
            sent[start:stop] *= coins.takes_part[start:stop, None]
            for i in range(start, stop):
                sampler.add_to(sent[i], draws[i])

        run_parts(part, even_parts(users))
        return Answer(
            sent[:, :cells], norms, np.full(users, self._energy(cells, sampler)),
            sent[:, cells:], np.ones(users, dtype=np.int64),
        )  # fmt: skip

    def contributions(self, raw: Contribution, draws: Sequence[Draw]) -> Array:
        """What users who take part add to a sum beside noise, of h and then of θ, (N, M + P).

        Nobody knows how users round who draw from the operating system: theirs is the mean over
        roundings.
        """
        heights = np.ascontiguousarray(raw.height_gradient)
        norms = finite_norms(heights)
        if all(draw.key is not None for draw in draws):
            return self._on_lattice(raw, norms, self.coins(draws).seeds)
        # No formula has it: what is rounded at its bound may be made shorter, and rounded again.
        some = np.arange(_ROUNDINGS * len(heights), dtype=np.uint64).reshape(_ROUNDINGS, -1)
        total = self._on_lattice(raw, norms, some[0])
        for seeds in some[1:]:
            total += self._on_lattice(raw, norms, seeds)
        return total / _ROUNDINGS

    def add_rest(
        self, rest: Rest, draws: Sequence[Draw], coins: Coins, group: Group, total: RunningSum
    ) -> Floats:
        """Add ∂F_i/∂θ on the lattice, and everybody's share of noise."""
        theta = self._theta_on_lattice(rest.theta_gradient, rest.laws, coins.seeds)
        theta *= coins.takes_part[:, None]
        total.add_theta(theta, group.tiles)
        np.add.at(total.weights, group.tiles, 1)
        samplers = {
            tile: self._sampler(int(total.cells[tile]), theta.shape[1], int(group.cohorts[tile]))
            for tile in np.unique(group.tiles).tolist()
        }
        tiles = group.tiles.tolist()

        def part(lane: int, first: int) -> None:
            for i in range(first, len(draws), LANES):
                samplers[tiles[i]].add_to(total.of_tile(lane, tiles[i]), draws[i])

        run_all([partial(part, *lane) for lane in total.firsts()])
        return np.array([self._energy(int(total.cells[tile]), samplers[tile]) for tile in tiles])

    def upload_bytes(self, cells: int, parameters: int) -> int:
        """Whole numbers modulo 2^bits for the cells, a few longer ones for the rest."""
        return math.ceil(cells * (self.bits or _BITS) / 8) + _PARAMETER_BYTES * (parameters + 1)

    def read(
        self, heights: Floats, propagation: Floats, weight: int, laws: int = 2
    ) -> tuple[Floats, Floats]:
        """Mean gradients from the opened sum."""
        return self._read(self.centred(heights), propagation, self._unit(weight), laws)

    def opened(self, heights: Floats, propagation: Floats, weight: int, laws: int = 2) -> Floats:
        """The sum on the lattice, of h and then of θ, that `read` made these means of."""
        axes = at_100_m(laws, len(propagation) - 2 * laws)
        theta = axes @ propagation * self._theta_scale
        return np.rint(np.append(heights, theta) / self._unit(weight))

    def is_possible(self, heights: Floats, theta: Floats, answers: int, cohort: int) -> bool:
        """Whether all contributions at their bounds, and noise, reach so far.

        The norm of n shares of noise in k numbers exceeds σ √n (√k + √(2 t)) with a probability
        below e^(−t).
        """
        deviation = self.share_deviation(len(heights), len(theta), cohort) * math.sqrt(answers)
        parts = ((self.centred(heights), self._heights_share), (theta, self.theta_share))
        for values, share in parts:
            longest = answers * math.sqrt(self._limit(share, len(values)))
            longest += deviation * (math.sqrt(len(values)) + math.sqrt(2 * _CERTAINTY))
            if not np.linalg.norm(values) <= longest:
                return False
        return True

    def centred(self, heights: Floats) -> Floats:
        """Sums modulo 2^bits as the numbers nearest to 0."""
        half = 2.0 ** ((self.bits or _BITS) - 1)
        return (heights + half) % (2 * half) - half

    def _unit(self, weight: int) -> float:
        """A step of the lattice in the mean over so many answers."""
        return self.clip / self.steps / (max(weight, 1) * self.contribute)

    def _limit(self, share: float, entries: int) -> float:
        """Bound of a squared norm on the lattice."""
        squares = (share * self.steps) ** 2
        return squares + min(min(entries, _ENTRIES) / 4, ROOM * squares)

    def _sampler(self, cells: int, parameters: int, cohort: int) -> DiscreteGaussian:
        return discrete_gaussian(self.share_deviation(cells, parameters, cohort))

    def _energy(self, cells: int, sampler: DiscreteGaussian) -> float:
        """Σσ² of one user's share."""
        return cells * (sampler.deviation * self.clip / self.steps) ** 2

    def _on_lattice(self, raw: Contribution, norms: Floats, seeds: NDArray[np.uint64]) -> Ints:
        """Both gradients clipped and rounded, (N, M + P)."""
        users, cells = raw.height_gradient.shape
        heights, how = np.ascontiguousarray(raw.height_gradient), self.summand(cells, 0)
        theta = self._theta_on_lattice(raw.theta_gradient, raw.laws, seeds)
        result = np.empty((users, cells + theta.shape[1]), dtype=np.int64)
        rounding = Rounding(
            clip=how.clip, scale=how.scale, limits=np.full(users, how.limit), seeds=seeds
        )

        def part(start: int, stop: int) -> None:
            few_cells.rows_on_lattice(
                start=start, stop=stop, rows=heights, lengths=norms, rounding=rounding, out=result
            )

        run_parts(part, even_parts(users))
        result[:, cells:] = theta
        return result

    def _theta_on_lattice(self, propagation: Floats, laws: int, seeds: NDArray[np.uint64]) -> Ints:
        """∂F_i/∂θ clipped and rounded, (N, P)."""
        axes = at_100_m(laws, propagation.shape[1] - 2 * laws)
        theta = np.ascontiguousarray(propagation @ axes.T)
        norms, result = finite_norms(theta), np.empty(theta.shape, dtype=np.int64)
        limit = self._limit(self.theta_share, theta.shape[1])
        rounding = Rounding(
            clip=self.theta_clip, scale=self._theta_scale * self.steps / self.clip,
            limits=np.full(len(theta), limit), seeds=~seeds,
        )  # fmt: skip
        few_cells.rows_on_lattice(
            start=0, stop=len(theta), rows=theta, lengths=norms, rounding=rounding, out=result
        )
        return result
