"""Measurements out of whatever file holds them: one of ours, or a raw one."""

from collections.abc import Callable
from pathlib import Path

from veilmap._util import files
from veilmap.data.folders import MeasurementFolder, open_crowd
from veilmap.data.measurements import Measurements, is_saved
from veilmap.ingest.options import Options
from veilmap.ingest.readers import Reading, read

Told = Callable[[Reading], None]


def load(path: str | Path, *, told: Told | None = None) -> Measurements:
    """The measurements in a file that `Measurements.save` wrote, or in a raw file.

    Of a raw file, ``told`` is called with the account of what was found out and left out.
    """
    file = files.existing(Path(path))
    if is_saved(file):
        return Measurements.load(file)
    reading = read(file, Options())
    if told is not None:
        told(reading)
    return reading.measurements


def load_crowd(
    path: str | Path,
    *,
    on_part: Callable[[int, int], None] | None = None,
    told: Told | None = None,
) -> Measurements | MeasurementFolder:
    """The same, or the crowd in a folder of files."""
    if Path(path).is_dir():
        return open_crowd(path, on_part=on_part)
    return load(path, told=told)
