"""Measurements out of files of any shape, with an account of every row."""

from veilmap.reading.checking import Check, check
from veilmap.reading.options import Options
from veilmap.reading.readers import read, read_measurements
from veilmap.reading.results import LeftOut, Reading, Stations

__all__ = [
    "Check",
    "LeftOut",
    "Options",
    "Reading",
    "Stations",
    "check",
    "read",
    "read_measurements",
]
