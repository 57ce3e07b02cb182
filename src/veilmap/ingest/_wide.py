"""Tables with a column of values for each base station."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

from veilmap.errors import DataError
from veilmap.ingest._names import listed, require
from veilmap.ingest._raw import TableFile


def columns(file: TableFile, wanted: Sequence[str]) -> list[str]:
    """The columns that names or patterns such as "site-*" mean, in the file's order."""
    chosen = set()
    for pattern in wanted:
        matching = {name for name in file.names if name == pattern or fnmatchcase(name, pattern)}
        if not matching:
            raise DataError(
                f"{file.path} has no column {pattern!r} for a base station;"
                f" it has {listed(file.names)}"
            )
        chosen |= matching
    for name in chosen:
        require(file, name, "a base station")
    return [name for name in file.names if name in chosen]
