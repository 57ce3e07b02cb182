"""A city whose truth is known: building shapes, base stations, and what users measure there.

Truth lives on the building shapes themselves, never on a model's grid: what is learned on
a grid is then tested against something it cannot represent exactly, as in the real world.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from veilmap._util import checks
from veilmap._util.arrays import Bools, Floats, Ints
from veilmap._util.streams import Purpose, stream
from veilmap.data.measurements import BadRows, Measurements
from veilmap.errors import ConfigurationError
from veilmap.geometry.grid import Grid, paired
from veilmap.model.propagation import Propagation
from veilmap.model.radio_map import log_distance
from veilmap.scenes.buildings.prism import Building, heights_of, without_overlaps

if TYPE_CHECKING:
    from veilmap.scenes.sionna import Meshes

# Waves in the random field that stands for shadowing, per base station.
_SHADOWING_WAVES = 256
_LINKS_PER_BLOCK = 50_000
_MOST_DRAWS = 1000
_ROUNDING = 1e-3  # metres: coordinates of a country are exact to a millionth of this


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
    meshes : Meshes, optional
        What stands there instead of ``buildings``, which are then none; see `from_sionna`.
    """

    grid: Grid
    buildings: Sequence[Building]
    base_stations: Floats
    propagation: Propagation = field(default_factory=Propagation)
    seed: int = 0
    meshes: "Meshes | None" = None

    def __post_init__(self) -> None:
        import shapely

        stations = checks.points("base_stations", self.base_stations)
        if stations.ndim != 2 or len(stations) == 0:
            raise ConfigurationError(
                "base_stations must have shape (B, 3) with at least one of them"
            )
        object.__setattr__(self, "base_stations", stations)
        object.__setattr__(self, "buildings", tuple(self.buildings))
        object.__setattr__(self, "seed", checks.whole("seed", self.seed, least=0))
        if self.meshes is not None and self.buildings:
            raise ConfigurationError("a scene has buildings or meshes, not both")
        footprints = np.array([building.footprint for building in self.buildings], dtype=object)
        first, second = shapely.STRtree(footprints).query(footprints, predicate="intersects")
        for a, b in zip(first.tolist(), second.tolist(), strict=True):
            if a < b and footprints[a].intersection(footprints[b]).area > 0:
                raise ConfigurationError(f"buildings {a} and {b} overlap; merge them or move one")
        inside = np.flatnonzero(self._indoors(stations))
        if len(inside):
            raise ConfigurationError(f"base station {inside[0]} is inside a building; move it")

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

        The same seed gives the same city. Lengths are in metres; ``heights`` are those of the
        lowest and the highest building.

        Parameters
        ----------
        density : float
            Share of the ground under buildings. The default gives clear sight on about
            0.45 of all links between users at 1.5 m and base stations at 50 m.
        base_stations : int
            Placed at random at ``bs_altitude`` metres, none inside a building.
        """
        from veilmap.scenes import city

        side = checks.number("size", size, above=0)
        cells = max(1, round(side / checks.number("cell_size", cell_size, above=0)))
        grid = Grid(side / cells, (cells, cells))
        rng = np.random.default_rng(checks.whole("seed", seed, least=0))
        count = checks.whole("buildings", buildings, least=0)
        share = checks.number("density", density, least=0)
        shapes = city.draw_buildings(rng, side, count=count, density=share)
        low, high = (checks.number("heights", value, above=0) for value in heights)
        if low > high:
            raise ConfigurationError(f"heights must be (lowest, highest), not ({low:g}, {high:g})")
        placed = tuple(Building(shape, rng.uniform(low, high)) for shape in shapes)
        altitude = checks.number("bs_altitude", bs_altitude, above=0)
        count = checks.whole("base_stations", base_stations, least=1)
        stations = _outdoors(rng, grid, partial(_inside, placed), count, altitude)
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

        The file is .geojson or .gpkg, as `buildings.read_footprints` takes it with ``options``, and
        base stations are (B, 3), in metres of ``crs``: by default the file's, or the UTM zone of
        one in degrees. The grid covers buildings and base stations.
        """
        from veilmap.scenes.buildings.footprints import read_footprints

        found = read_footprints(path, crs, **options)
        stations = checks.points("base_stations", base_stations).reshape(-1, 3)
        corners = [building.footprint.bounds for building in found.buildings]
        ends = np.vstack([np.array(corners).reshape(-1, 2), stations[:, :2]])
        grid = Grid.covering(ends, cell_size, margin, found.crs)
        # Where footprints overlap, the higher building is what a link meets.
        apart = without_overlaps(found.buildings)
        return cls(grid, apart, stations, propagation or Propagation(), seed)

    @classmethod
    def from_sionna(
        cls,
        source: str | Path,
        base_stations: ArrayLike,
        *,
        cell_size: float = 3.0,
        extent: tuple[float, float, float, float] | None = None,
        propagation: Propagation | None = None,
        seed: int = 0,
    ) -> "Scene":
        """A scene of Sionna RT, whose links can be traced (`trace`).

        Its meshes are the truth: heights, lines of sight and paths are found with rays. What
        lies below any surface counts as inside a building.

        Parameters
        ----------
        source : str or path
            A scene that ships with Sionna RT, such as "munich", or a Mitsuba file (.xml) in
            metres with z up, on flat ground.
        base_stations : (B, 3) array
            In metres of the scene's own x and y, and above its ground.
        cell_size : float
            Of the grid.
        extent : (west, east, south, north), optional
            The part that the grid covers and users are in, by default all of it. What stands
            outside still reflects and hides.
        """
        from veilmap.scenes.sionna import Meshes

        meshes = Meshes.load(source)
        west, east, south, north = _ordered(meshes.extent if extent is None else extent)
        grid = Grid.covering([[west, south], [east, north]], cell_size)
        stations = checks.points("base_stations", base_stations).reshape(-1, 3)
        laws = propagation or Propagation()
        return cls(grid, (), stations, laws, seed, meshes.grounded(grid))

    @cached_property
    def heights(self) -> Floats:
        """Height of the building over each cell's centre, (rows, columns); 0 for open ground."""
        return self.heights_on(self.grid)

    def heights_on(self, grid: Grid) -> Floats:
        """The same over the cells of another grid."""
        if self.meshes is not None:
            return self.meshes.heights(grid)
        return heights_of(self.buildings, grid)

    def _indoors(self, xyz: Floats) -> Bools:
        """Whether each point is inside a building."""
        if self.meshes is not None:
            return self.meshes.covered(xyz)
        return _inside(self.buildings, xyz)

    def line_of_sight(self, user_xyz: ArrayLike, bs_xyz: ArrayLike) -> Bools:
        """Whether no building stands in a link's way, on the buildings' own shapes."""
        user, bs = paired(user_xyz, bs_xyz)
        if self.meshes is not None:
            return self.meshes.clear(user, bs)
        clear = np.ones(len(user), dtype=bool)
        for first in range(0, len(user), _LINKS_PER_BLOCK):
            block = slice(first, first + _LINKS_PER_BLOCK)
            clear[block] = _clear_of(self.buildings, user[block], bs[block])
        return clear

    def gain(self, user_xyz: ArrayLike, bs_xyz: ArrayLike) -> Floats:
        """The true gain in dB: the segmented model on the true shapes, without shadowing."""
        user, bs = paired(user_xyz, bs_xyz)
        return self.propagation.gain(log_distance(user, bs), self.line_of_sight(user, bs))

    def measure(
        self,
        users: int = 100,
        links_per_user: int = 200,
        noise_db: float = 3.0,
        seed: int | np.random.Generator | None = None,
        *,
        places_per_user: int = 1,
        reach: float | None = None,
        user_altitude: float = 1.5,
        shadowing_db: float = 0.0,
        shadowing_distance: float = 20.0,
    ) -> Measurements:
        """What users at random outdoor places measure.

        Parameters
        ----------
        links_per_user : int
            Spread over the user's places, each to different base stations.
        noise_db : float
            Standard deviation of the measurement noise.
        seed : int or Generator, optional
            Fixes places, links and noise; without it they differ each time.
        reach : float, optional
            How far away base stations may be on the ground, in metres; by default anywhere.
        user_altitude : float
            Metres above ground.
        shadowing_db, shadowing_distance : float
            Standard deviation of shadowing per base station, and the distance in metres over
            which its correlation falls to 1/e (an exponential law).
        """
        users = checks.whole("users", users, least=1)
        links = checks.whole("links_per_user", links_per_user, least=1)
        places = checks.whole("places_per_user", places_per_user, least=1)
        noise = checks.number("noise_db", noise_db, least=0)
        if links < places:
            raise ConfigurationError(
                f"{places} places per user need at least as many links, not {links}"
            )
        if links > places * len(self.base_stations):
            raise ConfigurationError(
                f"{links} links per user are more than {places} place(s) x"
                f" {len(self.base_stations)} base stations; ask for fewer or more places"
            )
        rng = seed if isinstance(seed, np.random.Generator) else stream(seed, Purpose.MEASURED)
        altitude = checks.number("user_altitude", user_altitude, least=0)
        spots = _outdoors(rng, self.grid, self._indoors, users * places, altitude)
        user = np.repeat(np.arange(users), links)
        turn = np.tile(np.arange(links) % places, users)
        place = np.repeat(np.arange(users) * places, links) + turn
        bs = self._stations_of(rng, place, spots, reach)
        user_xyz, bs_xyz = spots[place], self.base_stations[bs]
        gain = self.gain(user_xyz, bs_xyz) + noise * rng.standard_normal(len(user))
        gain += self._shadowing(user_xyz, bs, shadowing_db, shadowing_distance)
        return Measurements(user, user_xyz, bs_xyz, gain, bs)

    def measure_walks(
        self,
        users: int = 100,
        places: int = 20,
        links_per_place: int = 10,
        noise_db: float = 3.0,
        seed: int | None = None,
        *,
        day: int = 0,
        reach: float | None = None,
        user_altitude: float = 1.5,
    ) -> Measurements:
        """What users measure who move between home and work; never inside a building.

        A user's rows come place by place: home, with most of the links, then work, with fewer,
        then random points on the shortest way between them, with few each.

        Parameters
        ----------
        places : int
            Of each user: home, work and others on the way.
        links_per_place : int
            On average; at a place, each to a different base station.
        noise_db, reach, user_altitude
            As in `measure`.
        seed : int, optional
            Fixes the users and all they measure; without it they differ each time.
        day : int
            On another day the same users have the same homes, works and ways; where they stop
            on the way, and what they measure, is drawn anew.
        """
        from veilmap.scenes import walks

        users = checks.whole("users", users, least=1)
        places = checks.whole("places", places, least=2)
        average = checks.whole("links_per_place", links_per_place, least=walks.FEWEST_LINKS)
        noise = checks.number("noise_db", noise_db, least=0)
        altitude = checks.number("user_altitude", user_altitude, least=0)
        counts = walks.links_at(places, places * average)
        if counts.max() > len(self.base_stations):
            raise ConfigurationError(
                f"{counts.max()} links at home are more than {len(self.base_stations)} base"
                " stations; ask for fewer links_per_place or places",
                "links_per_place",
            )
        ways = walks.routes(self, users, altitude, stream(seed, Purpose.WALKS))
        rng = stream(seed, Purpose.WALKED, checks.whole("day", day, least=0))
        spots = np.vstack([walks.stops(way, places, rng) for way in ways])
        place = np.repeat(np.arange(users * places), np.tile(counts, users))
        bs = self._stations_of(rng, place, spots, reach)
        user_xyz, bs_xyz = spots[place], self.base_stations[bs]
        gain = self.gain(user_xyz, bs_xyz) + noise * rng.standard_normal(len(place))
        return Measurements(place // places, user_xyz, bs_xyz, gain, bs)

    def measure_in_parts(
        self,
        users: int,
        *,
        seed: int,
        users_per_part: int = 1000,
        first_part: int = 0,
        **options: Any,
    ) -> Iterator[Measurements]:
        """What a crowd of any size measures, some users at a time; ``options`` as in `measure`.

        Every part has a stream of its own, so that the parts from ``first_part`` on are the same
        without those before them.
        """
        users = checks.whole("users", users, least=1)
        size = checks.whole("users_per_part", users_per_part, least=1)
        for part, first in enumerate(range(0, users, size)):
            if part < first_part:
                continue
            rng = stream(seed, Purpose.MEASURED_IN_PARTS, part)
            own = self.measure(min(size, users - first), seed=rng, **options)
            yield replace(own, user=own.user + first)

    def trace(
        self,
        users: int | ArrayLike = 100,
        *,
        frequency: float = 3.5e9,
        max_depth: int = 3,
        samples: int = 100_000,
        user_altitude: float = 1.5,
        seed: int | None = None,
    ) -> Measurements:
        """What users would measure, traced by Sionna RT: a link to every base station.

        The gain is that of isotropic antennas, vertically polarised, with the powers of all
        paths added. Links without a path are left out and listed in ``dropped``; row
        u · B + b is the link of user u to base station b.

        Parameters
        ----------
        users : int, or (N, 3) array
            How many, at random outdoor places; or where they are.
        frequency : float
            In Hz.
        max_depth : int
            Reflections along a path, at most; one of the interactions may be a diffraction.
        samples : int
            Rays that leave a user. More of them find more paths.
        user_altitude : float
            Metres above ground, for users at random places.
        seed : int, optional
            Fixes places and rays; without it they differ each time.
        """
        if self.meshes is None:
            raise ConfigurationError(
                "only a scene made with Scene.from_sionna can be traced; measure() works on all"
            )
        rng = stream(seed, Purpose.TRACED)
        places = self._places(rng, users, checks.number("user_altitude", user_altitude, least=0))
        gain = self.meshes.gains(
            places,
            self.base_stations,
            frequency=checks.number("frequency", frequency, above=0),
            max_depth=checks.whole("max_depth", max_depth, least=0),
            samples=checks.whole("samples", samples, least=1),
            seed=int(rng.integers(2**31)),
        ).ravel()
        user, bs = np.divmod(np.arange(len(gain)), len(self.base_stations))
        found, lost = np.flatnonzero(np.isfinite(gain)), np.flatnonzero(~np.isfinite(gain))
        if len(found) == 0:
            raise ConfigurationError(
                f"none of {len(gain)} links has a path; ask for more samples or a larger max_depth"
            )
        user, bs, gain = user[found], bs[found], gain[found]
        dropped = (BadRows("no path was found", lost),) if len(lost) else ()
        return Measurements(user, places[user], self.base_stations[bs], gain, bs, dropped=dropped)

    def _places(self, rng: np.random.Generator, users: int | ArrayLike, altitude: float) -> Floats:
        """Where users are: (N, 3), drawn at random or as given."""
        if np.ndim(users) == 0:
            count = checks.whole("users", users, least=1)
            return _outdoors(rng, self.grid, self._indoors, count, altitude)
        places = checks.points("users", users).reshape(-1, 3)
        inside = np.flatnonzero(self._indoors(places))
        if len(inside):
            raise ConfigurationError(f"user {inside[0]} is inside a building; move them")
        return places

    def _stations_of(
        self, rng: np.random.Generator, place: Ints, spots: Floats, reach: float | None
    ) -> Ints:
        """A base station for each link, different ones at the same place, none beyond reach."""
        from scipy.spatial import cKDTree

        order = np.argsort(place, kind="stable")
        places, counts = np.unique(place, return_counts=True)
        within: Sequence[Any] = [len(self.base_stations)] * len(places)  # all of them
        if reach is not None:
            masts, limit = (
                cKDTree(self.base_stations[:, :2]),
                checks.number("reach", reach, above=0),
            )
            within = masts.query_ball_point(spots[places, :2], limit, return_sorted=True)
            _check_enough(np.array([len(near) for near in within]), counts)
        chosen = np.empty(len(place), dtype=np.int64)
        drawn = [rng.permutation(near)[:n] for near, n in zip(within, counts, strict=True)]
        chosen[order] = np.concatenate(drawn)
        return chosen

    def _shadowing(self, user_xyz: Floats, bs: Ints, deviation: float, reach: float) -> Floats:
        """Shadowing at each link: one random field over the ground per base station.

        The field is a sum of waves whose random wave vectors follow the spectrum of the
        covariance exp(−distance/reach) in the plane, so it needs no matrix of all users and
        is the same whenever and by whomever it is measured.
        """
        deviation = checks.number("shadowing_db", deviation, least=0)
        reach = checks.number("shadowing_distance", reach, above=0)
        values = np.zeros(len(bs))
        if deviation == 0:
            return values
        for station in np.unique(bs):
            own = bs == station
            rng = stream(self.seed, Purpose.SHADOWING, int(station))
            # Spectrum ∝ (1 + (reach·|k|)²)^(−3/2): normal over the root of a chi-squared(1).
            k = rng.standard_normal((2, _SHADOWING_WAVES))
            k /= reach * np.abs(rng.standard_normal(_SHADOWING_WAVES))
            phase = rng.uniform(0, 2 * np.pi, _SHADOWING_WAVES)
            waves = np.cos(user_xyz[own, :2] @ k + phase)
            values[own] = deviation * np.sqrt(2 / _SHADOWING_WAVES) * waves.sum(axis=1)
        return values


def _ordered(extent: Sequence[float]) -> tuple[float, float, float, float]:
    """(west, east, south, north), checked."""
    ends = tuple(checks.number("each of extent", value) for value in extent)
    if len(ends) != 4 or ends[0] >= ends[1] or ends[2] >= ends[3]:
        raise ConfigurationError(
            f"extent must be (west, east, south, north) in metres, not {extent}", "extent"
        )
    return ends


def _inside(buildings: Sequence[Building], xyz: Floats) -> Bools:
    """Whether each point is on or in a building: within its footprint and not above it."""
    import shapely

    inside = np.zeros(len(xyz), dtype=bool)
    points = shapely.STRtree(shapely.points(xyz[:, :2]))
    for building in buildings:
        # Those in the footprint's box: many points meet few buildings.
        near = points.query(building.footprint)
        over = shapely.intersects_xy(building.footprint, xyz[near, 0], xyz[near, 1])
        inside[near] |= over & (xyz[near, 2] <= building.height)
    return inside


def _outdoors(
    rng: np.random.Generator,
    grid: Grid,
    indoors: Callable[[Floats], Bools],
    count: int,
    altitude: float,
) -> Floats:
    """``count`` random points over the grid at ``altitude``, none inside a building."""
    west, east, south, north = grid.extent
    found = np.empty((0, 3))
    for _ in range(_MOST_DRAWS):
        x, y = rng.uniform(west, east, count), rng.uniform(south, north, count)
        drawn = np.column_stack([x, y, np.full(count, altitude)])
        found = np.vstack([found, drawn[~indoors(drawn)]])
        if len(found) >= count:
            return found[:count]
    raise ConfigurationError(
        f"no room for {count} points at {altitude:g} m: buildings cover nearly everything;"
        " lower the density"
    )


def _check_enough(there: Ints, counts: Ints) -> None:
    """Complain about places with fewer base stations in reach than links."""
    poor = np.flatnonzero(there < counts)
    if len(poor):
        worst = poor[np.argmin(there[poor])]
        raise ConfigurationError(
            f"{len(poor):,} of {len(there):,} places have too few base stations in reach, one of"
            f" them {there[worst]} for {counts[worst]} links; ask for fewer links, a longer reach"
            " or more base stations"
        )


def _clear_of(buildings: Sequence[Building], user: Floats, bs: Floats) -> Bools:
    """Whether none of the buildings is in a link's way."""
    import shapely

    clear = np.ones(len(user), dtype=bool)
    # Wider by more than rounding, as the tree must not lose a link that touches a box.
    low = np.minimum(user, bs)[:, :2] - _ROUNDING
    high = np.maximum(user, bs)[:, :2] + _ROUNDING
    boxes = shapely.STRtree(shapely.box(low[:, 0], low[:, 1], high[:, 0], high[:, 1]))
    for building in buildings:
        near = boxes.query(building.footprint)
        near = near[clear[near]]  # a link that is blocked already stays so
        if len(near):
            clear[near] = ~_blocked_by(building, user[near], bs[near])
    return clear


def _blocked_by(building: Building, user: Floats, bs: Floats) -> Bools:
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
