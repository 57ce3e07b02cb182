"""Who takes part in a round, and who fails to."""

from collections.abc import Sequence
from dataclasses import dataclass

from veilmap._util.arrays import Bools, Ints
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
    counts as missing from the round and takes part again in later ones. In turns, users are dealt
    at random into 1/share groups, which are asked one after the other: so everybody is asked
    equally often, and pays for no more rounds than that.
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

    def draw(self, seed: int | None, round_number: int, users: Sequence[ClientId]) -> "Turnout":
        """The turnout of one round; with a seed it depends only on (seed, round)."""
        asked, fate = stream(seed, Purpose.TURNOUT, round_number).random((2, len(users)))
        invited = asked < self.share
        if self.in_turns:
            invited = self._group_of(seed, len(users)) == round_number % self.groups
        dropped = invited & (fate < self.dropout)
        late = invited & ~dropped & (fate < self.dropout + self.late)
        answers = invited & ~dropped & ~late
        return Turnout(users, invited, answers, int(dropped.sum()), int(late.sum()))

    def _group_of(self, seed: int | None, users: int) -> Ints:
        """The same in every round; who is with whom is no secret, so that 0 does for a seed."""
        return stream(seed or 0, Purpose.TURNS).permutation(users) % self.groups


@dataclass(frozen=True)
class Turnout:
    """Who of some users was asked, who of these answers in time, and how many do not."""

    users: Sequence[ClientId]
    invited: Bools
    answers: Bools
    dropped: int = 0
    late: int = 0

    def answering(self, among: slice = slice(None)) -> list[ClientId]:
        """The users who answer, in their order."""
        both = zip(self.users[among], self.answers[among], strict=True)
        return [user for user, taken in both if taken]
