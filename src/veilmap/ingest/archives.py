"""Tables inside compressed files, as apps and databases give them out."""

import gzip
import zipfile
import zlib
from pathlib import Path, PurePosixPath
from typing import IO

from veilmap._util import limits, reading
from veilmap.errors import ConfigurationError, DataError
from veilmap.ingest import exporters
from veilmap.ingest.csv_files import CsvFile
from veilmap.ingest.problems import FixableError

TEXT = (".csv", ".tsv", ".txt")


def of_gzip(path: Path, encoding: str | None) -> CsvFile:
    """The table in a .csv.gz file."""
    try:
        with (
            reading.opened(path, limits.TEXT_BYTES) as packed,
            gzip.GzipFile(fileobj=packed) as file,
        ):
            content = _read(path, file)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read as gzip: {error}") from None
    return CsvFile(path, encoding, content)


def of_zip(path: Path, encoding: str | None, wanted: str | None) -> CsvFile:
    """The table in a .zip file: the one of this name, or of a known exporter, or the only one."""
    try:
        with reading.opened(path, limits.TEXT_BYTES) as packed, zipfile.ZipFile(packed) as archive:
            tables = [one for one in archive.infolist()
                      if PurePosixPath(one.filename).suffix.lower() in TEXT]  # fmt: skip
            found: dict[str, CsvFile] = {}
            for one in tables:
                with archive.open(one) as file:
                    found[one.filename] = CsvFile(path, encoding, _read(path, file))
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


def _read(path: Path, file: IO[bytes] | gzip.GzipFile) -> bytes:
    """All of a packed file, if that is no more than such a file may unpack to."""
    most = limits.unpacked(path.stat().st_size)
    content = file.read(most + 1)
    if len(content) > most:
        raise DataError(
            f"{path} unpacks to more than {most >> 20:,} MiB; unpack it and take a part"
        )
    return content
