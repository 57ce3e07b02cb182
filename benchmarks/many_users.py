"""Crowds of many users: how time and memory grow, and what a guarantee costs them.

python benchmarks/many_users.py growth --users 1000,10000,100000
python benchmarks/many_users.py guarantee --users 20000 --epsilon 2
python benchmarks/many_users.py guarantee --users 20000 --epsilon 2 --levels 1024
python benchmarks/many_users.py guarantee --users 100000 --epsilon 1
python benchmarks/many_users.py guarantee --users 100000 --epsilon 1 --groups 4
python benchmarks/many_users.py wrapping

Crowds are made once, as folders of Parquet files below --out, and trainings go on where they were
stopped. The largest takes 3 GB of disk and an hour on two cores.
"""

import argparse
import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import veilmap as vm
from suite.growth import peak_bytes
from veilmap.data.folders import MeasurementFolder, save_parts
from veilmap.federation import Run
from veilmap.federation.planning import usual_delta
from veilmap.model.evaluation import mean_absolute_error
from veilmap.privacy.mechanisms.fitting import LARGEST_MEAN

CITY, CLIP = 0, 0.3
PER_FILE = 1000
TURNS = 3

# Some drop out of every round, so that an attacker can compare sums over different users.
DROPOUT = 0.05


def crowd(out: Path, users: int) -> MeasurementFolder:
    """The first ``users`` of one endless crowd, as a folder."""
    folder = out / f"crowd-{users}"
    done = len(list(folder.glob("*.parquet")))
    parts = vm.Scene.synthetic(CITY).measure_in_parts(
        users, seed=2 * CITY, users_per_part=PER_FILE, first_part=done
    )
    for path in save_parts(parts, folder, first=done):
        print(f"wrote {path}", file=sys.stderr)
    return MeasurementFolder(folder)


def growth(out: Path, sizes: list[int], rounds: int | None) -> list[dict]:
    """Seconds per user and round, and peak memory, each crowd in a process of its own.

    Crowds take turns, so that a machine that slows down for a while does so for all of them.
    """
    for users in sizes:
        crowd(out, users)
    seen: dict[int, list[dict]] = {users: [] for users in sizes}
    for _ in range(TURNS):
        for users in sizes:
            command = [sys.executable, __file__, "once", "--out", str(out), "--users", str(users)]
            done = subprocess.run(
                [*command, "--rounds", str(rounds or max(3, 30_000 // users))],
                check=True,
                capture_output=True,
                text=True,
            )
            seen[users].append(json.loads(done.stdout))
            print(seen[users][-1])
    return [
        {
            "users": users,
            "microseconds": float(np.median([row["microseconds"] for row in own])),
            "peak_mb": max(row["peak_mb"] for row in own),
        }
        for users, own in seen.items()
    ]


def once(out: Path, users: int, rounds: int) -> dict:
    """A few private rounds; the first one compiles, and does not count."""
    seconds: list[float] = []
    vm.train(
        MeasurementFolder(out / f"crowd-{users}"),
        vm.Scene.synthetic(CITY).grid,
        seed=0,
        mechanism=vm.AggregateGaussian(epsilon=1, delta=usual_delta(users), clip=CLIP),
        rounds=rounds,
        recording=vm.Recording(on_round=lambda row: seconds.append(row.seconds)),
    )
    each = float(np.median(seconds[1:])) / users
    return {"users": users, "microseconds": 1e6 * each, "peak_mb": peak_bytes() / 1e6}


def guarantee(
    out: Path, users: int, epsilon: float, rounds: int, groups: int, levels: int | None, seed: int
) -> dict:
    """The map's error with and without noise, and what the strongest attack finds."""
    data = crowd(out, users)
    promised = vm.AggregateGaussian(
        epsilon=epsilon, delta=usual_delta(users), clip=CLIP, levels=levels
    )
    asked = vm.Participation(1 / groups, dropout=DROPOUT, in_turns=groups > 1)
    everybody = vm.Participation(dropout=DROPOUT)
    name = f"{users}-{epsilon:g}-{rounds}-{groups}-{levels}-{seed}"
    run = _trained(data, promised, asked, rounds, seed, out / f"run-{name}")
    found = vm.audit(run, data, users=1000)
    plain = vm.NoNoise(clip=CLIP)
    without = _trained(data, plain, everybody, rounds, seed, out / f"plain-{users}-{rounds}-{seed}")
    last = run.history[-1]
    return {
        "users": users, "epsilon": epsilon, "delta": promised.delta, "rounds": rounds,
        "groups": groups, "levels": run.transcript.mechanism.levels, "seed": seed,
        "mae_none_db": without.history[-1].mae_db, "mae_db": last.mae_db,
        "cost_db": last.mae_db - without.history[-1].mae_db, "epsilon_spent": last.epsilon,
        "least_rmse_over_prior": found.closest_rmse, "strongest": found.strongest.attack,
        "bytes_a_cell": last.upload_bytes / last.clients / run.radio_map.grid.cells,
    }  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class WrappingMeans(vm.NoNoise):
    """No noise, but means are read as out of sums modulo 2^bits; counts those that wrap around."""

    reach: float = LARGEST_MEAN
    wrapped: list[int] = field(default_factory=list)

    def read(self, heights, propagation, weight, laws=2):
        """Means within ± reach · C."""
        means, theta = super().read(heights, propagation, weight, laws)
        half = self.reach * self.clip
        self.wrapped.append(int(np.count_nonzero(np.abs(means) > half)))
        return (means + half) % (2 * half) - half, theta


def wrapping(users: int, rounds: int) -> list[dict]:
    """What it does to maps that a few means leave the range of the sums."""
    rows = []
    for city in range(3):
        scene = vm.Scene.synthetic(city)
        data, test = scene.measure(users, seed=2 * city), scene.measure(200, seed=2 * city + 1)
        row: dict = {"city": city, "means": rounds * scene.grid.cells}
        for name, reach in (("as_they_are", 1e6), ("wrapped", LARGEST_MEAN)):
            mechanism = WrappingMeans(clip=CLIP, reach=reach)
            run = vm.train(data, scene.grid, mechanism=mechanism, rounds=rounds, seed=0,
                           server_sees="sums")  # fmt: skip
            row[f"mae_{name}_db"] = mean_absolute_error(run.radio_map, test)
            row["exceed"] = sum(mechanism.wrapped)
        rows.append(row)
        print(row, file=sys.stderr)
    return rows


def _trained(data, mechanism, participation, rounds, seed, folder) -> Run:
    """A run of that folder: finished, gone on with, or begun."""
    scene = vm.Scene.synthetic(CITY)
    test = scene.measure(users=200, seed=2 * CITY + 1)
    kept = np.linspace(0, rounds - 1, 5).astype(int).tolist()
    if (folder / "radio_map.nc").exists():
        return Run.load(folder)
    return vm.train(
        data,
        scene.grid,
        mechanism=mechanism,
        rounds=rounds,
        seed=seed,
        server_sees="sums",
        participation=participation,
        recording=vm.Recording(
            out=folder,
            resume=(folder / "config.json").exists(),
            checkpoint_every=5,
            keep_uploads=kept,
            test=test,
            on_round=lambda row: print(
                f"{mechanism.name} round {row.round + 1}: {row.seconds:.1f} s, {row.mae_db:.2f} dB",
                file=sys.stderr,
            ),
        ),
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", choices=["growth", "guarantee", "wrapping", "once"])
    parser.add_argument("--users", default="1000,10000,100000")
    parser.add_argument("--epsilon", type=float, default=2.0)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--groups", type=int, default=1, help="that are asked in turns")
    parser.add_argument("--levels", type=int, help="of the lattice; by default as bits allow")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("build/many-users"))
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    sizes = [int(text) for text in given.users.split(",")]
    if given.what == "growth":
        result: object = growth(given.out, sizes, given.rounds)
    elif given.what == "wrapping":
        result = wrapping(sizes[0], given.rounds or 60)
    elif given.what == "once":
        result = once(given.out, sizes[0], given.rounds or 4)
    else:
        result = [
            guarantee(
                given.out,
                users,
                given.epsilon,
                given.rounds or 60,
                given.groups,
                given.levels,
                given.seed,
            )
            for users in sizes
        ]
    text = json.dumps(result)
    print(text)
    if given.json:
        given.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
