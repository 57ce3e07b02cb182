"""The demo: a city, its measurements, a learned map, and how good that map is."""

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from veilmap import _files, plots
from veilmap.baselines import (
    Baseline,
    LogDistance,
    NearestNeighbours,
    OrdinaryKriging,
    TrueMap,
    mean_absolute_error,
)
from veilmap.central import train_centrally
from veilmap.errors import VeilmapError
from veilmap.measurements import Measurements
from veilmap.radiomap import RadioMap
from veilmap.scene import Scene

# Places inside buildings are left out of gain and error maps: nobody measures there.
_INDOORS = np.nan


@dataclass(frozen=True)
class Row:
    """One line of the table: a predictor, its error on unseen users, the time it took."""

    name: str
    mae_db: float | None
    seconds: float
    note: str = ""


@dataclass(frozen=True)
class DemoResult:
    """What the demo found and wrote."""

    rows: list[Row]
    files: list[Path]


def run(
    out: Path,
    *,
    seed: int = 0,
    users: int = 100,
    test_users: int = 200,
    rounds: int = 200,
    on_round: Callable[[int, float], None] | None = None,
) -> DemoResult:
    """Build a city, learn its map from pooled data, compare, and write figures to ``out``."""
    scene = Scene.synthetic(seed)
    train = scene.measure(users=users, seed=2 * seed)
    test = scene.measure(users=test_users, seed=2 * seed + 1)

    started = time.perf_counter()
    learned = train_centrally(train, scene.grid, rounds=rounds, on_round=on_round).radio_map
    seconds = time.perf_counter() - started

    rows = [
        *_baseline_rows(scene, train, test),
        Row("veilmap, central training", mean_absolute_error(learned, test), seconds),
        _timed("true heights on this grid", TrueMap(scene), train, test),
        Row("measurement noise alone", _noise_floor(scene, test), 0.0),
    ]
    files = [*_figures(scene, learned, out), _save_rows(rows, out / "results.json")]
    learned.save(out / "radio_map.nc")
    return DemoResult(rows, [*files, out / "radio_map.nc"])


def _baseline_rows(scene: Scene, train: Measurements, test: Measurements) -> list[Row]:
    baselines: dict[str, Baseline] = {
        "log-distance": LogDistance(),
        "k nearest neighbours": NearestNeighbours(),
        "ordinary kriging": OrdinaryKriging(),
    }
    return [_timed(name, baseline, train, test) for name, baseline in baselines.items()]


def _timed(name: str, baseline: Baseline, train: Measurements, test: Measurements) -> Row:
    started = time.perf_counter()
    try:
        mae = mean_absolute_error(baseline.fit(train), test)
    except VeilmapError as error:  # an optional library is missing: say so in the table
        return Row(name, None, 0.0, str(error))
    return Row(name, mae, time.perf_counter() - started)


def _noise_floor(scene: Scene, test: Measurements) -> float:
    return float(np.mean(np.abs(scene.gain(test.user_xyz, test.bs_xyz) - test.gain_db)))


def _figures(scene: Scene, learned: RadioMap, out: Path) -> list[Path]:
    grid, bs = scene.grid, _middle_station(scene)
    outdoors = scene.heights == 0
    places = np.column_stack([grid.centres, np.full(grid.cells, 1.5)])
    true_gain = np.where(outdoors, scene.gain(places, bs).reshape(grid.shape), _INDOORS)
    gain = np.where(outdoors, learned.predict_area(bs), _INDOORS)
    figures = {
        "heights_true.png": plots.heights_figure(grid, scene.heights, "true heights"),
        "heights_learned.png": plots.heights_figure(grid, learned.heights, "learned heights"),
        "gain_predicted.png": plots.gain_figure(grid, gain, bs, "predicted gain at 1.5 m"),
        "gain_error.png": plots.error_figure(grid, gain - true_gain, bs, "error of the gain"),
        "overview.png": plots.overview(
            grid, (scene.heights, learned.heights), (true_gain, gain), bs
        ),
    }
    return [plots.save(figure, out / name) for name, figure in figures.items()]


def _middle_station(scene: Scene) -> np.ndarray:
    """The base station nearest to the middle of the area."""
    west, east, south, north = scene.grid.extent
    middle = np.array([(west + east) / 2, (south + north) / 2])
    return scene.base_stations[
        np.argmin(np.linalg.norm(scene.base_stations[:, :2] - middle, axis=1))
    ]


def _save_rows(rows: list[Row], path: Path) -> Path:
    with _files.replacing(path) as temporary:
        temporary.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n")
    return path
