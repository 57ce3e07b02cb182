"""What a proven guarantee costs: 3,000 users, δ = 1e-6 over all rounds, θ covered."""

import time

from suite._figure import Figure
from veilmap.auditing.audit import audit
from veilmap.federation import Recording, train
from veilmap.privacy.mechanisms import AggregateGaussian, Mechanism, NoNoise
from veilmap.scenes.scene import Scene

_USERS = 3000
_ROUNDS = 200
_SEEN = (0, 49, 99, 149, 199)
_CLIP = 0.3


def measure(seed: int) -> list[Figure]:
    """Map MAE above no noise, and the best attack on sums over guessing."""
    scene = Scene.synthetic(seed)
    data = scene.measure(users=_USERS, seed=2 * seed)
    unseen = scene.measure(users=200, seed=2 * seed + 1)
    mae, attack, seconds = {}, {}, {}
    schemes: dict[str, Mechanism] = {"no noise": NoNoise(clip=_CLIP)}
    schemes |= {f"ε = {e}": AggregateGaussian(epsilon=e, delta=1e-6, clip=_CLIP) for e in (8, 4, 2)}
    for name, mechanism in schemes.items():
        started = time.perf_counter()
        run = train(
            data,
            scene.grid,
            mechanism=mechanism,
            rounds=_ROUNDS,
            seed=seed,
            server_sees="sums",
            recording=Recording(keep_uploads=_SEEN),
        )
        seconds[name] = time.perf_counter() - started
        found = audit(run, data, test=unseen)
        mae[name], attack[name] = found.mae_db, found.closest_rmse
    above = {name: mae[name] - mae["no noise"] for name in mae}
    return [
        Figure("MAE, ε = 8 above no noise", above["ε = 8"], "dB", at_most=0.5),
        Figure("MAE, ε = 4 above no noise", above["ε = 4"], "dB", at_most=0.9),
        *(
            Figure(f"least RMSE of attacks / guessing, {name}", value, "×", at_least=0.9)
            for name, value in attack.items()
        ),
        *(Figure(f"MAE, {_USERS} users, {name}", value, "dB") for name, value in mae.items()),
        Figure("time, ε = 8 / no noise", seconds["ε = 8"] / seconds["no noise"], "×"),
    ]
