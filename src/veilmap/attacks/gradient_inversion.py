"""Find the place, and with it the measurements, that best explain an upload."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from veilmap._kernels import candidates as kernels
from veilmap._kernels.arguments import Sites, Uploads
from veilmap._util import checks
from veilmap._util.arrays import Bools, Floats, Ints
from veilmap._util.threads import even_parts, run_parts
from veilmap.attacks.base import Attack, Estimates, Placed, Posterior, When
from veilmap.attacks.candidates import Candidates
from veilmap.attacks.matched_filter import MatchedFilter
from veilmap.attacks.plane_subtraction import noise_variances
from veilmap.federation.messages import ClientId
from veilmap.federation.transcript import SeenRound, Transcript
from veilmap.model.radio_map import RadioMap

# Four ways to step on the ground, in turns: along the axes, then between them.
_STEPS = np.array(
    [[(1, 0), (-1, 0), (0, 1), (0, -1)], [(0.7, 0.7), (-0.7, 0.7), (0.7, -0.7), (-0.7, -0.7)]]
)
_SHRINK = 0.75
# Starts that the matched filter finds so much less likely than the best, as a logarithm, are not
# tried.
_HOPELESS = 10.0


@dataclass(frozen=True)
class GradientInversion(Attack):
    """The deep-leakage idea on this model: ask which data would have given this gradient.

    A gradient is linear in its user's residuals, so for any place they can be integrated
    out exactly: the upload is normal with a covariance that depends on the place alone. The
    attack starts from the matched filter's best candidates and climbs to the continuous
    place of greatest likelihood; over several rounds, their likelihoods multiply. Residuals spread
    around what the server's best map expects by measurement noise and the map's own error.
    """

    starts: int = 30  # candidates to start from, per user
    steps: int = 8  # rounds of refinement, each with a smaller step
    residual_db: float = 6.0  # spread of the residuals
    floor: float = 0.03  # noise assumed in every cell, as a share of the upload's mean energy
    cells: int = 64  # of the map that are looked at for each place: those that say most
    altitude: float = 1.5  # of users above ground, in metres

    name = "gradient inversion"

    def __post_init__(self) -> None:
        for name in ("starts", "steps", "cells"):
            checks.whole(name, getattr(self, name), least=1)
        for name in ("residual_db", "floor"):
            checks.number(name, getattr(self, name), above=0)

    def locate(self, transcript: Transcript, starts: Estimates | None = None) -> Estimates:
        """Places of greatest likelihood; ``starts`` saves a `MatchedFilter` run anew."""
        starts = starts or MatchedFilter(altitude=self.altitude).locate(transcript)
        views = self.views(transcript, starts)
        placed: dict[When, Placed] = {
            number: self._climb([view], starts.posteriors[number]) for number, view in views.items()
        }
        if len(views) > 1:
            placed["all"] = self._climb(list(views.values()), starts.posteriors["all"])
        else:
            placed["all"] = next(iter(placed.values()))
        return Estimates(self.name, placed)

    def locate_after(self, transcript: Transcript, earlier: Mapping[str, Estimates]) -> Estimates:
        """`locate` from the places of greatest likelihood of a `MatchedFilter` among them."""
        return self.locate(transcript, earlier.get(MatchedFilter.name))

    def views(self, transcript: Transcript, starts: Estimates) -> "dict[int, View]":
        """The likelihoods of all rounds; ``starts`` are those of a `MatchedFilter`."""
        candidates = starts.candidates or Candidates.of(transcript, self.altitude)
        clip, rounds = transcript.mechanism.clip, self.uploads(transcript)
        return {number: self._view(seen, candidates, clip) for number, seen in rounds.items()}

    def _view(self, seen: SeenRound, candidates: Candidates, clip: float) -> "View":
        """A round with the noise that its uploads show."""
        broadcast, values = seen.broadcast.radio_map, seen.uploads.astype(np.float64)
        variances = noise_variances(seen.uploads, broadcast.grid)
        variances += self.floor * np.mean(values**2, axis=1, keepdims=True) + 1e-300
        counts = seen.weight.astype(np.float64)
        uploads = Uploads(values=values, variances=variances, counts=counts, clip=clip)
        row_of = {client: row for row, client in enumerate(seen.clients)}
        return View(self, candidates, broadcast, row_of, uploads)

    def _climb(self, views: "Sequence[View]", posterior: Posterior) -> Placed:
        """From the posterior's peaks to the best places nearby."""
        clients = posterior.clients
        west, east, south, north = posterior.grid.extent
        # Several rounds together leave fewer places in doubt.
        cells = _peaks(posterior, self.starts if len(views) == 1 else self.starts // 4 + 1)
        before = np.take_along_axis(posterior.evidence, cells, axis=1)
        worth = before >= before.max(axis=1, keepdims=True) - _HOPELESS
        gains = views[0].candidates.gains_at_centres[cells.ravel()]
        best, height = _best(views, clients, posterior.grid.centres[cells], gains, worth)
        reach = 0.5 * posterior.grid.cell_size
        for number in range(self.steps):
            options = best[:, None] + reach * _STEPS[number % 2]
            found, higher = _best(views, clients, np.clip(options, [west, south], [east, north]))
            better = higher > height
            best, height = np.where(better[:, None], found, best), np.maximum(height, higher)
            reach *= _SHRINK
        return Placed(clients, best)


@dataclass(frozen=True)
class View:
    """One round as the likelihood takes it."""

    attack: GradientInversion
    candidates: Candidates
    broadcast: RadioMap
    row_of: Mapping[ClientId, int]
    uploads: Uploads

    def log_evidence(self, rows: Ints, places: Floats, gains: Floats) -> Floats:
        """How well each place explains the upload of its row; 0 for users who were away."""
        there = np.flatnonzero(rows >= 0)
        gains = self.candidates.less_offsets(gains[there], self.broadcast)
        sites = Sites(places=places[there], stations=self.candidates.stations, gains=gains)
        users, out = rows[there], np.empty(len(there))

        def part(start: int, stop: int) -> None:
            kernels.log_evidence(
                start=start, stop=stop, sites=sites, users=users,
                model=self.broadcast.kernel_model, uploads=self.uploads,
                spread=self.attack.residual_db, most_cells=self.attack.cells, out=out,
            )  # fmt: skip

        run_parts(part, even_parts(len(there)))
        result = np.zeros(len(rows))
        result[there] = out
        return result


def _best(
    views: Sequence[View],
    clients: Sequence[ClientId],
    options: Floats,
    gains: Floats | None = None,
    worth: Bools | None = None,
) -> tuple[Floats, Floats]:
    """The option (n, o, 2) of each client with the most evidence over all views, and that.

    Only options that are ``worth`` it (n, o) are looked at, by default all.
    """
    candidates = views[0].candidates
    places = candidates.places(options.reshape(-1, 2))
    if gains is None:
        gains = candidates.gains(places)
    total = np.zeros(len(places))
    for view in views:
        rows = np.array([view.row_of.get(client, -1) for client in clients], dtype=np.int64)
        each = np.repeat(rows, options.shape[1])
        if worth is not None:
            each[~worth.ravel()] = -1
        total += view.log_evidence(each, places, gains)
    by_client = total.reshape(options.shape[:2])
    if worth is not None:
        by_client = np.where(worth, by_client, -np.inf)
    chosen = by_client.argmax(axis=1)
    return options[np.arange(len(options)), chosen], by_client.max(axis=1)


def _peaks(posterior: Posterior, count: int) -> Ints:
    """The highest cells that top their neighbours, (n, count)."""
    from scipy.ndimage import maximum_filter

    images = posterior.evidence.reshape(-1, *posterior.grid.shape)
    peaks = np.where(maximum_filter(images, (1, 3, 3)) == images, images, -np.inf)
    count = min(count, posterior.grid.cells)
    return np.argpartition(-peaks.reshape(len(images), -1), count - 1, axis=1)[:, :count]
