"""Measurements out of files of any shape, with an account of every row."""

from veilmap.ingest.checking import Check, check
from veilmap.ingest.options import Options
from veilmap.ingest.readers import read, read_measurements
from veilmap.ingest.results import Reading, Stations

__all__ = ["Check", "Options", "Reading", "Stations", "check", "read", "read_measurements"]
