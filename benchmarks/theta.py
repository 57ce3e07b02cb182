"""What gradients of θ in the clear give away: docs/privacy.md has the figures.

python benchmarks/theta.py            # city 0, 100 users × 200 links, aligned noise, μ = 50
python benchmarks/theta.py --users 40 # of whom so many are attacked
"""

import argparse
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

import veilmap as vm
from veilmap.attacks import GradientInversion, JointInversion, MatchedFilter, ThetaInversion
from veilmap.attacks.base import Attack, Estimates
from veilmap.federation import Model, Run, Transcript

_ROUNDS = 200
_KEPT = sorted(set(np.linspace(0, _ROUNDS - 1, 10).round().astype(int).tolist()))
_KINDS = {"clear": None, "clear, offsets": Model(calibrate=["stations"]), "sum": None}


def main() -> None:
    """Median errors by kind of run, attack and round."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--city", type=int, default=0)
    parser.add_argument("--users", type=int, default=100, help="attacked users")
    given = parser.parse_args()
    scene = vm.Scene.synthetic(given.city)
    data = scene.measure(seed=2 * given.city)
    truth = dict(zip(data.users.tolist(), data.mean_positions(), strict=True))
    for kind, model in _KINDS.items():
        started = time.perf_counter()
        run = _trained(scene, data, kind.partition(",")[0], model, given.city)
        print(f"{kind}: trained in {time.perf_counter() - started:.1f} s", flush=True)
        targets = set(data.users.tolist()[: given.users])
        for attack, found, seconds in _attacked(replace(run.transcript, targets=targets)):
            errors = found.errors(truth)
            row = "  ".join(f"{when}: {np.median(each):.3g}" for when, each in errors.items())
            print(f"  {attack} ({seconds:.1f} s), median in m: {row}", flush=True)


def _trained(
    scene: vm.Scene, data: vm.Measurements, theta: str, model: Model | None, seed: int
) -> Run:
    return vm.train(
        data, scene.grid, mechanism=vm.GeometryAligned(noise_budget=50, theta=theta),
        rounds=_ROUNDS, seed=seed, model=model, recording=vm.Recording(keep_uploads=_KEPT),
    )  # fmt: skip


def _attacked(transcript: Transcript) -> Iterator[tuple[str, Estimates, float]]:
    """All ten rounds by every attack, and five of them, or the first, by θ's alone."""
    earlier: dict[str, Estimates] = {}
    attacks: list[Attack] = [MatchedFilter(), GradientInversion()]
    if transcript.shows_theta:
        attacks += [ThetaInversion(), JointInversion()]
        for number in (1, 5):
            kept = [transcript.rounds[n] for n in (_KEPT[:1] if number == 1 else _KEPT[::2])]
            some = replace(transcript, rounds={seen.broadcast.round: seen for seen in kept})
            started = time.perf_counter()
            found = ThetaInversion().locate(some)
            seconds = time.perf_counter() - started
            yield f"theta inversion, {number} of the rounds", found, seconds
    for attack in attacks:
        started = time.perf_counter()
        earlier[attack.name] = attack.locate_after(transcript, earlier)
        yield attack.name, earlier[attack.name], time.perf_counter() - started


if __name__ == "__main__":
    main()
