"""Two crowds that differ in one user's measurements, and sums that their number alone decides."""

import numpy as np

import veilmap as vm
from veilmap.federation.server import OpenedSum

PROMISE = vm.AggregateGaussian(epsilon=6.0, delta=1e-3)
SCENE = vm.Scene.synthetic(5, size=90.0, buildings=4, base_stations=40)
STATIONS = SCENE.base_stations[:12], tuple(range(12))
DATA = SCENE.measure(users=8, links_per_user=29, seed=0)
VICTIM = 3


def changed(data):
    """The same measurements but for one user's: other places, gains, number, and a new station."""
    rest, rng = data.select(data.user != VICTIM), np.random.default_rng(7)
    links = 41
    user_xyz = np.column_stack([rng.uniform(0, 90, (links, 2)), np.full(links, 1.5)])
    user_xyz[:5, :2] = [5000.0, -3000.0]  # farther than anybody
    bs = rng.integers(0, 12, links)
    bs_xyz = SCENE.base_stations[bs]
    bs[-1], bs_xyz[-1] = 999, [33.0, 44.0, 55.0]  # which nobody else has heard
    own = vm.Measurements([VICTIM] * links, user_xyz, bs_xyz, rng.uniform(-150, -40, links), bs=bs)
    return vm.Measurements(
        *(
            np.concatenate([getattr(rest, name), getattr(own, name)])
            for name in ("user", "user_xyz", "bs_xyz", "gain_db", "bs")
        )
    )


TWINS = {"a": DATA, "b": changed(DATA)}


def fixed_sum(total):
    rng = np.random.default_rng([total.broadcast.round, 1])
    heights, theta = (rng.integers(-400, 400, n) for n in (total.cells, total.parameters))
    return OpenedSum(len(total.clients), heights.astype(float), theta.astype(float))
