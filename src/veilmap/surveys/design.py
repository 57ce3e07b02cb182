"""The design of a survey: everything that is public and fixed before anyone takes part."""

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from veilmap._util import checks, files, reading
from veilmap._util.arrays import Array, Floats, Ints
from veilmap._util.ids import Known, in_order, places
from veilmap._util.plain import DAMAGED, from_plain, plain, to_plain
from veilmap.data.antennas import Antennas
from veilmap.errors import ConfigurationError, DataError
from veilmap.geometry.grid import Grid
from veilmap.privacy.accounting import gaussian_deviation, gaussian_epsilon
from veilmap.privacy.mechanisms.lattice import LARGEST_DEVIATION, LEAST_ON_SUM
from veilmap.surveys.surroundings import USUAL, Surroundings

RECEIVER_HEIGHT = 1.5
"""Of every participant, in metres above ground: phones do not tell theirs well."""

NEAREST = 10.0  # metres; nearer links count as so long
_REFERENCE = 100.0  # metres; where a station's nominal level applies

LEVEL_RANGES = 4
"""How many times the residual range the level of a station is told in."""

_POINT_NOISE_DB = 6.0  # of one point, where participants are, as `Survey.design` spaces them
FEWEST_ALONG = 4  # points along the area's side; fewer say no more than a distance law
_MOST_ENTRIES = 250_000  # stations times points: 2 MB a participant

_FARTHEST = 100_000.0  # metres from the area; nobody hears such a base station
_ENTRIES_HEARD = 5  # of a participant for each station heard: four points and the level
_LOST_TO_ROUNDING = 0.05  # of a contribution at most

_LARGEST_CLIP = 2**20
_MOST_NUMBERS = 50_000_000  # 200 MB a participant: surely a slip of units


@plain
@dataclass(frozen=True)
class Station:
    """A base station as the public knows it, in the survey's coordinates."""

    id: str
    x: float
    y: float
    z: float  # metres above ground
    level_db: float = -75.0  # nominal gain 100 m away
    slope_db: float = -30.0  # per decade of distance
    azimuth_deg: float | None = None  # of its beam, clockwise from north; None: isotropic
    beam_width_deg: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "id", str(self.id))
        for name in ("x", "y", "z", "level_db", "slope_db"):
            object.__setattr__(self, name, checks.number(name, getattr(self, name)))
        for name in ("azimuth_deg", "beam_width_deg"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, checks.number(name, getattr(self, name)))


@plain
@dataclass(frozen=True)
class Survey:
    """What participants, aggregators and readers of the map agree on.

    Parameters
    ----------
    id : str
        Of this survey, among all others.
    grid : Grid
        The centres of its cells are the points at which gains are summed; its extent is the
        area, its ``crs`` that of all positions.
    stations : tuple of Station
    participants : int
        The least number whose sum may be opened.
    epsilon, delta : float
        The guarantee for each participant, see docs/survey.md.
    range_db : float
        Residuals, gain less nominal gain, are told modulo this range.
    level_weight : float
        Of the one entry by which a station's level is told in a range four times as wide.
    clip : int
        C: bound of a contribution's Euclidean norm, in steps of the lattice.
    aggregators : int
        How many add up shares of the contributions, each with noise for the whole promise: one
        machine that has everything, or two that do not collude.
    """

    id: str
    grid: Grid
    stations: tuple[Station, ...] = field(repr=False)
    participants: int
    epsilon: float
    delta: float
    range_db: float = 80.0
    level_weight: float = 0.2
    clip: int = 1024
    aggregators: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.grid, Grid):
            raise ConfigurationError(f"grid must be a Grid, not {self.grid!r}", "grid")
        if not isinstance(self.stations, tuple | list):
            raise ConfigurationError("stations must be a list of Stations", "stations")
        object.__setattr__(self, "id", str(self.id))
        object.__setattr__(self, "stations", tuple(self.stations))
        if not all(isinstance(station, Station) for station in self.stations):
            raise ConfigurationError("stations must be a list of Stations", "stations")
        if not self.stations:
            raise ConfigurationError("a survey needs at least one base station", "stations")
        ids = [station.id for station in self.stations]
        if len(set(ids)) < len(ids):
            twice = next(one for one in ids if ids.count(one) > 1)
            raise ConfigurationError(f"base station {twice} is named twice", "stations")
        checked = {
            "participants": checks.whole("participants", self.participants, least=1),
            "epsilon": checks.number("epsilon", self.epsilon, above=0),
            "delta": checks.number("delta", self.delta, above=0, below=1),
            "range_db": checks.number("range_db", self.range_db, above=0),
            "level_weight": checks.number("level_weight", self.level_weight, above=0, most=1),
            "clip": checks.whole("clip", self.clip, least=16, most=_LARGEST_CLIP),
            "aggregators": checks.whole("aggregators", self.aggregators, least=1, most=2),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        if self.numbers > _MOST_NUMBERS:
            raise ConfigurationError(
                f"{len(ids)} base stations at {self.grid.cells} points are {self.numbers} numbers"
                " a participant: take points further apart",
                "grid",
            )

    @property
    def shape(self) -> tuple[int, int]:
        """(stations, points)."""
        return len(self.stations), self.grid.cells

    @property
    def numbers(self) -> int:
        """Length of a contribution: two for each station and point, and two for its level."""
        return 2 * len(self.stations) * (self.grid.cells + 1)

    @property
    def upload_bytes(self) -> int:
        """What a participant sends, once: four bytes a number."""
        return 4 * self.numbers

    @cached_property
    def deviation(self) -> float:
        """σ of the discrete Gaussian noise that an aggregator adds, in steps of the lattice."""
        return gaussian_deviation(self.epsilon, self.delta, self.clip)

    @property
    def noise(self) -> float:
        """Deviation of the noise on the sum, of all aggregators, in units of one participant."""
        return math.sqrt(self.aggregators) * self.deviation / self.clip

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the design, which every report names."""
        text = json.dumps(to_plain(self), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    @cached_property
    def positions(self) -> Floats:
        """Of the stations, (S, 3), in metres."""
        return np.array([(own.x, own.y, own.z) for own in self.stations])

    @cached_property
    def antennas(self) -> Antennas | None:
        """Of those stations whose beam is known."""
        looks = [np.nan if one.azimuth_deg is None else one.azimuth_deg for one in self.stations]
        wide = [
            np.nan if one.beam_width_deg is None else one.beam_width_deg for one in self.stations
        ]
        return Antennas.where_known([one.id for one in self.stations], looks, wide)

    @cached_property
    def _known(self) -> Known:
        return in_order([one.id for one in self.stations])

    def numbers_of(self, bs: Array) -> Ints:
        """The number of each base station by its id; −1 for those that are not surveyed."""
        return places(bs, self._known)

    def log_distances(self, station: Ints, xy: Floats) -> Floats:
        """log10 of the distance between stations and places, in units of 100 m."""
        apart = xy - self.positions[station, :2]
        above = self.positions[station, 2] - RECEIVER_HEIGHT
        squared = apart[:, 0] ** 2 + apart[:, 1] ** 2 + above**2
        return np.asarray(np.log10(np.sqrt(np.maximum(squared, NEAREST**2)) / _REFERENCE))

    def nominal(self, station: Ints, xy: Floats) -> Floats:
        """The gain that the design expects between stations and places, in dB."""
        level = np.array([one.level_db for one in self.stations])[station]
        slope = np.array([one.slope_db for one in self.stations])[station]
        return level + slope * self.log_distances(station, xy) + self.pattern(station, xy)

    def pattern(self, station: Ints, xy: Floats) -> Floats:
        """What antennas take off beside their beams, in dB."""
        if self.antennas is None:
            return np.zeros(len(xy))
        ids = np.array([one.id for one in self.stations])[station]
        ground = np.column_stack([xy, np.full(len(xy), RECEIVER_HEIGHT)])
        return self.antennas.of(ids, ground, self.positions[station])

    @classmethod
    def design(
        cls,
        area: tuple[float, float, float, float],
        stations: Sequence[Station],
        *,
        participants: int,
        epsilon: float,
        delta: float = 1e-6,
        surroundings: Surroundings = USUAL,
        spacing: float | None = None,
        coarsest: bool = False,
        crs: str | None = None,
        id: str = "survey",
        aggregators: int = 1,
    ) -> "Survey":
        """A survey with points as far apart as public numbers alone say is best.

        Parameters
        ----------
        area : (west, south, east, north)
            In metres of ``crs``.
        stations : Stations
        participants : int
            Whose sum is to be opened, at least.
        epsilon, delta : float
        surroundings : Surroundings
            How many base stations a participant hears, and where participants are.
        spacing : float, optional
            Metres between points; by default where the noise of one is 6 dB among participants,
            which the map's smoothness then averages out.
        coarsest : bool
            Take the fewest points where participants are too few, instead of refusing.
        crs : str, optional
        id : str
        aggregators : int
        """
        corners = _corners(area)
        (west, south), (east, north) = corners
        ground = (east - west) * (north - south)
        nowhere, known = Grid(1.0, (1, 1)), tuple(stations)
        trial = cls(id, nowhere, known, participants, epsilon, delta, aggregators=aggregators)
        _check_near(trial.stations, corners)
        trial = trial._drawable(surroundings.heard_of(len(trial.stations)))
        finest = math.sqrt(ground * len(trial.stations) / _MOST_ENTRIES)
        widest = math.sqrt(ground) / FEWEST_ALONG
        if spacing is None:
            wanted = math.sqrt(trial.noise_db(ground, surroundings) / _POINT_NOISE_DB)
            if wanted > widest and not coarsest:
                raise trial._too_few(wanted, widest)
            spacing = min(max(wanted, finest), widest)
        spacing = checks.number("spacing", spacing, above=0)
        if not finest <= spacing <= widest:
            raise trial._wrongly_spaced(spacing, ground, finest, widest)
        return replace(trial, grid=Grid.covering(corners, spacing, crs=crs))

    def noise_db(self, ground: float, surroundings: Surroundings = USUAL) -> float:
        """Noise in dB at a point of 1 m² among participants, in an area of ``ground`` m².

        A participant who hears k of S stations puts 1 / √(k (4/9 + level_weight²)) at each, as
        bilinear shares have a mean square sum of 4/9; an angle of 1 is range / 2π dB.
        """
        heard = surroundings.heard_of(len(self.stations))
        each = 1 / math.sqrt(heard * (4 / 9 + self.level_weight**2))
        occupied = surroundings.occupied * ground
        told = self.participants * heard / len(self.stations) * each / occupied
        return self.range_db / (2 * math.pi) * self.noise / told

    def _drawable(self, heard: float) -> "Survey":
        """The same on a lattice that is coarse enough for its noise to be drawn."""
        if self.deviation <= LARGEST_DEVIATION:
            return self
        least = math.ceil(math.sqrt(2 * _ENTRIES_HEARD * heard) / 2 / _LOST_TO_ROUNDING)
        clip = int(self.clip * (LARGEST_DEVIATION - 1) / self.deviation)
        if clip < least:
            nearest = gaussian_epsilon(LARGEST_DEVIATION - 1, self.delta, least)
            raise ConfigurationError(
                f"noise for ε = {self.epsilon:g} drowns the whole numbers that it is added to:"
                f" ask for ε = {_rounded_up(nearest)} at least",
                "epsilon",
            )
        return replace(self, clip=clip)

    def _too_few(self, wanted: float, widest: float) -> ConfigurationError:
        """Points so far apart that the noise leaves something are too far apart."""
        side, factor = FEWEST_ALONG * widest, (wanted / widest) ** 2
        enough = f"{math.ceil(self.participants * factor)} participants"
        deviation = self.deviation / factor
        if deviation > LEAST_ON_SUM:
            epsilon = gaussian_epsilon(deviation, self.delta, self.clip)
            enough += f", or for ε = {_rounded_up(epsilon)}"
        return ConfigurationError(
            f"{self.participants} participants with ε = {self.epsilon:g} tell points"
            f" {wanted:.0f} m apart from the noise, and the area is {side:.0f} m wide: ask for"
            f" {enough}",
            "participants",
        )

    def _wrongly_spaced(
        self, spacing: float, ground: float, finest: float, widest: float
    ) -> ConfigurationError:
        """A spacing that makes contributions huge, or no map."""
        if finest > widest:
            return ConfigurationError(
                f"{len(self.stations)} base stations are too many for one survey: take"
                f" {_MOST_ENTRIES // FEWEST_ALONG**2} at most",
                "stations",
            )
        if spacing > widest:
            why = f"are fewer than {FEWEST_ALONG} along a side of {FEWEST_ALONG * widest:.0f} m"
            nearest = f"{widest:.4g} m at most"
        else:
            points = ground / spacing**2
            size = 8e-6 * points * len(self.stations)
            why = f"are {points:,.0f}, and {size:,.3g} MB a participant"
            nearest = f"{_rounded_up(finest)} m at least"
        return ConfigurationError(
            f"points {spacing:.4g} m apart {why}: take a spacing of {nearest}", "spacing"
        )

    def save(self, path: str | Path) -> None:
        """Write the design as JSON."""
        files.write_text(json.dumps(to_plain(self), indent=1) + "\n", Path(path))

    @classmethod
    def load(cls, path: str | Path) -> "Survey":
        """Read what `save` wrote."""
        try:
            return from_plain(reading.read_json(path), cls)
        except DAMAGED as error:
            raise DataError(f"{path} is no survey design: {error}") from None


def stations_of(
    positions: ArrayLike,
    ids: Sequence[object],
    antennas: Antennas | None = None,
    levels: ArrayLike | None = None,
) -> tuple[Station, ...]:
    """Base stations with the default nominal law, from their positions, (S, 3).

    ``levels`` are nominal gains 100 m away, (S,), NaN for the default.
    """
    looks: dict[str, tuple[float, float]] = {}
    if antennas is not None:
        pairs = zip(antennas.azimuths, antennas.beam_widths, strict=True)
        looks = dict(zip(antennas.stations, pairs, strict=True))
    found = []
    for name, (x, y, z) in zip(map(str, ids), checks.points("positions", positions), strict=True):
        azimuth, width = looks.get(name, (None, None))
        place = float(x), float(y), float(z)
        found.append(Station(name, *place, azimuth_deg=azimuth, beam_width_deg=width))
    if levels is None:
        return tuple(found)
    known = zip(found, checks.floats("levels", levels), strict=True)
    return tuple(own if np.isnan(db) else replace(own, level_db=db) for own, db in known)


def _corners(area: Sequence[float]) -> tuple[tuple[float, float], tuple[float, float]]:
    """South-west and north-east of an area, checked."""
    edges = [checks.number("area", edge) for edge in area]
    if len(edges) != 4 or not (edges[0] < edges[2] and edges[1] < edges[3]):
        raise ConfigurationError("area is (west, south, east, north) in metres", "area")
    west, south, east, north = edges
    if min(east - west, north - south) < NEAREST:
        raise ConfigurationError(
            f"area is {east - west:.3g} m wide and {north - south:.3g} m high: give its edges in"
            " metres of a projected coordinate system, not in degrees",
            "area",
        )
    return (west, south), (east, north)


def _check_near(stations: Sequence[Station], corners: Sequence[tuple[float, float]]) -> None:
    """Base stations that nobody in the area hears are in other coordinates than the area."""
    places = np.array([(one.x, one.y) for one in stations])
    low, high = np.array(corners)
    apart = np.hypot(*(places - np.clip(places, low, high)).T)
    worst = int(apart.argmax())
    if apart[worst] > _FARTHEST:
        raise ConfigurationError(
            f"base station {stations[worst].id} is {apart[worst] / 1000:,.0f} km from the area:"
            " give both in the same coordinate system, in metres",
            "stations",
        )


def _rounded_up(value: float) -> str:
    """Three digits, of no smaller number."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 2)
    return f"{math.ceil(value / unit - 1e-9) * unit:.3g}"
