"""Many users, some at a time: what training needs of measurements, and folders that hold them.

A folder holds Parquet files as `Measurements.save` writes them. Every user is whole in one of
them, and users follow each other in the order of their ids, from file to file: so a crowd of
any size goes through memory block by block, in the order in which a single table would.
"""

from collections.abc import Callable, Iterable, Iterator
from copy import copy
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from veilmap._util.arrays import Array, Floats, Ints
from veilmap._util.ids import Id
from veilmap.data.antennas import Antennas
from veilmap.data.links import Links
from veilmap.data.measurements import COLUMNS, Measurements, stations_among
from veilmap.errors import DataError
from veilmap.geometry.grid import offsets_of

_NAME = "part-{:06d}.parquet"
_USERS_PER_PART = 1000
_POSITIONS = ("user_x", "user_y", "user_z"), ("bs_x", "bs_y", "bs_z")


class Crowd(Protocol):
    """Users with their links: `Measurements`, or a `MeasurementFolder`."""

    @property
    def users(self) -> Array:
        """Their ids, sorted."""

    @property
    def crs(self) -> str | None:
        """The coordinate system of the positions."""

    @property
    def antennas(self) -> Antennas | None:
        """Patterns of base stations, which are public."""

    @property
    def stations(self) -> tuple[Floats, tuple[Id, ...]]:
        """Every base station once: where it is, (B, 3), and its id."""

    @property
    def station_errors(self) -> dict[str, float]:
        """The errors of base stations whose positions are estimates, by id, in metres."""

    @property
    def devices(self) -> Array:
        """The kinds of devices there are."""

    @property
    def corners(self) -> Floats:
        """The least and the largest x and y of any end of a link, (2, 2), in metres."""

    def __len__(self) -> int:
        """How many links there are."""

    def blocks(self, users: int) -> Iterator[Links]:
        """The links of at most ``users`` users at a time, in the order of their ids."""

    def mean_positions(self) -> Floats:
        """Each user's mean position over its links, (N, 2), in metres."""


class MeasurementFolder:
    """A crowd in a folder of Parquet files, of which one at a time is in memory.

    Opening it reads every file once, with all checks of `Measurements`; ``on_part`` is called
    with (files read, files in all), for a progress bar.
    """

    def __init__(
        self, path: str | Path, *, on_part: Callable[[int, int], None] | None = None
    ) -> None:
        self.path = Path(path)
        self._files = sorted(self.path.glob("*.parquet"))
        if not self._files:
            raise DataError(f"{self.path} holds no .parquet files of measurements")
        self._links = 0
        self.station_errors: dict[str, float] = {}
        kept: list[Any] = []  # of each file, not its measurements
        for number, file in enumerate(self._files, 1):
            part = Measurements.load(file)
            if not kept:
                self.crs, self.antennas = part.crs, part.antennas
            elif not kept[-1][0][-1] < part.users[0]:
                raise DataError(
                    f"{file} begins with user {part.users[0]}, and the file before it ends with"
                    f" {kept[-1][0][-1]}: every user must be whole in one file, and users in the"
                    " order of their ids; `veilmap data split` writes such folders"
                )
            elif (part.crs, part.antennas) != (self.crs, self.antennas):
                raise DataError(f"{file} has another coordinate system or other antennas")
            kept.append((part.users, *part.stations, part.devices, part.corners))
            self.station_errors |= part.station_errors
            self._links += len(part)
            if on_part:
                on_part(number, len(self._files))
        users, masts, ids, devices, corners = zip(*kept, strict=True)
        self.users, self.devices = np.concatenate(users), np.unique(np.concatenate(devices))
        self.stations = stations_among(np.vstack(masts), np.concatenate(ids))
        self.corners = np.vstack([np.min(corners, axis=0)[0], np.max(corners, axis=0)[1]])

    def __len__(self) -> int:
        return self._links

    def blocks(self, users: int) -> Iterator[Links]:
        """The links of at most ``users`` users at a time, in the order of their ids."""
        waiting: list[Links] = []
        for file in self._files:
            waiting.append(_links_in(file))
            whole = _joined(waiting)
            full = whole.users - whole.users % users
            yield from whole.users_between(0, full).blocks(users)
            waiting = [whole.users_between(full, whole.users)] if full < whole.users else []
        if waiting:
            yield _joined(waiting)

    def mean_positions(self) -> Floats:
        """Each user's mean position over its links, (N, 2), in metres."""
        return self._mean_positions

    @cached_property
    def _mean_positions(self) -> Floats:
        return np.vstack([_links_in(file).mean_positions() for file in self._files])

    def load(self) -> Measurements:
        """All of it in memory."""
        parts = [Measurements.load(file) for file in self._files]
        columns: dict[str, Any] = {
            n: np.concatenate([getattr(part, n) for part in parts]) for n in COLUMNS
        }
        if self.station_errors:
            errors = [part.bs_error_m for part in parts]
            columns["bs_error_m"] = np.concatenate(
                [np.full(len(part), np.nan) if own is None else own
                 for part, own in zip(parts, errors, strict=True)]
            )  # fmt: skip
        return Measurements(**columns, crs=self.crs, antennas=self.antennas)


def without_antennas(data: Crowd) -> Crowd:
    """The same crowd with base stations taken to be isotropic."""
    if isinstance(data, Measurements):
        return replace(data, antennas=None)
    plain = copy(data)
    plain.antennas = None  # type: ignore[misc]
    return plain


def open_crowd(
    path: str | Path, *, on_part: Callable[[int, int], None] | None = None
) -> "Measurements | MeasurementFolder":
    """The measurements in a file, or in a folder of files."""
    if Path(path).is_dir():
        return MeasurementFolder(path, on_part=on_part)
    return Measurements.load(path)


def save_parts(
    parts: Iterable[Measurements], folder: str | Path, *, first: int = 0
) -> Iterator[Path]:
    """Write each of ``parts`` as the next file of a folder; numbers begin at ``first``.

    Parts hold whole users, in the order of their ids.
    """
    for number, part in enumerate(parts, first):
        path = Path(folder) / _NAME.format(number)
        # A user's rows together: reading them back then needs no sorting.
        part.select(np.argsort(part.user, kind="stable")).save(path)
        yield path


def parts_of(data: Measurements, users: int = _USERS_PER_PART) -> Iterator[Measurements]:
    """A table in parts of at most ``users`` users."""
    for first in range(0, len(data.users), users):
        yield data.select(np.isin(data.user, data.users[first : first + users]))


def _links_in(file: Path) -> Links:
    """The links of a file that was checked before."""
    from veilmap.data import table_files

    table = table_files.read_parquet(file, table_files.parquet_schema(file).names)
    column = {name: table.column(name).to_numpy() for name in table.column_names}
    user = column["user"]
    order: slice | Ints = slice(None)
    if not (user[1:] >= user[:-1]).all():
        order = np.argsort(user, kind="stable")
        user = user[order]
    starts = np.flatnonzero(np.append(True, user[1:] != user[:-1]))
    user_xyz, bs_xyz = (
        np.column_stack([column[axis][order] for axis in axes]) for axes in _POSITIONS
    )
    device = column.get("device", np.zeros(len(user), dtype=np.int64))
    rows = (own[order] for own in (column["gain_db"], column["bs"], device))
    return Links(np.append(starts, len(user)), user_xyz, bs_xyz, *rows)


def _joined(parts: list[Links]) -> Links:
    """Links of users who follow each other."""
    if len(parts) == 1:
        return parts[0]
    rows = [np.concatenate([getattr(part, name) for part in parts]) for name in COLUMNS[1:]]
    return Links(offsets_of(np.concatenate([part.counts for part in parts])), *rows)
