"""The attacker who looks at nothing."""

from dataclasses import dataclass
from typing import get_args

import numpy as np
from numpy.typing import ArrayLike

from veilmap._util import checks
from veilmap._util.arrays import Floats
from veilmap.attacks.base import Attack, Estimates, Placed, When
from veilmap.errors import ConfigurationError
from veilmap.federation.messages import ClientId
from veilmap.federation.transcript import ServerSees, Transcript
from veilmap.geometry.grid import Grid


@dataclass(frozen=True)
class PriorOnly(Attack):
    """Everybody is in the middle of the map, or at the mean of a public prior.

    No defence can make an attacker do worse than this in any way that counts. ``prior`` has a
    weight for each cell, (M,) or (rows, columns): where people are known to be.
    """

    prior: ArrayLike | None = None

    sees = frozenset(get_args(ServerSees))
    name = "prior only"

    def locate(self, transcript: Transcript) -> Estimates:
        """The same place for everybody, always."""
        self.check(transcript)
        guess = self.guess(transcript.grid)
        rounds = dict(sorted(transcript.rounds.items()))
        clients: dict[When, tuple[ClientId, ...]] = {
            number: transcript.wanted([seen]) for number, seen in rounds.items()
        }
        clients["all"] = transcript.wanted(rounds.values())
        placed = {w: Placed(own, np.tile(guess, (len(own), 1))) for w, own in clients.items()}
        return Estimates(self.name, placed)

    def guess(self, grid: Grid) -> Floats:
        """The mean of the prior, (2,), in metres."""
        if self.prior is None:
            return grid.centres.mean(axis=0)
        weights = checks.floats("prior", self.prior).ravel()
        fits = weights.shape == (grid.cells,) and np.isfinite(weights).all()
        if not (fits and (weights >= 0).all() and weights.sum() > 0):
            raise ConfigurationError(
                f"prior takes {grid.cells} finite weights, none negative and not all 0", "prior"
            )
        return weights @ grid.centres / weights.sum()
