"""What reading a file gives: measurements, and an account of every row."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from veilmap._util.arrays import Array, Bools, Floats, Ints
from veilmap.data.antennas import Antennas
from veilmap.data.measurements import BadRows, Measurements
from veilmap.ingest.options import Quantity


@dataclass(frozen=True, eq=False)
class Stations:
    """Base stations of a file of their own.

    Positions, (B, 3), are in metres of the measurements' coordinate system; azimuths (clockwise
    from north) and beam widths are NaN where the file does not say.
    """

    bs: Array
    xyz: Floats
    azimuth_deg: Floats | None = None
    beam_width_deg: Floats | None = None

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
    measurements : Measurements
        With ``crs`` set where the positions are on real ground, and ``antennas`` where
        azimuths are known.
    rows : int
        Rows of the file; of a wide table its values.
    left_out : tuple of BadRows
        Each row once, under the first reason that applies: lines of a text file, rows (from 0) of
        others, as ``row_word`` says; in a wide table one for each value.
    columns : mapping
        Our names of columns and the file's.
    time : (J,) float, optional
        Of each measurement, in seconds since 1970 (UTC).
    degrees : (J, 4) float, optional
        Longitude and latitude of user and base station, as far as the file had degrees.
    notes : tuple of str
        What was found out or assumed.
    """

    path: Path
    measurements: Measurements
    rows: int
    left_out: tuple[BadRows, ...]
    row_word: str
    columns: Mapping[str, str]
    quantity: Quantity
    tx_power_dbm: float = 0.0
    time: Floats | None = None
    degrees: Floats | None = None
    stations: Stations | None = None
    notes: tuple[str, ...] = ()

    @cached_property
    def distance_m(self) -> Floats:
        """Length of each link along the ground, (J,)."""
        data = self.measurements
        return np.asarray(np.hypot(*(data.user_xyz - data.bs_xyz)[:, :2].T))

    @property
    def time_range(self) -> tuple[str, str] | None:
        """The first and the last moment, as ISO text in UTC."""
        if self.time is None:
            return None
        first, last = (np.datetime64(round(end), "s") for end in (self.time.min(), self.time.max()))
        return f"{first}Z", f"{last}Z"


@dataclass
class Sieve:
    """What is left of ``numbers``, the reader's numbers of all rows."""

    numbers: Ints
    left_out: list[BadRows] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.kept = np.ones(len(self.numbers), dtype=bool)

    def take_out(self, reason: str, rows: Bools, *, expected: bool = False) -> None:
        """Leave out those of ``rows`` that are still there."""
        if not rows.any():
            return
        found = rows & self.kept
        if found.any():
            self.left_out.append(BadRows(reason, self.numbers[found], expected))
            self.kept &= ~found

    def sifted(self, columns: Mapping[str, Array]) -> Mapping[str, Array]:
        """The kept rows of columns, without a copy if that is all of them."""
        if self.kept.all():
            return columns
        return {name: column[self.kept] for name, column in columns.items()}

    def take_out_kept(self, bad: Sequence[BadRows]) -> None:
        """Leave out rows that are counted among the kept ones."""
        kept = np.flatnonzero(self.kept)
        for problem in bad:
            rows = np.zeros(len(self.numbers), dtype=bool)
            rows[kept[problem.rows]] = True
            self.take_out(problem.reason, rows)
