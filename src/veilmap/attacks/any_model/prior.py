"""The attacker who looks at no gradient."""

from dataclasses import dataclass

import numpy as np

from veilmap.attacks.any_model.base import GradientAttack, SeenGradients, answered
from veilmap.attacks.any_model.places import Places
from veilmap.attacks.base import Estimates
from veilmap.attacks.prior import PriorOnly


@dataclass(frozen=True)
class Guess(GradientAttack):
    """Everybody is in the middle of the area: what all other attacks have to beat."""

    name = PriorOnly.name

    def locate(self, seen: SeenGradients, places: Places) -> Estimates:
        """The same place for everybody."""
        guess = PriorOnly().guess(places.grid)
        return answered(self, seen, np.tile(guess, (len(seen.uploads), 1)))
