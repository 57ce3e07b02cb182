"""What noise costs the map: trainings that `veilmap.federation.planning.CURVE` is fitted to.

python benchmarks/curve.py --cities 10,11

Users are few and the noise is made for them: what counts is what is left of it in the mean over
all rounds. Trials are kept in --out and not repeated. A city takes four minutes on two cores.
"""

import argparse
import json
import math
from pathlib import Path

import numpy as np

import veilmap as vm
from veilmap.federation.planning import CURVE, ROUNDS, Curve

USERS, CLIP = 1000, 0.3
NOISE = (0.0, 1e-4, 4e-4, 1.6e-3, 2.4e-3)  # z/(N√T)

# Shares of noise are sized for a tenth of the users missing, and nobody is.
DROPOUT = 0.1


def trial(city: int, rounds: int, noise: float) -> float:
    """MAE in dB on 200 unseen users."""
    scene = vm.Scene.synthetic(city)
    data = scene.measure(users=USERS, seed=2 * city)
    unseen = scene.measure(users=200, seed=2 * city + 1)
    mechanism = vm.NoNoise(clip=CLIP)
    if noise:
        z = noise * USERS * math.sqrt(rounds)
        mechanism = vm.AggregateGaussian(
            epsilon=1e9, noise_multiplier=z, clip=CLIP, dropout=DROPOUT
        )
    run = vm.train(
        data, scene.grid, mechanism=mechanism, rounds=rounds, seed=city, server_sees="sums"
    )
    return vm.baselines.mean_absolute_error(run.radio_map, unseen)


def above_the_best(found: dict[str, float], cities: list[int]) -> list[tuple[int, float, float]]:
    """(rounds, noise, loss): each city against its own longest training without noise."""
    return [
        (
            rounds,
            noise / math.sqrt(1 - DROPOUT),
            found[key(city, rounds, noise)] - found[key(city, max(ROUNDS), 0.0)],
        )
        for city in cities
        for rounds in ROUNDS
        for noise in NOISE
    ]


def key(city: int, rounds: int, noise: float) -> str:
    return f"city {city}, {rounds} rounds, noise {noise:g}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--cities", default="10,11")
    parser.add_argument("--out", type=Path, default=Path("build/curve.json"))
    given = parser.parse_args()
    cities = [int(text) for text in given.cities.split(",")]
    found = json.loads(given.out.read_text()) if given.out.exists() else {}
    given.out.parent.mkdir(parents=True, exist_ok=True)
    for city in cities:
        for rounds in ROUNDS:
            for noise in NOISE:
                name = key(city, rounds, noise)
                if name not in found:
                    found[name] = trial(city, rounds, noise)
                    given.out.write_text(json.dumps(found, indent=1))
                    print(f"{name}: {found[name]:.3f} dB", flush=True)
    trials = above_the_best(found, cities)
    fitted = Curve.fit(trials)
    known = [loss - CURVE.loss_db(rounds, noise) for rounds, noise, loss in trials]
    print(f"fitted:  {fitted}")
    print(f"in use:  {CURVE}, {np.sqrt(np.mean(np.square(known))):.3f} dB from these trials")


if __name__ == "__main__":
    main()
