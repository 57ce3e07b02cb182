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

from veilmap._util import checks, files
from veilmap._util.arrays import Array, Floats, Ints
from veilmap._util.ids import Known, in_order, places
from veilmap._util.plain import from_plain, plain, to_plain
from veilmap.data.antennas import Antennas
from veilmap.errors import ConfigurationError, DataError, VeilmapError
from veilmap.geometry.grid import Grid
from veilmap.privacy.accounting import gaussian_deviation

RECEIVER_HEIGHT = 1.5
"""Of every participant, in metres above ground: phones do not tell theirs well."""

NEAREST = 10.0  # metres; nearer links count as so long
_REFERENCE = 100.0  # metres; where a station's nominal level applies

LEVEL_RANGES = 4
"""How many times the residual range the level of a station is told in."""

_POINT_NOISE_DB = 12.0  # of one point at the spacing that `Survey.design` chooses
FEWEST_ALONG = 4  # points along the area's side; fewer say no more than a distance law
_MOST_ENTRIES = 250_000  # stations times points: 2 MB a participant

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

    @cached_property
    def deviation(self) -> float:
        """σ of the discrete Gaussian noise on the sum, in steps of the lattice."""
        return gaussian_deviation(self.epsilon, self.delta, self.clip)

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
        heard: float | None = None,
        spacing: float | None = None,
        crs: str | None = None,
        id: str = "survey",
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
        heard : float, optional
            How many base stations a participant hears; by default half of them.
        spacing : float, optional
            Metres between points; by default where the noise of one is 12 dB, which the map's
            smoothness then averages out.
        crs : str, optional
        id : str
        """
        west, south, east, north = (checks.number("area", edge) for edge in area)
        if not (west < east and south < north):
            raise ConfigurationError("area is (west, south, east, north) in metres", "area")
        corners = [(west, south), (east, north)]
        ground = (east - west) * (north - south)
        heard = len(stations) / 2 if heard is None else checks.number("heard", heard, above=0)
        heard = min(max(heard, 1.0), float(max(len(stations), 1)))
        trial = cls(id, Grid(1.0, (1, 1)), tuple(stations), participants, epsilon, delta)
        side = math.sqrt(ground)
        finest, widest = math.sqrt(ground * len(stations) / _MOST_ENTRIES), side / FEWEST_ALONG
        if spacing is None:
            spacing = max(math.sqrt(trial.noise_db(ground, heard) / _POINT_NOISE_DB), finest)
            if spacing > widest:
                raise ConfigurationError(
                    f"{participants} participants with ε = {epsilon:g} tell points {spacing:.0f} m"
                    f" apart from the noise, and the area is {side:.0f} m wide: ask"
                    f" {math.ceil(participants * (spacing / widest) ** 2)} participants, or a"
                    " larger ε",
                    "participants",
                )
        checks.number("spacing", spacing, least=finest, most=widest)
        return replace(trial, grid=Grid.covering(corners, spacing, crs=crs))

    def noise_db(self, ground: float, heard: float) -> float:
        """Noise in dB at a point of 1 m², of ``ground`` m² over which participants are spread.

        A participant who hears k of S stations puts 1 / √(k (4/9 + level_weight²)) at each, as
        bilinear shares have a mean square sum of 4/9; an angle of 1 is range / 2π dB.
        """
        each = 1 / math.sqrt(heard * (4 / 9 + self.level_weight**2))
        told = self.participants * heard / len(self.stations) * each / ground
        return self.range_db / (2 * math.pi) * self.deviation / self.clip / told

    def save(self, path: str | Path) -> None:
        """Write the design as JSON."""
        files.write_text(json.dumps(to_plain(self), indent=1) + "\n", Path(path))

    @classmethod
    def load(cls, path: str | Path) -> "Survey":
        """Read what `save` wrote."""
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise DataError(f"{path} is no survey design: {error}") from None
        try:
            return from_plain(content, cls)
        except VeilmapError as error:
            raise DataError(f"{path} is no survey design: {error}") from None


def stations_of(
    positions: ArrayLike, ids: Sequence[object], antennas: Antennas | None = None
) -> tuple[Station, ...]:
    """Base stations with the default nominal law, from their positions, (S, 3)."""
    looks: dict[str, tuple[float, float]] = {}
    if antennas is not None:
        pairs = zip(antennas.azimuths, antennas.beam_widths, strict=True)
        looks = dict(zip(antennas.stations, pairs, strict=True))
    found = []
    for name, (x, y, z) in zip(map(str, ids), checks.points("positions", positions), strict=True):
        azimuth, width = looks.get(name, (None, None))
        place = float(x), float(y), float(z)
        found.append(Station(name, *place, azimuth_deg=azimuth, beam_width_deg=width))
    return tuple(found)
