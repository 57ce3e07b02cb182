"""Find the place that best explains all that an upload holds: gradients of h and of θ."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from veilmap._util.arrays import Floats, Ints
from veilmap.attacks.base import Attack, Estimates, Placed, Posterior, When
from veilmap.attacks.gradient_inversion import GradientInversion, View
from veilmap.attacks.matched_filter import MatchedFilter
from veilmap.attacks.refinement import best_of_parts, climbed
from veilmap.attacks.theta_inversion import ThetaEstimates, ThetaInversion
from veilmap.attacks.theta_likelihood import ThetaEvidence
from veilmap.federation.messages import ClientId
from veilmap.federation.transcript import Transcript

_REACH = 0.5  # of a cell of the map: how far starts may be off
_SHRINK = 0.65  # of a climb's cells from step to step
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
        by_theta = earlier.get(self.theta.name)
        if not isinstance(by_theta, ThetaEstimates):
            by_theta = self.theta.locate(transcript)
        placed: dict[When, Placed] = {}
        for when, evidence in by_theta.evidence.items():
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

    def by_heights(self, users: Ints, xy: Floats) -> Floats:
        """Log-likelihood of h's gradients at places (n, …, 2), each row for one user: (n, …)."""
        candidates = self.views[0].candidates
        places = candidates.places(xy.reshape(-1, 2))
        gains = candidates.gains(places)
        found = np.zeros(len(places))
        for view, rows in zip(self.views, self._rows, strict=True):
            each = np.repeat(rows[users], len(places) // len(users))
            found += view.log_evidence(each, places, gains)
        return found.reshape(xy.shape[:-1])

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
        heights = self.by_heights(np.arange(len(options)), options)
        found = self._chosen(options, heights, side)
        found = climbed(found, side, _SHRINK, self.by_heights, self.theta.at)[:, None]
        heights = np.column_stack([self.by_heights(np.arange(len(found)), found), heights])
        options = np.concatenate([found, options], axis=1)
        west, east, south, north = grid.extent
        return np.clip(self._chosen(options, heights, _FINE), [west, south], [east, north])

    def _chosen(self, options: Floats, heights: Floats, side: float) -> Floats:
        """The likeliest option, (N, 2): by h's evidence there, by θ's in cells around it."""
        users = np.repeat(np.arange(len(options)), options.shape[1])
        by_theta = best_of_parts(users, options.reshape(-1, 2), side, self.theta.at)
        best = (heights + by_theta.reshape(heights.shape)).argmax(axis=1)
        return options[np.arange(len(options)), best]
