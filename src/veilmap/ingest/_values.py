"""What was measured on each link: one value a row, or many of a wide table."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veilmap.ingest import _parsing
from veilmap.ingest._parsing import Ids, Mask
from veilmap.ingest._rows import Rows
from veilmap.ingest._sieve import Sieve
from veilmap.ingest.options import Options

Values = NDArray[np.float64]


@dataclass(frozen=True)
class LinkValues:
    """Values of links, row after row.

    Attributes
    ----------
    name : str
        Of the column, for messages.
    values : (J,) float
        As the file has them; NaN where there is none.
    empty, unreadable : (J,) bool
        Of a wide table; a column's own are among the problems of its rows.
    bs : Ids or None
        Which base station; None if rows do not say.
    per_row : int
        Values in a row.
    """

    name: str
    values: Values
    empty: Mask | None
    unreadable: Mask | None
    bs: Ids | None
    per_row: int = 1

    def spread(self, rows: NDArray) -> NDArray:
        """What rows say, for each of their links."""
        return rows if self.per_row == 1 else np.repeat(rows, self.per_row, axis=0)

    def sift(self, sieve: Sieve, missing: Sequence[float]) -> None:
        """Leave out links without a value."""
        for value in missing:
            reason = f"{self.name} is {value:g}, which stands for nothing"
            sieve.take_out(reason, self.values == value, expected=True)
        if self.empty is not None:
            sieve.take_out(f"{self.name} is empty", self.empty, expected=True)
        if self.unreadable is not None:
            sieve.take_out(f"{self.name} is not a number", self.unreadable)

    def gain_db(self, options: Options) -> Values:
        """The values as gains."""
        if options.quantity == "path-loss":
            return -self.values
        if options.quantity in ("rss", "rsrp"):
            return self.values - options.tx_power_dbm
        return self.values


def of_rows(rows: Rows, wide: Sequence[str]) -> LinkValues:
    """The column of gains, or the columns of base stations of a wide table."""
    if not wide:
        return LinkValues(
            rows.names["gain"], rows.numbers["gain"].values, None, None, rows.ids.get("bs")
        )
    columns = [_parsing.numbers(rows.raw.columns.column(name), rows.raw.decimal) for name in wide]
    values, empty, unreadable = (
        np.column_stack([getattr(column, part) for column in columns]).ravel()
        for part in ("values", "empty", "unreadable")
    )
    codes = np.tile(np.arange(len(wide)), len(rows.raw))
    bs = Ids(np.array(wide), codes, np.zeros(len(codes), dtype=bool))
    return LinkValues("a base station's value", values, empty, unreadable, bs, len(wide))
