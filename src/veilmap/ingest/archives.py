"""Tables inside compressed files, as apps and databases give them out."""

import gzip
import zipfile
import zlib
from pathlib import Path, PurePosixPath

from veilmap.errors import ConfigurationError, DataError
from veilmap.ingest import exporters
from veilmap.ingest.csv_files import CsvFile
from veilmap.ingest.problems import FixableError

TEXT = (".csv", ".tsv", ".txt")
# What a phone's log never reaches, so that a small file cannot fill the memory.
_LARGEST = 4 << 30


def of_gzip(path: Path, encoding: str | None) -> CsvFile:
    """The table in a .csv.gz file."""
    try:
        with gzip.open(path) as file:
            content = file.read(_LARGEST + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read as gzip: {error}") from None
    _require_size(path, len(content))
    return CsvFile(path, encoding, content)


def of_zip(path: Path, encoding: str | None, wanted: str | None) -> CsvFile:
    """The table in a .zip file: the one of this name, or of a known exporter, or the only one."""
    try:
        with zipfile.ZipFile(path) as archive:
            tables = [one for one in archive.infolist()
                      if PurePosixPath(one.filename).suffix.lower() in TEXT]  # fmt: skip
            found: dict[str, CsvFile] = {}
            for one in tables:
                _require_size(path, one.file_size)
                found[one.filename] = CsvFile(path, encoding, archive.read(one))
    except (OSError, zipfile.BadZipFile, zlib.error, RuntimeError, NotImplementedError) as error:
        raise DataError(f"{path} cannot be read as ZIP: {error}") from None
    names = list(found)
    if wanted is not None:
        if wanted not in found:
            raise ConfigurationError(
                f"{path} has no table {wanted!r}; choose layer from {', '.join(names)}", "layer"
            )
        return found[wanted]
    known = [name for name in names if exporters.of_header(found[name].names)]
    choice = known or names
    if not choice:
        raise DataError(f"{path} holds no {', '.join(TEXT)} file")
    if len(choice) > 1:
        raise FixableError(
            f"{path} holds {len(choice)} tables; choose layer from {', '.join(choice)}",
            "layer",
            layer=choice[0],
        )
    return found[choice[0]]


def _require_size(path: Path, size: int) -> None:
    if size > _LARGEST:
        raise DataError(f"{path} holds more than {_LARGEST >> 30} GB; unpack it and take a part")
