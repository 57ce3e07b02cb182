"""Which kind of file a table is in."""

from pathlib import Path

from veilmap import _files
from veilmap.errors import VeilmapError
from veilmap.reading._raw import TableFile

_TEXT = (".csv", ".tsv", ".txt")


def opened(path: Path, encoding: str = "utf-8", layer: str | None = None) -> TableFile:
    """The table in a file, by the file's ending."""
    path = _files.existing(path)
    ending = path.suffix.lower()
    if ending in _TEXT:
        from veilmap.reading._csv import CsvFile

        return CsvFile(path, encoding)
    if ending == ".parquet":
        from veilmap.reading._parquet import ParquetFile

        return ParquetFile(path)
    if ending == ".gpkg":
        from veilmap.reading._geopackage import GeoPackageFile

        return GeoPackageFile(path, layer)
    raise VeilmapError(f"{path}: tables are read from {', '.join(_TEXT)}, .parquet and .gpkg")
