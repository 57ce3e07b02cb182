"""Files are read back with the tools that people use: GDAL through rasterio, xarray, pyproj."""

import csv
import json
import subprocess
import sys

import numpy as np
import pyogrio
import pyproj
import pytest
import rasterio
import xarray
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.image import imread
from rasterio.warp import transform

import veilmap as vm
from refusals import refused
from veilmap import export, layers
from veilmap._util import seals
from veilmap.errors import ConfigurationError, DataError, MissingExtraError
from veilmap.export.contours import contour_lines, round_levels

UTM = "EPSG:32633"
GRID = vm.Grid(3.0, (8, 10), (500_000.0, 5_400_000.0), UTM)
LOCAL = vm.Grid(3.0, (8, 10), (100.0, -20.0))
BS = np.array([500_004.0, 5_400_017.0, 18.0])


def numbered(grid=GRID):
    """Every cell has a value of its own; one has none."""
    values = np.arange(grid.cells, dtype=float).reshape(grid.shape) - 100
    values[2, 3] = np.nan
    return layers.Layer("gain", values, "dB", "some gain", grid, 1.5, {"base_station_m": [1.0, 2]})


def in_system(crs):
    return vm.Grid(3.0, (8, 10), crs=crs)


def a_map():
    return vm.RadioMap(GRID, np.random.default_rng(0).uniform(-5, 25, GRID.shape))


def test_gdal_finds_every_cell_of_a_geotiff_at_its_place(tmp_path):
    layer = numbered()
    written = export.write(layer, tmp_path / "gain.tif")
    assert written == export.Written((tmp_path / "gain.tif",), ())
    with rasterio.open(tmp_path / "gain.tif") as raster:
        assert raster.crs == rasterio.crs.CRS.from_epsg(32633)
        assert raster.transform.e < 0  # north up
        found = np.array(list(raster.sample(GRID.centres)))[:, 0]
        np.testing.assert_array_equal(found, layer.values.ravel())
        # A place known by its latitude and longitude, moved to the map by GDAL.
        longitude, latitude = pyproj.Transformer.from_crs(
            UTM, "EPSG:4326", always_xy=True
        ).transform(500_000 + 3 * 7.2, 5_400_000 + 3 * 5.8)
        (x,), (y,) = transform("EPSG:4326", raster.crs, [longitude], [latitude])
        assert next(raster.sample([(x, y)]))[0] == layer.values[5, 7]


def test_a_geotiff_knows_its_unit_and_what_has_no_value(tmp_path):
    export.write(numbered(), tmp_path / "gain.tif")
    with rasterio.open(tmp_path / "gain.tif") as raster:
        assert np.isnan(raster.nodata)
        assert raster.units == ("dB",)
        assert raster.descriptions == ("some gain",)
        assert raster.profile["compress"] == "deflate"
        assert raster.block_shapes == [(256, 256)]
        assert raster.overviews(1) == []
        assert raster.tags()["base_station_m"] == "1 2"
        assert raster.tags()["altitude_m"] == "1.5"
        assert raster.read(1, masked=True).mask.sum() == 1


@pytest.mark.parametrize("categories", [False, True])
def test_a_geotiff_larger_than_a_tile_has_overviews(tmp_path, categories):
    grid = vm.Grid(1.0, (300, 600), crs=UTM)
    values = np.random.default_rng(0).integers(5, size=grid.shape).astype(float)
    layer = layers.Layer("some", values, "1", "some", grid, categories=categories)
    export.write(layer, tmp_path / "some.tif")
    with rasterio.open(tmp_path / "some.tif") as raster:
        assert raster.overviews(1) == [2, 4]
        np.testing.assert_array_equal(raster.read(1), np.flipud(values))
    with rasterio.open(tmp_path / "some.tif", overview_level=0) as raster:
        small = raster.read(1)
        assert small.shape == (150, 300)
        assert (small == small.round()).all() == categories
    assert [path.name for path in tmp_path.iterdir()] == ["some.tif"]


def test_netcdf_comes_back_with_coordinates_units_and_system(tmp_path):
    layer = numbered()
    export.write(layer, tmp_path / "gain.nc")
    with xarray.open_dataset(tmp_path / "gain.nc", engine="scipy") as dataset:
        np.testing.assert_array_equal(dataset["gain"], layer.values)
        np.testing.assert_array_equal(dataset["x"], GRID.x)
        np.testing.assert_array_equal(dataset["y"], GRID.y)
        assert dataset["gain"].attrs["units"] == "dB"
        assert dataset["gain"].attrs["altitude_m"] == 1.5
        assert dataset.attrs["Conventions"] == "CF-1.8"
        mapping = dataset[dataset["gain"].attrs["grid_mapping"]]
        assert pyproj.CRS.from_cf(mapping.attrs) == pyproj.CRS(UTM)
        assert pyproj.CRS(mapping.attrs["crs_wkt"]).to_epsg() == 32633
        assert not np.isnan(dataset["x"].attrs.get("_FillValue", 0))


def test_netcdf_without_a_system_has_no_mapping(tmp_path):
    export.write(numbered(LOCAL), tmp_path / "gain.nc")
    with xarray.open_dataset(tmp_path / "gain.nc", engine="scipy") as dataset:
        assert "grid_mapping" not in dataset["gain"].attrs
        assert set(dataset.data_vars) == {"gain"}


def test_a_picture_lies_where_its_world_file_says(tmp_path):
    layer = numbered()
    written = export.write(layer, tmp_path / "gain.png")
    assert [path.name for path in written.files] == [
        "gain.png",
        "gain-legend.png",
        "gain.pgw",
        "gain.png.aux.xml",
    ]
    assert sorted(tmp_path.iterdir()) == sorted(written.files)
    numbers = [float(line) for line in (tmp_path / "gain.pgw").read_text().splitlines()]
    assert numbers == [3.0, 0.0, 0.0, -3.0, 500_001.5, 5_400_022.5]
    with rasterio.open(tmp_path / "gain.png") as raster:
        assert raster.crs.to_epsg() == 32633
        assert raster.bounds == (500_000, 5_400_000, 500_030, 5_400_024)
    pixels = imread(tmp_path / "gain.png")
    assert pixels.shape == (8, 10, 4)
    assert (pixels[..., 3] == 0).sum() == 1
    assert pixels[8 - 1 - 2, 3, 3] == 0  # the cell without a value, counted from the north
    brightness = pixels[..., :3].sum(axis=2)
    assert brightness[0, -1] > brightness[-1, 0]  # values grow to the north-east
    assert imread(tmp_path / "gain-legend.png").std() > 0


@pytest.mark.parametrize("servers", [1, 5, 30])
def test_pictures_of_servers_have_one_colour_each(tmp_path, servers):
    values = (np.arange(80) % servers * 2.0).reshape(8, 10)
    layer = layers.Layer("best_server", values, "1", "server", LOCAL, categories=True)
    written = export.write(layer, tmp_path / "server.png")
    assert len(written.files) == 3  # no coordinate system to tell
    pixels = imread(tmp_path / "server.png").reshape(-1, 4)
    assert len(np.unique(pixels, axis=0)) == servers


@pytest.mark.parametrize("value", [np.nan, 3.0])
def test_layers_without_any_difference_are_drawn_and_said_to_have_no_lines(tmp_path, value):
    layer = layers.Layer("flat", np.full(LOCAL.shape, value), "m", "flat", LOCAL)
    export.write(layer, tmp_path / "flat.png")
    notes = export.write(layer, tmp_path / "flat.geojson").notes
    assert "no line at any level" in notes[-1]


@given(
    slope=st.tuples(st.floats(-5, 5), st.floats(-5, 5)).filter(lambda s: max(map(abs, s)) > 0.1),
    part=st.floats(0.05, 0.95),
)
def test_contours_of_a_plane_lie_where_it_has_that_level(slope, part):
    def plane(xy):
        return (xy - LOCAL.origin) @ np.array(slope) - 90

    values = plane(LOCAL.centres)
    level = values.min() + part * np.ptp(values)
    layer = layers.Layer("plane", values.reshape(LOCAL.shape), "dB", "a plane", LOCAL)
    (line,) = contour_lines(layer, [level])[level]
    np.testing.assert_allclose(plane(line), level, atol=1e-9)
    assert LOCAL.contains(line).all()


def test_contours_are_longitude_latitude_where_the_place_is_known(tmp_path):
    x = GRID.centres[:, 0].reshape(GRID.shape)
    layer = layers.Layer("ramp", x - 500_000, "m", "metres east", GRID)
    written = export.write(layer, tmp_path / "ramp.geojson", levels=[10.0, 20.0, 99.0])
    assert written.notes == ("no line at 99: values run from 1.5 to 28.5 m",)
    seen = pyogrio.read_info(tmp_path / "ramp.geojson")  # by GDAL
    assert (seen["crs"], seen["features"]) == ("EPSG:4326", 2)
    content = json.loads((tmp_path / "ramp.geojson").read_text())
    assert "crs" not in content
    assert "note" not in content
    assert [feature["properties"]["level"] for feature in content["features"]] == [10.0, 20.0]
    for feature in content["features"]:
        assert feature["properties"]["unit"] == "m"
        assert feature["geometry"]["type"] == "MultiLineString"
        (line,) = feature["geometry"]["coordinates"]
        assert 14.9 < line[0][0] < 15.1  # longitude first
        east, north = pyproj.Transformer.from_crs("EPSG:4326", UTM, always_xy=True).transform(
            *np.array(line).T
        )
        np.testing.assert_allclose(east, 500_000 + feature["properties"]["level"], atol=0.01)
        assert min(north) == pytest.approx(5_400_001.5, abs=0.01)
        assert max(north) == pytest.approx(5_400_022.5, abs=0.01)


def test_contours_without_a_system_are_metres_and_say_so(tmp_path):
    written = export.write(numbered(LOCAL), tmp_path / "gain.geojson", levels=[-60])
    content = json.loads((tmp_path / "gain.geojson").read_text())
    assert "local metres" in content["note"]
    assert "local metres" in content["features"][0]["properties"]["note"]
    assert "local metres" in written.notes[0]
    line = np.array(content["features"][0]["geometry"]["coordinates"][0])
    assert LOCAL.contains(line).all()


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (-112.0, -63.0, [-110, -105, -100, -95, -90, -85, -80, -75, -70, -65]),
        (0.0, 1.0, [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]),
        (3.0, 3.0, []),
        (0.0, 100.0, [10, 20, 30, 40, 50, 60, 70, 80, 90]),
    ],
)
def test_levels_are_round_and_lie_between_the_values(low, high, expected):
    assert round_levels(np.array([low, high, np.nan])) == expected


def rows_of(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def test_values_at_points_are_what_the_map_predicts(tmp_path):
    radio_map = a_map()
    (tmp_path / "points.csv").write_text(
        "name,y,x,z\nschool,5400003.5,500002.25,1.5\nfar,0,0,1\ntower,5400020,500029,30\n"
    )
    written = export.write(
        layers.gain(radio_map, BS), tmp_path / "out.csv", points=tmp_path / "points.csv"
    )
    assert written.notes == ("1 of 3 points are off the map and have no value",)
    rows = rows_of(tmp_path / "out.csv")
    assert list(rows[0]) == ["x", "y", "z", "gain_db"]
    assert [row["x"] for row in rows] == ["500002.25", "0.0", "500029.0"]
    assert rows[1]["gain_db"] == ""
    expected = radio_map.predict([[500002.25, 5400003.5, 1.5], [500029, 5400020, 30]], BS)
    assert [float(rows[row]["gain_db"]) for row in (0, 2)] == expected.tolist()


def test_points_may_be_latitudes_and_longitudes(tmp_path):
    radio_map = a_map()
    longitude, latitude = pyproj.Transformer.from_crs(UTM, "EPSG:4326", always_xy=True).transform(
        500_013.0, 5_400_005.0
    )
    points = tmp_path / "points.csv"
    points.write_text(f"latitude,longitude\n{latitude!r},{longitude!r}\n")
    layer = layers.gain(radio_map, BS, altitude=2.0)
    assert export.write(layer, tmp_path / "out.csv", points=points).notes == ()
    (row,) = rows_of(tmp_path / "out.csv")
    assert list(row) == ["latitude", "longitude", "z", "gain_db"]
    expected = radio_map.predict([[500_013.0, 5_400_005.0, 2.0]], BS)[0]
    assert float(row["gain_db"]) == pytest.approx(expected, abs=1e-4)
    export.write(layers.obstacle_heights(radio_map), tmp_path / "heights.csv", points=points)
    (row,) = rows_of(tmp_path / "heights.csv")
    assert float(row["heights_m"]) == radio_map.heights[1, 4]
    assert "z" not in row


@pytest.mark.parametrize(
    ("text", "crs", "named"),
    [
        ("a,b\n1,2\n", UTM, ["x", "y", "latitude", "longitude"]),
        ("x,y\n1,2\n3,\n", UTM, ["line 3", "y"]),
        ("x,y\n1,two\n", UTM, ["line 2", "y", "'two'"]),
        ("latitude,longitude\n48,15\n", None, ["coordinate system"]),
        ("latitude,longitude\n148,15\n", UTM, ["latitude", "±90"]),
    ],
)
def test_wrong_points_are_one_clear_line(tmp_path, text, crs, named):
    (tmp_path / "points.csv").write_text(text)
    layer = numbered(in_system(crs))
    with refused(DataError, tmp_path / "points.csv", *named):
        export.write(layer, tmp_path / "out.csv", points=tmp_path / "points.csv")
    assert not (tmp_path / "out.csv").exists()


def servers():
    return layers.Layer("server", np.zeros(LOCAL.shape), "1", "server", LOCAL, categories=True)


def narrow():
    grid = vm.Grid(3.0, (1, 5))
    return layers.Layer("gain", np.zeros(grid.shape), "dB", "narrow", grid)


@pytest.mark.parametrize(
    ("layer", "name", "options", "named"),
    [
        (numbered(), "gain.jpg", {}, ["gain.jpg", ".tif, .nc, .png, .geojson, .csv"]),
        (numbered(), "gain", {}, ["gain", ".tif"]),
        (numbered(), "gain.csv", {}, ["gain.csv", "(points)"]),
        (numbered(), "gain.csv", {"points": "gain.csv"}, ["gain.csv", "file of points"]),
        (numbered(), "gain.tif", {"levels": [1.0]}, ["gain.tif", "levels", ".geojson"]),
        (numbered(), "gain.tif", {"points": "p.csv"}, ["gain.tif", "points", ".csv"]),
        (numbered(), "gain.geojson", {"levels": [np.inf]}, ["level", "inf"]),
        (servers(), "server.geojson", {}, ["server", "contour lines"]),
        (narrow(), "gain.geojson", {}, ["2 × 2 cells", "(1, 5)"]),
        (numbered(in_system("EPSG:1")), "a.tif", {}, ["'EPSG:1'"]),
        (numbered(in_system("EPSG:1")), "a.nc", {}, ["'EPSG:1'"]),
        (numbered(in_system("EPSG:4326")), "a.nc", {}, ["EPSG:4326", "degrees"]),
        (numbered(in_system("EPSG:4326")), "a.tif", {}, ["EPSG:4326", "degrees"]),
        (numbered(), "folder.tif", {}, ["folder.tif", "folder"]),
    ],
)
def test_wrong_use_is_one_clear_line_and_writes_nothing(
    tmp_path, monkeypatch, layer, name, options, named
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.tif").mkdir()
    with refused(ConfigurationError, *named):
        export.write(layer, name, **options)
    assert [path.name for path in tmp_path.iterdir()] == ["folder.tif"]


def test_points_that_are_not_there_are_named(tmp_path):
    with refused(DataError, tmp_path / "none.csv"):
        export.write(numbered(), tmp_path / "gain.csv", points=tmp_path / "none.csv")
    assert list(tmp_path.iterdir()) == []


def test_a_picture_whose_legend_fails_leaves_nothing(tmp_path, monkeypatch):
    def fails(*_):
        raise OSError("disk full")

    monkeypatch.setattr("veilmap.figures.rasters.save_layer_legend", fails)
    with refused(DataError, tmp_path / "gain.png.aux.xml", "disk full"):
        export.write(numbered(), tmp_path / "gain.png")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("module", "name"), [("rasterio", "a.tif"), ("pyproj", "a.nc"), ("pyproj", "a.geojson")]
)
def test_what_is_not_installed_is_named(tmp_path, monkeypatch, module, name):
    monkeypatch.setitem(sys.modules, module, None)
    with refused(MissingExtraError, module, extra="geo"):
        export.write(numbered(), tmp_path / name)
    assert list(tmp_path.iterdir()) == []


_ON_A_FULL_DISK = """
import resource, signal, sys
import numpy as np, veilmap as vm
from veilmap import export, layers
layer = layers.obstacle_heights(vm.RadioMap(vm.Grid(3.0, (100, 100)), np.arange(1e4) % 30))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)
try:
    export.write(layer, sys.argv[1])
except vm.VeilmapError as error:
    sys.exit(str(error))
"""


@pytest.mark.parametrize("ending", ["tif", "nc", "png", "geojson"])
@pytest.mark.parametrize("room", [0, 500])
def test_on_a_full_disk_the_good_file_stays(tmp_path, ending, room):
    export.write(layers.obstacle_heights(a_map()), tmp_path / f"a.{ending}")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    command = [sys.executable, "-c", _ON_A_FULL_DISK, str(tmp_path / f"a.{ending}"), str(room)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert f"cannot write {tmp_path / 'a'}" in done.stderr
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("ending", ["tif", "nc", "geojson"])
def test_exports_carry_a_checksum(tmp_path, ending):
    export.write(layers.obstacle_heights(a_map()), tmp_path / f"a.{ending}")
    whole = (tmp_path / f"a.{ending}").read_bytes()
    seals.check(whole, "a")
    with refused(DataError):
        seals.check(whole[:-1] + bytes([whole[-1] ^ 1]), "a")
