"""What an audit comes to, for people: one sentence, one number, the promise, what to change."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from veilmap._util import checks
from veilmap.auditing.measured import Measured, finite, interval, metres, percent
from veilmap.auditing.membership import Membership, auc_allowed
from veilmap.federation.transcript import ServerSees
from veilmap.privacy.mechanisms import Mechanism, PrivateMechanism

NEAR = 50  # metres: whoever is placed within is found
_MOST_PAIRS = 0.9  # of an ε that lets more pairs be told apart, ε = 2.2, a smaller one is advised
_LONGEST = 2000  # letters of a text that is read back


class Placed(Protocol):
    """How far one attack is off; every score of places has this."""

    @property
    def attack(self) -> str:
        """Its name."""

    @property
    def users(self) -> int:
        """How many it was tried on."""

    @property
    def median(self) -> Measured:
        """Its median error, in metres."""

    @property
    def found(self) -> Mapping[int, Measured]:
        """Shares of users whom it places within some distances, in metres."""


@dataclass(frozen=True)
class Told:
    """How often those who know everybody else tell who took part, and what is allowed."""

    pairs: Measured  # of a participant and somebody else, the share told apart: AUC
    allowed: float  # by (ε, δ)

    @classmethod
    def of(cls, found: Membership) -> "Told | None":
        """What was found; None where contributions are too much alike to measure it."""
        return None if math.isnan(found.auc.value) else cls(found.auc, found.auc_allowed)


@dataclass(frozen=True)
class Verdict:
    """What an audit comes to.

    Attributes
    ----------
    sees : str
        What the adversary sees: the trust model in words.
    attack, knows : str
        The strongest attack, and what it was given.
    users : int
        How many it was tried on.
    median, near : Measured
        Its median error in metres, and the share of users that it places within 50 m.
    guess_median, guess_near : Measured
        The same of guessing.
    promise : str
        The guarantee, or why there is none.
    epsilon : float
        NaN where nothing is promised.
    change : str
        What to do about it.
    told : Told, optional
        Of sums with noise: who took part.
    """

    sees: str
    attack: str
    knows: str
    users: int
    median: Measured
    near: Measured
    guess_median: Measured
    guess_near: Measured
    promise: str
    epsilon: float
    change: str
    told: Told | None = None

    @classmethod
    def of(
        cls, sees: str, strongest: tuple[Placed, str], guess: Placed, **others: Any
    ) -> "Verdict":
        """Of the strongest attack, with what it was given, and of guessing."""
        best, knows = strongest
        return cls(
            sees, best.attack, knows, best.users, best.median, best.found[NEAR], guess.median,
            guess.found[NEAR], **others,
        )  # fmt: skip

    @property
    def beats_guessing(self) -> bool:
        """Whether the intervals of the strongest attack and of guessing lie apart."""
        return self.median.high < self.guess_median.low or self.near.low > self.guess_near.high

    @property
    def finding(self) -> str:
        """The sentence on what the strongest attack finds."""
        if not self.beats_guessing:
            said = f"With {self.users:,} users no attack tried is told from guessing"
        elif self.median.value <= NEAR:
            said = "Users are found"
        else:
            said = "Users are partly found"
        return (
            f"{said}: {self.attack}, given {self.knows}, is {metres(self.median.value)} m off in"
            f" the median (95 % CI {interval(self.median, metres)}) and places"
            f" {percent(self.near.value)} % of users within {NEAR} m"
            f" ({interval(self.near, percent)}); guessing: {metres(self.guess_median.value)} m,"
            f" {percent(self.guess_near.value)} %."
        )

    @property
    def membership(self) -> str:
        """The sentence on who took part; empty where that is not hidden."""
        if self.told is None:
            return ""
        pairs = self.told.pairs
        return (
            "Somebody who knows everything that all others added tells a participant from somebody"
            f" else in {percent(pairs.value)} % of pairs ({interval(pairs, percent)});"
            f" the (ε, δ) of what was attacked allows {percent(self.told.allowed)} %."
        )

    @property
    def lines(self) -> tuple[str, ...]:
        """All of it in words."""
        found = f"Whoever sees {self.sees}: {self.finding}", self.membership
        said = *found, f"Promise: {self.promise}.", f"What to change: {self.change}."
        return tuple(line for line in said if line)

    def as_dict(self) -> dict[str, Any]:
        """For JSON; what is not finite is null."""
        words = {"finding": self.finding, "beats_guessing": self.beats_guessing}
        return finite(words | asdict(self))

    @classmethod
    def read(cls, content: Mapping[str, Any]) -> "Verdict":
        """What `as_dict` gave, out of a file that somebody may have changed."""
        told, claimed = content["told"], content["epsilon"]
        median, near, guess_median, guess_near = (
            _measured(content[name]) for name in ("median", "near", "guess_median", "guess_near")
        )
        sees, attack, knows, promise, advice = (
            _text(content[name]) for name in ("sees", "attack", "knows", "promise", "change")
        )
        return cls(
            sees, attack, knows, checks.whole("users", content["users"], least=1),
            median, near, guess_median, guess_near, promise,
            math.nan if claimed is None else checks.number("epsilon", claimed), advice,
            None
            if told is None
            else Told(_measured(told["pairs"]), checks.number("allowed", told["allowed"])),
        )  # fmt: skip


def strongest(scores: Iterable[tuple[Placed, str]]) -> tuple[Placed, str]:
    """The attack that places the typical user best, of several with what each was given."""
    return min(scores, key=lambda one: one[0].median.value)


def change(sees: ServerSees, epsilon: float, delta: float | None) -> str:
    """What to do about the privacy of users.

    ``delta`` is None for mechanisms without a guarantee; ``epsilon`` is NaN where nothing is
    promised all the same: the noise can be computed from a seed, or the guarantee is only claimed.
    """
    if delta is None and sees == "sums":
        return (
            "add noise to the sums (mechanism aggregate): without it a sum hides somebody only as"
            " long as nobody knows, or can subtract, what the others added"
        )
    if delta is None:
        return (
            "let the server see no single upload, as noise on uploads does not hide a user from an"
            " attacker who knows it: train with noise on sums (mechanism aggregate), or survey the"
            " area with one sum (veilmap survey)"
        )
    if math.isnan(epsilon):
        return (
            "before anything is published, train without a seed, which tells the noise, and with a"
            " mechanism whose guarantee veilmap has checked"
        )
    most = auc_allowed(epsilon, delta)
    if most > _MOST_PAIRS:
        return (
            f"ask for a smaller ε: ε = {epsilon:.3g} would let a stronger attack tell"
            f" {percent(most)} % of pairs apart. More participants, or one sum in place of many"
            " rounds (veilmap survey), pay for it; veilmap plan says what with"
        )
    return "nothing, but that anything further about the same people adds to their ε"


def delta_of(mechanism: Mechanism | None) -> float | None:
    """δ of a mechanism with a guarantee; None for others."""
    return mechanism.delta if isinstance(mechanism, PrivateMechanism) else None


def _text(content: Any) -> str:
    if not isinstance(content, str):
        raise TypeError("a verdict is in words")
    return content[:_LONGEST]


def _measured(content: Mapping[str, Any]) -> Measured:
    return Measured(*(checks.number(name, content[name]) for name in ("value", "low", "high")))
