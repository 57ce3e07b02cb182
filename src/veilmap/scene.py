"""A city whose truth is known: building shapes, base stations, and what users measure there.

Truth lives on the building shapes themselves, never on a model's grid: what is learned on
a grid is then tested against something it cannot represent exactly, as in the real world.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilmap import _checks
from veilmap.buildings.prism import Building, heights_of, without_overlaps
from veilmap.errors import VeilmapError
from veilmap.geometry import Grid, paired
from veilmap.measurements import Measurements
from veilmap.radiomap import Propagation, log_distance

# Waves in the random field that stands for shadowing, per base station.
_SHADOWING_WAVES = 256
_LINKS_PER_BLOCK = 50_000
_MOST_DRAWS = 1000


@dataclass(frozen=True, eq=False)
class Scene:
    """Buildings, base stations and the true propagation laws of an area.

    Parameters
    ----------
    grid : Grid
        The area, and the cells a model of it will use.
    buildings : sequence of Building
        They may touch but not overlap.
    base_stations : (B, 3) array
        Positions in metres; none inside a building.
    propagation : Propagation
        The true laws for clear and blocked links.
    seed : int
        Fixes the shadowing field, which belongs to the place and not to a measurement.
    """

    grid: Grid
    buildings: Sequence[Building]
    base_stations: NDArray[np.float64]
    propagation: Propagation = field(default_factory=Propagation)
    seed: int = 0

    def __post_init__(self) -> None:
        import shapely

        stations = _checks.points("base_stations", self.base_stations)
        if stations.ndim != 2 or len(stations) == 0:
            raise VeilmapError("base_stations must have shape (B, 3) with at least one of them")
        object.__setattr__(self, "base_stations", stations)
        object.__setattr__(self, "buildings", tuple(self.buildings))
        object.__setattr__(self, "seed", _checks.whole("seed", self.seed, least=0))
        footprints = np.array([building.footprint for building in self.buildings], dtype=object)
        first, second = shapely.STRtree(footprints).query(footprints, predicate="intersects")
        for a, b in zip(first.tolist(), second.tolist(), strict=True):
            if a < b and footprints[a].intersection(footprints[b]).area > 0:
                raise VeilmapError(f"buildings {a} and {b} overlap; merge them or move one")
        inside = np.flatnonzero(_inside(self.buildings, stations))
        if len(inside):
            raise VeilmapError(f"base station {inside[0]} is inside a building; move it")

    @classmethod
    def synthetic(
        cls,
        seed: int = 0,
        *,
        size: float = 300.0,
        cell_size: float = 3.0,
        buildings: int = 16,
        density: float = 0.09,
        heights: tuple[float, float] = (10.0, 130.0),
        base_stations: int = 200,
        bs_altitude: float = 50.0,
        propagation: Propagation | None = None,
    ) -> "Scene":
        """A random city after the paper: round, square and irregular buildings.

        Parameters
        ----------
        seed : int
            The same seed gives the same city.
        size, cell_size : float
            Side of the square area and of a cell, in metres.
        buildings : int
        density : float
            Share of the ground under buildings. The default gives clear sight on about
            0.45 of all links between users at 1.5 m and base stations at 50 m.
        heights : (lowest, highest) building in metres
        base_stations : int
            Placed at random at ``bs_altitude`` metres, none inside a building.
        """
        from veilmap import _city

        side = _checks.number("size", size, above=0)
        cells = max(1, round(side / _checks.number("cell_size", cell_size, above=0)))
        grid = Grid(side / cells, (cells, cells))
        rng = np.random.default_rng([_checks.whole("seed", seed, least=0), 0])
        shapes = _city.draw_buildings(
            rng,
            side,
            count=_checks.whole("buildings", buildings, least=0),
            density=_checks.number("density", density, least=0),
        )
        low, high = (_checks.number("heights", value, above=0) for value in heights)
        if low > high:
            raise VeilmapError(f"heights must be (lowest, highest), not ({low:g}, {high:g})")
        placed = tuple(Building(shape, rng.uniform(low, high)) for shape in shapes)
        altitude = _checks.number("bs_altitude", bs_altitude, above=0)
        stations = _outdoors(
            rng, grid, placed, _checks.whole("base_stations", base_stations, least=1), altitude
        )
        return cls(grid, placed, stations, propagation or Propagation(), seed)

    @classmethod
    def from_buildings(
        cls,
        path: str | Path,
        base_stations: ArrayLike,
        *,
        cell_size: float = 3.0,
        margin: float = 30.0,
        crs: str | None = None,
        propagation: Propagation | None = None,
        seed: int = 0,
        **options: Any,
    ) -> "Scene":
        """A scene of real buildings, out of a file of footprints.

        Parameters
        ----------
        path : path
            .geojson or .gpkg, as `buildings.read_footprints` takes it with ``options``.
        base_stations : (B, 3) array
            In metres of the scene's coordinate system.
        cell_size, margin : float
            Of the grid, which covers buildings and base stations.
        crs : str, optional
            By default the file's, or the UTM zone of one in degrees.
        """
        from veilmap.buildings.footprints import read_footprints

        found = read_footprints(path, crs, **options)
        stations = _checks.points("base_stations", base_stations).reshape(-1, 3)
        corners = [building.footprint.bounds for building in found.buildings]
        ends = np.vstack([np.array(corners).reshape(-1, 2), stations[:, :2]])
        grid = Grid.covering(ends, cell_size, margin, found.crs)
        # Where footprints overlap, the higher building is what a link meets.
        apart = without_overlaps(found.buildings)
        return cls(grid, apart, stations, propagation or Propagation(), seed)

    @cached_property
    def heights(self) -> NDArray[np.float64]:
        """Height of the building over each cell's centre, (rows, columns); 0 for open ground."""
        return heights_of(self.buildings, self.grid)

    def line_of_sight(self, user_xyz: ArrayLike, bs_xyz: ArrayLike) -> NDArray[np.bool_]:
        """Whether no building stands in a link's way, on the buildings' own shapes."""
        user, bs = paired(user_xyz, bs_xyz)
        clear = np.ones(len(user), dtype=bool)
        for first in range(0, len(user), _LINKS_PER_BLOCK):
            block = slice(first, first + _LINKS_PER_BLOCK)
            for building in self.buildings:
                clear[block] &= ~_blocked_by(building, user[block], bs[block])
        return clear

    def gain(self, user_xyz: ArrayLike, bs_xyz: ArrayLike) -> NDArray[np.float64]:
        """The true gain in dB: the segmented model on the true shapes, without shadowing."""
        user, bs = paired(user_xyz, bs_xyz)
        return self.propagation.gain(log_distance(user, bs), self.line_of_sight(user, bs))

    def measure(
        self,
        users: int = 100,
        links_per_user: int = 200,
        noise_db: float = 3.0,
        seed: int | None = None,
        *,
        places_per_user: int = 1,
        user_altitude: float = 1.5,
        shadowing_db: float = 0.0,
        shadowing_distance: float = 20.0,
    ) -> Measurements:
        """What users at random outdoor places measure.

        Parameters
        ----------
        users : int
        links_per_user : int
            Spread over the user's places, each to different base stations.
        noise_db : float
            Standard deviation of the measurement noise.
        seed : int, optional
            Fixes places, links and noise; without it they differ each time.
        places_per_user : int
        user_altitude : float
            Metres above ground.
        shadowing_db, shadowing_distance : float
            Standard deviation of shadowing per base station, and the distance in metres over
            which its correlation falls to 1/e (an exponential law).
        """
        users = _checks.whole("users", users, least=1)
        links = _checks.whole("links_per_user", links_per_user, least=1)
        places = _checks.whole("places_per_user", places_per_user, least=1)
        noise = _checks.number("noise_db", noise_db, least=0)
        if links < places:
            raise VeilmapError(f"{places} places per user need at least as many links, not {links}")
        if links > places * len(self.base_stations):
            raise VeilmapError(
                f"{links} links per user are more than {places} place(s) x"
                f" {len(self.base_stations)} base stations; ask for fewer or more places"
            )
        rng = np.random.default_rng(seed)
        altitude = _checks.number("user_altitude", user_altitude, least=0)
        spots = _outdoors(rng, self.grid, self.buildings, users * places, altitude)
        user = np.repeat(np.arange(users), links)
        place = np.repeat(np.arange(users) * places, links) + np.tile(
            np.arange(links) % places, users
        )
        bs = _different_stations(rng, place, len(self.base_stations))
        user_xyz, bs_xyz = spots[place], self.base_stations[bs]
        gain = self.gain(user_xyz, bs_xyz) + noise * rng.standard_normal(len(user))
        gain += self._shadowing(user_xyz, bs, shadowing_db, shadowing_distance)
        return Measurements(user, user_xyz, bs_xyz, gain, bs)

    def _shadowing(
        self, user_xyz: NDArray[np.float64], bs: NDArray[np.int64], deviation: float, reach: float
    ) -> NDArray[np.float64]:
        """Shadowing at each link: one random field over the ground per base station.

        The field is a sum of waves whose random wave vectors follow the spectrum of the
        covariance exp(−distance/reach) in the plane, so it needs no matrix of all users and
        is the same whenever and by whomever it is measured.
        """
        deviation = _checks.number("shadowing_db", deviation, least=0)
        reach = _checks.number("shadowing_distance", reach, above=0)
        values = np.zeros(len(bs))
        if deviation == 0:
            return values
        for station in np.unique(bs):
            own = bs == station
            rng = np.random.default_rng([self.seed, 1, int(station)])
            # Spectrum ∝ (1 + (reach·|k|)²)^(−3/2): normal over the root of a chi-squared(1).
            k = rng.standard_normal((2, _SHADOWING_WAVES))
            k /= reach * np.abs(rng.standard_normal(_SHADOWING_WAVES))
            phase = rng.uniform(0, 2 * np.pi, _SHADOWING_WAVES)
            waves = np.cos(user_xyz[own, :2] @ k + phase)
            values[own] = deviation * np.sqrt(2 / _SHADOWING_WAVES) * waves.sum(axis=1)
        return values


def _inside(buildings: Sequence[Building], xyz: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether each point is on or in a building: within its footprint and not above it."""
    import shapely

    inside = np.zeros(len(xyz), dtype=bool)
    for building in buildings:
        over = shapely.intersects_xy(building.footprint, xyz[:, 0], xyz[:, 1])
        inside |= over & (xyz[:, 2] <= building.height)
    return inside


def _outdoors(
    rng: np.random.Generator,
    grid: Grid,
    buildings: Sequence[Building],
    count: int,
    altitude: float,
) -> NDArray[np.float64]:
    """``count`` random points over the grid at ``altitude``, none inside a building."""
    west, east, south, north = grid.extent
    found = np.empty((0, 3))
    for _ in range(_MOST_DRAWS):
        drawn = np.column_stack(
            [
                rng.uniform(west, east, count),
                rng.uniform(south, north, count),
                np.full(count, altitude),
            ]
        )
        found = np.vstack([found, drawn[~_inside(buildings, drawn)]])
        if len(found) >= count:
            return found[:count]
    raise VeilmapError(
        f"no room for {count} points at {altitude:g} m: buildings cover nearly everything;"
        " lower the density"
    )


def _different_stations(
    rng: np.random.Generator, place: NDArray[np.int64], stations: int
) -> NDArray[np.int64]:
    """A base station for each link, different ones at the same place."""
    order = np.argsort(place, kind="stable")
    _, counts = np.unique(place, return_counts=True)
    chosen = np.empty(len(place), dtype=np.int64)
    chosen[order] = np.concatenate([rng.permutation(stations)[:count] for count in counts])
    return chosen


def _blocked_by(
    building: Building, user: NDArray[np.float64], bs: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """Whether the part of each link at or below the roof meets the footprint."""
    import shapely

    swap = (user[:, 2] > bs[:, 2])[:, None]
    low, high = np.where(swap, bs, user), np.where(swap, user, bs)
    rise = high[:, 2] - low[:, 2]
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(rise > 0, (building.height - low[:, 2]) / rise, 1.0)
    end = low[:, :2] + np.clip(share, 0, 1)[:, None] * (high - low)[:, :2]
    west, south, east, north = building.footprint.bounds
    near = (
        (low[:, 2] <= building.height)
        & (np.minimum(low[:, 0], end[:, 0]) <= east)
        & (np.maximum(low[:, 0], end[:, 0]) >= west)
        & (np.minimum(low[:, 1], end[:, 1]) <= north)
        & (np.maximum(low[:, 1], end[:, 1]) >= south)
    )
    blocked = np.zeros(len(user), dtype=bool)
    if near.any():
        shapely.prepare(building.footprint)
        below_roof = shapely.linestrings(np.stack([low[near, :2], end[near]], axis=1))
        blocked[near] = shapely.intersects(building.footprint, below_roof)
    return blocked
