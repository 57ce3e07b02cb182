"""Where users are at times, from rounds in which they were at one place each."""

from dataclasses import dataclass

import numpy as np

from veilmap._util import checks
from veilmap._util.arrays import Floats
from veilmap.attacks.base import Posterior
from veilmap.attacks.candidates import Candidates
from veilmap.attacks.differencing import Differencing
from veilmap.attacks.found_places import PLACES, FoundPlaces, PlacesAttack, candidates_of, peaks_of
from veilmap.attacks.matched_filter import MatchedFilter
from veilmap.federation.messages import ClientId
from veilmap.federation.transcript import Transcript

_STEPS = 10  # of expectation and maximisation: more of them sharpen noise


@dataclass(frozen=True)
class PlacesOverTime(PlacesAttack):
    """A user's places as a mixture: in each round the user was at one of a few.

    With L_r(k) the likelihood of round r at candidate k (`MatchedFilter`), and J_r the links that
    its upload says it is made of, the shares π of the places of each user maximise
    Σ_r J_r log Σ_k π_k L_r(k). Of sums it takes what `Differencing` believes of each user. The
    peaks of π are the places.
    """

    number: int = PLACES
    altitude: float = 1.5  # of users above ground, in metres

    sees = frozenset({"uploads", "sums"})
    name = "places over time"

    def __post_init__(self) -> None:
        checks.whole("number", self.number, least=2)
        checks.number("altitude", self.altitude)

    def places(self, transcript: Transcript) -> FoundPlaces:
        """The heaviest places of everybody."""
        self.check(transcript)
        candidates = candidates_of(transcript, self.altitude)
        if transcript.server_sees == "sums":
            belief = Differencing(self.altitude).locate(transcript, candidates).posteriors["all"]
            clients, shares = belief.clients, belief.probability.astype(np.float64)
        else:
            clients, shares = self._shares(transcript, candidates)
        return FoundPlaces(clients, peaks_of(shares, candidates.grid, self.number))

    def _shares(
        self, transcript: Transcript, candidates: Candidates
    ) -> tuple[tuple[ClientId, ...], Floats]:
        """Users, and how much of what each sent is from every candidate, (n, K)."""
        rounds = self.uploads(transcript).values()
        clients = transcript.wanted(rounds)
        row_of = {client: row for row, client in enumerate(clients)}
        seen_as = []
        for seen in rounds:
            answers = candidates.answering(seen.broadcast.radio_map)
            evidence = MatchedFilter(self.altitude).evidence(seen, answers)
            likelihood = Posterior(candidates.grid, seen.clients, evidence).probability
            rows = np.array([row_of[client] for client in seen.clients])
            seen_as.append((rows, likelihood, seen.weight[:, None]))
        shares = np.full((len(clients), candidates.grid.cells), 1 / candidates.grid.cells)
        for _ in range(_STEPS):
            following = np.zeros_like(shares)
            for rows, likelihood, links in seen_as:
                there = shares[rows] * likelihood
                following[rows] += links * there / (there.sum(axis=1, keepdims=True) + 1e-300)
            shares = following / (following.sum(axis=1, keepdims=True) + 1e-300)
        return clients, shares
