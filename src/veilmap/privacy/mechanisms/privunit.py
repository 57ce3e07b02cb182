"""Uploads that are (ε, δ)-private by themselves: directions told by a noisy point on their side."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from veilmap._kernels import caps, rows
from veilmap._util import checks
from veilmap._util.arrays import Floats
from veilmap._util.plain import plain
from veilmap._util.threads import even_parts, run_parts
from veilmap.errors import ConfigurationError
from veilmap.geometry.grid import Grid
from veilmap.model.propagation import at_100_m
from veilmap.privacy.mechanisms.base import Answer, Contribution, PrivateUploads, finite_norms
from veilmap.privacy.mechanisms.private import PrivateMechanism
from veilmap.privacy.noise import Draw

STEPS = 4  # of an upload's entries per deviation of its noise
_FARTHEST = 8.0  # deviations: an upload's entries are cut off there
_WORDS = 3  # of randomness besides the noise: a coin, a sign, and how far in the cap


@plain
@dataclass(frozen=True, kw_only=True)
class PrivUnit(PrivateMechanism):
    """Clients send a normal point, which lies on their contribution's side more often than not.

    With probability γ (``blanket``) it is any point, and else one in the cap of points z with
    ⟨z, v⟩ ≥ t, v being the contribution's direction and P(⟨z, v⟩ ≥ t) = s (``cap``). That is
    PrivUnit (Bhowmick, Duchi, Freudiger, Kapoor and Rogers, 2018) in the form for normal points
    (Asi, Feldman and Talwar, "Optimal algorithms for mean estimation under local differential
    privacy", ICML 2022). Every upload is private by itself, whoever sees it. `train` chooses γ and
    s for the number of rounds, and with ``server_sees="shuffled"`` for the number of uploads,
    ``among``, that somebody takes the names off and mixes. Each upload is mostly noise: the map
    takes tens of thousands of users.
    """

    blanket: float | None = None
    cap: float | None = None
    among: int | None = None

    name = "privunit"
    title = "Uploads with a proven ε"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, most in (("blanket", 1.0), ("cap", 0.5)):
            if getattr(self, name) is not None:
                value = checks.number(name, getattr(self, name), above=0, most=most)
                object.__setattr__(self, name, value)
        if self.among is not None:
            object.__setattr__(self, "among", checks.whole("among", self.among, least=2))

    @property
    def in_words(self) -> str:
        """What clients do to their gradients, once their noise is fixed."""
        fixed = self.guarantee
        return (
            f"private uploads: contributions are clipped to norm C = {self.clip:g}, and each"
            f" upload is noise alone with probability {fixed.blanket:.2g}, else noise on the"
            f" contribution's side, where a share of {fixed.cap:.2g} of all noise lies"
        )

    def with_cap(self, chosen: PrivateUploads) -> "PrivUnit":
        """The same with its noise fixed."""
        return replace(self, blanket=chosen.blanket, cap=chosen.cap, among=chosen.among)

    @property
    def guarantee(self) -> PrivateUploads:
        """What γ and s give, once they are fixed."""
        if self.blanket is None or self.cap is None:
            raise ConfigurationError(
                "the noise of PrivUnit is not fixed yet: train does it, or"
                " accounting.calibrated(mechanism, rounds)"
            )
        return PrivateUploads(self.blanket, self.cap, self.among)

    def least_answers(self, cohort: int) -> int:
        """How many must be shuffled together; with their names on, any number will do."""
        return 0 if self.among is None else self.among

    def deviation_of_mean(self, cells: int, parameters: int, cohort: int) -> float:
        """σ of the noise in each cell of a round's mean over ``cohort`` answers, in units of C."""
        rounding = 1 / (12 * STEPS**2)
        return math.sqrt((1 + rounding) / cohort) / signal(self.guarantee)

    def answer(
        self, raw: Contribution, grid: Grid | None, draws: Sequence[Draw], cohort: int
    ) -> Answer:
        """Noisy points in steps of a quarter of a deviation."""
        users, cells = raw.height_gradient.shape
        norms = finite_norms(np.ascontiguousarray(raw.height_gradient))
        theta = raw.theta_gradient @ at_100_m(raw.laws, _others(raw)).T
        scales = self.theta_share / np.maximum(finite_norms(theta), self.theta_clip)
        factors = self._heights_share / np.maximum(norms, self.clip)
        sent = np.empty((users, cells + theta.shape[1]), dtype=np.int64)

        def part(start: int, stop: int) -> None:
            for i in range(start, stop):
                own = np.append(factors[i] * raw.height_gradient[i], scales[i] * theta[i])
                point = self._noisy(own, draws[i])
                caps.in_steps(point=point, steps=STEPS, farthest=_FARTHEST, out=sent[i])

        run_parts(part, even_parts(users))
        energy = cells * (self.clip / signal(self.guarantee)) ** 2
        weights = np.ones(users, dtype=np.int64)
        return Answer(sent[:, :cells], norms, np.full(users, energy), sent[:, cells:], weights)

    def upload_bytes(self, cells: int, parameters: int) -> int:
        """A byte for each entry."""
        return cells + parameters

    def largest_upload(self, cells: int) -> float:
        """Twice what points of so many entries come to, and room for few."""
        return 2 * STEPS * (math.sqrt(cells) + _FARTHEST)

    def read(
        self, heights: Floats, propagation: Floats, weight: int, laws: int = 2
    ) -> tuple[Floats, Floats]:
        """Mean gradients from the sum of points."""
        unit = self.clip / (signal(self.guarantee) * STEPS * max(weight, 1))
        return self._read(heights, propagation, unit, laws)

    def _noisy(self, contribution: Floats, draw: Draw) -> Floats:
        """A point for a contribution in units of C.

        Shorter ones than C point the other way with probability ½(1 − length), so that the mean
        point is as long as they are.
        """
        guarantee, point = self.guarantee, draw.normals(len(contribution))
        coin, sign, depth = (draw.words(_WORDS, "coins") + 0.5) / 2.0**64
        length = rows.length(contribution)
        if coin >= guarantee.blanket and length > 0:
            caps.moved_into_cap(
                point=point,
                contribution=contribution,
                length=length if sign < (1 + length) / 2 else -length,
                along=threshold_of(guarantee.cap * depth),  # a normal number of t or more
            )
        return point


def _others(raw: Contribution) -> int:
    """How many parameters θ has beside its laws'."""
    return raw.theta_gradient.shape[1] - 2 * raw.laws


def signal(guarantee: PrivateUploads) -> float:
    """How long the mean upload is along the user's contribution, in deviations of the noise.

    (1 − γ) E[Z | Z ≥ t] = (1 − γ) φ(t)/s of a standard normal Z, where P(Z ≥ t) = s.
    """
    threshold = threshold_of(guarantee.cap)
    density = math.exp(-(threshold**2) / 2) / math.sqrt(2 * math.pi)
    return (1 - guarantee.blanket) * density / guarantee.cap


def threshold_of(cap: float) -> float:
    """T with P(Z ≥ t) = s."""
    from scipy.special import ndtri

    return -float(ndtri(cap))
