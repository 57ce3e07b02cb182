"""The version of veilmap."""

__version__ = "0.6.0"
