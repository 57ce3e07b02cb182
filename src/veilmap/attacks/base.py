"""What attacks share: what they may see, and what they answer with."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from veilmap.attacks.candidates import Candidates
from veilmap.attacks.posterior import Posterior
from veilmap.errors import ConfigurationError
from veilmap.federation.messages import ClientId
from veilmap.federation.transcript import SeenRound, ServerSees, Transcript

When = int | Literal["all"]
"""A round, or all kept rounds together."""


@dataclass(frozen=True)
class Placed:
    """Users and where an attack places them, (n, 2), in metres."""

    clients: tuple[ClientId, ...]
    xy: NDArray[np.float64] = field(repr=False)

    def errors(self, true_xy: Mapping[ClientId, NDArray[np.float64]]) -> NDArray[np.float64]:
        """Distance from the truth, (n,), in metres."""
        truth = np.array([true_xy[client] for client in self.clients]).reshape(-1, 2)
        return np.linalg.norm(self.xy - truth, axis=1)


@dataclass(frozen=True)
class Estimates:
    """What an attack answers with.

    Attributes
    ----------
    attack : str
    placed : mapping from round, or "all", to Placed
    posteriors : mapping from round, or "all", to Posterior
        Empty for attacks that give places only.
    candidates : Candidates or None
        The places that were compared, for attacks that go on from there.
    """

    attack: str
    placed: Mapping[When, Placed]
    posteriors: Mapping[When, Posterior] = field(default_factory=dict, repr=False)
    candidates: Candidates | None = field(default=None, repr=False)

    def errors(
        self, true_xy: Mapping[ClientId, NDArray[np.float64]]
    ) -> dict[When, NDArray[np.float64]]:
        """Distance of every estimate from the truth, in metres, by round and for "all"."""
        return {when: placed.errors(true_xy) for when, placed in self.placed.items()}


class Attack(ABC):
    """A way to find users from a transcript and public facts."""

    sees: ClassVar[frozenset[ServerSees]] = frozenset({"uploads"})

    @property
    @abstractmethod
    def name(self) -> str:
        """For tables."""

    @abstractmethod
    def locate(self, transcript: Transcript) -> Estimates:
        """Places of every user, for each kept round and from all of them together."""

    def locate_after(self, transcript: Transcript, earlier: Mapping[str, Estimates]) -> Estimates:
        """`locate`, making use of what other attacks on the same transcript found, by name."""
        return self.locate(transcript)

    def check(self, transcript: Transcript) -> None:
        """Refuse a transcript that does not hold what this attack works on."""
        if not transcript.rounds:
            raise ConfigurationError("the transcript holds no round: train with keep_uploads")
        if transcript.server_sees not in self.sees:
            raise ConfigurationError(
                f"the attack {self.name} needs {' or '.join(sorted(self.sees))};"
                f" in this run the server sees only {transcript.server_sees}"
            )

    def uploads(self, transcript: Transcript) -> dict[int, SeenRound]:
        """The rounds of a server that sees every upload."""
        self.check(transcript)
        return {number: transcript.uploads(number) for number in sorted(transcript.rounds)}


class PointAttack(Attack):
    """An attack that turns one upload into one place; over rounds it takes the median."""

    @abstractmethod
    def positions(self, uploads: NDArray, transcript: Transcript) -> NDArray[np.float64]:
        """Estimates (n, 2) in metres for uploads (n, M)."""

    def locate(self, transcript: Transcript) -> Estimates:
        """An estimate per user and kept round, and their medians."""
        placed: dict[When, Placed] = {
            number: Placed(seen.clients, self.positions(seen.uploads, transcript))
            for number, seen in self.uploads(transcript).items()
        }
        return Estimates(self.name, placed | {"all": medians(placed.values())})


def medians(rounds: Iterable[Placed]) -> Placed:
    """Each user's median place over several rounds."""
    by_client: dict[ClientId, list[NDArray[np.float64]]] = {}
    for placed in rounds:
        for client, xy in zip(placed.clients, placed.xy, strict=True):
            by_client.setdefault(client, []).append(xy)
    middle = np.array([np.median(places, axis=0) for places in by_client.values()])
    return Placed(tuple(by_client), middle.reshape(-1, 2))
