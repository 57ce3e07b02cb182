"""Compare an upload with what a user at each place would have sent."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veilmap._util import checks
from veilmap._util.arrays import Ints
from veilmap.attacks.base import Attack, Estimates, Placed, Posterior, When
from veilmap.attacks.candidates import Candidates, Templates, block_of_cell
from veilmap.attacks.plane_subtraction import noise_variances
from veilmap.federation.transcript import SeenRound, Transcript

_INEXACT = 1.0  # of the mean energy: what templates leave unexplained in every cell


@dataclass(frozen=True)
class MatchedFilter(Attack):
    """For every candidate cell a template of the expected gradient; the best match wins.

    Templates come from the broadcast map, the public base stations, and the gains that the
    server's best map expects at the candidate; they are made once a round for all users.
    Cells count by the inverse of their noise, read off the upload itself. With ``ways_to_differ``
    D a match of score s counts D log(1 + s/2D) in the posterior: small scores as if templates
    were exact, large ones only by their ratio, because no template is.
    """

    altitude: float = 1.5  # of users above ground, in metres
    ways_to_differ: float = 5.0

    name = "matched filter"

    def __post_init__(self) -> None:
        checks.number("altitude", self.altitude)
        checks.number("ways_to_differ", self.ways_to_differ, above=0)

    def locate(self, transcript: Transcript, candidates: Candidates | None = None) -> Estimates:
        """Most probable places by round and from the evidence of all rounds, with posteriors."""
        rounds = self.uploads(transcript)
        candidates = candidates or Candidates.of(transcript, self.altitude)
        posteriors: dict[When, Posterior] = {
            number: Posterior(candidates.grid, seen.clients, self.evidence(seen, candidates))
            for number, seen in rounds.items()
        }
        posteriors["all"] = added(list(posteriors.values()))
        placed = {when: Placed(each.clients, each.modes()) for when, each in posteriors.items()}
        return Estimates(self.name, placed, posteriors, candidates)

    def evidence(self, seen: SeenRound, candidates: Candidates) -> NDArray[np.float32]:
        """Log-probability of every candidate for every user, (n, K), up to constants."""
        block_of = block_of_cell(seen.broadcast.radio_map.grid)
        weights = noise_weights(seen, block_of)
        weighted = seen.uploads * weights[:, block_of]
        result = np.empty((len(weighted), candidates.grid.cells), dtype=np.float32)
        ways = np.float32(self.ways_to_differ)
        for templates in candidates.templates(seen.broadcast.radio_map):
            score = explained(templates, weights, weighted)
            result[:, templates.own] = ways * np.log1p(score / (2 * ways))
        return result


def added(posteriors: list[Posterior]) -> Posterior:
    """Evidence of several rounds added up; users who missed rounds have less of it."""
    grid = posteriors[0].grid
    clients = tuple(dict.fromkeys(client for each in posteriors for client in each.clients))
    index = {client: i for i, client in enumerate(clients)}
    total = np.zeros((len(clients), grid.cells), dtype=np.float32)
    for each in posteriors:
        total[[index[client] for client in each.clients]] += each.evidence
    return Posterior(grid, clients, total)


def noise_weights(seen: SeenRound, block_of: Ints) -> NDArray[np.float32]:
    """The inverse of the noise's variance in every block, (n, blocks)."""
    energy = np.mean(seen.uploads.astype(np.float64) ** 2, axis=1, keepdims=True)
    variances = noise_variances(seen.uploads, seen.broadcast.radio_map.grid)
    means = [np.bincount(block_of, row) / np.bincount(block_of) for row in variances]
    # Where there is little noise, templates are what is inexact.
    return (1 / np.maximum(np.array(means) + _INEXACT * energy, 1e-30)).astype(np.float32)


def explained(
    templates: Templates, weights: NDArray[np.float32], weighted: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Weighted energy of uploads that two templates explain, (n, k).

    With unit templates u₁, u₂ at an angle of cosine c it is r₁² + (r₂ − c r₁)²/(1 − c²),
    r_i = u_i·g. Templates that vanish explain nothing.
    """
    own_1, own_2, mixed = (weights @ templates.products[:, i].T for i in range(3))
    per_norm_1, per_norm_2 = (1 / np.sqrt(np.maximum(own, 1e-30)) for own in (own_1, own_2))
    cosine = mixed * per_norm_1 * per_norm_2
    r_1 = templates.along(templates.expected, weighted) * per_norm_1
    r_2 = templates.along(templates.shifted, weighted) * per_norm_2
    # Two templates that point the same way count as one.
    return r_1**2 + (r_2 - cosine * r_1) ** 2 / np.maximum(1 - cosine**2, 1e-3)
