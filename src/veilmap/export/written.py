"""What an export gave."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Written:
    """What an export gave.

    Attributes
    ----------
    files : tuple of Path
        The file that was asked for, then those that belong to it.
    notes : tuple of str
        What a reader should know, such as points that have no value.
    """

    files: tuple[Path, ...]
    notes: tuple[str, ...] = ()
