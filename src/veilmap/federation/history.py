"""What happened, round by round."""

import csv
import io
import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from veilmap._util import files, limits, reading
from veilmap._util.plain import DAMAGED
from veilmap.errors import DataError


@dataclass(frozen=True)
class HistoryRow:
    """One round. Loss, norms and noise are known to a study, not to a real server.

    Of a run with a guarantee only what `published` leaves is written to its folder.
    """

    round: int  # from 0
    loss: float  # F over the users who answered, before the step, in dB²
    mae_db: float  # on test data after the step; NaN where it was not measured
    gradient_norm: float  # mean of users' ‖g‖ before clipping
    clip_share: float  # share of users whose gradient was clipped
    noise_energy: float  # mean over users of Σσ²
    # ε accounted so far for the user who spent most; NaN for mechanisms without a guarantee.
    # With a seed it is what the same run without one would have spent: no promise.
    epsilon: float
    clients: int  # who answered
    dropped: int
    late: int
    refused: int  # whose answer could not be used
    opened: int  # 1, or 0 where too few answered for the sum to be opened
    upload_bytes: int  # sent by those who answered
    notes: str  # who was asked and is missing from the sum, and why, where it is known by name
    seconds: float


# What comes out of noisy sums, who took part, and public constants. Whatever else a row has, now
# or later, is measured on data.
_PUBLISHABLE = {"round", "noise_energy", "epsilon", "clients", "dropped", "late", "refused"}
_PUBLISHABLE |= {"opened", "upload_bytes", "notes"}


def published(row: HistoryRow, seed: int | None) -> HistoryRow:
    """What may be published of a round under a guarantee: the rest is NaN.

    With a seed there is no promise, and so no ε.
    """
    shown = _PUBLISHABLE - (set() if seed is None else {"epsilon"})
    withheld = {field.name for field in fields(row)} - shown
    return replace(row, **dict.fromkeys(withheld, math.nan))  # type: ignore[arg-type]


def save(rows: Iterable[HistoryRow], path: Path) -> None:
    """Write the rows as CSV."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, [field.name for field in fields(HistoryRow)])
    writer.writeheader()
    writer.writerows(asdict(row) for row in rows)
    files.write_text(text.getvalue(), path, secret=True)


def load(path: Path) -> list[HistoryRow]:
    """Read what `save` wrote."""
    content = reading.read_bytes(path, limits.JSON_BYTES, follow=False)
    try:
        text = io.StringIO(content.decode(), newline="")
        return [
            HistoryRow(**{f.name: f.type(row[f.name]) for f in fields(HistoryRow)})  # type: ignore[operator]
            for row in _dictionaries(text)
        ]
    except (csv.Error, *DAMAGED) as error:
        raise DataError(f"{path} is not a veilmap history") from error


def _dictionaries(text: io.StringIO) -> Iterator[dict[str, str]]:
    reader = csv.DictReader(text, strict=True)
    if reader.fieldnames != [field.name for field in fields(HistoryRow)]:
        raise ValueError("other columns")
    return reader


def noted(reasons: Iterable[str]) -> str:
    """What a row notes, of each reason and in all no more than can be read back."""
    shown = [files.printable(reason, limits.REASON_LETTERS) for reason in reasons]
    text = "; ".join(shown)
    if len(text) <= limits.NOTE_LETTERS:
        return text
    return text[: limits.NOTE_LETTERS].rpartition("; ")[0] + f"; … ({len(shown)} notes in all)"


def last_mae(rows: Iterable[HistoryRow]) -> float:
    """The latest measured MAE, in dB; NaN if there is none."""
    measured = [row.mae_db for row in rows if not math.isnan(row.mae_db)]
    return measured[-1] if measured else math.nan
