"""Which place's contribution the cap of an upload was around."""

import math
from dataclasses import dataclass

import numpy as np

from veilmap._util import checks
from veilmap._util.arrays import Floats
from veilmap.attacks.base import Attack, Estimates, Placed, Posterior, When
from veilmap.attacks.candidates import Candidates
from veilmap.attacks.differencing import FAINT, filtered_norms
from veilmap.attacks.matched_filter import added
from veilmap.errors import ConfigurationError
from veilmap.federation.transcript import SeenRound, Transcript
from veilmap.model.filtering import filtered
from veilmap.privacy.mechanisms import PrivUnit
from veilmap.privacy.mechanisms.privunit import STEPS, signal


@dataclass(frozen=True)
class CapLikelihood(Attack):
    """How much likelier an upload of `PrivUnit` is from each place than from noise alone.

    An upload is a normal point, whose part along its contribution is m on average with probability
    1 − γ. Of that a template shows r m if r is the cosine between it and the contribution. So for
    a part q along the template the likelihood ratio is about γ + (1 − γ) exp(r m q − (r m)²/2).
    """

    altitude: float = 1.5  # of users above ground, in metres
    alike: float = 0.7  # r

    name = "cap likelihood"

    def fits(self, transcript: Transcript) -> bool:
        """Whether these are uploads of `PrivUnit`."""
        return super().fits(transcript) and isinstance(transcript.mechanism, PrivUnit)

    def __post_init__(self) -> None:
        checks.number("altitude", self.altitude)
        checks.number("alike", self.alike, above=0, most=1)

    def locate(self, transcript: Transcript, candidates: Candidates | None = None) -> Estimates:
        """Mean places by round and from the evidence of all rounds, with posteriors."""
        rounds, mechanism = self.uploads(transcript), transcript.mechanism
        if not isinstance(mechanism, PrivUnit):
            raise ConfigurationError(
                f"the attack {self.name} is on PrivUnit, not {mechanism.name}", "mechanism"
            )
        candidates = candidates or Candidates.of(transcript, self.altitude)
        posteriors: dict[When, Posterior] = {
            number: Posterior(
                candidates.grid,
                seen.clients,
                self.evidence(seen, candidates, mechanism).astype(np.float32),
            )
            for number, seen in rounds.items()
        }
        posteriors["all"] = added(list(posteriors.values()))
        placed = {when: Placed(each.clients, each.means()) for when, each in posteriors.items()}
        return Estimates(self.name, placed, posteriors, candidates)

    def evidence(self, seen: SeenRound, candidates: Candidates, mechanism: PrivUnit) -> Floats:
        """Log-probability of every candidate for every user, (n, K), up to constants."""
        guarantee, broadcast = mechanism.guarantee, seen.broadcast.radio_map
        gamma, shape, width = guarantee.blanket, broadcast.grid.shape, seen.broadcast.filter_width
        shown = self.alike * signal(guarantee) / (1 - gamma)  # r m
        # Users filter their gradients, and the filter is symmetric: ⟨F t, z⟩ = ⟨t, F z⟩.
        points = filtered(seen.uploads / STEPS, shape, width).astype(np.float32)
        result = np.zeros((len(points), candidates.grid.cells))
        for templates in candidates.templates(broadcast):
            norms = filtered_norms(templates, shape, width)
            speaks = norms > FAINT * mechanism.clip
            along = templates.along(templates.expected, points) / np.where(speaks, norms, 1)
            ratio = np.logaddexp(math.log(gamma), math.log1p(-gamma) + shown * along - shown**2 / 2)
            result[:, templates.own] = np.where(speaks, ratio, 0)
        return result
