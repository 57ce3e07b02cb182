"""Where the antennas of base stations look: what is weaker beside their beam, in dB."""

import json
from collections import Counter
from dataclasses import asdict, dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from veilmap._util import checks
from veilmap._util.arrays import Array, Bools, Floats
from veilmap._util.ids import Known, in_order, places
from veilmap.errors import DataError
from veilmap.geometry.grid import paired

BEAM_WIDTH_DEG = 65.0
"""Of an antenna whose azimuth alone is known: that of 3GPP's reference antenna."""

_WIDEST_DEG = 360.0

# From nearer, along the ground, a position does not tell in which direction a user is.
_AT_THE_MAST_M = 1.0


@dataclass(frozen=True)
class Antennas:
    """Antennas of base stations, which are publicly known.

    The pattern is the horizontal one of 3GPP TR 38.901, table 7.3-1:
    A(φ) = −min(12 (φ/φ_3dB)², A_max), with φ the angle between the azimuth and the direction to
    the user. What an antenna adds in its beam is left to the laws and offsets, what it does up
    and down is not modelled.

    Base stations that are not among ``stations`` (ids, kept as text) are isotropic. Azimuths are
    in degrees clockwise from north (y of the grid). Beam widths are φ_3dB in degrees, over 0 and
    at most 360, between the two directions where the gain is 3 dB down: 65 by default, and where
    one is NaN. ``front_to_back_db`` is A_max, the most that is lost in any direction.
    """

    stations: tuple[str, ...] = ()
    azimuths: tuple[float, ...] = field(default=(), repr=False)
    beam_widths: tuple[float, ...] = field(default=(), repr=False)
    front_to_back_db: float = 30.0

    def __post_init__(self) -> None:
        stations = tuple(str(station) for station in self.stations)
        count = len(stations)
        for station, times in Counter(stations).most_common(1):
            if times > 1:
                raise DataError(f"base station {station} has more than one antenna")
        azimuths = checks.floats("azimuths", self.azimuths)
        if azimuths.shape != (count,) or not np.isfinite(azimuths).all():
            raise DataError(f"{count} antennas need as many finite azimuths")
        widths = checks.floats("beam_widths", self.beam_widths)
        if widths.size == 0:
            widths = np.full(count, np.nan)
        if widths.shape != (count,):
            raise DataError(f"{count} antennas need as many beam widths, or none")
        widths = np.where(np.isnan(widths), BEAM_WIDTH_DEG, widths)
        wrong = np.flatnonzero(impossible_widths(widths))
        if len(wrong):
            raise DataError(
                f"beam widths are over 0° and at most {_WIDEST_DEG:g}°, not {widths[wrong[0]]:g}°"
                f" as of base station {stations[wrong[0]]}"
            )
        ratio = checks.number("front_to_back_db", self.front_to_back_db, above=0)
        object.__setattr__(self, "stations", stations)
        object.__setattr__(self, "azimuths", tuple(azimuths.tolist()))
        object.__setattr__(self, "beam_widths", tuple(widths.tolist()))
        object.__setattr__(self, "front_to_back_db", ratio)

    @classmethod
    def where_known(
        cls, stations: ArrayLike, azimuths: ArrayLike, beam_widths: ArrayLike | None = None
    ) -> "Antennas | None":
        """The antennas of those stations whose azimuth is not NaN; None if there are none."""
        ids, looks = np.atleast_1d(stations), np.atleast_1d(checks.floats("azimuths", azimuths))
        given = np.full(ids.shape, np.nan) if beam_widths is None else beam_widths
        widths = np.atleast_1d(checks.floats("beam_widths", given))
        if not ids.shape == looks.shape == widths.shape:
            raise DataError(
                f"{len(ids)} base stations need as many azimuths and beam widths (NaN for"
                f" unknown), not {len(looks)} and {len(widths)}"
            )
        known = ~np.isnan(looks)
        if not known.any():
            return None
        return cls(tuple(ids[known].tolist()), tuple(looks[known]), tuple(widths[known]))

    def __len__(self) -> int:
        return len(self.stations)

    def of(self, bs: Array, user_xyz: ArrayLike, bs_xyz: ArrayLike) -> Floats:
        """The pattern on every link, (J,), in dB: 0 in the beam, negative beside it.

        0 as well for base stations that are not listed, and for users right at the mast.
        """
        user, mast = paired(user_xyz, bs_xyz)
        east, north = (user - mast)[:, :2].T
        number = places(bs, self._stations)
        directed = np.flatnonzero((number >= 0) & (np.hypot(east, north) >= _AT_THE_MAST_M))
        own = number[directed]
        bearing = np.degrees(np.arctan2(east[directed], north[directed]))  # clockwise from north
        beside = (bearing - np.array(self.azimuths)[own] + 180.0) % 360.0 - 180.0
        lost = 12.0 * (beside / np.array(self.beam_widths)[own]) ** 2
        pattern = np.zeros(len(user))
        pattern[directed] = -np.minimum(lost, self.front_to_back_db)
        return pattern

    def known(self, bs: Array) -> Bools:
        """Whether the antenna of each base station is known."""
        return places(bs, self._stations) >= 0

    def as_text(self) -> str:
        """For files and messages."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> "Antennas":
        """What `as_text` gave."""
        try:
            return cls(**json.loads(text))
        except (TypeError, ValueError) as error:
            raise DataError(f"the antennas of base stations are damaged: {error}") from None

    @cached_property
    def _stations(self) -> Known:
        return in_order(self.stations)


def impossible_widths(degrees: Floats) -> Bools:
    """Which beam widths no antenna has; NaN is none of them."""
    return (degrees <= 0) | (degrees > _WIDEST_DEG)
