"""A participant's own file as readings of a survey's base stations."""

import csv
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from veilmap import ingest
from veilmap._util import files
from veilmap.data.measurements import BadRows, Measurements, is_saved
from veilmap.errors import ConfigurationError
from veilmap.ingest.exporters import Quantity
from veilmap.ingest.readers import opened
from veilmap.surveys.contribution import Contribution, contribution
from veilmap.surveys.design import Survey


def readings_of(
    path: Path,
    survey: Survey,
    *,
    user: str | None = None,
    columns: Mapping[str, str] | None = None,
    quantity: Quantity = "gain",
    tx_power_dbm: float = 0.0,
) -> tuple[Measurements, tuple[BadRows, ...]]:
    """One person's measurements of a survey's base stations, and the rows that are left out.

    Positions are in degrees, or in the survey's metres. A file of several people needs ``user``,
    the one whose measurements they are: the promise is for one person.
    """
    named = columns or {}
    whose = "user" in named or "user" in opened(path).names
    if user is not None and not whose:
        raise ConfigurationError(f"{path} has no column user to find {user} in", "user")
    reading = _read(
        path, survey, columns=named, quantity=quantity, tx_power_dbm=tx_power_dbm,
        user_per=None if whose else "row",
    )  # fmt: skip
    data = reading.measurements
    if not whose:
        return data, reading.left_out
    people = np.unique(data.user.astype(np.str_))
    if user is None and len(people) > 1:
        some = ", ".join(people[:3])
        raise ConfigurationError(
            f"{path} has measurements of {len(people)} people ({some}, …): name whose to send as"
            " user",
            "user",
        )
    if user is not None:
        own = data.user.astype(np.str_) == user
        if not own.any():
            raise ConfigurationError(f"{path} has no usable row of user {user}", "user")
        data = data.select(own)
    return data, reading.left_out


def everybodys(
    path: Path, survey: Survey, *, told: Callable[[ingest.Reading], None] | None = None
) -> Measurements:
    """Measurements of a survey's base stations by many people, out of a raw file or one of ours.

    Of a raw file, ``told`` is called with the account of what was found out and left out.
    """
    if is_saved(files.existing(path)):
        return Measurements.load(path)
    reading = _read(path, survey)
    if told is not None:
        told(reading)
    return reading.measurements


def _read(path: Path, survey: Survey, **options: Any) -> ingest.Reading:
    """A raw file, with the base stations and in the metres of a survey."""
    with tempfile.TemporaryDirectory() as folder:
        stations = Path(folder) / "stations.csv"
        _write_stations(survey, stations)
        options |= {"crs": survey.grid.crs, "stations": stations, "on_bad": "drop"}
        return ingest.read(path, ingest.Options(**options))


def contributed(survey: Survey, data: Measurements) -> Contribution:
    """What one person's measurements add to the sum."""
    return contribution(survey, data.user_xyz[:, :2], data.bs, data.gain_db)


def _write_stations(survey: Survey, path: Path) -> None:
    """The survey's base stations as a file that tables are read with."""
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["bs", "bs_x", "bs_y", "bs_z"])
        table.writerows([own.id, own.x, own.y, own.z] for own in survey.stations)
