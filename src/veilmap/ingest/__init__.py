"""Measurements out of files of any shape, with an account of every row."""

from veilmap.ingest.checking import Check, check
from veilmap.ingest.ends import Stations
from veilmap.ingest.loading import load, load_crowd
from veilmap.ingest.options import Options
from veilmap.ingest.readers import Reading, read, read_measurements, read_stations

__all__ = [
    "Check",
    "Options",
    "Reading",
    "Stations",
    "check",
    "load",
    "load_crowd",
    "read",
    "read_measurements",
    "read_stations",
]
