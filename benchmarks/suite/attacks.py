"""Our own defence under the strongest attacks, and what an audit costs."""

import time
from collections.abc import Sequence

from suite._figure import Figure
from veilmap.attacks import (
    Attack,
    GradientInversion,
    JointInversion,
    MatchedFilter,
    PlaneInversion,
    ThetaInversion,
    WeightedCentroid,
)
from veilmap.auditing.audit import Audit, audit
from veilmap.data.measurements import Measurements
from veilmap.federation import Model, Participation, Recording, train
from veilmap.federation.transcript import ServerSees
from veilmap.privacy.mechanisms import GeometryAligned, Mechanism, NoNoise, UniformNoise
from veilmap.scenes.scene import Scene

_ROUNDS = 200
_SEEN = (0, 49, 99, 149, 199)


def measure(seed: int) -> list[Figure]:
    """Median errors of attacks (100 users, 200 rounds, five of them attacked)."""
    scene = Scene.synthetic(seed)
    data = scene.measure(seed=2 * seed)
    _warm_up(scene, data)
    aligned, cost = _audited(scene, data, GeometryAligned(noise_budget=50), seed)
    uniform, uniform_cost = _audited(scene, data, UniformNoise(noise_budget=50), seed)
    none, none_cost = _audited(scene, data, NoNoise(), seed)
    covered, _ = _audited(
        scene, data, GeometryAligned(noise_budget=50, theta="sum"), seed,
        attacks=[MatchedFilter(), GradientInversion()],
    )  # fmt: skip
    offsets, _ = _audited(
        scene, data, GeometryAligned(noise_budget=50), seed,
        model=Model(calibrate=["stations"]), attacks=[ThetaInversion()],
    )  # fmt: skip
    sums, _ = _audited(scene, data, NoNoise(), seed, "sums")
    changing = audit(
        train(data, scene.grid, rounds=_ROUNDS, seed=seed, server_sees="sums",
              participation=Participation(share=0.5),
              recording=Recording(keep_uploads=range(20))),
        data,
        rounds=range(20),
    )  # fmt: skip
    single = min(
        aligned.score(name, 49).median.value
        for name in (MatchedFilter.name, GradientInversion.name, PlaneInversion.name)
    )
    together = aligned.score(GradientInversion.name, "all").median.value
    return [
        Figure("aligned 50, best attack on round 50, median", single, "m", at_most=10),
        Figure("aligned 50, best attack on five rounds, median", together, "m", at_most=5),
        *_of_theta(aligned, covered, offsets),
        Figure("sums without noise, least RMSE / guessing", sums.closest_rmse, "×", at_least=0.9),
        Figure("time, audit / training, aligned 50", cost, "×", at_most=3),
        Figure("time, audit / training, uniform 50", uniform_cost, "×"),
        Figure("time, audit / training, no noise", none_cost, "×"),
        *(
            Figure(
                f"{name}, centroid attack on round 50, median",
                found.score(WeightedCentroid(2).name, 49).median.value,
                "m",
            )
            for name, found in {
                "no noise": none,
                "uniform 50": uniform,
                "aligned 50": aligned,
            }.items()
        ),
        *(
            Figure(
                f"aligned 50, {name} on round 50, median", aligned.score(name, 49).median.value, "m"
            )
            for name in (PlaneInversion.name, MatchedFilter.name, GradientInversion.name)
        ),
        Figure("uniform 50, strongest attack, median", uniform.strongest.median.value, "m"),
        Figure("no noise, strongest attack, median", none.strongest.median.value, "m"),
        Figure("guessing, median", aligned.prior.median.value, "m"),
        Figure(
            "sums over changing halves, 20 rounds, median", changing.strongest.median.value, "m"
        ),
    ]


def _of_theta(aligned: Audit, covered: Audit, offsets: Audit) -> list[Figure]:
    """What gradients of θ in the clear add to those of h, and what is left without them."""
    by_theta, joint = ThetaInversion.name, JointInversion.name
    found = [
        ("aligned 50, theta inversion on round 1, median", aligned.score(by_theta, 0)),
        ("aligned 50, theta inversion on round 50, median", aligned.score(by_theta, 49)),
        ("aligned 50, theta inversion on five rounds, median", aligned.score(by_theta, "all")),
        ("aligned 50, joint inversion on round 50, median", aligned.score(joint, 49)),
        ("aligned 50, joint inversion on five rounds, median", aligned.score(joint, "all")),
        ("… with offsets, theta inversion on round 1, median", offsets.score(by_theta, 0)),
        ("… with offsets, theta inversion on five rounds, median", offsets.score(by_theta, "all")),
        ("… with θ in sums, strongest attack, median", covered.strongest),
    ]
    return [Figure(name, score.median.value, "m") for name, score in found]


def _audited(
    scene: Scene,
    data: Measurements,
    mechanism: Mechanism,
    seed: int,
    server_sees: ServerSees = "uploads",
    *,
    model: Model | None = None,
    attacks: Sequence[Attack] = (),
) -> tuple[Audit, float]:
    """An audit, and its time over that of the training it audits."""
    started = time.perf_counter()
    run = train(
        data,
        scene.grid,
        mechanism=mechanism,
        rounds=_ROUNDS,
        seed=seed,
        server_sees=server_sees,
        model=model,
        recording=Recording(keep_uploads=_SEEN),
    )
    trained = time.perf_counter()
    found = audit(run, data, attacks=attacks, battery=not attacks)
    return found, (time.perf_counter() - trained) / (trained - started)


def _warm_up(scene: Scene, data: Measurements) -> None:
    """Compile what is compiled, so that it counts nowhere."""
    run = train(
        data,
        scene.grid,
        mechanism=GeometryAligned(),
        rounds=1,
        recording=Recording(keep_uploads="all"),
    )
    audit(run, data)
