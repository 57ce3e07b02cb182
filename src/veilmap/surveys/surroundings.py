"""What the public knows of people and signals in an area before anybody takes part.

The spacing of a design and what is expected of its map rest on it; its promise does not.
"""

from dataclasses import dataclass

from veilmap._util import checks


@dataclass(frozen=True)
class Surroundings:
    """How participants are spread, and how gains vary beside the distance laws.

    Parameters
    ----------
    heard : float, optional
        How many base stations a participant hears; by default half of them.
    occupied : float
        Share of the area on which participants are: people keep to streets and houses.
    reading_noise_db : float
        Standard deviation of readings at one place: fading, bodies, devices.
    shadowing_db : float, optional
        Standard deviation of what places differ by beside a distance law; by default what is
        usual at the distances between the area and its base stations, see `planning`.
    """

    heard: float | None = None
    occupied: float = 0.5
    reading_noise_db: float = 4.5
    shadowing_db: float | None = None

    def __post_init__(self) -> None:
        checked = {
            "occupied": checks.number("occupied", self.occupied, above=0, most=1),
            "reading_noise_db": checks.number("reading_noise_db", self.reading_noise_db, least=0),
        }
        if self.heard is not None:
            checked["heard"] = checks.number("heard", self.heard, above=0)
        if self.shadowing_db is not None:
            checked["shadowing_db"] = checks.number("shadowing_db", self.shadowing_db, least=0)
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    def heard_of(self, stations: int) -> float:
        """How many of so many base stations a participant hears, one at least."""
        heard = stations / 2 if self.heard is None else self.heard
        return min(max(heard, 1.0), float(max(stations, 1)))


USUAL = Surroundings()
