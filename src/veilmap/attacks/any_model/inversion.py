"""Find the place whose gradient, by the given gradient function, is most like what was sent."""

from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from veilmap._util.arrays import Floats
from veilmap.attacks.any_model.base import (
    GradientAttack,
    SeenGradients,
    answered,
    evidence_of,
    refined,
)
from veilmap.attacks.any_model.places import Places
from veilmap.attacks.base import Estimates
from veilmap.errors import ConfigurationError

_SHIFTS = np.linspace(-1, 1, 17)  # of the targets, that a match by length tries


@dataclass(frozen=True)
class Inversion(GradientAttack):
    """Deep leakage from gradients with a search over places: all candidates, then between them.

    Zhu, Liu and Han, "Deep leakage from gradients" (NeurIPS 2019), match by squared distance,
    "L2" here, with the mechanism's clip; Geiping, Bauermeister, Dröge and Moeller, "Inverting
    gradients" (NeurIPS 2020), by the cosine, which needs no length. Targets are unknown: the
    cosine is that with the plane of all of them, and distances are the least over some.
    """

    match: Literal["cosine", "L2"] = "cosine"

    def __post_init__(self) -> None:
        if self.match not in ("cosine", "L2"):
            raise ConfigurationError(f"match is 'cosine' or 'L2', not {self.match!r}", "match")

    @property
    def name(self) -> str:  # type: ignore[override]
        """For tables."""
        return f"inversion, {self.match}"

    def locate(self, seen: SeenGradients, places: Places) -> Estimates:
        """Mean places of the beliefs."""
        uploads, made = seen.uploads, places.templates
        own = made.products.sum(axis=2, dtype=np.float64).T
        along = [(uploads.astype(np.float32) @ each.T).astype(np.float64)
                 for each in (made.expected, made.shifted)]  # fmt: skip
        left = self._left(np.sum(uploads**2, axis=1)[:, None], along[0], along[1], own, seen.clip)
        evidence = evidence_of(left, uploads.shape[1])
        likelihood = partial(self._likelihood, places, uploads, seen.clip)
        xy, sharper = refined(evidence, places.grid, likelihood)
        return answered(self, seen, xy, sharper, places.grid)

    def _likelihood(self, places: Places, uploads: Floats, clip: float, xy: Floats) -> Floats:
        """Of uploads (n, M) at some places of their own, (n, o, 2)."""
        count, options = xy.shape[:2]
        pairs = places.pairs(xy.reshape(-1, 2))
        a, b = (part.reshape(count, options, -1) for part in pairs)
        own = np.array([np.einsum("nom,nom->no", *both) for both in ((a, a), (b, b), (a, b))])
        with_a, with_b = (np.einsum("nm,nom->no", uploads, part) for part in (a, b))
        energy = np.sum(uploads**2, axis=1)[:, None]
        return evidence_of(self._left(energy, with_a, with_b, own, clip), uploads.shape[1])

    def _left(self, energy: Floats, u_a: Floats, u_b: Floats, own: Floats, clip: float) -> Floats:
        """Share of uploads' energy that places leave unexplained.

        From the products ‖u‖², u·a, u·b, and (‖a‖², ‖b‖², a·b) of a gradient a and of what one
        shift adds to it, b.
        """
        energy = np.maximum(energy, 1e-300)
        if self.match == "cosine":
            return 1 - np.clip(_explained(u_a, u_b, own) / energy, 0, 1)
        apart = [_distance(energy, u_a, u_b, own, clip, t) for t in _SHIFTS]
        # Where nothing is clipped, the best target is known.
        best = np.clip((u_b - own[2]) / np.maximum(own[1], 1e-300), -1, 1)
        apart.append(_distance(energy, u_a, u_b, own, clip, best))
        return np.maximum(np.min(apart, axis=0), 0) / energy


def _explained(u_a: Floats, u_b: Floats, own: Floats) -> Floats:
    """Energy of u in the plane of a and b, or on their line where they point the same way."""
    a_a, b_b, a_b = own
    longer = a_a >= b_b
    first, second = np.where(longer, a_a, b_b), np.where(longer, b_b, a_a)
    u_1, u_2 = np.where(longer, u_a, u_b), np.where(longer, u_b, u_a)
    share = a_b / np.maximum(first, 1e-300)
    across = second - share * a_b  # energy of the second one beside the first
    apart = across > 1e-6 * second
    u_2 = u_2 - share * u_1
    beside = np.where(apart, u_2**2 / np.where(apart, across, 1), 0)
    return u_1**2 / np.maximum(first, 1e-300) + beside


def _distance(
    energy: Floats, u_a: Floats, u_b: Floats, own: Floats, clip: float, shifts: Floats | float
) -> Floats:
    """‖u − clipped(a + shifts · b)‖²."""
    length = np.sqrt(np.maximum(own[0] + 2 * shifts * own[2] + shifts**2 * own[1], 0))
    scale = np.minimum(1, clip / np.maximum(length, 1e-300))
    return energy - 2 * scale * (u_a + shifts * u_b) + (scale * length) ** 2
