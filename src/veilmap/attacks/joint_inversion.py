"""Find the place that best explains all that an upload holds: gradients of h and of θ."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from veilmap._util.arrays import Floats, Ints
from veilmap.attacks.base import Attack, Estimates, Placed, Posterior, When
from veilmap.attacks.gradient_inversion import GradientInversion, View
from veilmap.attacks.matched_filter import MatchedFilter
from veilmap.attacks.refinement import best_part, climbed
from veilmap.attacks.theta_inversion import ThetaInversion
from veilmap.attacks.theta_likelihood import ThetaEvidence
from veilmap.federation.messages import ClientId
from veilmap.federation.transcript import Transcript

_REACH = 0.5  # of a cell of the map: how far starts may be off
_FINE = 0.02  # metres: the size of cells in which places are compared in the end


@dataclass(frozen=True)
class JointInversion(Attack):
    """`GradientInversion` and `ThetaInversion` in one: likelihoods of both gradients multiply.

    Where the noise on h is strong, θ's exact sums decide; where the sums of a single round leave
    many places, h picks one. What both depend on, the noise of the measurements, is integrated out
    of each by itself.
    """

    gradients: GradientInversion = field(default_factory=GradientInversion)
    theta: ThetaInversion = field(default_factory=ThetaInversion)

    reads_theta = True
    name = "joint inversion"

    def locate(self, transcript: Transcript) -> Estimates:
        """Places of greatest likelihood, for each kept round and from all of them together."""
        return self.locate_after(transcript, {})

    def locate_after(self, transcript: Transcript, earlier: Mapping[str, Estimates]) -> Estimates:
        """`locate` from what the attacks it is made of found, where that is at hand."""
        self.check(transcript)
        starts = earlier.get(MatchedFilter.name)
        if starts is None:
            starts = MatchedFilter(altitude=self.gradients.altitude).locate(transcript)
        views = self.gradients.views(transcript, starts)
        by_heights = earlier.get(self.gradients.name) or self.gradients.locate(transcript, starts)
        by_theta = earlier.get(self.theta.name) or self.theta.locate(transcript)
        placed: dict[When, Placed] = {}
        for when, evidence in self.theta.evidence(transcript).items():
            own = list(views.values()) if when == "all" else [views[when]]
            joint = _Joint(own, evidence)
            options = [each.placed[when].of(joint.clients) for each in (by_heights, by_theta)]
            options.append(joint.best_cells(starts.posteriors[when]))
            placed[when] = Placed(joint.clients, joint.best(np.stack(options, axis=1)))
        return Estimates(self.name, placed)


@dataclass(frozen=True)
class _Joint:
    """The likelihood of the same rounds' gradients of h and of θ."""

    views: Sequence[View]
    theta: ThetaEvidence

    @property
    def clients(self) -> tuple[ClientId, ...]:
        """All users of these rounds."""
        return self.theta.likelihood.clients

    def log_likelihood(self, users: Ints, xy: Floats) -> Floats:
        """Of small grids of cells (n, 2, 2, 2), each for one user (n,): (n, 2, 2)."""
        candidates = self.views[0].candidates
        places = candidates.places(xy.reshape(-1, 2))
        gains = candidates.gains(places)
        found = self.theta.at(users, xy)
        for view, rows in zip(self.views, self._rows, strict=True):
            each = view.log_evidence(np.repeat(rows[users], 4), places, gains)
            found += each.reshape(found.shape)
        return found

    @cached_property
    def _rows(self) -> list[Ints]:
        """The row of every user in each view; −1: away."""
        rows = [[view.row_of.get(client, -1) for client in self.clients] for view in self.views]
        return [np.array(each, dtype=np.int64) for each in rows]

    def best_cells(self, by_heights: Posterior) -> Floats:
        """The cells that both kinds of gradients together find most probable, (N, 2)."""
        row_of = {client: row for row, client in enumerate(by_heights.clients)}
        total = by_heights.evidence[[row_of[client] for client in self.clients]].astype(np.float64)
        centres = by_heights.grid.centres
        total += self.theta.at_candidates[:, self.theta.likelihood.candidates.grid.cell_of(centres)]
        return centres[total.argmax(axis=1)]

    def best(self, options: Floats) -> Floats:
        """The best place near the best of each user's options (N, o, 2): (N, 2)."""
        grid = self.views[0].broadcast.grid
        side = _REACH * grid.cell_size
        found = climbed(self._chosen(options, side), side, self.log_likelihood)
        options = np.concatenate([found[:, None], options], axis=1)
        west, east, south, north = grid.extent
        return np.clip(self._chosen(options, _FINE), [west, south], [east, north])

    def _chosen(self, options: Floats, side: float) -> Floats:
        """The option around which the likeliest cell of this side is, (N, 2)."""
        users = np.repeat(np.arange(len(options)), options.shape[1])
        flat = options.reshape(-1, 2)
        _, height = best_part(users, flat, side, self.log_likelihood)
        best = height.reshape(options.shape[:2]).argmax(axis=1)
        return options[np.arange(len(options)), best]
