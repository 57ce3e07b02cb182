"""The demo: a city, four ways to learn its map, and what the server could learn of users."""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from veilmap import figures
from veilmap._util import files
from veilmap.attacks import Differencing, MatchedFilter, WeightedCentroid
from veilmap.auditing.audit import audit
from veilmap.baselines import (
    Estimator,
    LogDistance,
    NearestNeighbours,
    OrdinaryKriging,
    TrueMap,
    mean_absolute_error,
)
from veilmap.data.measurements import Measurements
from veilmap.errors import VeilmapError
from veilmap.federation import HistoryRow, Model, Recording, Run, train
from veilmap.federation.messages import ClientId
from veilmap.federation.transcript import ServerSees
from veilmap.privacy.mechanisms import GeometryAligned, Mechanism, NoNoise, UniformNoise
from veilmap.reports.maps import nearest_to_middle, outdoors, true_gain
from veilmap.runs.source import Source
from veilmap.scenes.scene import Scene

# The paper's strongest setting, and the other trust model.
SCHEMES: dict[str, tuple[Mechanism, ServerSees]] = {
    "no noise": (NoNoise(), "uploads"),
    "uniform, μ = 50": (UniformNoise(noise_budget=50), "uploads"),
    "aligned, μ = 50, ρ = 1": (GeometryAligned(noise_budget=50, tradeoff=1), "uploads"),
    "no noise, sums only": (NoNoise(), "sums"),
}
_BASELINES: dict[str, Callable[[], Estimator]] = {
    "log-distance": LogDistance,
    "k nearest neighbours": NearestNeighbours,
    "ordinary kriging": OrdinaryKriging,
}
_SHOWN = "aligned, μ = 50, ρ = 1"  # whose map is drawn
_CELL_SIZE = 3.0


@dataclass(frozen=True)
class Row:
    """One line of the table: the map's error on unseen users, and what attackers make of it.

    ``centroid_m`` is the median error of the paper's centroid attacker in the last round,
    ``strongest_m`` that of the attack ``strongest``, which knows the defence, in the first.
    """

    name: str
    mae_db: float | None
    seconds: float
    centroid_m: float | None = None
    strongest_m: float | None = None
    strongest: str = ""
    note: str = ""


def run(
    out: Path,
    *,
    seed: int = 0,
    users: int = 100,
    rounds: int = 100,
    on_round: Callable[[str, HistoryRow], None] | None = None,
    runs_in: Path | None = None,
) -> tuple[list[Row], list[Path]]:
    """Build a city, learn its map four ways, compare, and write figures to ``out``; their paths.

    The runs themselves are written to ``runs_in``, if it is given, for the page to show.
    """
    source = Source(None, None, seed, users, _CELL_SIZE)
    data, unseen, grid = source.load()
    scene = source.scene
    assert scene is not None  # as in any synthetic city
    assert unseen is not None
    assert isinstance(data, Measurements)

    rows = [_timed(name, baseline(), data, unseen) for name, baseline in _BASELINES.items()]
    runs = {}
    for name, (mechanism, sees) in SCHEMES.items():
        folder = mechanism.name if sees == "uploads" else f"{mechanism.name}-{sees}"
        started = time.perf_counter()
        runs[name] = train(
            data,
            grid,
            mechanism=mechanism,
            server_sees=sees,
            rounds=rounds,
            seed=seed,
            model=Model(stations=source.public_stations()),
            recording=Recording(
                out=runs_in and runs_in / folder,
                keep_uploads={0, rounds - 1},
                test=unseen if runs_in else None,
                source=source.described(),
                on_round=partial(on_round, name) if on_round else None,
            ),
        )
        seconds = time.perf_counter() - started
        rows.append(_attacked(name, runs[name], data, unseen, seconds))
    noise = scene.gain(unseen.user_xyz, unseen.bs_xyz) - unseen.gain_db
    rows += [
        _timed("true heights on this grid", TrueMap(scene), data, unseen),
        Row("measurement noise alone", float(np.mean(np.abs(noise))), 0.0),
    ]
    drawn = [*_map_figures(scene, runs[_SHOWN], out), _upload_figure(scene, data, runs, out)]
    files.write_json([asdict(row) for row in rows], out / "results.json")
    runs[_SHOWN].radio_map.save(out / "radio_map.nc")
    return rows, [*drawn, out / "results.json", out / "radio_map.nc"]


def _timed(name: str, baseline: Estimator, data: Measurements, unseen: Measurements) -> Row:
    started = time.perf_counter()
    try:
        mae = mean_absolute_error(baseline.fit(data), unseen)
    except VeilmapError as error:  # an optional library is missing: say so in the table
        return Row(name, None, 0.0, note=str(error))
    return Row(name, mae, time.perf_counter() - started)


def _attacked(name: str, run: Run, data: Measurements, unseen: Measurements, seconds: float) -> Row:
    """A scheme's line: its map's error, and what attackers make of it."""
    # One round and one attack are enough here; `veilmap audit` has a stronger one, which takes
    # some ten seconds to compile.
    attack = Differencing() if run.transcript.server_sees == "sums" else MatchedFilter()
    found = audit(run, data, attacks=[attack], battery=False, rounds=[0], test=unseen)
    best = found.strongest
    centroid = _centroid_error(run, found.truth)
    return Row(name, found.mae_db, seconds, centroid, best.median.value, best.attack)


def _centroid_error(run: Run, truth: Mapping[ClientId, NDArray[np.float64]]) -> float | None:
    """Median error of the paper's attacker in the last kept round, where it sees uploads."""
    if run.transcript.server_sees == "sums":
        return None
    errors = WeightedCentroid(power=2).locate(run.transcript).errors(truth)
    return float(np.median(errors[max(run.transcript.rounds)]))


def _map_figures(scene: Scene, learned: Run, out: Path) -> list[Path]:
    grid, radio_map = scene.grid, learned.radio_map
    bs = scene.base_stations[nearest_to_middle(grid, scene.base_stations)]
    truth = true_gain(scene, bs)
    gain = outdoors(scene, radio_map.predict_area(bs))
    drawn = {
        "heights_true.png": figures.maps.heights(grid, scene.heights, "true heights"),
        "heights_learned.png": figures.maps.heights(grid, radio_map.heights, "learned heights"),
        "gain_predicted.png": figures.maps.gain(grid, gain, bs, "predicted gain at 1.5 m"),
        "gain_error.png": figures.maps.gain_error(grid, gain - truth, bs, "error of the gain"),
        "overview.png": figures.maps.overview(
            grid, (scene.heights, radio_map.heights), (truth, gain), bs
        ),
    }
    return [figures.save(picture, out / name) for name, picture in drawn.items()]


def _upload_figure(scene: Scene, data: Measurements, runs: dict[str, Run], out: Path) -> Path:
    """What the server first received from one user under each scheme, and where it looks."""
    attack = WeightedCentroid(power=2)
    seen = runs["no noise"].transcript.uploads(0)
    order = np.argsort(np.linalg.norm(seen.uploads, axis=1))
    user = seen.clients[order[len(order) // 2]]  # whose gradient is as large as the median one
    panels = []
    for name, learned in runs.items():
        if learned.transcript.server_sees == "sums":
            continue
        seen = learned.transcript.uploads(0)
        upload = seen.uploads[seen.clients.index(user)][None]
        panels.append((name, upload[0], attack.positions(upload, learned.transcript)[0]))
    position = data.mean_positions()[data.users.tolist().index(user)]
    picture = figures.maps.uploads(scene.grid, panels, position, "one user, round 1")
    return figures.save(picture, out / "uploads.png")
