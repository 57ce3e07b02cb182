"""What obstacles leave over: a smooth field in dB for every base station."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from veilmap._util import checks
from veilmap._util.arrays import Array, Floats, Ints
from veilmap._util.ids import Id, in_order, places
from veilmap.errors import ConfigurationError
from veilmap.geometry.grid import Grid, paired

NO_DEVIATIONS = "this map has no standard deviations: those of surveys and of pooled fields have"

_SAME_PLACE = 1e-3  # metres within which two base stations are one


@dataclass(frozen=True, eq=False)
class Field:
    """A residual for every base station, known at the centres of a coarse grid, linear between.

    Parameters
    ----------
    grid : Grid
        Its cells are as wide as the field is smooth.
    stations : (B, 3) array
        Where those are whose fields these are; all others have none.
    values : (B, rows, columns) array, optional
        In dB; by default 0 everywhere.
    ids : B ids, optional
        Of the same stations, to tell those apart that share a mast.
    deviations : (B, rows, columns) array, optional
        Standard deviation of a reading around the predicted gain, in dB.
    """

    grid: Grid
    stations: Floats
    values: Floats = field(default=None, repr=False)  # type: ignore[arg-type]
    ids: tuple[Id, ...] = ()
    deviations: Floats | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        stations = checks.points("stations", self.stations).reshape(-1, 3)
        shape = (len(stations), *self.grid.shape)
        given = np.zeros(shape) if self.values is None else self.values
        values = np.array(checks.floats("values", given)).reshape(-1)
        if values.size != np.prod(shape) or not np.isfinite(values).all():
            raise ConfigurationError(f"a field over {shape} needs as many finite numbers")
        if len(self.ids) not in (0, len(stations)):
            raise ConfigurationError(f"{len(stations)} base stations have {len(self.ids)} ids")
        values = values.reshape(shape)
        values.flags.writeable = False
        object.__setattr__(self, "stations", stations)
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "ids", tuple(self.ids))
        if self.deviations is not None:
            spread = np.array(checks.floats("deviations", self.deviations))
            if spread.shape != shape or not (np.isfinite(spread) & (spread >= 0)).all():
                raise ConfigurationError(
                    f"deviations over {shape} need as many numbers from 0 on", "deviations"
                )
            spread.flags.writeable = False
            object.__setattr__(self, "deviations", spread)

    def moved_to(self, values: ArrayLike) -> "Field":
        """The same stations and places with other values."""
        return replace(self, values=np.asarray(values))

    def as_arrays(self) -> dict[str, Any]:
        """For files and messages."""
        place = [self.grid.cell_size, *self.grid.shape, *self.grid.origin]
        return {
            "field": self.values,
            "field_stations": self.stations,
            "field_ids": json.dumps(self.ids),
            "field_place": np.array(place),
            **({} if self.deviations is None else {"field_deviations": self.deviations}),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any], crs: str | None) -> "Field":
        """What `as_arrays` gave."""
        size, rows, columns, x, y = np.asarray(arrays["field_place"]).tolist()
        grid = Grid(size, (int(rows), int(columns)), (x, y), crs)
        ids = json.loads(str(arrays["field_ids"]))
        stations, values = np.asarray(arrays["field_stations"]), np.asarray(arrays["field"])
        return cls(grid, stations, values, ids, arrays.get("field_deviations"))

    @cached_property
    def by_place(self) -> "Field":
        """For links that say where their base station is but not which: the mean of a mast's."""
        rounded = np.rint(self.stations / _SAME_PLACE)
        _, first, place = np.unique(rounded, axis=0, return_index=True, return_inverse=True)
        place = place.reshape(-1)
        if not self.ids or len(first) == len(place):
            return replace(self, ids=())
        sums = np.zeros((len(first), *self.grid.shape))
        np.add.at(sums, place, self.values)
        means = sums / np.bincount(place)[:, None, None]
        spread = None if self.deviations is None else self.deviations[first]
        return Field(self.grid, self.stations[first], means, deviations=spread)

    def at(self, user_xyz: ArrayLike, bs_xyz: ArrayLike, bs: Array | None = None) -> Floats:
        """The field on each link, (J,), in dB: by its base station, at the user's place."""
        if bs is None and self.ids:
            return self.by_place.at(user_xyz, bs_xyz)
        numbers, shares = self.shares(user_xyz, bs_xyz, bs)
        return np.asarray((self.values.ravel()[numbers] * shares).sum(axis=1))

    def deviation_at(self, user_xyz: ArrayLike, bs_xyz: ArrayLike, bs: Array | None) -> Floats:
        """Standard deviation of a reading on each link, (J,), in dB; NaN of unknown stations."""
        if self.deviations is None:
            raise ConfigurationError(NO_DEVIATIONS)
        if bs is None and self.ids:
            return self.by_place.deviation_at(user_xyz, bs_xyz, None)
        numbers, shares = self.shares(user_xyz, bs_xyz, bs)
        variance = (self.deviations.ravel()[numbers] ** 2 * shares).sum(axis=1)
        return np.where(shares.any(axis=1), np.sqrt(variance), np.nan)

    def shares(
        self, user_xyz: ArrayLike, bs_xyz: ArrayLike, bs: Array | None = None
    ) -> tuple[Ints, Floats]:
        """Which entries of the values make up each link's, and by how much, both (J, 4)."""
        user, mast = paired(user_xyz, bs_xyz)
        station = self._station_of(mast, bs)
        cells, shares = self.grid.between_centres(user[:, :2])
        numbers = np.maximum(station, 0)[:, None] * self.grid.cells + cells
        shares[station < 0] = 0.0
        return numbers, shares

    def _station_of(self, mast: Floats, bs: Array | None) -> Ints:
        """The number of each link's base station, or −1: by its place and, if given, its id."""
        together = np.vstack([self.stations, mast])
        rounded = np.rint(together / _SAME_PLACE).astype(np.int64)
        if self.ids and bs is not None:
            known = in_order(sorted({str(one) for one in self.ids}))
            everybody = [*map(str, self.ids)], bs
            named = np.concatenate([places(np.asarray(own), known) for own in everybody])
            rounded = np.column_stack([rounded, named])
        _, first, number = np.unique(rounded, axis=0, return_index=True, return_inverse=True)
        twin = first[number.reshape(-1)[len(self.stations) :]]
        return np.where(twin < len(self.stations), twin, -1)
