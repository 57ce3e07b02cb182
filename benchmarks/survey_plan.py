"""What is expected of surveys beside what they measure, on unseen users.

python benchmarks/survey_plan.py                         # synthetic cities
python benchmarks/survey_plan.py links.parquet --users 500,2000 --heard 19
python benchmarks/survey_plan.py --cities 10,11,12,13,14,15 --users 500,2000,8000 \\
    --heard-of 200/200,50/200,19/29,2/6 --fit            # `veilmap.surveys.planning.CURVE`

Of a file one user in five is tested, and as many of the others take part as --users says.
Designs are made from public numbers: of a city that its users are spread over all of it, how many
of its stations they hear, and that readings have 3 dB of noise; of a file only --heard, if it is
named. Trials are kept in --out and not repeated. Three cities take ten minutes on one core.
"""

import argparse
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from functools import cached_property, lru_cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import veilmap as vm
from veilmap.compare import by_users, covering_grid, without_patterns
from veilmap.data.measurements import Measurements
from veilmap.errors import ConfigurationError
from veilmap.surveys.design import FEWEST_ALONG, stations_of
from veilmap.surveys.planning import CURVE, Curve, expected
from veilmap.surveys.surroundings import Surroundings

NOISE_DB = 3.0  # of readings in the cities
TESTED = 300  # unseen users of a city


@dataclass(frozen=True)
class Trial:
    """A survey: of a city by its number, or of a file by its name."""

    where: str
    users: int
    epsilon: float
    heard: float | None
    stations: int = 200  # of a city
    spacing: float = 1.0  # in units of the spacing that the design chooses

    @property
    def surroundings(self) -> Surroundings:
        """What the design is told."""
        if self.where.isdigit():
            return Surroundings(self.heard, occupied=1.0, reading_noise_db=NOISE_DB)
        return Surroundings(self.heard)

    @cached_property
    def design(self) -> vm.Survey:
        """With the fewest points where participants are too few."""
        chosen = self._designed(coarsest=True)
        if self.spacing == 1:
            return chosen
        grid, _ = public(self.where, self.stations)
        widest = math.sqrt(grid.cells) / FEWEST_ALONG  # cells of 1 m
        return self._designed(spacing=min(self.spacing * chosen.grid.cell_size, widest))

    @cached_property
    def refused(self) -> bool:
        """Whether a design is refused unless the fewest points are asked for."""
        try:
            self._designed()
        except ConfigurationError:
            return True
        return False

    def _designed(self, **options: Any) -> vm.Survey:
        grid, stations = public(self.where, self.stations)
        west, east, south, north = grid.extent
        return vm.Survey.design(
            (west, south, east, north),
            stations,
            participants=self.users,
            epsilon=self.epsilon,
            surroundings=self.surroundings,
            **options,
        )


@lru_cache(maxsize=1)
def _file(path: str) -> tuple[Measurements, Measurements]:
    fold = next(by_users(without_patterns(Measurements.load(path))))
    return fold.train, fold.test


@lru_cache(maxsize=64)
def public(where: str, stations: int) -> tuple[vm.Grid, tuple[vm.Station, ...]]:
    """The area, by cells of a metre, and its base stations."""
    if where.isdigit():
        scene = vm.Scene.synthetic(int(where), base_stations=stations)
        places, ids = scene.base_stations, tuple(range(len(scene.base_stations)))
        corners = np.reshape(scene.grid.extent, (2, 2)).T
        return vm.Grid.covering(corners, 1.0), stations_of(places, ids)
    train, _ = _file(where)
    return covering_grid(train, 1.0), stations_of(*train.stations)


@lru_cache(maxsize=1)
def measured_by(
    where: str, users: int, heard: float | None, stations: int, seed: int
) -> tuple[Measurements, Measurements]:
    """Everybody's readings, and those of unseen users; of a file, other users for each seed."""
    if where.isdigit():
        city, links = int(where), int(heard or stations)
        scene = vm.Scene.synthetic(city, base_stations=stations)
        own = {"links_per_user": links, "noise_db": NOISE_DB}
        return (
            scene.measure(users=users, seed=2 * city, **own),
            scene.measure(users=TESTED, seed=2 * city + 1, **own),
        )
    train, test = _file(where)
    chosen = np.random.default_rng(seed).permutation(train.users)[:users]
    return train.select(np.isin(train.user, chosen)), test


def measure(trial: Trial, seeds: int) -> dict[str, float]:
    """Mean absolute error, median deviation and coverage of 95 % intervals, over the seeds."""
    design, found = trial.design, []
    for seed in range(seeds):
        drawn = 0 if trial.where.isdigit() else seed
        whom = trial.where, trial.users, trial.heard, trial.stations, drawn
        train, test = measured_by(*whom)
        radio_map = vm.survey(train, design, seed).radio_map
        wrong = np.abs(radio_map.predict_links(test) - test.gain_db)
        deviation = radio_map.deviation(test.user_xyz, test.bs_xyz, test.bs)
        within = wrong < 1.96 * deviation
        found.append((wrong.mean(), np.median(deviation), within.mean()))
    return dict(zip(("error", "deviation", "within"), np.mean(found, axis=0).tolist(), strict=True))


def fit(trials: Sequence[tuple[Trial, float]]) -> Curve:
    """By least squares; errors of more than a decibel count as one."""
    from scipy.optimize import minimize

    designs = [(trial.design, trial.surroundings, error) for trial, error in trials]

    def loss(logarithms: np.ndarray) -> float:
        curve = Curve(*np.exp(logarithms).tolist())
        wrong = [expected(own, told, curve).error_db - error for own, told, error in designs]
        return float(np.mean(np.minimum(np.abs(wrong), 1.0) ** 2))

    found = minimize(loss, np.log(astuple(CURVE)), method="Nelder-Mead", options={"maxfev": 200})
    return Curve(*np.exp(found.x).tolist())


def trials(given: argparse.Namespace) -> Iterator[Trial]:
    """What is asked for."""
    crowds = (
        [(0, given.heard)] if given.data else [_crowd(one) for one in given.heard_of.split(",")]
    )
    for where, (stations, heard), users, epsilon, spacing in product(
        [given.data] if given.data else given.cities.split(","),
        crowds,
        map(int, given.users.split(",")),
        map(float, given.epsilon.split(",")),
        map(float, given.spacing.split(",")),
    ):
        yield Trial(where, users, epsilon, heard, stations, spacing)


def _crowd(text: str) -> tuple[int, float]:
    heard, stations = text.split("/")
    return int(stations), float(heard)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("data", nargs="?", help="measurements, .csv or .parquet")
    parser.add_argument("--cities", default="10,11,12")
    parser.add_argument("--users", default="500,2000,8000,20000")
    parser.add_argument("--epsilon", default="1,2,8")
    parser.add_argument("--heard-of", default="200/200", help="stations of a city: heard/there")
    parser.add_argument(
        "--heard", type=float, help="stations that a participant hears; default: half"
    )
    parser.add_argument("--spacing", default="1", help="in units of the one that is chosen")
    parser.add_argument("--seeds", type=int, default=1, help="of the noise, and of who takes part")
    parser.add_argument("--fit", action="store_true", help="fit the curve to these trials")
    parser.add_argument("--out", type=Path, default=Path("build/survey_plan.json"))
    given = parser.parse_args()
    done = json.loads(given.out.read_text()) if given.out.exists() else {}
    given.out.parent.mkdir(parents=True, exist_ok=True)
    print(
        "where users ε heard m apart: expected, measured; deviation expected, measured; within 95 %"
    )
    known, wrong = [], []
    for trial in trials(given):
        name = f"{astuple(trial)} {given.seeds}"
        if name not in done:
            done[name] = measure(trial, given.seeds)
            given.out.write_text(json.dumps(done, indent=1))
        design, own = trial.design, done[name]
        what = expected(design, trial.surroundings)
        known.append((trial, own["error"]))
        wrong.append(what.error_db - own["error"])
        print(
            f"{Path(trial.where).stem} {trial.users:6} {trial.epsilon:g} {trial.heard}"
            f" {design.grid.cell_size:4.0f} m: {what.error_db:5.2f} {own['error']:5.2f} dB;"
            f" {what.deviation_db:5.2f} {own['deviation']:5.2f}; {own['within']:.0%}"
            f"{' (refused without coarsest=True)' if trial.refused else ''}",
            flush=True,
        )
    print(
        f"expected less measured: {np.mean(wrong):+.2f} dB in the mean,"
        f" {np.sqrt(np.mean(np.square(wrong))):.2f} dB root mean square,"
        f" {np.abs(wrong).max():.2f} dB at most, {np.mean(np.abs(wrong) <= 0.5):.0%} within 0.5 dB"
    )
    if given.fit:
        print(f"fitted:  {fit(known)}\nin use:  {CURVE}")


if __name__ == "__main__":
    main()
