"""The places of a user whose upload is of all of them at once."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilmap._util import checks
from veilmap._util.arrays import Ints
from veilmap.attacks.candidates import Candidates, Templates, block_of_cell
from veilmap.attacks.found_places import PLACES, FoundPlaces, PlacesAttack, around, candidates_of
from veilmap.attacks.matched_filter import inverse_variances, matches
from veilmap.federation.messages import ClientId
from veilmap.federation.transcript import SeenRound, Transcript

_RIDGE = 1e-3  # of a template's own energy: templates of near places are much alike


@dataclass(frozen=True)
class MixturePursuit(PlacesAttack):
    """Orthogonal matching pursuit of uploads in the templates of places.

    The gradient over all of a user's links is the mean of the gradients at its places, each with
    its share of the links. What explains most of all rounds is a place; the templates of all
    places so far are fitted to each round's upload by weighted least squares, and the next place
    is looked for in what they leave. The first one found is home.
    """

    number: int = PLACES
    altitude: float = 1.5  # of users above ground, in metres

    name = "mixture pursuit"

    def __post_init__(self) -> None:
        checks.whole("number", self.number, least=2)
        checks.number("altitude", self.altitude)

    def places(self, transcript: Transcript) -> FoundPlaces:
        """The places of everybody, in the order in which they are found."""
        rounds = self.uploads(transcript).values()
        candidates = candidates_of(transcript, self.altitude)
        clients = transcript.wanted(rounds)
        views = [_View.of(seen, candidates, clients) for seen in rounds]
        chosen = np.empty((len(clients), 0), dtype=np.int64)
        barred = np.zeros((len(clients), candidates.grid.cells), dtype=bool)
        for _ in range(self.number):
            evidence = np.zeros(barred.shape, dtype=np.float32)
            for view in views:
                evidence[view.rows] += view.evidence()
            best = np.where(barred, -np.inf, evidence).argmax(axis=1)
            for user, near in around(candidates.grid, candidates.grid.centres[best]):
                barred[user] |= near
            chosen = np.column_stack([chosen, best])
            for view in views:
                view.subtract(chosen)
        return FoundPlaces(clients, candidates.grid.centres[chosen])


@dataclass
class _View:
    """One round: its uploads, and what the places found so far leave of them."""

    rows: Ints  # whose uploads they are
    uploads: NDArray[np.float32]  # (n, M)
    weights: NDArray[np.float32]  # (n, blocks): the inverse of the noise's variance
    block_of: Ints
    templates: Templates  # sparse
    left: NDArray[np.float32] = field(init=False)  # (n, M)

    def __post_init__(self) -> None:
        self.left = self.uploads

    @classmethod
    def of(cls, seen: SeenRound, candidates: Candidates, clients: tuple[ClientId, ...]) -> "_View":
        broadcast = seen.broadcast.radio_map
        row_of = {client: row for row, client in enumerate(clients)}
        rows = np.array([row_of[client] for client in seen.clients], dtype=np.int64)
        (templates,) = candidates.answering(broadcast).templates(broadcast)
        block_of = block_of_cell(broadcast.grid)
        weights = inverse_variances(seen.uploads, broadcast.grid)
        return cls(rows, seen.uploads, weights, block_of, templates)

    def evidence(self) -> NDArray[np.float32]:
        """How much of what is left each candidate explains, over the most that any does, (n, K).

        So each round counts alike, however large its gradients are.
        """
        energy = matches(self.left, self.weights, self.block_of, [self.templates])
        return energy / (energy.max(axis=1, keepdims=True) + np.float32(1e-30))

    def subtract(self, chosen: Ints) -> None:
        """Subtract from each upload what the templates of its user's places, (·, s), fit of it."""
        self.left = self.uploads.copy()
        kinds: tuple[Any, Any] = self.templates.expected, self.templates.shifted
        for user, cells in enumerate(chosen[self.rows]):
            basis = np.vstack([kept[cells].toarray() for kept in kinds])  # (2s, M)
            weighted = basis * self.weights[user, self.block_of]
            normal = weighted @ basis.T
            normal += np.diag(_RIDGE * np.diag(normal) + 1e-30)
            self.left[user] -= np.linalg.solve(normal, weighted @ self.uploads[user]) @ basis
