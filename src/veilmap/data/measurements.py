"""Measurements: the table of links that users hold."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilmap._util import checks, files
from veilmap._util.arrays import Array, Bools, Floats, Ints
from veilmap._util.ids import Id
from veilmap.data.antennas import Antennas
from veilmap.data.links import Links
from veilmap.errors import DataError, VeilmapError
from veilmap.geometry.grid import offsets_of

if TYPE_CHECKING:
    import pyarrow

OnBad = Literal["refuse", "drop"]

# What no radio link on Earth shows, so that a slip of units is caught.
_GAIN_RANGE_DB = (-400.0, 60.0)
_FARTHEST_M = 1e8
_HIGHEST_M = 1e5

_POSITIONS = ("user_x", "user_y", "user_z", "bs_x", "bs_y", "bs_z")
_REQUIRED = ("user", *_POSITIONS, "gain_db")
COLUMNS = ("user", "user_xyz", "bs_xyz", "gain_db", "bs", "device")
_ROWS_SHOWN = 5
_LONGEST_HEADER = 1 << 16
DUPLICATE = "the same as an earlier row"
CRS_NOTE, ANTENNAS_NOTE = "veilmap_crs", "veilmap_antennas"  # in a Parquet file's metadata


@dataclass(frozen=True)
class BadRows:
    """Rows that are not used, and why; ``expected`` if the caller said there would be such."""

    reason: str
    rows: Ints = field(repr=False)
    expected: bool = False


class BadRowsError(DataError):
    """Some rows cannot be used; ``bad`` says which, ``total`` how many there were.

    ``parameter`` names what lets them be left out.
    """

    parameter = "on_bad"

    def __init__(self, bad: list[BadRows], total: int, message: str = "") -> None:
        super().__init__(message or describe(bad, total))
        self.bad = bad
        self.total = total


@dataclass(frozen=True, eq=False)
class Measurements:
    """Gains of radio links, one row a link.

    Rows that are not finite, out of any plausible range, or exact duplicates of an earlier
    row are refused with their numbers, or left out with ``on_bad="drop"``; what was left out
    is listed in ``dropped``.

    Parameters
    ----------
    user, bs, device : (J,) arrays
        Who measured, which base station (by default one per distinct position) and which kind of
        device (by default all are alike): any integers or strings.
    user_xyz, bs_xyz : (J, 3) arrays
        Where the user and the base station were, in metres (x east, y north, z up).
    gain_db : (J,) array
        Channel gain in dB (negative for a loss).
    crs : str, optional
        The projected coordinate system of the positions, such as "EPSG:32633".
    antennas : Antennas, optional
        Patterns of base stations, which are public, by their ids in ``bs``.
    bs_error_m : (J,) array, optional
        The root mean square error of where the base station is, in metres, where that is an
        estimate; NaN where it is known.
    dropped : tuple of BadRows, optional
        What was left out before, by whoever made the table.
    """

    user: Array
    user_xyz: Floats
    bs_xyz: Floats
    gain_db: Floats
    bs: Array = None  # type: ignore[assignment]  # filled in below
    device: Array = None  # type: ignore[assignment]  # filled in below
    crs: str | None = None
    antennas: Antennas | None = None
    bs_error_m: Floats | None = None
    on_bad: OnBad = "refuse"
    dropped: tuple[BadRows, ...] = ()

    def __post_init__(self) -> None:
        if self.on_bad not in ("refuse", "drop"):
            raise DataError(f"on_bad must be 'refuse' or 'drop', not {self.on_bad!r}")
        if not isinstance(self.antennas, Antennas | None):
            raise DataError(f"antennas are given as Antennas(...), not {self.antennas!r}")
        columns = self._shaped()
        bad = find_bad_rows(columns)
        if bad and self.on_bad == "refuse":
            raise BadRowsError(bad, len(columns["gain_db"]))
        if bad:
            rows = np.concatenate([problem.rows for problem in bad])
            columns = {name: np.delete(values, rows, axis=0) for name, values in columns.items()}
        if len(columns["gain_db"]) == 0:
            raise DataError("no measurements: the table has no usable row")
        for name, values in columns.items():
            object.__setattr__(self, name, _frozen(values))
        object.__setattr__(self, "dropped", (*self.dropped, *bad))

    def _shaped(self) -> dict[str, Array]:
        """The columns as arrays of matching length."""
        gain_db = checks.floats("gain_db", self.gain_db)
        if gain_db.ndim != 1:
            raise DataError(f"gain_db must be one column, not shape {gain_db.shape}")
        rows = len(gain_db)
        columns = {"user": np.asarray(self.user), "gain_db": gain_db}
        for name in ("user_xyz", "bs_xyz"):
            columns[name] = _of_shape(name, checks.floats(name, getattr(self, name)), (rows, 3))
        bs, device = self.bs, self.device
        if bs is None:
            bs = np.unique(columns["bs_xyz"], axis=0, return_inverse=True)[1].reshape(-1)
        columns["bs"] = np.asarray(bs)
        columns["device"] = np.asarray(np.zeros(rows, np.int64) if device is None else device)
        if self.bs_error_m is not None:
            columns["bs_error_m"] = _errors(checks.floats("bs_error_m", self.bs_error_m), rows)
        for name in ("user", "bs", "device"):
            _of_shape(name, columns[name], (rows,))
        return columns

    def __len__(self) -> int:
        return len(self.gain_db)

    @cached_property
    def users(self) -> Array:
        """The distinct user ids, sorted: user i of gradients and transcripts is ``users[i]``."""
        return np.unique(self.user)

    @cached_property
    def links(self) -> Links:
        """The rows grouped by user, as the kernels take them."""
        _, index = np.unique(self.user, return_inverse=True)
        order = np.argsort(index, kind="stable")
        ends = (np.ascontiguousarray(xyz[order]) for xyz in (self.user_xyz, self.bs_xyz))
        rows = (own[order] for own in (self.gain_db, self.bs, self.device))
        return Links(offsets_of(np.bincount(index)), *ends, *rows)

    @cached_property
    def stations(self) -> tuple[Floats, tuple[Id, ...]]:
        """Every base station once: where it is, (B, 3), and its id. Several may share a mast."""
        return stations_among(self.bs_xyz, self.bs)

    @cached_property
    def station_errors(self) -> dict[str, float]:
        """The errors of base stations whose positions are estimates, by id, in metres."""
        return _errors_of(self.bs, self.bs_error_m)

    @cached_property
    def devices(self) -> Array:
        """The kinds of devices there are."""
        return np.unique(self.device)

    @property
    def corners(self) -> Floats:
        """The least and the largest x and y of any end of a link, (2, 2), in metres."""
        ends = self.user_xyz[:, :2], self.bs_xyz[:, :2]
        low = np.min([end.min(axis=0) for end in ends], axis=0)
        return np.vstack([low, np.max([end.max(axis=0) for end in ends], axis=0)])

    def blocks(self, users: int) -> Iterator[Links]:
        """The links of at most ``users`` users at a time, in the order of their ids."""
        return self.links.blocks(users)

    def mean_positions(self) -> Floats:
        """Each user's mean position over its links, (N, 2), in metres."""
        return self.links.mean_positions()

    def select(self, rows: ArrayLike, *, user: Array | None = None) -> "Measurements":
        """The given rows: a mask, or row numbers; ``user`` are other ids for who measured them."""
        picked = np.asarray(rows)
        columns = {name: getattr(self, name)[picked] for name in COLUMNS}
        columns |= {} if user is None else {"user": user}
        if self.bs_error_m is not None:
            columns["bs_error_m"] = self.bs_error_m[picked]
        return Measurements(**columns, crs=self.crs, antennas=self.antennas)

    def of_user(self, user: object) -> "Measurements":
        """One user's rows."""
        own = self.user == user
        if not np.any(own):
            raise DataError(f"no measurements of user {user!r}")
        return self.select(own)

    def split_by_user(
        self, test: float = 0.2, *, seed: int | None = None
    ) -> tuple["Measurements", "Measurements"]:
        """(train, test) with no user in both; ``test`` is the share of users."""
        return self._split(self.user, self.users, test, "users", seed)

    def split_by_place(
        self, test: float = 0.2, *, block: float = 50.0, seed: int | None = None
    ) -> tuple["Measurements", "Measurements"]:
        """(train, test) with no square of ``block`` metres of user ground in both."""
        side = checks.number("block", block, above=0)
        squares = np.floor(self.user_xyz[:, :2] / side).astype(np.int64)
        _, square = np.unique(squares, axis=0, return_inverse=True)
        square = square.reshape(-1)
        return self._split(square, np.unique(square), test, f"squares of {side:g} m", seed)

    def _split(
        self, group: Array, groups: Array, share: float, what: str, seed: int | None
    ) -> tuple["Measurements", "Measurements"]:
        """(train, test): a random share of ``groups``, at least one and not all, is in the test."""
        part = checks.number("test", share, above=0)
        count = round(part * len(groups))
        if not 0 < count < len(groups):
            raise DataError(f"a test share of {part:g} leaves {len(groups)} {what} unsplit")
        chosen = np.random.default_rng(seed).choice(groups, count, replace=False)
        in_test = np.isin(group, chosen)
        return self.select(~in_test), self.select(in_test)

    def save(self, path: str | Path) -> None:
        """Write CSV or Parquet, by the file's ending, for the owner's eyes alone."""
        import pyarrow.csv
        import pyarrow.parquet

        path = Path(path)
        kind = _file_kind(path)
        write = pyarrow.csv.write_csv if kind == "csv" else pyarrow.parquet.write_table
        with files.replacing(path, secret=True) as temporary:
            write(self._as_table(), temporary)

    def _as_table(self) -> "pyarrow.Table":
        import pyarrow

        columns = {"user": self.user, **dict(zip(_POSITIONS[:3], self.user_xyz.T, strict=True))}
        columns |= {"bs": self.bs, **dict(zip(_POSITIONS[3:], self.bs_xyz.T, strict=True))}
        columns["gain_db"] = self.gain_db
        if len(np.unique(self.device)) > 1:
            columns["device"] = self.device
        if self.station_errors:
            columns["bs_error_m"] = pyarrow.array(self.bs_error_m, from_pandas=True)
        table = pyarrow.table(columns)
        # A CSV file has no place for these.
        notes = {CRS_NOTE: self.crs} if self.crs else {}
        if self.antennas is not None:
            notes[ANTENNAS_NOTE] = self.antennas.as_text()
        return table.replace_schema_metadata(notes) if notes else table

    @classmethod
    def load(cls, path: str | Path, *, on_bad: OnBad = "refuse") -> "Measurements":
        """Read CSV or Parquet with the columns that `save` writes (``bs`` may be missing).

        Messages name the lines of a CSV file, and the rows (from 0) of a Parquet file.
        """
        from veilmap.data import table_files

        path = files.existing(path)
        kind = _file_kind(path)
        columns: dict[str, Any] = table_files.read(
            path, kind, required=_REQUIRED, optional=("bs", "device", "bs_error_m")
        )
        ends = np.column_stack([columns.pop(name) for name in _POSITIONS])
        columns |= {"user_xyz": ends[:, :3], "bs_xyz": ends[:, 3:]}
        crs, antennas = (table_files.note(path, kind, n) for n in (CRS_NOTE, ANTENNAS_NOTE))
        try:
            columns["antennas"] = None if antennas is None else Antennas.from_text(antennas)
            return cls(on_bad=on_bad, crs=crs, **columns)
        except BadRowsError as error:
            # A CSV's first line holds the names, and people count lines from 1.
            named = ("line", 2) if kind == "csv" else ("row", 0)
            message = f"{path}: {describe(error.bad, error.total, *named)}"
            raise BadRowsError(error.bad, error.total, message) from None
        except VeilmapError as error:
            raise DataError(f"{path}: {error}") from None


def _errors(values: Floats, rows: int) -> Floats:
    errors = _of_shape("bs_error_m", values, (rows,))
    if (errors < 0).any() or np.isinf(errors).any():
        raise DataError("bs_error_m are lengths in metres, and NaN where a position is known")
    return errors


def _errors_of(bs: Array, error: Floats | None) -> dict[str, float]:
    if error is None:
        return {}
    ids, first = np.unique(bs, return_index=True)
    known = zip(ids.tolist(), error[first].tolist(), strict=True)
    return {str(one): metres for one, metres in known if np.isfinite(metres)}


def is_saved(path: Path) -> bool:
    """Whether a file has the columns that `Measurements.save` writes, as far as can be seen."""
    ending = path.suffix.lower()
    if ending == ".parquet":
        from veilmap.data import table_files

        names = table_files.names(path)
    elif ending == ".csv":
        with path.open("rb") as file:
            first = file.readline(_LONGEST_HEADER).decode(errors="replace")
        names = [name.strip().strip('"') for name in first.lstrip("\ufeff").split(",")]
    else:
        return False
    return set(_REQUIRED) <= set(names)


def stations_among(masts: Floats, bs: Array) -> tuple[Floats, tuple[Id, ...]]:
    """Every base station of some links once: where it is, (B, 3), and its id."""
    ids, number = np.unique(bs, return_inverse=True)
    distinct = np.unique(np.column_stack([masts, number.reshape(-1)]), axis=0)
    return distinct[:, :3], tuple(ids[distinct[:, 3].astype(np.int64)].tolist())


def find_bad_rows(columns: dict[str, Array]) -> list[BadRows]:
    """Rows that cannot be used: each row once, under the first reason that applies."""
    user, bs, gain = columns["user_xyz"], columns["bs_xyz"], columns["gain_db"]
    missing = np.zeros(len(gain), dtype=bool)
    for name in ("user", "bs", "device"):
        values = columns[name]
        if values.dtype.kind == "f":
            missing |= ~np.isfinite(values)
        elif values.dtype.kind == "O":
            missing |= np.array([value is None for value in values], dtype=bool)
    ends, (low, high) = np.hstack([user, bs]), _GAIN_RANGE_DB
    with np.errstate(invalid="ignore"):
        far = (np.abs(ends) > _FARTHEST_M).any(axis=1)
        up = (np.abs(ends[:, [2, 5]]) > _HIGHEST_M).any(axis=1)
        reasons = [
            ("a user, base-station or device id is missing", missing),
            ("gain_db is not finite", ~np.isfinite(gain)),
            ("a position is not finite", ~np.isfinite(ends).all(axis=1)),
            (f"gain_db is outside {low:g} … {high:g} dB", (gain < low) | (gain > high)),
            (f"a position is farther than {_FARTHEST_M:g} m from the origin", far),
            (f"a height is beyond {_HIGHEST_M:g} m", up),
        ]
    bad = np.zeros(len(gain), dtype=bool)
    found = []
    for reason, mask in reasons:
        rows = np.flatnonzero(mask & ~bad)
        if len(rows):
            found.append(BadRows(reason, rows))
            bad[rows] = True
    again = _duplicates(columns, ~bad)
    if len(again):
        found.append(BadRows(DUPLICATE, again))
    return found


def _duplicates(columns: dict[str, Array], usable: Bools) -> Ints:
    """Usable rows that repeat an earlier usable one in every column."""
    rows = np.flatnonzero(usable)
    if len(rows) == 0:
        return rows
    keys = [_as_integers(columns[name][rows]) for name in ("user", "bs", "device")]
    keys += [*columns["user_xyz"][rows].T, *columns["bs_xyz"][rows].T, columns["gain_db"][rows]]
    # Equal rows have equal hashes: sorting one column leaves few rows to compare in all.
    hashes = _hashes(keys)
    order = np.argsort(hashes)
    twin = np.append(False, np.diff(hashes[order]) == 0)
    twin[:-1] |= twin[1:]
    few = np.sort(order[twin])
    keys = [key[few] for key in keys]
    order = np.lexsort(keys)  # stable, so the earliest of equal rows comes first
    same = np.ones(max(len(few) - 1, 0), dtype=bool)
    for key in keys:
        same &= key[order[1:]] == key[order[:-1]]
    return np.sort(rows[few[order[1:][same]]])


def _as_integers(ids: Array) -> Array:
    return ids if ids.dtype.kind in "iu" else np.unique(ids, return_inverse=True)[1]


def _hashes(keys: list[Array]) -> NDArray[np.uint64]:
    """A number for each row that rows equal in every key share."""
    result = np.zeros(len(keys[0]), dtype=np.uint64)
    for key in keys:
        result ^= (key + 0.0).view(np.uint64)  # + 0.0: −0 equals 0
        result *= np.uint64(0x9E3779B97F4A7C15)
        result ^= result >> np.uint64(29)
    return result


def describe(bad: list[BadRows], total: int, row: str = "row", first: int = 0) -> str:
    """One line that says which rows are wrong, why, and what to do; see `listed`."""
    return listed(bad, total, row, first) + on_bad_hint()


def on_bad_hint() -> str:
    """How a message about bad rows ends."""
    return "; mend them, or leave them out with on_bad='drop'"


def listed(bad: list[BadRows], total: int, row: str = "row", first: int = 0) -> str:
    """One line that says which rows are wrong, and why.

    ``row`` is what the reader calls a row, ``first`` the number of the first one.
    """
    count = sum(len(problem.rows) for problem in bad)
    parts = []
    for problem in bad:
        shown = ", ".join(str(number + first) for number in problem.rows[:_ROWS_SHOWN])
        more = f" and {len(problem.rows) - _ROWS_SHOWN} more" * (len(problem.rows) > _ROWS_SHOWN)
        parts.append(f"{problem.reason} ({row} {shown}{more})")
    return f"{count} of {total} rows cannot be used: {'; '.join(parts)}"


def _file_kind(path: Path) -> Literal["csv", "parquet"]:
    ending = path.suffix.lower()
    if ending not in (".csv", ".parquet"):
        raise DataError(f"{path}: measurements are kept as .csv or .parquet")
    return "csv" if ending == ".csv" else "parquet"


def _frozen(values: Array) -> Array:
    copy = np.array(values, order="C")
    copy.flags.writeable = False
    return copy


def _of_shape(name: str, values: Array, shape: tuple[int, ...]) -> Array:
    if values.shape != shape:
        raise DataError(f"{name} has shape {values.shape}; {shape[0]} gains need {shape}")
    return values
