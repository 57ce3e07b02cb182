"""Who takes part in a round, and who fails to."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veilmap._util.options import check_options, option
from veilmap._util.plain import plain
from veilmap._util.streams import Purpose, stream
from veilmap.errors import ConfigurationError
from veilmap.federation.messages import ClientId


@plain
@dataclass(frozen=True)
class Participation:
    """A simulated crowd: who is asked, who never answers, who answers too late.

    A late answer belongs to a map that has moved on; the server refuses it, so its user
    counts as missing from the round and takes part again in later ones.

    Parameters
    ----------
    share : float
        Probability that a user is asked in a round.
    dropout, late : float
        Probabilities that an asked user never answers, or answers after the round closed.
    in_turns : bool
        Users are dealt at random into 1/share groups, which are asked one after the other: so
        everybody is asked equally often, and pays for no more rounds than that.
    """

    share: float = option(1.0, "--share", "Share of users asked each round.", above=0, most=1)
    dropout: float = option(
        0.0, "--dropout", "Share of the users asked who never answer.", least=0, most=1
    )
    late: float = option(
        0.0, "--late", "Share of the users asked who answer too late.", least=0, most=1
    )
    in_turns: bool = option(
        False, "--in-turns", "Divide users into groups of that share and ask one after the other."
    )

    def __post_init__(self) -> None:
        check_options(self)
        if self.dropout + self.late > 1:
            raise ConfigurationError("dropout and late together are more than everybody")
        if self.in_turns and abs(self.groups * self.share - 1) > 1e-9:
            raise ConfigurationError(
                f"in turns, share is one of so many groups: 1/{self.groups}, not {self.share:g}"
            )

    @property
    def groups(self) -> int:
        """How many groups take turns."""
        return round(1 / self.share) if self.in_turns else 1

    def rounds_each(self, rounds: int) -> int:
        """In how many of ``rounds`` rounds a user is at most."""
        return -(-rounds // self.groups)

    def draw(self, seed: int | None, round_number: int, users: int) -> "Turnout":
        """The turnout of one round; with a seed it depends only on (seed, round)."""
        asked, fate = stream(seed, Purpose.TURNOUT, round_number).random((2, users))
        invited = asked < self.share
        if self.in_turns:
            invited = self._group_of(seed, users) == round_number % self.groups
        dropped = invited & (fate < self.dropout)
        late = invited & ~dropped & (fate < self.dropout + self.late)
        answers = invited & ~dropped & ~late
        return Turnout(answers, int(dropped.sum()), int(late.sum()), invited)

    def _group_of(self, seed: int | None, users: int) -> NDArray[np.int64]:
        """The same in every round; who is with whom is no secret, so that 0 does for a seed."""
        return stream(seed or 0, Purpose.TURNS).permutation(users) % self.groups


@dataclass(frozen=True)
class Turnout:
    """Who answers in time, how many of the asked do not, and who was asked."""

    answers: NDArray[np.bool_]
    dropped: int
    late: int
    invited: NDArray[np.bool_] | None = None

    def answering(self, users: Sequence[ClientId]) -> list[ClientId]:
        """Those of ``users``, of whom this turnout is, who answer."""
        return [user for user, taken in zip(users, self.answers, strict=True) if taken]

    @property
    def asked(self) -> int:
        """How many were asked."""
        return int(self.answers.sum()) + self.dropped + self.late
