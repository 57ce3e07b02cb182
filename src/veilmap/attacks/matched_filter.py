"""Compare an upload with what a user at each place would have sent."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veilmap._kernels import templates as kernels
from veilmap._kernels.arguments import Matches, Sites, WeightedUploads
from veilmap._util import checks
from veilmap._util.arrays import Ints
from veilmap._util.threads import even_parts, run_parts
from veilmap.attacks.base import Attack, Estimates, Placed, Posterior, When
from veilmap.attacks.candidates import Candidates, Templates, block_of_cell
from veilmap.attacks.plane_subtraction import noise_variances
from veilmap.federation.transcript import SeenRound, Transcript
from veilmap.geometry.grid import Grid
from veilmap.model.radio_map import RadioMap

# Of a template's largest entry: smaller ones are not compared. All of them hold at most a
# millionth of its energy.
_FAINT = 1e-5
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
        grid, broadcast = seen.broadcast.radio_map.grid, seen.broadcast.radio_map
        weights, block_of = inverse_variances(seen.uploads, grid), block_of_cell(grid)
        if candidates.remembers(broadcast):
            found = matches(seen.uploads, weights, block_of, candidates.templates(broadcast))
        else:
            found = matches_in_place(seen.uploads, weights, broadcast, candidates)
        return scored(found, self.ways_to_differ)


def matches(
    uploads: NDArray[np.float32],
    weights: NDArray[np.float32],
    block_of: Ints,
    templates: Iterable[Templates],
) -> NDArray[np.float32]:
    """Weighted energy of uploads (n, M) that the templates of all candidates explain, (n, K).

    The weights (n, blocks) are constant over blocks of parameters.
    """
    weighted = uploads * weights[:, block_of]
    return np.hstack([_energy(some, weights, weighted) for some in templates])


def matches_in_place(
    uploads: NDArray[np.float32],
    weights: NDArray[np.float32],
    broadcast: RadioMap,
    candidates: Candidates,
) -> NDArray[np.float32]:
    """`matches` of templates of a broadcast's grid that are gone as soon as they were compared."""
    block_of = block_of_cell(broadcast.grid)
    told = WeightedUploads(
        values=np.ascontiguousarray((uploads * weights[:, block_of]).T),
        weights=np.ascontiguousarray(weights.T),
    )
    sites, users = candidates.sites(broadcast), len(uploads)
    found = np.empty((len(sites.places), users), dtype=np.float32)

    def part(start: int, stop: int) -> None:
        size = stop - start
        out = Matches(
            along=np.empty((size, 2, users), np.float32),
            norms=np.empty((size, 3, users), np.float32),
        )
        own = Sites(
            places=sites.places[start:stop],
            stations=sites.stations,
            gains=sites.gains[start:stop],
        )
        kernels.matches(
            start=0, stop=size, sites=own, model=broadcast.kernel_model, block_of=block_of,
            uploads=told, faint=np.float32(_FAINT), out=out,
        )  # fmt: skip
        found[start:stop] = _explained(*out.norms.swapaxes(0, 1), *out.along.swapaxes(0, 1))

    run_parts(part, even_parts(len(found)))
    return np.ascontiguousarray(found.T)


def scored(found: NDArray[np.float32], ways_to_differ: float) -> NDArray[np.float32]:
    """Log-probability that matches stand for, up to a constant for each upload."""
    ways = np.float32(ways_to_differ)
    return ways * np.log1p(found / (2 * ways))


def added(posteriors: list[Posterior]) -> Posterior:
    """Evidence of several rounds added up; users who missed rounds have less of it."""
    grid = posteriors[0].grid
    clients = tuple(dict.fromkeys(client for each in posteriors for client in each.clients))
    index = {client: i for i, client in enumerate(clients)}
    total = np.zeros((len(clients), grid.cells), dtype=np.float32)
    for each in posteriors:
        total[[index[client] for client in each.clients]] += each.evidence
    return Posterior(grid, clients, total)


def inverse_variances(uploads: NDArray[np.float32], grid: Grid) -> NDArray[np.float32]:
    """The inverse of the noise's variance in every block of cells, (n, blocks)."""
    energy = np.mean(uploads.astype(np.float64) ** 2, axis=1, keepdims=True)
    variances, block_of = noise_variances(uploads, grid), block_of_cell(grid)
    means = [np.bincount(block_of, row) / np.bincount(block_of) for row in variances]
    # Where there is little noise, templates are what is inexact.
    return (1 / np.maximum(np.array(means) + _INEXACT * energy, 1e-30)).astype(np.float32)


def _energy(
    templates: Templates, weights: NDArray[np.float32], weighted: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Weighted energy of uploads that templates explain, (n, k)."""
    norms = (weights @ templates.products[:, i].T for i in range(3))
    kinds = templates.expected, templates.shifted
    return _explained(*norms, *(templates.along(kind, weighted) for kind in kinds))


def _explained(
    own_1: NDArray[np.float32],
    own_2: NDArray[np.float32],
    mixed: NDArray[np.float32],
    along_1: NDArray[np.float32],
    along_2: NDArray[np.float32],
) -> NDArray[np.float32]:
    """Weighted energy of uploads that two templates explain.

    With unit templates u₁, u₂ at an angle of cosine c it is r₁² + (r₂ − c r₁)²/(1 − c²),
    r_i = u_i·g. Templates that vanish explain nothing.
    """
    per_norm_1, per_norm_2 = (1 / np.sqrt(np.maximum(own, 1e-30)) for own in (own_1, own_2))
    cosine = mixed * per_norm_1 * per_norm_2
    r_1, r_2 = along_1 * per_norm_1, along_2 * per_norm_2
    # Two templates that point the same way count as one.
    energy = r_1**2 + (r_2 - cosine * r_1) ** 2 / np.maximum(1 - cosine**2, 1e-3)
    return np.asarray(energy, dtype=np.float32)
