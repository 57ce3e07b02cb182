"""What attackers find out about users who move: homes, works, and who comes back."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from veilmap._util.arrays import Floats, Ints
from veilmap._util.plain import to_plain
from veilmap.attacks import PriorOnly
from veilmap.attacks.found_places import PLACES, FoundPlaces, PlacesAttack
from veilmap.attacks.mixture_pursuit import MixturePursuit
from veilmap.attacks.places_over_time import PlacesOverTime
from veilmap.attacks.reidentification import linked
from veilmap.auditing.audit import chosen_rounds
from veilmap.auditing.measured import DISTANCES, Measured, quantile, share
from veilmap.auditing.verdict import NEAR, Verdict, change, delta_of
from veilmap.data.measurements import Measurements
from veilmap.data.whereabouts import Whereabouts
from veilmap.errors import ConfigurationError
from veilmap.federation import Run, Transcript
from veilmap.federation.messages import ClientId
from veilmap.federation.study import STUDY
from veilmap.federation.transcript import SEEN, ServerSees
from veilmap.geometry.grid import Grid
from veilmap.privacy.accounting import Promise, has_guarantee
from veilmap.privacy.mechanisms import Mechanism

_GUESS_STEPS = 20  # of Lloyd's algorithm


@dataclass(frozen=True)
class PlacesScore:
    """How well one attack finds the places of users.

    ``home`` and ``work`` are the shares of users whose home or work is found within some
    distances, in metres; ``nearest`` is the median distance from a true place to the nearest
    estimated one, over all places of all users.
    """

    attack: str
    users: int
    home: Mapping[int, Measured]
    work: Mapping[int, Measured]
    home_median: Measured
    nearest: Measured


@dataclass(frozen=True)
class WalksAudit:
    """All attacks on users who move, in one run."""

    mechanism: Mechanism
    server_sees: ServerSees
    promised: Promise
    rounds: tuple[int, ...]  # from 0
    scores: tuple[PlacesScore, ...]
    guessing: PlacesScore
    found: Mapping[str, FoundPlaces] = field(repr=False)

    @property
    def study(self) -> str:
        """The words that head whatever shows an audit of a run with a guarantee; else empty."""
        return STUDY if has_guarantee(self.mechanism) else ""

    @property
    def strongest(self) -> PlacesScore:
        """The attack that finds most homes within 100 m, and of several the one that is nearest."""
        return max(self.scores, key=lambda one: (one.home[100].value, -one.home_median.value))

    @property
    def verdict(self) -> Verdict:
        """What the audit comes to, of the homes of users."""
        best, guess = self.strongest, self.guessing
        return Verdict(
            SEEN[self.server_sees], best.attack, f"{len(self.rounds)} kept rounds, of homes",
            best.users, best.home_median, best.home[NEAR], guess.home_median, guess.home[NEAR],
            self.promised.words, self.promised.epsilon,
            change(self.server_sees, self.promised.epsilon, delta_of(self.mechanism)),
        )  # fmt: skip

    def as_dict(self) -> dict[str, Any]:
        """For JSON; rounds count from 1 there."""
        return ({"study": self.study} if self.study else {}) | {
            "mechanism": to_plain(self.mechanism) | {"name": self.mechanism.name},
            "server_sees": self.server_sees,
            "rounds": [number + 1 for number in self.rounds],
            "verdict": self.verdict.as_dict(),
            "scores": [asdict(one) for one in self.scores],
            "guessing": asdict(self.guessing),
        }

    def as_text(self) -> str:
        """A table with one line an attack."""
        head = f"{'attack':18} {'home ≤ 50 m':>18} {'≤ 100 m':>18} {'work ≤ 100 m':>18}"
        lines = [f"{head} {'nearest place':>14}"]
        for one in (*self.scores, self.guessing):
            shares = (one.home[50], one.home[100], one.work[100])
            cells = " ".join(f"{_percent(each):>18}" for each in shares)
            lines.append(f"{one.attack:18} {cells} {one.nearest.value:12.0f} m")
        lines += self.verdict.lines
        return "\n".join([self.study, *lines] if self.study else lines)


@dataclass(frozen=True)
class Linked:
    """How many users of one run were recognised in another."""

    attack: str
    users: int
    right: Measured
    chance: float  # the share that a random assignment gets right


def audit_walks(
    run: Run, data: Measurements, *, attacks: Sequence[PlacesAttack] | None = None
) -> WalksAudit:
    """Look for the homes, works and other places of a run's users, and score against the truth.

    Parameters
    ----------
    run : Run
        Trained with ``keep_uploads``; all kept rounds are attacked.
    data : Measurements
        Of all its users. A user's home is the place with most links, work the next.
    attacks : attacks, optional
        By default all that fit the trust model.
    """
    every = sorted(run.transcript.rounds)
    transcript = chosen_rounds(run.transcript, every).knowing(*data.stations)
    if attacks is None:
        known: list[PlacesAttack] = [PlacesOverTime(), MixturePursuit()]
        attacks = [attack for attack in known if transcript.server_sees in attack.sees]
    found = {attack.name: attack.places(transcript) for attack in attacks}
    truth = _Truth.of(data)
    guess = _guess(transcript)
    return WalksAudit(
        transcript.mechanism,
        transcript.server_sees,
        run.promise,
        tuple(every),
        tuple(truth.score(name, places) for name, places in found.items()),
        truth.score(PriorOnly.name, guess),
        found,
    )


def reidentify(first: WalksAudit, second: WalksAudit, same: Mapping[ClientId, ClientId]) -> Linked:
    """How many users of one run are recognised in another, by the attack that recognises most.

    ``same`` says under which pseudonym of the second run each user of the first comes back.
    """
    if not (both := [name for name in first.found if name in second.found]):
        raise ConfigurationError("the two audits have no attack in common", "second")
    results = []
    for name in both:
        pairs = linked(first.found[name], second.found[name])
        if unknown := [client for client in pairs if client not in same]:
            raise ConfigurationError(f"same does not say who user {unknown[0]} is", "same")
        hits = np.array([same[client] == other for client, other in pairs.items()])
        chance = 1 / len(second.found[name].clients)
        results.append(Linked(name, len(hits), share(hits), chance))
    return max(results, key=lambda one: one.right.value)


@dataclass(frozen=True, eq=False)
class _Truth:
    """Where users are."""

    row_of: Mapping[ClientId, int]
    whereabouts: Whereabouts
    home: Floats  # (N, 2)
    work: Floats

    @classmethod
    def of(cls, data: Measurements) -> "_Truth":
        where = Whereabouts.of(data)
        home, work = where.most_visited(0), where.most_visited(1)
        if (alone := np.flatnonzero(np.isnan(work[:, 0]))).size:
            raise ConfigurationError(f"user {data.users[alone[0]]} was at one place only", "data")
        row_of = {client: row for row, client in enumerate(data.users.tolist())}
        return cls(row_of, where, home, work)

    def score(self, attack: str, found: FoundPlaces) -> PlacesScore:
        """What an attack found, beside where users are."""
        if unknown := [client for client in found.clients if client not in self.row_of]:
            raise ConfigurationError(f"the places of user {unknown[0]} are not given", "data")
        rows = np.array([self.row_of[client] for client in found.clients])
        home, work = (
            np.linalg.norm(own - true[rows], axis=1)
            for own, true in ((found.home, self.home), (found.work, self.work))
        )
        return PlacesScore(
            attack,
            len(rows),
            {metres: share(home <= metres) for metres in DISTANCES},
            {metres: share(work <= metres) for metres in DISTANCES},
            quantile(home, 0.5),
            quantile(self._nearest(rows, found.xy), 0.5),
        )

    def _nearest(self, rows: Ints, xy: Floats) -> Floats:
        """From each true place of some users to the nearest found one, (·,)."""
        where = self.whereabouts
        each = [
            np.linalg.norm(where.xy[where.user == row][:, None] - own, axis=2).min(axis=1)
            for row, own in zip(rows, xy, strict=True)
        ]
        return np.concatenate(each)


def _guess(transcript: Transcript) -> FoundPlaces:
    """What whoever looks at nothing says: home and work in the middle, other places around."""
    clients = transcript.wanted(transcript.rounds.values())
    middle = PriorOnly().guess(transcript.grid)
    xy = np.vstack([middle, middle, _spread(transcript.grid, PLACES - 1)])
    return FoundPlaces(clients, np.tile(xy, (len(clients), 1, 1)))


def _spread(grid: Grid, places: int) -> Floats:
    """So many places that no point of the grid is far from all, (S, 2), by Lloyd's algorithm."""
    from scipy.cluster.vq import kmeans2

    rng = np.random.default_rng(0)
    some = rng.choice(grid.centres, min(grid.cells, 2000), replace=False)
    return kmeans2(some, places, iter=_GUESS_STEPS, minit="++", seed=rng)[0]


def _percent(measured: Measured) -> str:
    return f"{measured.value:.0%} ({measured.low:.0%}–{measured.high:.0%})"
