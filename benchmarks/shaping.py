"""What a guarantee costs the map that a few thousand users learn in rounds.

python benchmarks/shaping.py --users 1000 --epsilon 8 --seeds 2
python benchmarks/shaping.py --users 3000 --epsilon 8,4,2,1 --seeds 3
python benchmarks/shaping.py --users 20000 --epsilon 1 --delta 1e-7 --seeds 3

python benchmarks/shaping.py --turns

Each training is compared with the same one without noise. A training of 1,000 users takes ten
seconds on one core, one of 3,000 half a minute; as many run at once as there are cores. --turns
computes what noise that is correlated over rounds would save users who take turns.
"""

import argparse
import os
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from itertools import product

import numpy as np

import veilmap as vm

CLIP = 0.3
MISSING = 0.05  # noise is sized for twice as many
# City, users, (ε, δ), rounds, seed.
Setting = tuple[int, int, tuple[float, float] | None, int, int]


@lru_cache(maxsize=1)
def crowd(city: int, users: int):
    scene = vm.Scene.synthetic(city)
    unseen = scene.measure(users=200, seed=2 * city + 1)
    return scene.grid, scene.measure(users=users, seed=2 * city), unseen


def error_db(setting: Setting) -> float:
    """MAE on 200 unseen users; without ε, without noise."""
    city, users, promise, rounds, seed = setting
    grid, data, unseen = crowd(city, users)
    mechanism: vm.mechanisms.Mechanism = vm.NoNoise(clip=CLIP)
    if promise is not None:
        mechanism = vm.AggregateGaussian(epsilon=promise[0], delta=promise[1], clip=CLIP)
    run = vm.train(
        data, grid, mechanism=mechanism, rounds=rounds, seed=seed, server_sees="sums",
        participation=vm.federation.Participation(dropout=MISSING),
    )  # fmt: skip
    return vm.baselines.mean_absolute_error(run.radio_map, unseen)


def turns(rounds: int) -> None:
    """Deviation of noise on running sums of all opened sums, for k groups that take turns.

    Noise C⁻¹Z instead of Z, with C the square root of the matrix of running sums cut to k bands, so
    that no two rounds of a user overlap; against independent noise, and against everybody in every
    round, both at the same ε.
    """
    sums = np.tril(np.ones((rounds, rounds)))
    for groups in (2, 4, 10, 30):
        steps = np.arange(1, groups)
        bands = np.cumprod(np.append(1.0, (steps - 0.5) / steps))
        mixing = sum(band * np.eye(rounds, k=-lag) for lag, band in enumerate(bands))
        squares = (mixing**2).sum(axis=0)
        own = max(squares[first::groups].sum() for first in range(groups))
        correlated = np.sqrt(own) * np.linalg.norm(sums @ np.linalg.inv(mixing))
        independent = np.sqrt(-(-rounds // groups)) * np.linalg.norm(sums)
        saved = independent / correlated
        print(
            f"{rounds} rounds, {groups} groups: {saved:.2f} times less noise than independent;"
            f" {np.sqrt(groups) / saved:.2f} times that of everybody in every round"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--users", type=int, default=1000)
    parser.add_argument("--epsilon", default="8")
    parser.add_argument("--delta", type=float, default=1e-6)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--cities", default="0,1,2,3,4")
    parser.add_argument("--seeds", type=int, default=1, help="of the noise")
    parser.add_argument("--turns", action="store_true")
    given = parser.parse_args()
    if given.turns:
        turns(given.rounds)
        return
    cities = [int(text) for text in given.cities.split(",")]
    seeds = range(1, 1 + given.seeds)
    os.environ["VEILMAP_THREADS"] = "1"  # processes are as many as cores
    with ProcessPoolExecutor() as pool:

        def errors(promise: tuple[float, float] | None, own: range) -> np.ndarray:
            settings = [(c, given.users, promise, given.rounds, s) for c, s in product(cities, own)]
            return np.array(list(pool.map(error_db, settings))).reshape(len(cities), -1)

        without = errors(None, range(1, 2))
        print(
            f"{given.users:,} users, {given.rounds} rounds: {without.mean():.2f} dB without noise"
        )
        for epsilon in [float(text) for text in given.epsilon.split(",")]:
            found = errors((epsilon, given.delta), seeds)
            lost = found - without
            print(
                f"ε = {epsilon:g}: {found.mean():.2f} dB, loses {lost.mean():.2f}"
                f" ({lost.min():.2f} to {lost.max():.2f})",
                flush=True,
            )


if __name__ == "__main__":
    main()
