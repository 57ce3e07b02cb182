"""What attacks share: what they may see, and what they answer with."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from veilmap._util.arrays import Array, Bools, Floats
from veilmap.attacks.candidates import Candidates
from veilmap.errors import ConfigurationError
from veilmap.federation.messages import ClientId
from veilmap.federation.transcript import SeenRound, ServerSees, Transcript
from veilmap.geometry.grid import Grid

When = int | Literal["all"]
"""A round, or all kept rounds together."""


Places = Mapping[ClientId, Floats]
"""The true position (2,) of every user, in metres."""


@dataclass(frozen=True)
class Placed:
    """Users and where an attack places them, (n, 2), in metres."""

    clients: tuple[ClientId, ...]
    xy: Floats = field(repr=False)

    def errors(self, true_xy: Places) -> Floats:
        """Distance from the truth, (n,), in metres."""
        truth = np.array([true_xy[client] for client in self.clients]).reshape(-1, 2)
        return np.linalg.norm(self.xy - truth, axis=1)

    def of(self, clients: Sequence[ClientId]) -> Floats:
        """The places of some of them, in this order, (n, 2)."""
        row_of = {client: row for row, client in enumerate(self.clients)}
        return self.xy[[row_of[client] for client in clients]]


@dataclass(frozen=True)
class Posterior:
    """Where an attacker believes some users to be: a probability for every cell of a grid.

    ``grid`` may be coarser than the map's; ``evidence`` (n, K) is the log-probability of every
    cell up to a constant per user.
    """

    grid: Grid
    clients: tuple[ClientId, ...]
    evidence: NDArray[np.float32] = field(repr=False)

    @cached_property
    def probability(self) -> NDArray[np.float32]:
        """(n, K), each row sums to 1."""
        weight = np.exp(self.evidence - self.evidence.max(axis=1, keepdims=True))
        return weight / weight.sum(axis=1, keepdims=True)

    def map_of(self, client: ClientId) -> NDArray[np.float32]:
        """One user's probabilities as an image, (rows, columns)."""
        return self.probability[self.clients.index(client)].reshape(self.grid.shape)

    def modes(self) -> Floats:
        """The most probable place of every user, (n, 2), in metres."""
        return self.grid.centres[self.evidence.argmax(axis=1)]

    def means(self) -> Floats:
        """The mean place of every user, (n, 2): the guess with the least squared error."""
        return self.probability.astype(np.float64) @ self.grid.centres

    def entropy(self) -> Floats:
        """What the attacker does not know of every user, (n,), in bits; log2 K at most."""
        p = self.probability.astype(np.float64)
        return -np.sum(p * np.log2(np.maximum(p, 1e-300)), axis=1)

    def credible_region(self, level: float = 0.95) -> Bools:
        """The fewest cells that hold every user with probability ``level``, (n, K)."""
        order = np.argsort(-self.probability, axis=1, kind="stable")
        held = np.cumsum(np.take_along_axis(self.probability, order, 1), axis=1, dtype=np.float64)
        needed = np.hstack([np.ones((len(held), 1), dtype=bool), held[:, :-1] < level])
        region = np.zeros(order.shape, dtype=bool)
        np.put_along_axis(region, order, needed, 1)
        return region

    def covers(self, true_xy: Places, level: float = 0.95) -> Bools:
        """Whether the credible region holds the truth, (n,): ``level`` of all if calibrated."""
        cells = self.grid.cell_of(np.array([true_xy[client] for client in self.clients]))
        return (cells >= 0) & self.credible_region(level)[np.arange(len(cells)), cells]


@dataclass(frozen=True)
class Estimates:
    """What an attack answers with, by round and for "all".

    Attacks that give places only have no ``posteriors``; ``candidates`` are the places that
    were compared, for attacks that go on from there.
    """

    attack: str
    placed: Mapping[When, Placed]
    posteriors: Mapping[When, Posterior] = field(default_factory=dict, repr=False)
    candidates: Candidates | None = field(default=None, repr=False)

    def errors(self, true_xy: Places) -> dict[When, Floats]:
        """Distance of every estimate from the truth, in metres, by round and for "all"."""
        return {when: placed.errors(true_xy) for when, placed in self.placed.items()}


class Attack(ABC):
    """A way to find users from a transcript and public facts."""

    sees: ClassVar[frozenset[ServerSees]] = frozenset({"uploads"})
    reads_theta: ClassVar[bool] = False  # whether it needs single users' gradients of θ

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

    def fits(self, transcript: Transcript) -> bool:
        """Whether this server saw what the attack works on."""
        shown = transcript.shows_theta or not self.reads_theta
        return transcript.server_sees in self.sees and shown

    def check(self, transcript: Transcript) -> None:
        """Refuse a transcript that does not hold what this attack works on."""
        if not transcript.rounds:
            raise ConfigurationError(
                "the transcript holds no round: train with keep_uploads", "keep_uploads"
            )
        if transcript.server_sees not in self.sees:
            raise ConfigurationError(
                f"the attack {self.name} needs {' or '.join(sorted(self.sees))};"
                f" in this run the server sees only {transcript.server_sees}",
                "server_sees",
            )
        if self.reads_theta and not transcript.shows_theta:
            raise ConfigurationError(
                f"the attack {self.name} needs single users' gradients of θ; in this run the"
                " server sees only their sum",
                "theta",
            )

    def uploads(self, transcript: Transcript) -> dict[int, SeenRound]:
        """The rounds of a server that sees every upload."""
        self.check(transcript)
        return {number: transcript.uploads(number) for number in sorted(transcript.rounds)}


class PointAttack(Attack):
    """An attack that turns one upload into one place; over rounds it takes the median."""

    @abstractmethod
    def positions(self, uploads: Array, transcript: Transcript) -> Floats:
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
    by_client: dict[ClientId, list[Floats]] = {}
    for placed in rounds:
        for client, xy in zip(placed.clients, placed.xy, strict=True):
            by_client.setdefault(client, []).append(xy)
    middle = np.array([np.median(places, axis=0) for places in by_client.values()])
    return Placed(tuple(by_client), middle.reshape(-1, 2))
