"""Where a map is a guess: ground that no link crosses, and maps that disagree.

All but `deviation` is made from measurements: whoever computes it holds them, and a picture of
which ground was measured says something about who was there.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from veilmap._util import checks, files, limits, reading, threads
from veilmap._util.arrays import Floats
from veilmap._util.ids import Id
from veilmap._util.plain import to_plain
from veilmap.data.measurements import Measurements
from veilmap.errors import ConfigurationError
from veilmap.federation import train
from veilmap.federation.config import Fingerprint
from veilmap.geometry.grid import Grid
from veilmap.geometry.tracing import trace
from veilmap.layers.layer import Layer
from veilmap.layers.predictions import place_and_name, place_of
from veilmap.model.radio_map import RadioMap

# Links traced at once: with 200 cells each, 100 MB.
_LINKS_PER_BLOCK = 20_000


def link_coverage(grid: Grid, measurements: Measurements) -> Layer:
    """How many links cross each cell: nothing was measured where there are none."""
    if grid.crs and measurements.crs and grid.crs != measurements.crs:
        raise ConfigurationError(
            f"the grid is in {grid.crs}, the measurements are in {measurements.crs}"
        )
    user, bs = measurements.user_xyz, measurements.bs_xyz
    total, adding = np.zeros(grid.cells, dtype=np.int64), Lock()

    def part(start: int, stop: int) -> None:
        cells = trace(grid, user[start:stop], bs[start:stop]).cells
        counts = np.bincount(cells, minlength=grid.cells)
        with adding:
            np.add(total, counts, out=total)

    links = len(measurements)
    threads.run_parts(part, np.append(np.arange(0, links, _LINKS_PER_BLOCK), links))
    values = total.reshape(grid.shape).astype(np.float64)
    about = "measured links that cross the cell"
    return Layer("coverage", values, "1", about, grid, attributes={"links": links})


def spread(
    radio_maps: Sequence[RadioMap],
    bs_xyz: ArrayLike,
    altitude: float = 1.5,
    *,
    station: Id | None = None,
    grid: Grid | None = None,
) -> Layer:
    """Standard deviation of the gain in dB over several maps of the same grid.

    The maps are replicas (`bootstrap`), or those of late rounds of one training. ``station`` is
    the base station's id: then offsets and fields that the maps have for it disagree too. ``grid``
    are other cells than the maps', such as larger ones.
    """
    if len(radio_maps) < 2:
        raise ConfigurationError(f"a spread needs at least two maps, not {len(radio_maps)}")
    for number, radio_map in enumerate(radio_maps):
        if radio_map.grid != radio_maps[0].grid:
            raise ConfigurationError(
                f"map {number} has another grid than map 0; maps must share one"
            )
    bs, altitude = place_of(bs_xyz), checks.number("altitude", altitude)
    known = place_and_name(bs, station, *radio_maps) | {"replicas": len(radio_maps)}

    def exact(places: Floats) -> Floats:
        gains = [radio_map.predict(places, bs, station=station) for radio_map in radio_maps]
        return np.asarray(np.std(gains, axis=0))

    about = "standard deviation of the gain over replicas"
    return Layer.of("uncertainty", exact, "dB", about, grid or radio_maps[0].grid, altitude, known)


def deviation(
    radio_map: RadioMap,
    bs_xyz: ArrayLike,
    altitude: float = 1.5,
    *,
    station: Id | None = None,
    grid: Grid | None = None,
) -> Layer:
    """Standard deviation of a reading around the map, in dB: of maps that know it, as surveys' do.

    Privacy noise is part of it.
    """
    bs, altitude = place_of(bs_xyz), checks.number("altitude", altitude)
    known = place_and_name(bs, station, radio_map)

    def exact(places: Floats) -> Floats:
        return radio_map.predict(places, bs, station=station, return_std=True)[1]

    about = "standard deviation of a reading around the gain"
    cells = grid or radio_map.grid
    made = Layer.of("uncertainty", exact, "dB", about, cells, altitude, known)
    if np.isnan(made.values).all():
        place = ", ".join(f"{value:g}" for value in bs)
        raise ConfigurationError(
            f"the map does not know how readings of a base station at ({place}) deviate: it is"
            " none of its own"
        )
    return made


def bootstrap(
    data: Measurements,
    grid: Grid,
    n: int = 10,
    *,
    seed: int | None = None,
    on_replica: Callable[[int], None] | None = None,
    folder: str | Path | None = None,
    **training: Any,
) -> list[RadioMap]:
    """Maps that the training might have given with other users: ``n`` replicas.

    Each is trained on as many users as ``data`` has, drawn from them with replacement. ``seed`` is
    that of the draws and, if given, of each training's noise. ``on_replica`` is called with the
    number of replicas done, for a progress bar. ``folder`` keeps the replicas as maps; those that
    are there already are not trained again. All else is for `veilmap.train`: the mechanism, rounds
    and so on. A mechanism with an ε spends it anew in every replica.
    """
    replicas = checks.whole("n", n, least=1)
    if "recording" in training:
        raise ConfigurationError("bootstrap records nothing of its trainings", "recording")
    rng = np.random.default_rng(seed)
    if folder is not None:
        known = {"data": Fingerprint.of(data), "grid": grid, "seed": seed}
        _claim(Path(folder), known | training)
    maps = []
    for done in range(1, replicas + 1):
        drawn = resampled(data, rng)
        noise = None if seed is None else int(rng.integers(2**32))
        path = None if folder is None else Path(folder) / f"replica-{done:03d}.nc"
        if path is not None and path.exists():
            maps.append(RadioMap.load(path))
        else:
            maps.append(train(drawn, grid, seed=noise, **training).radio_map)
            if path is not None:
                maps[-1].save(path)
        if on_replica is not None:
            on_replica(done)
    return maps


def _claim(folder: Path, about: Mapping[str, Any]) -> None:
    """Note in a folder what its replicas are of, unless they are of something else."""
    note = folder / "replicas.json"
    plain = {name: to_plain(value) for name, value in about.items()}
    text = json.dumps(plain, indent=2, default=str) + "\n"
    if not note.exists():
        files.write_text(text, note)
    elif reading.read_bytes(note, limits.DESCRIPTION_BYTES) != text.encode():
        raise ConfigurationError(f"{folder} holds replicas of another run", "folder")


def resampled(data: Measurements, rng: np.random.Generator) -> Measurements:
    """As many users, drawn with replacement; the i-th that is drawn gets the id i.

    Somebody drawn twice is thus two users with the same measurements.
    """
    drawn = rng.integers(len(data.users), size=len(data.users))
    _, owner = np.unique(data.user, return_inverse=True)
    rows_of = np.split(np.argsort(owner, kind="stable"), np.cumsum(np.bincount(owner))[:-1])
    rows = np.concatenate([rows_of[user] for user in drawn])
    ids = np.repeat(np.arange(len(drawn)), [len(rows_of[user]) for user in drawn])
    return data.select(rows, user=ids)
