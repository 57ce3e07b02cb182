"""Measurements out of files of any shape, with an account of every row."""

from veilmap.ingest.checking import Check, check
from veilmap.ingest.options import Options
from veilmap.ingest.readers import read, read_measurements
from veilmap.ingest.results import LeftOut, Reading, Stations

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
