"""Maps, shapes and tables that somebody else has made: nothing is fetched, opened or inflated."""

import json
import sqlite3
import threading
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pyogrio.raw
import pytest
import rasterio
import shapely

import veilmap as vm
from refusals import refused
from tablefiles import links
from veilmap._util import limits
from veilmap.data import geo_files, table_files
from veilmap.errors import DataError
from veilmap.ingest import read_measurements
from veilmap.scenes.buildings import heights

GRID = vm.Grid(3.0, (20, 20), crs="EPSG:32633")
SQUARE = [[[15.0, 0.0], [15.0, 0.001], [15.001, 0.001], [15.0, 0.0]]]


@pytest.fixture
def asked():
    """What a server was asked for; its address is the first entry."""
    requests = []

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self):
            requests.append(self.path)
            self.send_error(404)

        do_HEAD = do_GET  # noqa: N815

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        requests.append(f"http://127.0.0.1:{server.server_port}")
        yield requests
        server.shutdown()
        thread.join()


def vector_vrt(source):
    layer = f'<OGRVRTLayer name="x"><SrcDataSource>{source}</SrcDataSource></OGRVRTLayer>'
    return f"<OGRVRTDataSource>{layer}</OGRVRTDataSource>"


def raster_vrt(source):
    band = f"<SimpleSource><SourceFilename>{source}</SourceFilename></SimpleSource>"
    band = f'<VRTRasterBand dataType="Float32" band="1">{band}</VRTRasterBand>'
    return f'<VRTDataset rasterXSize="2" rasterYSize="2">{band}</VRTDataset>'


def geojson(path, **properties):
    shape = {"type": "Polygon", "coordinates": SQUARE}
    feature = {"type": "Feature", "properties": {"height": 3, **properties}, "geometry": shape}
    path.write_text(json.dumps({"type": "FeatureCollection", "features": [feature]}))
    return path


def package(path, *statements):
    """A GeoPackage of one point, and what somebody has added to its database."""
    point, gain = np.array([shapely.to_wkb(shapely.Point(1, 2))]), np.array([3.0])
    pyogrio.raw.write(
        path, geometry=point, field_data=[gain], fields=["gain"], geometry_type="Point",
        crs="EPSG:32633", driver="GPKG", layer="walk",
    )  # fmt: skip
    with closing(sqlite3.connect(path)) as database, database:
        for statement in statements:
            database.execute(statement)
    return path


@pytest.mark.parametrize("name", ["a.geojson", "a.json", "a.gpkg", "a.tif"])
def test_virtual_files_are_no_files_of_another_kind(tmp_path, asked, name):
    file, local = tmp_path / name, geojson(tmp_path / "secret.geojson")
    for content in (
        vector_vrt(f"/vsicurl/{asked[0]}/a.geojson"), vector_vrt(local),
        raster_vrt(f"/vsicurl/{asked[0]}/a.tif"), f"<GDAL_WMS>{asked[0]}</GDAL_WMS>",
        f"WFS:{asked[0]}", f"<OGRWFSDataSource><URL>{asked[0]}</URL></OGRWFSDataSource>",
        f'{{"type": "gdal_streamed_alg", "command_line": "gdal vector read {local}"}}',
    ):  # fmt: skip
        file.write_text(content)
        with refused(DataError, file):
            heights(file, GRID)
        if name == "a.gpkg":
            with refused(DataError, file):
                read_measurements(file)
    assert len(asked) == 1


def test_files_beside_a_raster_are_not_opened(tmp_path, asked):
    file = tmp_path / "a.tif"
    with rasterio.open(
        file, "w", driver="GTiff", height=60, width=60, count=1, dtype="float32", crs=GRID.crs,
        transform=rasterio.Affine(*GRID.north_up),
    ) as raster:  # fmt: skip
        raster.write(np.ones((1, 60, 60), np.float32))
        raster.update_tags(ns="OVERVIEWS", OVERVIEW_FILE=f"/vsicurl/{asked[0]}/a.ovr")
    for ending in ("msk", "ovr", "aux.xml"):
        (tmp_path / f"a.tif.{ending}").write_text(raster_vrt(f"/vsicurl/{asked[0]}/{ending}"))
    assert (heights(file, GRID, outside=0) == 1).all()
    assert len(asked) == 1


def test_a_package_with_tables_that_are_computed_is_refused(tmp_path):
    file = tmp_path / "a.gpkg"
    assert geo_files.read_shapes(package(file), "walk").columns.num_rows == 1
    registered = "INSERT INTO gpkg_contents(table_name, data_type) VALUES ('v', 'attributes')"
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n"
    text = "CREATE VIRTUAL TABLE v USING VirtualText(''/etc/passwd'', utf8, 0, POINT, NONE, '':'')"
    row = f"INSERT INTO sqlite_master VALUES ('table', 'v', 'v', 0, '{text}')"
    for statements in (
        [registered, f"CREATE VIEW v AS {endless}"],
        [registered, "PRAGMA writable_schema = 1", row],
        [registered, "CREATE TABLE v(a, b GENERATED ALWAYS AS (hex(zeroblob(500000000))))"],
    ):
        file.unlink()
        package(file, *statements)
        with refused(DataError, file, "v"):
            geo_files.read_shapes(file, "v")
    # A view that nobody asks for is left alone.
    file.unlink()
    package(file, registered, f"CREATE VIEW v AS {endless}")
    assert geo_files.read_shapes(file, "walk").columns.num_rows == 1


@pytest.mark.parametrize("folder", ["a:b", "a b", "ä", "%20", "#"])
def test_paths_may_hold_any_sign(tmp_path, folder):
    (tmp_path / folder).mkdir()
    file = package(tmp_path / folder / "a.gpkg")
    assert geo_files.layers_of(file) == ["walk"]
    file = geojson(tmp_path / folder / "a.geojson", name="x")
    assert geo_files.fields_of(file, geo_files.chosen_layer(file, None)) == ["height", "name"]


def test_options_of_the_process_are_put_back(tmp_path):
    name = "CPL_VSIL_CURL_ALLOWED_FILENAME"
    pyogrio.set_gdal_config_options({name: "mine"})
    try:
        geo_files.layers_of(geojson(tmp_path / "a.geojson"))
        assert pyogrio.get_gdal_config_option(name) == "mine"
    finally:
        pyogrio.set_gdal_config_options({name: None})


def test_a_raster_that_is_much_larger_than_its_file_is_refused(tmp_path):
    with rasterio.open(
        tmp_path / "a.tif", "w", driver="GTiff", height=20_000, width=20_000, count=1,
        dtype="uint8", crs=GRID.crs, transform=rasterio.Affine(*GRID.north_up), sparse_ok=True,
    ):  # fmt: skip
        pass
    with refused(DataError, tmp_path / "a.tif", 20_000):
        heights(tmp_path / "a.tif", GRID)


# ---- Tables


def test_a_small_table_of_many_rows_is_refused_before_it_is_read(tmp_path, monkeypatch):
    file = tmp_path / "a.parquet"
    rows = pa.array(np.zeros(40_000_000, np.float32))
    pa.parquet.write_table(pa.table({"gain": rows}), file, compression="zstd")
    assert file.stat().st_size < 1 << 20
    monkeypatch.setattr(pa.parquet.ParquetFile, "read", None)
    with refused(DataError, file):
        table_files.read_parquet(file, ["gain"])


def test_a_long_text_that_is_meant_in_every_row_is_refused(tmp_path):
    numbers, long = pa.array(np.zeros(1_000_000, np.int32)), pa.array(["z" * 1_000])
    column = pa.DictionaryArray.from_arrays(numbers, long)
    for stored in (True, False):
        file = tmp_path / f"{stored}.parquet"
        pa.parquet.write_table(pa.table({"user": column}), file, store_schema=stored)
        with refused(DataError, file, "user"):
            table_files.read_parquet(file, ["user"])


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), "dictionary"])
def test_text_comes_back_as_it_is_stored(tmp_path, kind):
    values = pa.array(["north", None, "south", ""])
    values = values.dictionary_encode() if kind == "dictionary" else values.cast(kind)
    table = pa.table({"bs": values, "gain": [1, 2, 3, 4]})
    pa.parquet.write_table(table, tmp_path / "a.parquet")
    back = table_files.read_parquet(tmp_path / "a.parquet", ["bs", "gain"])
    assert back.equals(pa.parquet.read_table(tmp_path / "a.parquet"))


def test_tables_of_too_many_columns_are_refused(tmp_path):
    names = [f"c{number}" for number in range(limits.COLUMNS + 1)]
    (tmp_path / "a.csv").write_text(",".join(names) + "\n")
    pa.parquet.write_table(pa.table({name: [1.0] for name in names}), tmp_path / "a.parquet")
    for ending in ("csv", "parquet"):
        with refused(DataError, tmp_path / f"a.{ending}"):
            read_measurements(tmp_path / f"a.{ending}")


def test_measurements_are_their_owners_alone(tmp_path):
    data = {"gain_db" if name == "gain" else name: part for name, part in links().items()}
    user_xyz, bs_xyz = (
        np.column_stack([data.pop(f"{end}_{axis}") for axis in "xyz"]) for end in ("user", "bs")
    )
    measured = vm.Measurements(user_xyz=user_xyz, bs_xyz=bs_xyz, **data)
    for ending in ("csv", "parquet"):
        measured.save(tmp_path / f"a.{ending}")
        assert (tmp_path / f"a.{ending}").stat().st_mode & 0o777 == 0o600
