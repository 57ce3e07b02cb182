"""What hostile participants do to a map, and what helps: docs/privacy.md has the figures.

    python benchmarks/poison.py uploads          # 1 and 10 of 100 users, the server sees uploads
    python benchmarks/poison.py sums             # 1 of 1,000 users, ε = 8, the server sees sums
    python benchmarks/poison.py uploads --seeds 3 --mechanisms none --tried walls:0.1,parts:1

Attackers know all that honest users send in a round. Every kind of vector below is tried at every
strength, a share of the longest upload that the server takes; the worst one counts.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import veilmap as vm
from veilmap.federation.engine import Gathered, LocalExchange
from veilmap.federation.participation import Turnout
from veilmap.federation.rounds import Training
from veilmap.federation.run import Run
from veilmap.federation.server import RoundSum

Floats = NDArray[np.float64]

_ROUNDS = 60
_MECHANISMS: dict[str, Any] = {
    "none": vm.NoNoise(),
    "uniform": vm.UniformNoise(noise_budget=50),
    "aligned": vm.GeometryAligned(noise_budget=50),
}


@dataclass(frozen=True)
class Seen:
    """What attackers know in a round: honest uploads, the map, and who they are among all."""

    uploads: Floats
    heights: Floats
    among: int


def _walls(seen: Seen) -> Floats:
    return -np.ones(seen.heights.size)


def _ground(seen: Seen) -> Floats:
    return np.ones(seen.heights.size)


def _streets(seen: Seen) -> Floats:
    """Walls where the map has none: the step amplifies what nobody contradicts."""
    return -(seen.heights.ravel() < _LOW).astype(float)


def _inverse(seen: Seen) -> Floats:
    return np.where(seen.heights.ravel() < _LOW, -1.0, 1.0)


def _checks(seen: Seen) -> Floats:
    rows, columns = np.indices(seen.heights.shape) // 12
    return np.where((rows + columns) % 2 == 0, 1.0, -1.0).ravel()


def _opposite(seen: Seen) -> Floats:
    return -seen.uploads.mean(axis=0)


def _little(seen: Seen) -> Floats:
    """The mean less a deviation, cell by cell: "a little is enough"."""
    return np.asarray(seen.uploads.mean(axis=0) - seen.uploads.std(axis=0))


def _noise(seen: Seen) -> Floats:
    return np.random.default_rng(0).normal(size=seen.heights.size)


_LOW = 4.0  # metres
_KINDS: dict[str, Callable[[Seen], Floats]] = {
    "walls": _walls, "ground": _ground, "streets": _streets, "inverse": _inverse,
    "checks": _checks, "opposite": _opposite, "little": _little, "noise": _noise,
}  # fmt: skip
_STRENGTHS = (1.0, 0.3, 0.1, 0.03)
_OTHERS = ("θ", "-θ", "weight", "parts", "flipped")  # that have no strength
_EVERYTHING = ",".join(
    [f"{kind}:{s:g}" for kind in _KINDS for s in _STRENGTHS] + [f"{kind}:1" for kind in _OTHERS]
)


@dataclass(frozen=True)
class Poisoned(LocalExchange):
    """All users in this process, the first ``hostile`` of whom send what an attack makes."""

    hostile: int = 0
    kind: str = ""
    strength: float = 1.0

    def collect(self, total: RoundSum, turnout: Turnout) -> Gathered:
        """Honest answers, then those of the attackers in the place of their own."""
        insights, updates = [], []
        for clients in self._answering(turnout, len(turnout.users)):
            answers, insight = clients.answer(total.broadcast)
            updates += answers
            insights.append(insight)
        if self.kind:
            honest = np.array([u.height_gradient for u in updates[self.hostile :]], dtype=float)
            seen = Seen(honest, total.broadcast.radio_map.heights, self.hostile)
            for number in range(self.hostile):
                changed = self._changed(updates[number], seen, number, total.largest_norm)
                updates[number] = changed
        total.add(updates)
        return Gathered(insights)

    def _changed(self, update: Any, seen: Seen, number: int, longest: float) -> Any:
        cells = seen.heights.size
        if self.kind in ("θ", "-θ"):
            sign = -1.0 if self.kind == "-θ" else 1.0
            return replace(update, theta_gradient=np.full_like(update.theta_gradient, sign * 1e6))
        if self.kind == "flipped":
            return replace(update, height_gradient=-update.height_gradient)
        vector = _KINDS[self.kind](seen) if self.kind in _KINDS else _walls(seen)
        if self.kind == "parts":  # each a part of the map: nobody lies as anybody else does
            own = np.arange(cells) * seen.among // cells == number
            vector = vector * own
        vector = vector * (self.strength * longest / np.linalg.norm(vector))
        weight = 1_000_000 if self.kind == "weight" else update.weight
        return replace(update, height_gradient=vector, weight=weight)


@dataclass(frozen=True)
class Engine:
    """Plays a training with attackers."""

    hostile: int = 0
    kind: str = ""
    strength: float = 1.0
    divides = True

    def play(self, training: Training, data: Any) -> Run:
        """Play all rounds."""
        config = training.config
        given = (self.hostile, self.kind, self.strength)
        return training.play(Poisoned(data, config.mechanism, config.seed, *given))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=("uploads", "sums"))
    parser.add_argument("--mechanisms", default="none,uniform,aligned")
    parser.add_argument("--seeds", type=int, default=4, help="cities and noise seeds for the cost")
    parser.add_argument("--plain", action="store_true", help="attack the plain mean too")
    parser.add_argument("--hostile", default="1,10", help="how many of 100 users")
    parser.add_argument("--tried", default=_EVERYTHING, help="vectors and their strengths")
    options = parser.parse_args()
    if options.what == "sums":
        _sums()
        return
    for name in options.mechanisms.split(","):
        _cost(name, options.seeds)
        tried = [(kind, float(s)) for kind, s in (t.split(":") for t in options.tried.split(","))]
        for hostile in map(int, options.hostile.split(",")):
            for robust in (True, False) if options.plain else (True,):
                _attack(name, hostile, tried, robust=robust)


def _mae(name: str, seed: int, engine: Engine, *, robust: bool) -> float:
    scene = vm.Scene.synthetic(seed)
    data, test = (scene.measure(users=n, seed=2 * seed + k) for k, n in enumerate((100, 40)))
    run = vm.train(
        data, scene.grid, mechanism=_MECHANISMS[name], rounds=_ROUNDS, seed=seed, engine=engine,
        robust=robust, recording=vm.Recording(test=test, test_every=_ROUNDS),
    )  # fmt: skip
    return run.history[-1].mae_db


def _cost(name: str, seeds: int) -> None:
    pairs = [[_mae(name, s, Engine(), robust=r) for r in (False, True)] for s in range(seeds)]
    costs = np.diff(pairs, axis=1)
    honest = np.mean(pairs, axis=0)
    error = costs.std() / np.sqrt(max(1, seeds - 1))
    print(
        f"{name}: honest {honest[0]:.2f} dB, robust {honest[1]:.2f} dB:"
        f" cost {costs.mean():+.3f} ± {error:.3f} dB over {seeds} cities",
        flush=True,
    )


def _attack(name: str, hostile: int, tried: list[tuple[str, float]], *, robust: bool) -> None:
    found = {(kind, s): _mae(name, 0, Engine(hostile, kind, s), robust=robust) for kind, s in tried}
    worst = sorted(found, key=found.__getitem__, reverse=True)
    said = ", ".join(f"{kind} {s:g}: {found[kind, s]:.2f}" for kind, s in worst)
    print(f"  {hostile} of 100, {'robust' if robust else 'plain'} mean: {said}", flush=True)


def _sums() -> None:
    """One of 1,000 users adds a vector of so many times the largest contribution."""
    scene = vm.Scene.synthetic(0)
    data, test = (
        scene.measure(users=n, links_per_user=200, seed=k) for k, n in enumerate((1000, 40))
    )
    mechanism = vm.AggregateGaussian(epsilon=8, delta=1e-6)
    for times in (0, 1, 3, 10, 30, 100, 1000, 3000):
        run = vm.train(
            data, scene.grid, mechanism=mechanism, rounds=_ROUNDS, seed=0,
            engine=_Adding(times), recording=vm.Recording(test=test, test_every=_ROUNDS),
        )  # fmt: skip
        unused = sum(row.notes != "" for row in run.history)
        print(
            f"{times} contributions: {run.history[-1].mae_db:.2f} dB, {unused} rounds unused",
            flush=True,
        )


@dataclass(frozen=True)
class _Adding:
    times: float
    divides = True

    def play(self, training: Training, data: Any) -> Run:
        """Play all rounds."""
        return training.play(_Added(data, training.config.mechanism, 0, self.times))


@dataclass(frozen=True)
class _Added(LocalExchange):
    times: float = 0.0

    def collect(self, total: RoundSum, turnout: Turnout) -> Gathered:
        """All honest answers, and walls everywhere on top of them."""
        gathered = super().collect(total, turnout)
        steps, cells = self.mechanism.steps, total.cells  # type: ignore[attr-defined]
        each = round(self.times * steps / np.sqrt(cells))
        total._running.lanes[0, :cells] -= each
        return gathered


if __name__ == "__main__":
    main()
