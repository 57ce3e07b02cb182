"""Measurements out of files of any shape, with an account of every row."""

from veilmap.ingest.checking import Check, check
from veilmap.ingest.ends import Stations
from veilmap.ingest.options import Options
from veilmap.ingest.readers import Reading, read, read_measurements, read_stations

__all__ = [
    "Check",
    "Options",
    "Reading",
    "Stations",
    "check",
    "read",
    "read_measurements",
    "read_stations",
]
