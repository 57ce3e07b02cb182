"""Which kind of file a table is in."""

from pathlib import Path

from veilmap._util import files
from veilmap.errors import DataError
from veilmap.ingest._raw import TableFile

_TEXT = (".csv", ".tsv", ".txt")


def opened(path: Path, encoding: str = "utf-8", layer: str | None = None) -> TableFile:
    """The table in a file, by the file's ending."""
    path = files.existing(path)
    ending = path.suffix.lower()
    if ending in _TEXT:
        from veilmap.ingest._csv import CsvFile

        return CsvFile(path, encoding)
    if ending == ".parquet":
        from veilmap.ingest._parquet import ParquetFile

        return ParquetFile(path)
    if ending == ".gpkg":
        from veilmap.ingest._geopackage import GeoPackageFile

        return GeoPackageFile(path, layer)
    raise DataError(f"{path}: tables are read from {', '.join(_TEXT)}, .parquet and .gpkg")
