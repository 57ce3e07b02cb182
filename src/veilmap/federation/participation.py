"""Who takes part in a round, and who fails to."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veilmap import _checks
from veilmap.errors import VeilmapError
from veilmap.federation.messages import ClientId


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
    """

    share: float = 1.0
    dropout: float = 0.0
    late: float = 0.0

    def __post_init__(self) -> None:
        for name in ("share", "dropout", "late"):
            if not 0 <= _checks.number(name, getattr(self, name)) <= 1:
                raise VeilmapError(f"{name} is a probability, not {getattr(self, name):g}")
        if self.share == 0:
            raise VeilmapError("share must be above 0: nobody would take part")
        if self.dropout + self.late > 1:
            raise VeilmapError("dropout and late together are more than everybody")

    def draw(self, seed: int | None, round_number: int, users: int) -> "Turnout":
        """The turnout of one round; with a seed it depends only on (seed, round)."""
        entropy = None if seed is None else [seed, round_number]
        asked, fate = np.random.default_rng(entropy).random((2, users))
        invited = asked < self.share
        dropped = invited & (fate < self.dropout)
        late = invited & ~dropped & (fate < self.dropout + self.late)
        return Turnout(invited & ~dropped & ~late, int(dropped.sum()), int(late.sum()))


@dataclass(frozen=True)
class Turnout:
    """Who answers in time, and how many of the asked do not."""

    answers: NDArray[np.bool_]
    dropped: int
    late: int

    def answering(self, users: Sequence[ClientId]) -> list[ClientId]:
        """Those of ``users``, of whom this turnout is, who answer."""
        return [user for user, taken in zip(users, self.answers, strict=True) if taken]

    @property
    def asked(self) -> int:
        """How many were asked."""
        return int(self.answers.sum()) + self.dropped + self.late
