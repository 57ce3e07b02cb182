"""What reading a file gives: measurements, and an account of every row."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from veilmap.data.antennas import Antennas
from veilmap.data.measurements import BadRows, BadRowsError, Measurements, describe
from veilmap.errors import DataError
from veilmap.ingest.options import Quantity
from veilmap.ingest.parsing import Mask

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


@dataclass
class Sieve:
    """What is left of ``numbers``, the reader's numbers of all rows."""

    numbers: NDArray[np.int64]
    left_out: list[LeftOut] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.kept = np.ones(len(self.numbers), dtype=bool)

    def take_out(self, reason: str, rows: Mask, *, expected: bool = False) -> None:
        """Leave out those of ``rows`` that are still there."""
        if not rows.any():
            return
        found = rows & self.kept
        if found.any():
            self.left_out.append(LeftOut(reason, self.numbers[found], expected))
            self.kept &= ~found

    def sifted(self, columns: Mapping[str, NDArray]) -> Mapping[str, NDArray]:
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


def refuse(where: str, left_out: Sequence[LeftOut], total: int, row_word: str) -> None:
    """Complain in one line about rows that nobody has said may be left out."""
    bad = [BadRows(one.reason, one.rows) for one in left_out if not one.expected]
    if bad:
        message = f"{where}: {describe(bad, total, row_word)}"
        raise BadRowsError(bad, total, message)


def nothing_left(where: str, left_out: Sequence[LeftOut], hint: str) -> DataError:
    """The complaint that no row is left."""
    reasons = [f"{len(one.rows)} rows: {one.reason}" for one in left_out]
    said = "; ".join(reasons) or "it has no rows"
    return DataError(f"{where} has no usable row ({said})" + (f"; {hint}" if hint else ""))
