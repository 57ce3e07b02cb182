"""Users who contribute while they move: in a round each has the links of one place only."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from veilmap._util.arrays import Bools
from veilmap._util.streams import Purpose, stream
from veilmap.data.folders import Crowd
from veilmap.data.measurements import Measurements
from veilmap.data.whereabouts import Whereabouts
from veilmap.errors import ConfigurationError
from veilmap.federation.engine import Gathered, LocalExchange
from veilmap.federation.participation import Turnout
from veilmap.federation.rounds import Training
from veilmap.federation.run import Run
from veilmap.federation.server import RoundSum


@dataclass(frozen=True)
class OnePlacePerRound:
    """Server and users in this process; a user answers a round with the links of one place.

    Which place is drawn anew every round, by how many links the user has there; with a seed
    it depends only on (seed, round). A study of what leaks of people who move:
    ``train(data, grid, engine=OnePlacePerRound())``.
    """

    divides = False

    def play(self, training: Training, data: Crowd) -> Run:
        """Play all rounds with these users."""
        if not isinstance(data, Measurements):
            raise ConfigurationError("users who move are given as Measurements", "data")
        config = training.config
        return training.play(_Moving(data, config.mechanism, config.seed))


@dataclass(frozen=True)
class _Moving(LocalExchange):
    data: Measurements

    @cached_property
    def _whereabouts(self) -> Whereabouts:
        return Whereabouts.of(self.data)

    def collect(self, total: RoundSum, turnout: Turnout) -> Gathered:
        """Let the users answer with what they measured where they are."""
        there = self.data.select(self._there(total.broadcast.round))
        return LocalExchange(there, self.mechanism, self.seed).collect(total, turnout)

    def _there(self, number: int) -> Bools:
        """Rows of the places where users are in a round: the place of one random row of each."""
        where, counts = self._whereabouts, self.data.links.counts
        drawn = stream(self.seed, Purpose.WHEREABOUTS, number).random(len(counts))
        by_user = np.repeat(np.arange(len(where.user)), where.links)  # places, user after user
        ends = np.cumsum(counts)
        chosen = by_user[(ends - counts) + (drawn * counts).astype(np.int64)]
        return np.isin(where.place, chosen)
