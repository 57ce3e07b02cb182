"""`veilmap compare`."""

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from veilmap._util import files
from veilmap.cli.options import Seed, console, listed, progress_bar, writable_folder
from veilmap.data.measurements import Measurements
from veilmap.errors import ConfigurationError
from veilmap.geometry.grid import Grid

if TYPE_CHECKING:
    from veilmap.compare import Fold, Score
    from veilmap.compare.methods import Setting

_CELLS_ALONG = 100  # the wider side of the ground, by default
_BLOCKS_ALONG = 10


def compare(
    data: Annotated[Path, typer.Argument(help="Measurements (.csv, .parquet).")],
    schemes: Annotated[
        str,
        typer.Option(help="How test data are set aside: users, blocks, few; several with commas."),
    ] = "users,blocks,few",
    method: Annotated[
        str, typer.Option("--methods", help="Which methods, with commas; all by default.")
    ] = "",
    folds: Annotated[int, typer.Option(min=2, help="Folds of each scheme.")] = 5,
    first: Annotated[
        int | None, typer.Option(min=1, help="Only so many of the folds, to save time.")
    ] = None,
    block: Annotated[
        float | None,
        typer.Option(help="Side of blocks in metres; by default a tenth of the ground's."),
    ] = None,
    few: Annotated[
        str, typer.Option(help="Links to learn from where there are few, with commas.")
    ] = "300,3000",
    cell_size: Annotated[
        float | None, typer.Option(help="Side of a cell in metres; by default 100 along a side.")
    ] = None,
    rounds: Annotated[int, typer.Option(min=2, help="Rounds of training.")] = 100,
    calibrate: Annotated[
        str, typer.Option(help="Whose offsets are learned: stations,devices or nothing.")
    ] = "stations",
    budget: Annotated[float, typer.Option(help="μ of uniform and aligned noise.")] = 50.0,
    epsilon: Annotated[float, typer.Option(help="ε of the aggregate mode.")] = 8.0,
    delta: Annotated[float, typer.Option(help="δ of the aggregate mode.")] = 1e-6,
    buildings: Annotated[
        Path | None, typer.Option(help="Footprints or a surface model, which are public.")
    ] = None,
    seed: Seed = 0,
    out: Annotated[
        Path | None,
        typer.Option("--json", help="Keep all scores here; the same command goes on from it."),
    ] = None,
) -> None:
    """Judge the map beside what people use today, on the same folds.

    Baselines: log-distance with station offsets, k-nn, kriging, regression-kriging,
    gradient-boosting. Ours: central (pooled), federated, uniform, aligned, aggregate. Our model
    (degrees of obstruction, residual field) is chosen on validation data within each fold.
    It needs all data in one place, so it is for studies.
    """
    from veilmap import compare
    from veilmap.cli import tables
    from veilmap.compare.methods import Setting

    links = without_patterns(Measurements.load(data))
    ends = np.vstack([links.user_xyz, links.bs_xyz])[:, :2]
    side = float(np.ptp(ends, axis=0).max())
    if cell_size is None:
        cell_size = _round_number(side / _CELLS_ALONG, "users and base stations are")
    grid = Grid.covering(ends, cell_size, crs=links.crs)
    setting = Setting(
        grid,
        rounds,
        _calibrated(calibrate),
        budget,
        epsilon,
        delta,
        _heights(buildings, grid),
        seed,
    )
    names = listed(method) or [*compare.BASELINES, *compare.OURS]
    compared = compare.methods(names, setting)
    to_plain = listed(schemes), links, folds, first, block, few, seed
    count = sum(1 for _ in _folds(*to_plain))  # whatever cannot be divided is refused here
    kept = _Kept(out, _settings(setting, links, folds, seed))
    scores = []
    with progress_bar() as progress:
        task = progress.add_task("comparing", total=count * len(compared), note="")
        for score in compare.compare(_folds(*to_plain), compared, kept.scores):
            scores.append(score)
            kept.add(score)
            progress.update(task, advance=1, note=f"{score.method} {score.mae_db:.2f} dB")
    for table in tables.comparison_tables(compare.Comparison(scores)):
        console.print(table)
    console.print(f"{len(links):,} links, cells of {grid.cell_size:g} m, {rounds} rounds")
    if out is not None:
        console.print(f"Wrote {out}")


def without_patterns(data: Measurements) -> Measurements:
    """Antenna patterns are public: taken off once, for every method alike."""
    if data.antennas is None:
        return data
    patterns = data.antennas.of(data.bs, data.user_xyz, data.bs_xyz)
    return replace(data, gain_db=data.gain_db - patterns, antennas=None)


def _folds(
    schemes: list[str],
    data: Measurements,
    folds: int,
    first: int | None,
    block: float | None,
    few: str,
    seed: int,
) -> Iterator["Fold"]:
    """The folds of every scheme asked for."""
    from itertools import islice

    from veilmap.compare import by_blocks, by_users, few_links

    unknown = set(schemes) - {"users", "blocks", "few"}
    if unknown or not schemes:
        named = ", ".join(sorted(unknown))
        raise ConfigurationError(f"--schemes takes users, blocks and few, not {named!r}")
    for scheme in schemes:
        if scheme == "users":
            made = [by_users(data, folds, seed=seed)]
        elif scheme == "blocks":
            if block is None:
                ground = float(np.ptp(data.user_xyz[:, :2], axis=0).max())
                block = _round_number(ground / _BLOCKS_ALONG, "users are")
            made = [by_blocks(data, folds, block=block, seed=seed)]
        else:
            made = [few_links(data, count, folds, seed=seed) for count in _counts(few)]
        for one in made:
            yield from islice(one, first)


class _Kept:
    """Scores in a file, so that a comparison can be stopped and goes on."""

    def __init__(self, path: Path | None, settings: dict[str, Any]) -> None:
        self.path, self.settings = path, settings
        self.scores: list[Score] = []
        if path is None:
            return
        writable_folder(path.parent)
        if path.exists():
            self.scores = self._read(path)

    def _read(self, path: Path) -> "list[Score]":
        from veilmap.compare import Score

        try:
            found = json.loads(path.read_text())
            settings = found["settings"]
            scores = [Score(**score) for score in found["scores"]]
        except (OSError, ValueError, KeyError, TypeError):
            raise ConfigurationError(f"{path} is not a comparison; name another file") from None
        if settings != self.settings:
            raise ConfigurationError(
                f"{path} was made from other data or settings; name another file, or remove it"
            )
        return scores

    def add(self, score: "Score") -> None:
        """Keep a score."""
        if self.path is None or score in self.scores:
            return
        self.scores.append(score)
        found = {"settings": self.settings, "scores": [asdict(one) for one in self.scores]}
        with files.replacing(self.path) as temporary:
            temporary.write_text(json.dumps(found, indent=1))


def _settings(setting: "Setting", data: Measurements, folds: int, seed: int) -> dict[str, Any]:
    """All that decides a score beside its scheme, fold and method."""
    import hashlib

    from veilmap._util.plain import to_plain
    from veilmap.federation.training import fingerprint

    known = setting.buildings
    public = {
        "data": fingerprint(data),
        "folds": folds,
        "seed": seed,
        **to_plain(replace(setting, buildings=None)),
        "buildings": None if known is None else hashlib.sha256(known.tobytes()).hexdigest(),
    }
    return json.loads(json.dumps(public))


def _heights(buildings: Path | None, grid: Grid) -> "np.ndarray | None":
    if buildings is None:
        return None
    from veilmap.scenes import buildings as public

    return public.heights(buildings, grid)


def _calibrated(text: str) -> tuple[Any, ...]:
    named = tuple(listed(text))
    if set(named) - {"stations", "devices"}:
        raise ConfigurationError(f"--calibrate takes stations and devices, not {text!r}")
    return named


def _counts(text: str) -> list[int]:
    try:
        counts = [int(part) for part in listed(text)]
    except ValueError:
        counts = []
    if not counts:
        raise ConfigurationError(f"--few takes numbers of links such as 300,3000, not {text!r}")
    return counts


def _round_number(metres: float, who: str) -> float:
    """The nearest of 1, 2, 3, 5, 10, 20, … metres."""
    if metres <= 0:
        raise ConfigurationError(f"all {who} at one place")
    steps = np.array([1, 2, 3, 5, 10])
    power = 10.0 ** np.floor(np.log10(metres))
    return float(power * steps[np.argmin(np.abs(np.log(steps * power / metres)))])
