"""What reading a file gives: measurements, and an account of every row."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from veilmap.data.antennas import Antennas
from veilmap.data.measurements import Measurements
from veilmap.ingest.options import Quantity

Values = NDArray[np.float64]


@dataclass(frozen=True)
class LeftOut:
    """Rows that are not among the measurements, and why.

    Attributes
    ----------
    reason : str
    rows : (n,) int
        Lines of a text file, rows (from 0) of others; in a wide table one for each value.
    expected : bool
        Whether the caller had said that there would be such rows.
    """

    reason: str
    rows: NDArray[np.int64] = field(repr=False)
    expected: bool = False


@dataclass(frozen=True, eq=False)
class Stations:
    """Base stations of a file of their own.

    Attributes
    ----------
    bs : (B,) array
    xyz : (B, 3) float
        Metres, in the measurements' coordinate system.
    azimuth_deg, beam_width_deg : (B,) float, optional
        Where the antenna looks (clockwise from north), and how wide; NaN where not said.
    """

    bs: NDArray
    xyz: Values
    azimuth_deg: Values | None = None
    beam_width_deg: Values | None = None

    @property
    def antennas(self) -> Antennas | None:
        """The antennas whose azimuths are known; None if there are none."""
        if self.azimuth_deg is None:
            return None
        return Antennas.where_known(self.bs, self.azimuth_deg, self.beam_width_deg)


@dataclass(frozen=True, eq=False)
class Reading:
    """A file's measurements, and an account of its rows: ``rows`` are used or in ``left_out``.

    Attributes
    ----------
    path : Path
    measurements : Measurements
        With ``crs`` set where the positions are on real ground, and ``antennas`` where
        azimuths are known.
    rows : int
        Rows of the file; of a wide table its values.
    left_out : tuple of LeftOut
        Each row once, under the first reason that applies.
    row_word : "line" or "row"
        What the numbers in ``left_out`` count.
    columns : mapping
        Our names of columns and the file's.
    quantity : "gain", "rss", "rsrp" or "path-loss"
        What the file's values are.
    tx_power_dbm : float
        What was sent, for powers.
    time : (J,) float, optional
        Of each measurement, in seconds since 1970 (UTC).
    degrees : (J, 4) float, optional
        Longitude and latitude of user and base station, as far as the file had degrees.
    stations : Stations, optional
    notes : tuple of str
        What was found out or assumed.
    """

    path: Path
    measurements: Measurements
    rows: int
    left_out: tuple[LeftOut, ...]
    row_word: str
    columns: Mapping[str, str]
    quantity: Quantity
    tx_power_dbm: float = 0.0
    time: Values | None = None
    degrees: Values | None = None
    stations: Stations | None = None
    notes: tuple[str, ...] = ()

    @property
    def time_range(self) -> tuple[str, str] | None:
        """The first and the last moment, as ISO text in UTC."""
        if self.time is None:
            return None
        first, last = (
            np.datetime64(round(moment), "s") for moment in (self.time.min(), self.time.max())
        )
        return f"{first}Z", f"{last}Z"
