"""Compare a gradient with what a user at each place would have sent."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veilmap._util import checks
from veilmap.attacks.any_model.base import GradientAttack, SeenGradients, answered
from veilmap.attacks.any_model.places import Places, layout
from veilmap.attacks.base import Estimates
from veilmap.attacks.matched_filter import MatchedFilter, inverse_variances, matches, scored


@dataclass(frozen=True)
class TemplateFilter(GradientAttack):
    """`MatchedFilter` for any model: the candidate whose template explains most of the gradient.

    Where parameters lie on a grid, noise is read off as there; elsewhere it is taken to be the
    same in all of them.
    """

    ways_to_differ: float = 5.0

    name = MatchedFilter.name

    def __post_init__(self) -> None:
        checks.number("ways_to_differ", self.ways_to_differ, above=0)

    def locate(self, seen: SeenGradients, places: Places) -> Estimates:
        """The most probable candidates."""
        uploads = seen.uploads.astype(np.float32)
        weights = _weights(uploads, places)
        found = matches(uploads, weights, places.block_of, [places.templates])
        evidence = scored(found, self.ways_to_differ)
        xy = places.grid.centres[evidence.argmax(axis=1)]
        return answered(self, seen, xy, evidence.astype(np.float64), places.grid)


def _weights(uploads: NDArray[np.float32], places: Places) -> NDArray[np.float32]:
    """The inverse of the noise's variance in every block, (n, blocks)."""
    grid = layout(places.model, len(places.parameters))
    if grid is not None:
        return inverse_variances(uploads, grid)
    energy = np.mean(uploads.astype(np.float64) ** 2, axis=1, keepdims=True)
    return (1 / np.maximum(energy, 1e-30)).astype(np.float32)
