"""When only sums are seen: compare rounds in which a user took part with rounds without."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from veilmap._util import checks
from veilmap._util.arrays import Floats
from veilmap.attacks.base import Attack, Estimates, Placed, Posterior, When
from veilmap.attacks.candidates import Candidates, Templates
from veilmap.federation.messages import ClientId
from veilmap.federation.transcript import SeenSum, Transcript
from veilmap.geometry.grid import Grid
from veilmap.model.filtering import filtered

_RIDGE = 0.3  # of the rounds' mean difference: combinations that barely differ count little
FAINT = 0.01  # of the clip: a template with a smaller norm says nothing
_MATCH = 0.7  # what a template explains of its user's gradient, roughly
_Match = tuple[Floats, Floats]  # of every place with a sum, and what one user there should have
_AT_ONCE = 500  # templates that are filtered
_EMPTY = 0.1  # how probable a place is where the sum shows nobody, against an average one


@dataclass(frozen=True)
class Differencing(Attack):
    """Unmix sums over different groups into what each user sent, then match places.

    How well a sum matches the template of a place is the sum over users of how well each
    one's gradient does. So matches of several rounds are linear equations for every user's
    own match, and who took part when is known. Two rounds that differ by one user give
    that user away; rounds with the same users show only the crowd. ``confidence`` is what a match
    counts in the posterior, as a share of what it would if templates were exact and users alike.
    """

    altitude: float = 1.5  # of users above ground, in metres
    confidence: float = 0.25

    sees = frozenset({"sums", "shuffled"})
    name = "differencing"

    def __post_init__(self) -> None:
        checks.number("altitude", self.altitude)
        checks.number("confidence", self.confidence, above=0)

    def locate(self, transcript: Transcript, candidates: Candidates | None = None) -> Estimates:
        """Mean places: from each round's crowd, and from all rounds compared."""
        self.check(transcript)
        rounds = cast("dict[int, SeenSum]", dict(sorted(transcript.rounds.items())))
        candidates = candidates or Candidates.of(transcript, self.altitude)
        clip = transcript.mechanism.clip
        matches = {n: _matches(seen, candidates, clip) for n, seen in rounds.items()}
        groups: dict[When, list[int]] = {n: [n] for n in rounds} | {"all": list(rounds)}
        posteriors = {
            when: self._posterior(
                transcript, candidates.grid, [rounds[n] for n in own], [matches[n] for n in own]
            )
            for when, own in groups.items()
        }
        placed = {when: Placed(each.clients, each.means()) for when, each in posteriors.items()}
        return Estimates(self.name, placed, posteriors)

    def _posterior(
        self, transcript: Transcript, grid: Grid, rounds: list[SeenSum], matches: list[_Match]
    ) -> Posterior:
        """Crowd as the prior, own match as the evidence."""
        everybody = list(dict.fromkeys(client for seen in rounds for client in seen.clients))
        taking_part = _taking_part(rounds, everybody)
        clients = transcript.wanted(rounds)
        seen, expected = (np.array(match) for match in zip(*matches, strict=True))  # (R, K)
        own = expected.mean(axis=0)
        # Users who took part in the same rounds cannot be told apart: one row for all of them.
        own_rounds = _taking_part(rounds, clients)
        patterns, pattern_of = np.unique(own_rounds, axis=1, return_inverse=True)
        found, resolved = _unmixed(taking_part, patterns, seen)
        crowd = seen.sum(axis=0) / taking_part.sum()  # a user's mean match
        prior = np.log(np.maximum(crowd, 0) + _EMPTY * np.abs(crowd).mean() + 1e-300)
        evidence = prior + self.confidence * _log_ratio(found, resolved, own)
        return Posterior(grid, clients, evidence[pattern_of].astype(np.float32))


def _unmixed(taking_part: Floats, patterns: Floats, seen: Floats) -> tuple[Floats, Floats]:
    """Each pattern's own match (·, K), and how much of it the equations can show (·,).

    Solves seen = taking_part · own for the part of it that differs between rounds, with a
    ridge; what is the same in all rounds belongs to the crowd.
    """
    differs = taking_part - taking_part.mean(axis=0)
    equations = differs @ differs.T
    equations += (_RIDGE * np.trace(equations) / len(equations) + 1e-9) * np.eye(len(equations))
    own_rounds = patterns - patterns.mean(axis=0)
    mixing = np.linalg.solve(equations, own_rounds).T
    found = mixing @ (seen - seen.mean(axis=0))
    return found, np.einsum("pr,rp->p", mixing, own_rounds)


def _matches(seen: SeenSum, candidates: Candidates, clip: float) -> _Match:
    """How well one round's sum matches every place, and how well one user there should, (K,).

    In units of what one user's match is on average, so that rounds can be compared.
    """
    of_sum, own = np.zeros((2, candidates.grid.cells))
    shape, width = seen.broadcast.radio_map.grid.shape, seen.broadcast.filter_width
    total = seen.height_gradient * len(seen.clients)
    # Users filter their gradients, and the filter is symmetric: ⟨F t, sum⟩ = ⟨t, F sum⟩.
    total = filtered(total[None], shape, width).astype(np.float32)[0]
    for templates in candidates.templates(seen.broadcast.radio_map):
        norm = np.sqrt(templates.products[:, 0].sum(axis=1))
        if width:
            norm = filtered_norms(templates, shape, width)
        speaks = norm > FAINT * clip
        match = templates.along(templates.expected, total[None])[0] / np.where(speaks, norm, 1)
        of_sum[templates.own] = np.where(speaks, match, 0)
        own[templates.own] = np.where(speaks, _MATCH * np.minimum(norm, clip), 0)
    unit = np.sqrt(np.mean(own**2)) + 1e-30
    return of_sum / unit, own / unit


def filtered_norms(templates: Templates, shape: tuple[int, int], width: float) -> Floats:
    """‖F t‖ of every template t, (K,)."""
    kept, norms = templates.expected, []
    for first in range(0, kept.shape[0], _AT_ONCE):
        some: Any = kept[first : first + _AT_ONCE]
        dense = some if isinstance(some, np.ndarray) else some.toarray()
        norms.append(np.linalg.norm(filtered(dense, shape, width), axis=1))
    return np.concatenate(norms)


def _log_ratio(found: Floats, resolved: Floats, own: Floats) -> Floats:
    """Log-likelihood of "the user is here" against "elsewhere", (·, K).

    A user at a place adds resolved · own to the match found there; what other users and
    noise add is read off the scatter over all places.
    """
    apart = np.abs(found - np.median(found, axis=1, keepdims=True))
    scatter = 1.4826 * np.median(apart, axis=1, keepdims=True) + 1e-12 * own.max() + 1e-300
    signal = np.maximum(resolved, 0)[:, None] * own / scatter
    signal = np.where(signal > 1e-6, signal, 0)
    return signal * (found / scatter) - 0.5 * signal**2


def _taking_part(rounds: Sequence[SeenSum], clients: Sequence[ClientId]) -> Floats:
    """1 where a user was in a round's sum, (R, N)."""
    sets = [set(seen.clients) for seen in rounds]
    return np.array([[client in present for client in clients] for present in sets], np.float64)
