"""Rounds of a very large federation in which users, groups and aggregators fail: a simulation.

    python benchmarks/failures.py              # under a minute on one core
    python benchmarks/failures.py --json F     # and as a file

A round's users are dealt into groups that mask their uploads among themselves. Edge aggregators add
up the groups they carry; the top adds up what they forward, and opens the sum only if as many
answers are in it as the noise shares were sized for. No group's sum is opened alone.

Nothing here is measured: every assumption is an option with its reason (--help), and whoever has
figures of their own should put them in.
"""

import argparse
import functools
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

# What the tables go through.
ALLOWED = (0.05, 0.1, 0.2, 0.3)  # shares of the cohort that may be missing
DROPOUTS = (0.0, 0.02, 0.05, 0.08, 0.15, 0.25)
DEADLINES = (60.0, 120.0, 300.0, 600.0)  # seconds
ASKED = (1.0, 1.1, 1.2, 1.3)  # times as many as needed
GROUPS = (50, 100, 200, 1000)
CORRELATIONS = (0.0, 0.05, 0.2)
AGGREGATORS = (5, 20, 100, 200)
OUTAGES = (0.001, 0.01, 0.05)
PLANS = ((1_000_000, 1), (100_000_000, 1000))  # users, and tiles that train beside each other

# Key traffic in bytes, for the protocol of Bonawitz and others (CCS 2017) on X25519 with shares as
# federation/flower/sharing.py makes them. Framing, TLS and signatures are not counted.
ID = 4
PUBLIC_KEY = 32  # each user has two: one to agree on masks, one to encrypt shares
SHARE = 4 + 66  # whose it is, and a number below 2^521 − 1: of a 32-byte secret
SEALED_PAIR = 2 * ID + 2 * SHARE + 12 + 16  # shares of key and seed; nonce and tag of AES-GCM

# A sparse graph is to fail its users' secrecy, or a round, no more often than 2 to the minus this.
SECURE_BITS, CORRECT_BITS = 40, 20

_AT_A_TIME = 500_000  # users simulated together: bounds memory
_SURELY = 0.99  # the share of rounds that is to open where a table says what to allow

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Row = dict[str, Any]


def _assume(default: Any, why: str) -> Any:
    """A field that is an option, with the reason for its default."""
    return field(default=default, metadata={"why": why})


@dataclass(frozen=True)
class Federation:
    """All that is assumed of a round."""

    cohort: int = _assume(20_000, "users of a round; `veilmap plan` asks as many of 1e6")
    group: int = _assume(100, "users that mask among themselves: keys still cost less than uploads")
    aggregators: int = _assume(20, "edge aggregators of a cohort: a thousand users each, one host")
    threshold: float = _assume(2 / 3, "share of a group that opens its masks; usual, above half")
    dropout: float = _assume(
        0.08,
        "probability to vanish before answering; Bonawitz and others (MLSys 2019): 6 to 10 %%",
    )
    shared: float = _assume(
        0.005, "correlation of dropouts in a round: at 8 %% a deviation of 2 points, that range"
    )
    correlation: float = _assume(
        0.05, "correlation of dropouts in a group: one place loses its network together; a guess"
    )
    outage: float = _assume(
        0.01, "probability that an aggregator fails in a round: a careful guess"
    )
    median: float = _assume(
        30.0, "seconds to an answer: wake, fetch the map, four messages; a guess"
    )
    sigma: float = _assume(0.8, "of its logarithm: one in twenty takes four times as long; a guess")
    upload: int = _assume(20_020, "bytes of a masked upload: 10,000 cells of 16 bits, and θ")
    download: int = _assume(80_032, "bytes of the map: 10,000 cells of 64 bits and θ")
    uplink: float = _assume(625_000.0, "median bytes a second upwards: 5 Mbit/s, a modest 4G")
    uplink_sigma: float = _assume(1.0, "of its logarithm: one user in a hundred has a tenth")
    deadline: float = _assume(300.0, "seconds until a round closes: ten times the median")
    planned: float = _assume(
        0.15, "share missing that sparse graphs are sized for: near twice the dropout expected"
    )
    corrupt: float = _assume(
        0.2, "share of users who may side with the server; for sparse graphs too"
    )
    rounds: int = _assume(120, "rounds of a training; `veilmap plan` takes as many for 1e6")
    sparse: bool = False  # pairs of the graph of Bell and others (CCS 2020), or all pairs

    def __post_init__(self) -> None:
        for name in ("dropout", "outage", "planned", "corrupt"):
            _check(0 <= getattr(self, name) <= 1, name, "must be from 0 to 1")
        for name in ("shared", "correlation"):
            _check(0 <= getattr(self, name) < 1, name, "must be from 0 to below 1")
        for name in ("median", "uplink"):
            _check(0 < getattr(self, name) < math.inf, name, "must be finite and above 0")
        _check(self.deadline > 0, "deadline", "must be above 0")
        _check(0 < self.threshold <= 1, "threshold", "must be above 0 and at most 1")
        for name in ("sigma", "uplink_sigma"):
            _check(0 <= getattr(self, name) < math.inf, name, "must be finite and at least 0")
        for name in ("aggregators", "upload", "download", "rounds"):
            _check(getattr(self, name) >= 1, name, "must be at least 1")
        _check(self.group >= 2, "group", "must be at least 2")
        _check(self.cohort >= self.group, "cohort", "must be at least a group")

    @property
    def groups(self) -> int:
        """Groups of a round: whole ones, so a few users more than the cohort may be asked."""
        return math.ceil(self.cohort / self.group)

    @property
    def asked(self) -> int:
        """Users of all groups."""
        return self.groups * self.group

    @property
    def degree(self) -> int:
        """With how many others a user agrees on masks."""
        if not self.sparse:
            return self.group - 1
        return sparse_degree(self.group, self.planned, self.corrupt, self.threshold)

    @property
    def helpers(self) -> int:
        """How many of a user and its neighbours must remain to open its masks."""
        return _share_of(self.threshold, self.degree + 1)


def _check(good: bool, name: str, what: str) -> None:
    if not good:
        raise ValueError(f"{name.replace('_', '-')} {what}")


def _share_of(share: float, whole: int) -> int:
    return math.ceil(share * whole - 1e-9)


def least_answers(cohort: int, allowed: float) -> int:
    """The answers whose noise shares suffice, as `AggregateGaussian` counts them."""
    return max(2, math.ceil((1 - allowed) * cohort))


# What keys cost


def key_bytes(degree: int) -> tuple[int, int]:
    """What a user sends and receives in a round besides its upload and the map.

    It sends its public keys, a sealed pair of shares to each neighbour and, to open the sum, one
    share of each neighbour. It receives their keys, their pairs, and who of them answered.
    """
    sent = 2 * PUBLIC_KEY + degree * (SEALED_PAIR + ID + SHARE)
    received = degree * (ID + 2 * PUBLIC_KEY + SEALED_PAIR + ID)
    return sent, received


@functools.cache
def sparse_degree(group: int, missing: float, corrupt: float, threshold: float) -> int:
    """The least degree of a ring of neighbours, by Bell and others' three conditions.

    Enough of everybody's neighbours remain, too few of them are corrupt, and no half neighbourhood
    is corrupt or gone at once, which would cut the ring. Where none is enough: all pairs.
    """
    if missing > 1 - threshold or missing + corrupt >= 1:
        return group - 1  # whatever the degree
    for degree in range(2, group - 1, 2):
        need = _share_of(threshold, degree + 1)
        stuck = _binomial_tail(degree + 1, missing, degree + 2 - need)
        exposed = _binomial_tail(degree, corrupt, need)
        cut = (missing + corrupt) ** (degree // 2)
        if group * stuck <= 2.0**-CORRECT_BITS and group * max(exposed, cut) <= 2.0**-SECURE_BITS:
            return degree
    return group - 1


def _binomial_tail(trials: int, probability: float, least: int) -> float:
    """P(X ≥ least)."""
    if least > trials or probability <= 0:
        return float(least <= 0)
    if probability >= 1:
        return 1.0
    whole, heads, tails = math.lgamma(trials + 1), math.log(probability), math.log1p(-probability)
    return math.fsum(
        math.exp(
            whole - math.lgamma(i + 1) - math.lgamma(trials - i + 1)
            + i * heads + (trials - i) * tails
        )
        for i in range(max(0, least), trials + 1)
    )  # fmt: skip


# One round


def varied(mean: Floats, correlation: float, rng: np.random.Generator) -> Floats:
    """Probabilities around a mean, from the beta law that correlates draws so much."""
    rates = mean.copy()
    if correlation > 0:
        inside, spread = (mean > 0) & (mean < 1), (1 - correlation) / correlation
        rates[inside] = rng.beta(mean[inside] * spread, (1 - mean[inside]) * spread)
    return rates


def answer_seconds(fed: Federation, rounds: int, rng: np.random.Generator) -> Floats:
    """When every answer is there, (rounds, groups, users of a group); ∞ for never."""
    round_rates = varied(np.full((rounds, 1), fed.dropout), fed.shared, rng)
    rates = varied(np.repeat(round_rates, fed.groups, axis=1), fed.correlation, rng)
    shape = (rounds, fed.groups, fed.group)
    gone = rng.random(shape) < rates[:, :, None]
    seconds = fed.median * np.exp(fed.sigma * rng.standard_normal(shape))
    sent = fed.upload + key_bytes(fed.degree)[0]
    seconds += sent / fed.uplink * np.exp(fed.uplink_sigma * rng.standard_normal(shape))
    seconds[gone] = np.inf
    return seconds


def carried(fed: Federation, rounds: int, rng: np.random.Generator) -> Flags:
    """Groups whose aggregator works, (rounds, groups): aggregators take groups in turn."""
    works = rng.random((rounds, fed.aggregators)) >= fed.outage
    return works[:, np.arange(fed.groups) % fed.aggregators]


def unmasked(fed: Federation, answered: Flags) -> Flags:
    """Groups whose masks can be taken off: enough of everybody's neighbours remain.

    Everyone is taken to vanish after the keys were shared, which is the worst moment, and whoever
    answered to help in the end.
    """
    if not fed.sparse or fed.degree >= fed.group - 1:
        return answered.sum(axis=2) >= fed.helpers
    ring = np.concatenate([answered, answered[:, :, : fed.degree]], axis=2)
    count = np.cumsum(ring, axis=2, dtype=np.int32)
    around = count[:, :, fed.degree :].copy()
    around[:, :, 1:] -= count[:, :, : fed.group - 1]
    return (around >= fed.helpers).all(axis=2)


def counted_seconds(fed: Federation, seconds: Floats, works: Flags) -> Floats:
    """From when each answer counts, sorted within groups: no sooner than its group's masks open."""
    ordered = np.sort(seconds, axis=2)
    enough = ordered[:, :, fed.helpers - 1 : fed.helpers]
    return np.where(works[:, :, None], np.maximum(ordered, enough), np.inf)


def _gathered(
    fed: Federation,
    rounds: int,
    seed: Sequence[int],
    measure: Callable[[Floats, Flags], NDArray[Any]],
) -> NDArray[Any]:
    """What ``measure`` says of so many rounds, a few at a time; rounds come first."""
    rng = np.random.default_rng(seed)
    return np.concatenate(
        [
            measure(answer_seconds(fed, count, rng), carried(fed, count, rng))
            for count in _parts(rounds, max(1, _AT_A_TIME // fed.asked))
        ]
    )


def _parts(whole: int, most: int) -> Iterator[int]:
    for start in range(0, whole, most):
        yield min(most, whole - start)


def answers(fed: Federation, rounds: int, seed: Sequence[int]) -> NDArray[np.int64]:
    """What reaches the top by the deadline: answers of each group, (rounds, groups).

    A group that cannot be unmasked, or whose aggregator fails, has none.
    """

    def measure(seconds: Floats, works: Flags) -> NDArray[np.int64]:
        answered = seconds < fed.deadline
        return answered.sum(axis=2) * (unmasked(fed, answered) & works)

    return _gathered(fed, rounds, seed, measure)


# The tables. Each has its own seed, the same for all its rows: they differ by their settings alone.


def opening(fed: Federation, rounds: int, seed: int) -> list[Row]:
    """Which rounds open, by the share that may be missing and by dropout."""
    rows = []
    for dropout in DROPOUTS:
        came = answers(replace(fed, dropout=dropout), rounds, (seed, 1))
        for allowed in ALLOWED:
            reach = came >= least_answers(fed.group, allowed)
            rows.append(
                {
                    "dropout": dropout,
                    "allowed": allowed,
                    # Of the sum's noise when nobody is missing, over what is promised.
                    "noise": math.sqrt(fed.asked / least_answers(fed.asked, allowed)),
                    "missing": _missing(fed, came),
                    "to_allow": _to_allow(fed, came),
                    "opens": _opens(fed, came, allowed),
                    "opens_every_group": float(reach.all(axis=1).mean()),
                    "users_in_groups": float((came * reach).sum() / (rounds * fed.asked)),
                    # … which need all the noise in every group: so many times that of the cohort.
                    "noise_in_groups": math.sqrt(fed.groups),
                }
            )
    return rows


def _missing(fed: Federation, came: NDArray[np.int64]) -> float:
    return 1 - float(came.sum(axis=1).mean()) / fed.asked


def _to_allow(fed: Federation, came: NDArray[np.int64]) -> float:
    """The share that must be allowed to be missing for nearly all rounds to open."""
    return float(np.quantile(1 - came.sum(axis=1) / fed.asked, _SURELY, method="higher"))


def _opens(fed: Federation, came: NDArray[np.int64], allowed: float) -> float:
    return float((came.sum(axis=1) >= least_answers(fed.asked, allowed)).mean())


def deadlines(fed: Federation, rounds: int, seed: int) -> list[Row]:
    """What waiting and asking more cost. A round closes when enough came, else at its deadline.

    As many answers are needed as the cohort has users, and noise shares are sized for them: asking
    f times as many is to allow a share 1 − 1/f to be missing.
    """
    rows = []
    for factor in ASKED:
        wide = replace(fed, cohort=math.ceil(factor * fed.cohort - 1e-9), sparse=False)

        def measure(seconds: Floats, works: Flags, wide: Federation = wide) -> Floats:
            counts = counted_seconds(wide, seconds, works).reshape(len(seconds), -1)
            enough = np.partition(counts, fed.cohort - 1, axis=1)[:, fed.cohort - 1]
            sent = np.isfinite(seconds).sum(axis=(1, 2))
            late = [(seconds >= d).sum(axis=(1, 2)) / wide.asked for d in DEADLINES]
            return np.column_stack([enough, sent, *late])

        enough, sent, *late = _gathered(wide, rounds, (seed, 2), measure).T
        for deadline, missing in zip(DEADLINES, late, strict=True):
            opens = enough < deadline
            spent = np.minimum(enough, deadline)
            used = fed.cohort * opens.sum()
            rows.append(
                {
                    "asked": factor,
                    "allowed": 1 - fed.cohort / wide.asked,
                    "deadline_s": deadline,
                    "no_answer": float(missing.mean()),
                    "opens": float(opens.mean()),
                    "round_s": float(spent.mean()),
                    "opened_s": float(spent.sum() / opens.sum()) if opens.any() else None,
                    "wasted": 1 - float(used / max(1, sent.sum())),
                }
            )
    return rows


def group_sizes(fed: Federation, rounds: int, seed: int) -> list[Row]:
    """What a group's size costs in keys, and how often groups are lost."""
    rows = []
    for size in (size for size in GROUPS if size <= fed.cohort):
        for sparse in (False, True):
            for correlation in CORRELATIONS:
                one = replace(fed, group=size, correlation=correlation, sparse=sparse)
                if sparse and one.degree >= size - 1:
                    continue  # the graph would have all pairs again
                rows.append(_group_size(one, rounds, (seed, 3)))
    return rows


def _group_size(fed: Federation, rounds: int, seed: Sequence[int]) -> Row:
    def measure(seconds: Floats, works: Flags) -> NDArray[np.int64]:
        answered = seconds < fed.deadline
        came, opened = answered.sum(axis=2), unmasked(fed, answered)
        return np.stack([came * (opened & works), ~opened, came * ~opened], axis=1)

    counts = _gathered(fed, rounds, seed, measure)
    sent, received = key_bytes(fed.degree)
    return {
        "group": fed.group,
        "neighbours": fed.degree,
        "correlation": fed.correlation,
        "keys_sent": sent,
        "keys_received": received,
        "group_lost": float(counts[:, 1].mean()),
        # Answers that had come, and were lost with their groups.
        "cohort_lost": float(counts[:, 2].sum() / (rounds * fed.asked)),
        "missing": _missing(fed, counts[:, 0]),
        "to_allow": _to_allow(fed, counts[:, 0]),
    }


def outages(fed: Federation, rounds: int, seed: int) -> list[Row]:
    """What failing aggregators take with them, by how many share the cohort."""
    rows = []
    for outage in OUTAGES:
        for count in AGGREGATORS:
            one = replace(fed, aggregators=count, outage=outage)
            came = answers(one, rounds, (seed, 4))
            rows.append(
                {
                    "outage": outage,
                    "aggregators": count,
                    "missing": _missing(one, came),
                    "to_allow": _to_allow(one, came),
                    **{f"opens_{share:g}": _opens(one, came, share) for share in ALLOWED},
                }
            )
    return rows


def bandwidth(fed: Federation) -> list[Row]:
    """What every level carries in a round, for one node of it and for all.

    An aggregator relays keys and maps, and forwards one sum as long as an upload.
    """
    keys_sent, keys_received = key_bytes(fed.degree)
    up, down = fed.upload + keys_sent, fed.download + keys_received
    below = fed.asked / fed.aggregators
    rows = []
    for users, tiles in PLANS:
        levels = (
            ("user", fed.asked * tiles, down, up),
            ("edge aggregator", fed.aggregators * tiles,
             below * up + fed.download, below * down + fed.upload),
            ("top of a tile", tiles, fed.aggregators * fed.upload, fed.aggregators * fed.download),
        )  # fmt: skip
        for level, nodes, received, sent in levels:
            rows.append(
                {
                    "users": users, "level": level, "nodes": nodes,
                    "received": received, "sent": sent,
                    "peak_received_bps": 8 * received * peak_share(fed),
                    "all_received": nodes * received, "all_sent": nodes * sent,
                }
            )  # fmt: skip
    return rows


def peak_share(fed: Federation) -> float:
    """The most of a round's answers that come in a second: the lognormal's highest density."""
    if fed.sigma == 0:
        return 1.0
    density = math.exp(fed.sigma**2 / 2) / (fed.median * fed.sigma * math.sqrt(2 * math.pi))
    return min(1.0, density)


def trainings(fed: Federation) -> list[Row]:
    """What a whole training costs its users, all rounds waiting for the deadline."""
    keys = sum(key_bytes(fed.degree))
    rows = []
    for users, tiles in PLANS:
        each = math.ceil(fed.rounds * fed.asked * tiles / users)
        bytes_a_round = fed.upload + fed.download + keys
        rows.append(
            {
                "users": users, "tiles": tiles, "asked_at_once": fed.asked * tiles,
                "rounds": fed.rounds, "rounds_each": each,
                "user_sent": each * (fed.upload + key_bytes(fed.degree)[0]),
                "user_bytes": each * bytes_a_round,
                "all_bytes": fed.rounds * fed.asked * tiles * bytes_a_round,
                "hours": fed.rounds * fed.deadline / 3600,
            }
        )  # fmt: skip
    return rows


def simulated(fed: Federation, rounds: int, seed: int) -> dict[str, Any]:
    """Everything, as it goes into the file."""
    return {
        "assumed": asdict(fed),
        "key_traffic": {
            "id": ID, "public_key": PUBLIC_KEY, "share": SHARE, "sealed_pair": SEALED_PAIR,
            "secure_bits": SECURE_BITS, "correct_bits": CORRECT_BITS,
        },
        "rounds_simulated": rounds,
        "seed": seed,
        "opening": opening(fed, rounds, seed),
        "deadlines": deadlines(fed, rounds, seed),
        "group_sizes": group_sizes(fed, rounds, seed),
        "outages": outages(fed, rounds, seed),
        "bandwidth": bandwidth(fed),
        "trainings": trainings(fed),
    }  # fmt: skip


# Printing


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def _fine_percent(value: float) -> str:
    return f"{100 * value:.3f} %"


def _whole(value: float) -> str:
    return f"{value:,.0f}"


def _seconds(value: float | None) -> str:
    return "never" if value is None else f"{value:.0f} s"


def _scaled(value: float, unit: str) -> str:
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}"


def _bytes(value: float) -> str:
    return _scaled(value, "B")


def _bits(value: float) -> str:
    return _scaled(value, "bit/s")


Columns = dict[str, tuple[str, Callable[[Any], str]]]

TABLES: dict[str, tuple[str, Columns]] = {
    "opening": (
        "Rounds that open. Noise: of the sum if nobody is missing, over what is promised; to allow:"
        " so that 99 of 100 rounds open",
        {
            "dropout": ("dropout", _percent),
            "missing": ("missing", _percent),
            "to_allow": ("to allow", _percent),
            "allowed": ("allowed", _percent),
            "noise": ("noise", "× {:.3f}".format),
            "opens": ("opens", _percent),
            "opens_every_group": ("if every group must", _percent),
            "users_in_groups": ("users in groups that do", _percent),
        },
    ),
    "deadlines": (
        "Waiting and asking more. Wasted: uploads of users who did not drop out, in no opened sum",
        {
            "asked": ("asked/needed", "{:.1f}".format),
            "allowed": ("allowed", _percent),
            "deadline_s": ("deadline", _seconds),
            "no_answer": ("no answer by then", _percent),
            "opens": ("opens", _percent),
            "round_s": ("a round", _seconds),
            "opened_s": ("an opened round", _seconds),
            "wasted": ("wasted uploads", _percent),
        },
    ),
    "group_sizes": (
        "Size of groups. Keys: of a user in a round; lost answers: came, and were lost with groups",
        {
            "group": ("group", _whole),
            "neighbours": ("neighbours", _whole),
            "keys_sent": ("keys sent", _bytes),
            "keys_received": ("received", _bytes),
            "correlation": ("correlation", "{:.2f}".format),
            "group_lost": ("groups lost", _fine_percent),
            "cohort_lost": ("lost answers", _fine_percent),
            "missing": ("missing", _percent),
            "to_allow": ("to allow", _percent),
        },
    ),
    "outages": (
        "Aggregators that fail: rounds that open, by the share allowed to be missing",
        {
            "outage": ("outage", _percent),
            "aggregators": ("aggregators", _whole),
            "missing": ("missing", _percent),
            "to_allow": ("to allow", _percent),
            **{f"opens_{share:g}": (f"opens at {share:.0%}", _percent) for share in ALLOWED},
        },
    ),
    "bandwidth": (
        "Traffic of a round, of one node of a level and of all; peak: when most answers come",
        {
            "users": ("users", _whole),
            "level": ("level", str),
            "nodes": ("nodes", _whole),
            "received": ("one receives", _bytes),
            "sent": ("one sends", _bytes),
            "peak_received_bps": ("peak received", _bits),
            "all_received": ("all receive", _bytes),
            "all_sent": ("all send", _bytes),
        },
    ),
    "trainings": (
        "A whole training",
        {
            "users": ("users", _whole),
            "tiles": ("tiles", _whole),
            "asked_at_once": ("asked at once", _whole),
            "rounds": ("rounds", _whole),
            "rounds_each": ("of a user", _whole),
            "user_sent": ("a user sends", _bytes),
            "user_bytes": ("sends and receives", _bytes),
            "all_bytes": ("all users", _bytes),
            "hours": ("time", "{:.0f} h".format),
        },
    ),
}


def lines_of(rows: Sequence[Row], columns: Columns) -> list[str]:
    """A table with its columns flush right."""
    cells = [[heading for heading, _ in columns.values()]]
    cells += [[text(row[key]) for key, (_, text) in columns.items()] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        for line in cells
    ]


# Arguments


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--seed", type=int, default=0, help="of all draws (default 0)")
    parser.add_argument(
        "--rounds-simulated", type=int, default=500, help="for every row (default 500)"
    )
    for one in fields(Federation):
        if "why" in one.metadata:
            assert one.default is not MISSING
            parser.add_argument(
                f"--{one.name.replace('_', '-')}", type=type(one.default), default=one.default,
                help=f"{one.metadata['why']} (default {one.default:.6g})",
            )  # fmt: skip
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Simulate, print the tables, write the file that was asked for."""
    parser = _parser()
    options = vars(parser.parse_args(arguments))
    file, seed, rounds = (options.pop(name) for name in ("json", "seed", "rounds_simulated"))
    if rounds < 1:
        parser.error("rounds-simulated must be at least 1")
    if seed < 0:
        parser.error("seed must be at least 0")
    if file and not file.parent.is_dir():
        parser.error(f"there is no folder {file.parent}")
    try:
        fed = Federation(**options)
    except ValueError as error:
        parser.error(str(error))
    found = simulated(fed, rounds, seed)
    print(f"{fed.asked:,} users in {fed.groups:,} groups, {rounds} rounds for every row")
    for name, (title, columns) in TABLES.items():
        print(f"\n{title}", *lines_of(found[name], columns), sep="\n")
    if file:
        file.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
