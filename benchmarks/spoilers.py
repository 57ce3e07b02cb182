"""What hostile participants can do to a survey's map, with proofs and without.

python benchmarks/spoilers.py
python benchmarks/spoilers.py --cities 20,21 --hostile 1,3,10,30,100 --users 2000 --seeds 2

Hostile people know everything, also what all others send together. Without proofs they add random
elements of the field. With proofs each of them adds a vector of length C, the longest that is
taken: against the others' sum or across it; against its largest entries alone; the largest residual
everywhere; against the levels of all stations, of three, or of one; or at random. The worst of
these is shown. All hostile people go the same way, and the noise is the same with and without them.
"""

import argparse
from collections.abc import Iterator

import numpy as np

import veilmap as vm
from veilmap.collection.shares import PRIME
from veilmap.model.evaluation import mean_absolute_error
from veilmap.surveys.aggregate import opened, summed
from veilmap.surveys.design import stations_of
from veilmap.surveys.posterior import radio_map_of

STATIONS = 12
NOISE_DB = 3.0
TESTED = 500
LARGEST = 20  # entries


def together(design: vm.Survey, hostile: int, direction: np.ndarray) -> np.ndarray:
    """What so many add who all go the same way, each as far as is taken."""
    each = np.trunc(direction / np.linalg.norm(direction) * design.clip).astype(np.int64)
    return hostile * each


def proven(design: vm.Survey, total: np.ndarray, hostile: int) -> Iterator[tuple[str, np.ndarray]]:
    """The worst that hostile people can add if their contributions are no longer than C."""
    rng = np.random.default_rng(0)
    stations, points = design.shape
    levels = np.zeros(len(total))
    levels[2 * stations * points :] = total[2 * stations * points :]
    strongest = np.argsort(-np.abs(levels.reshape(-1, 2)).max(axis=1))
    largest = np.where(np.abs(total) >= np.sort(np.abs(total))[-LARGEST], total, 0)
    yield "against the sum", together(design, hostile, -total.astype(float))
    yield "against its largest entries", together(design, hostile, -largest.astype(float))
    across = (total.astype(float).view(np.complex128) * 1j).view(np.float64)
    yield "across the sum", together(design, hostile, across)
    everywhere = np.tile([-1.0, 0.0], len(total) // 2)
    yield "the same everywhere", together(design, hostile, everywhere)
    yield "against all levels", together(design, hostile, -levels)
    for count in (3, 1):
        some = np.zeros_like(levels).reshape(-1, 2)
        some[strongest[:count]] = levels.reshape(-1, 2)[strongest[:count]]
        yield f"against {count} levels", together(design, hostile, -some.ravel())
    yield "at random", together(design, hostile, rng.normal(size=len(total)))


def unproven(total: np.ndarray, hostile: int) -> Iterator[tuple[str, np.ndarray]]:
    """Random elements of the field, of which one person's are as good as many."""
    elements = np.random.default_rng(hostile).integers(-(PRIME // 2), PRIME // 2, len(total))
    yield "anything", elements


class City:
    """People of a city, the survey of them, and by whom its map is judged."""

    def __init__(self, number: int, users: int, epsilon: float) -> None:
        scene = vm.Scene.synthetic(number, base_stations=STATIONS)
        own = {"links_per_user": STATIONS, "noise_db": NOISE_DB}
        data = scene.measure(users=users, seed=2 * number, **own)
        self.unseen = scene.measure(users=TESTED, seed=2 * number + 1, **own)
        west, east, south, north = scene.grid.extent
        self.design = vm.Survey.design(
            (west, south, east, north), stations_of(scene.base_stations, range(STATIONS)),
            participants=users, epsilon=epsilon, coarsest=True, aggregators=2,
        )  # fmt: skip
        self.users = users
        self.buildings = scene.grid, scene.heights
        owner = np.unique(data.user, return_inverse=True)[1].reshape(-1)
        self.total = summed(self.design, owner, data.user_xyz[:, :2], data.bs, data.gain_db)

    def error(self, added: np.ndarray, hostile: int, seed: int) -> float:
        """Mean absolute error in dB with what hostile people add."""
        total = (self.total + added + PRIME // 2) % PRIME - PRIME // 2
        found = opened(self.design, total, self.users + hostile, seed)
        return mean_absolute_error(radio_map_of(found, self.buildings), self.unseen)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--cities", default="20,21,22")
    parser.add_argument("--hostile", default="1,3,10,30,100")
    parser.add_argument("--users", type=int, default=2000)
    parser.add_argument("--epsilon", type=float, default=2.0)
    parser.add_argument("--seeds", type=int, default=2)
    given = parser.parse_args()
    cities = [City(int(one), given.users, given.epsilon) for one in given.cities.split(",")]

    def mean(kind, hostile: int) -> dict[str, float]:
        found: dict[str, list[float]] = {}
        for city in cities:
            for name, added in kind(city, hostile):
                for seed in range(given.seeds):
                    found.setdefault(name, []).append(city.error(added, hostile, seed))
        return {name: float(np.mean(errors)) for name, errors in found.items()}

    honest = mean(lambda city, _: [("nobody", np.zeros_like(city.total))], 0)["nobody"]
    numbers = [city.design.numbers for city in cities]
    print(f"{given.users} honest, epsilon {given.epsilon:g}, numbers {numbers}: {honest:.2f} dB")
    for hostile in map(int, given.hostile.split(",")):
        bare = mean(lambda city, count: unproven(city.total, count), hostile)["anything"]
        bounded = mean(lambda city, count: proven(city.design, city.total, count), hostile)
        worst = max(bounded, key=lambda name: bounded[name])
        print(
            f"{hostile:>4} hostile: without proofs {bare:.2f} dB; with proofs"
            f" {bounded[worst] - honest:+.3f} dB ({worst});",
            ", ".join(f"{name} {error - honest:+.3f}" for name, error in bounded.items()),
        )


if __name__ == "__main__":
    main()
