"""Homes and works of users who move through city 0, under each trust model.

    python benchmarks/walks.py

Every user has 20 places. They contribute all their links to every round, or in each round those of
the place where they are. The next day the same people come back under other pseudonyms.
"""

import argparse
import time
from dataclasses import replace

import numpy as np

import veilmap as vm
from veilmap.attacks import MixturePursuit, PlacesOverTime
from veilmap.federation import InProcess, OnePlacePerRound

MODELS = {
    "uploads, no noise": {},
    "uploads, uniform μ = 50": {"mechanism": vm.UniformNoise(noise_budget=50)},
    "uploads, aligned μ = 50": {"mechanism": vm.GeometryAligned(noise_budget=50)},
    "sums, always the same people": {"server_sees": "sums"},
    "sums, changing halves": {
        "server_sees": "sums",
        "participation": vm.Participation(share=0.5),
    },
    "sums with noise, ε = 8": {"mechanism": vm.AggregateGaussian(epsilon=8, delta=1e-6)},
}
# Uploads of all places hardly differ between rounds; those of one place do. What sums show is
# most in early rounds, as gradients are large and systematic there.
KEPT, KEPT_OF_ALL, KEPT_SUMS = 20, 5, range(20)


def audited(scene, data, rounds, moving, settings):
    """One day's training and its audit."""
    uploads = "server_sees" not in settings and not isinstance(
        settings.get("mechanism"), vm.AggregateGaussian
    )
    kept = KEPT if moving else KEPT_OF_ALL
    spread = np.unique(np.linspace(0, rounds - 1, kept).astype(int)).tolist()
    keep = spread if uploads else KEPT_SUMS
    run = vm.train(
        data, scene.grid, rounds=rounds, seed=0, recording=vm.Recording(keep_uploads=keep),
        engine=OnePlacePerRound() if moving else InProcess(), **settings,
    )  # fmt: skip
    both = uploads and not moving
    attacks = [PlacesOverTime(), MixturePursuit()] if both else [PlacesOverTime()]
    return vm.audit_walks(run, data, attacks=attacks)


def days(users, seed):
    """The city, its people on two days, and who they are on the second."""
    scene = vm.Scene.synthetic(seed)
    one, other = (scene.measure_walks(users=users, places=20, seed=seed, day=day) for day in (0, 1))
    names = np.random.default_rng(seed).permutation(users)
    same = {user: int(name) for user, name in enumerate(names)}
    return scene, one, replace(other, user=names[other.user]), same


def shown(measured):
    """A share with its interval, in percent."""
    return f"{measured.value:.0%} ({measured.low:.0%}–{measured.high:.0%})"


def row(what, one, linked=""):
    """One line of the table."""
    shares = (one.home[50], one.home[100], one.work[100])
    cells = [*map(shown, shares), f"{one.nearest.value:.0f} m", linked]
    print(f"| {what} | " + " | ".join(cells) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    started = time.perf_counter()
    scene, *both, same = days(given.users, given.seed)
    print("| | home ≤ 50 m | home ≤ 100 m | work ≤ 100 m | nearest place | linked |")
    print("| --- | --- | --- | --- | --- | --- |")
    for moving, how in ((False, "all places"), (True, "one place a round")):
        for name, settings in MODELS.items():
            first, second = (audited(scene, day, given.rounds, moving, settings) for day in both)
            linked = vm.reidentify(first, second, same)
            row(f"{name}; {how}", first.strongest, shown(linked.right))
    row("guessing", first.guessing, f"{1 / given.users:.0%}")
    print(f"{time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
