"""What a guarantee for single uploads costs the map, with names and shuffled.

python benchmarks/uploads.py --users 100000 --epsilon 8,4,2
python benchmarks/uploads.py --users 1000000 --links 20 --epsilon 8,4,2,1
python benchmarks/uploads.py attack

Every user sends one upload, in one of the rounds, and each training is compared with the same one
without noise and with the planner's figure. 100,000 users take a minute a training on two cores,
1,000,000 ten minutes and 6 GB. `attack` lets an attacker who knows the mechanism look at uploads
with names.
"""

import argparse
from dataclasses import replace

import veilmap as vm
from veilmap.federation import planning
from veilmap.federation.planning import usual_delta

ROUNDS, CLIP = 60, 0.3
ATTACKED = 600  # users of the attacked crowd
TURNS = vm.Participation(share=1 / ROUNDS, in_turns=True)


def error_db(scene, data, unseen, mechanism, sees: str, seed: int = 1) -> float:
    run = vm.train(
        data, scene.grid, mechanism=mechanism, rounds=ROUNDS, server_sees=sees, seed=seed,
        participation=TURNS,
    )  # fmt: skip
    return vm.baselines.mean_absolute_error(run.radio_map, unseen)


def losses(city: int, users: int, links: int, epsilons: list[float]) -> None:
    """A row for each ε and trust model."""
    scene = vm.Scene.synthetic(city)
    data = scene.measure(users=users, links_per_user=links, seed=2 * city)
    unseen = scene.measure(users=200, seed=2 * city + 1)
    without = error_db(scene, data, unseen, vm.NoNoise(clip=CLIP), "sums")
    print(f"city {city}, {users:,} users with {links} links: {without:.2f} dB without noise")
    delta = usual_delta(users)
    for epsilon in epsilons:
        for sees in ("uploads", "shuffled"):
            wanted = vm.PrivUnit(epsilon=epsilon, delta=delta, clip=CLIP)
            found = error_db(scene, data, unseen, wanted, sees)
            try:
                plans = planning.plan_of_uploads(users, epsilon, delta, sees, rounds=[ROUNDS])
                expected = f"{plans.loss_db - planning.CURVE.loss_db(ROUNDS, 0.0):.2f}"
            except vm.VeilmapError:
                expected = "too much"
            print(
                f"  ε = {epsilon:g}, δ = {delta:g}, {sees}: {found:.2f} dB, loses"
                f" {found - without:.2f}; planned {expected}",
                flush=True,
            )


def attack(city: int, epsilons: list[float]) -> None:
    """Places found from the one upload of each of some users, with the map of a large crowd."""
    scene = vm.Scene.synthetic(city)
    crowd = scene.measure(users=1000, seed=2 * city)
    known = vm.train(crowd, scene.grid, mechanism=vm.NoNoise(clip=CLIP), rounds=ROUNDS, seed=1)
    data = scene.measure(users=ATTACKED, seed=2 * city + 2)
    for epsilon in epsilons:
        run = vm.train(
            data, scene.grid, rounds=ROUNDS, seed=2, participation=TURNS,
            mechanism=vm.PrivUnit(epsilon=epsilon), recording=vm.Recording(keep_uploads="all"),
        )  # fmt: skip
        # The attacker has the map that the large crowd learned.
        transcript = replace(run.transcript, radio_map=known.radio_map)
        audit = vm.audit(replace(run, transcript=transcript), data, rounds=range(0, ROUNDS, 3))
        prior = audit.prior
        rivals = [one for one in audit.scores if one.when == "all" and one.attack != prior.attack]
        best = min(rivals, key=lambda score: score.median.value)
        least = min(score.rmse.value for score in rivals) / prior.rmse.value
        print(
            f"ε = {epsilon:g}: {best.attack} {best.median.value:.0f} m median,"
            f" {100 * best.found[50].value:.0f} % within 50 m; guessing {prior.median.value:.0f} m,"
            f" {100 * prior.found[50].value:.0f} %; least RMSE {least:.2f} × guessing",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", nargs="?", choices=("losses", "attack"), default="losses")
    parser.add_argument("--users", type=int, default=100_000)
    parser.add_argument("--links", type=int, default=50, help="of each user")
    parser.add_argument("--epsilon", default="8,4,2")
    parser.add_argument("--cities", default="0")
    given = parser.parse_args()
    epsilons = [float(text) for text in given.epsilon.split(",")]
    for city in map(int, given.cities.split(",")):
        if given.what == "attack":
            attack(city, epsilons)
        else:
            losses(city, given.users, given.links, epsilons)


if __name__ == "__main__":
    main()
