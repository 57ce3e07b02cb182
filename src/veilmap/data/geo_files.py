"""Files for GDAL, each opened as what its ending says and nothing else; the only pyogrio here.

GDAL finds out by itself what a file is: what is named city.geojson may be a virtual file that has
it fetch addresses and read other files of this host. Here one driver is asked, the first bytes
must be its, files beside it are not looked for, and there is no network.
"""

import re
import sqlite3
import warnings
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from veilmap._util import files, limits, reading
from veilmap._util.arrays import Floats
from veilmap._util.extras import require
from veilmap.data.table_files import unreadable_as
from veilmap.errors import ConfigurationError, DataError

_SQLITE = b"SQLite format 3\0"
_GEOPACKAGE = b"GPKG", b"GP10", b"GP11"  # the application's id in the header of the database
_ID_AT, _HEADER = 68, 100
_TIFF = b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"
_BLANK = b" \t\r\n"

# What a table may be: a spatial index, but no other module, which might read other files, and
# nothing that is computed, which might never end.
_INDEX = re.compile(r'create virtual table "?\w+"? using "?rtree"? ?\([\w", ]*\)', re.IGNORECASE)
_COMPUTED = re.compile(r"\bvirtual\b|\bgenerated\b|\bas\s*\(", re.IGNORECASE)

_NO_NETWORK = {
    "CPL_VSIL_CURL_ALLOWED_FILENAME": "none",
    "OGR_SQLITE_ALLOW_EXTERNAL_ACCESS": "NO",
    "OGR_SQLITE_LOAD_EXTENSIONS": "",
}
_ALONE = {"GDAL_DISABLE_READDIR_ON_OPEN": "EMPTY_DIR", "GDAL_PAM_ENABLED": "NO"}


@dataclass(frozen=True)
class Shapes:
    """A layer of a GeoJSON or GeoPackage file: its columns, a shape a row, and its system."""

    columns: Any  # a pyarrow table
    geometry: str  # the column of shapes, as WKB; there may be none of that name
    crs: str | None
    warned: tuple[str, ...]


def layers_of(path: Path) -> list[str]:
    """The layers of a GeoPackage file, or the one of a GeoJSON file."""
    with _shapes(path) as (pyogrio, source):
        return [str(name) for name, _ in pyogrio.list_layers(source)]


def chosen_layer(path: Path, layer: str | None) -> str:
    """The layer of that name, or the only one."""
    names = layers_of(path)
    if layer is None and len(names) == 1:
        return names[0]
    if layer is not None and layer in names:
        return layer
    problem = "several layers" if layer is None else f"no layer {layer!r}"
    shown = files.printable(", ".join(names))
    raise ConfigurationError(f"{path} has {problem}; choose layer from {shown}", "layer")


def fields_of(path: Path, layer: str) -> list[str]:
    """The columns of a layer, without its shapes."""
    with _shapes(path, layer) as (pyogrio, source):
        return [str(name) for name in pyogrio.read_info(source, layer=layer)["fields"]]


def read_shapes(path: Path, layer: str, columns: Sequence[str] | None = None) -> Shapes:
    """A layer, all of it or some columns."""
    with _shapes(path, layer) as (pyogrio, source), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        about, table = pyogrio.raw.read_arrow(source, layer=layer, columns=columns)
        table.validate(full=True)  # text may be damaged
    warned = dict.fromkeys(" ".join(str(one.message).split()) for one in caught)
    return Shapes(table, about["geometry_name"] or "wkb_geometry", about["crs"], tuple(warned))


def read_raster(path: Path) -> tuple[Floats, Any, Any]:
    """The first band of a GeoTIFF, NaN where it has no value, its transform and its system."""
    require("rasterio", f"{path}: reading a GeoTIFF")
    import rasterio

    with reading.opened(path, limits.FILE_BYTES) as file:
        if file.read(4) not in _TIFF:
            raise DataError(f"{path} cannot be read as a GeoTIFF: it is something else")
        size = file.seek(0, 2)
    with (
        unreadable_as(path, "a GeoTIFF"),
        rasterio.Env(**_NO_NETWORK, **_ALONE),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore", rasterio.errors.NotGeoreferencedWarning)
        with rasterio.open(path.absolute(), driver="GTiff") as raster:
            unpacked, most = raster.width * raster.height * 8, limits.unpacked(size)
            if unpacked > most:
                raise DataError(
                    f"{path} has {raster.width} x {raster.height} pixels, which would take"
                    f" {unpacked:,} bytes, more than {most:,}"
                )
            values = raster.read(1, masked=True).astype(np.float64).filled(np.nan)
            return values, raster.transform, raster.crs


@contextmanager
def _shapes(path: Path, layer: str | None = None) -> Iterator[tuple[Any, str]]:
    """Pyogrio, and by which name it opens a file with the one driver; errors become one line."""
    require("pyogrio", f"{path}: reading {path.suffix} files")
    import pyogrio.raw

    is_package = path.suffix.lower() == ".gpkg"
    if is_package:
        _check_package(path, layer)
    else:
        _check_geojson(path)
    name = str(path.absolute())
    with unreadable_as(path, "GeoPackage" if is_package else "GeoJSON"), _without_network(pyogrio):
        yield pyogrio, f'GPKG:"{name}"' if is_package else f"GeoJSON:{name}"


@contextmanager
def _without_network(pyogrio: Any) -> Iterator[None]:
    """GDAL's options are the process's: they are put back as they were."""
    before = {name: pyogrio.get_gdal_config_option(name) for name in _NO_NETWORK}
    pyogrio.set_gdal_config_options(_NO_NETWORK)
    try:
        yield
    finally:
        pyogrio.set_gdal_config_options(before)


def _check_geojson(path: Path) -> None:
    """Refuse what does not begin as JSON does."""
    with reading.opened(path, limits.SHAPES_BYTES) as file:
        if not file.read(1 << 16).removeprefix(b"\xef\xbb\xbf").lstrip(_BLANK).startswith(b"{"):
            raise DataError(f"{path} cannot be read as GeoJSON: it is something else")


def _check_package(path: Path, layer: str | None) -> None:
    """Refuse a database that is no GeoPackage, or whose tables are more than rows."""
    with reading.opened(path, limits.SHAPES_BYTES) as file:
        header = file.read(_HEADER)
    if '"' in str(path.absolute()):
        raise DataError(f"{path}: the path of a GeoPackage file must not hold a quotation mark")
    if not header.startswith(_SQLITE) or header[_ID_AT : _ID_AT + 4] not in _GEOPACKAGE:
        raise DataError(f"{path} cannot be read as GeoPackage: it is something else")
    address = f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(address, uri=True)) as database:
            tables = database.execute("SELECT type, name, sql FROM sqlite_master").fetchall()
    except (sqlite3.Error, ValueError, OverflowError) as error:
        raise DataError(f"{path} cannot be read as GeoPackage: {error}") from None
    for kind, name, text in tables:
        plain = _INDEX.fullmatch(str(text)) or not _COMPUTED.search(str(text))
        if (kind == "table" and not plain) or (kind == "view" and name == layer):
            raise DataError(
                f"{path}: {files.printable(str(name), 50)} is computed when it is read; copy it"
                " into a plain table first"
            )
