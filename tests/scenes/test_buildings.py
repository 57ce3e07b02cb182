"""Buildings as public knowledge: files of footprints and surfaces, and what they are good for."""

import json

import numpy as np
import pytest
import shapely

import flat
import veilmap as vm
from refusals import refused
from veilmap.errors import ConfigurationError, DataError, RunFolderError
from veilmap.scenes.buildings import Building, heights, heights_of, read_footprints
from veilmap.scenes.buildings.prism import without_overlaps

pytest.importorskip("pyogrio", reason="footprints need the extra geo")
rasterio = pytest.importorskip("rasterio", reason="surfaces need the extra geo")
pyproj = pytest.importorskip("pyproj", reason="coordinates need the extra geo")

UTM = "EPSG:32633"
CORNER = (500_000.0, 5_400_000.0)
GRID = vm.Grid(5.0, (20, 30), CORNER, UTM)


def square(x, y, side):
    """A square of the grid's metres, as a ring of longitudes and latitudes."""
    east, north = CORNER[0] + x, CORNER[1] + y
    ring = [(east, north), (east + side, north), (east + side, north + side), (east, north + side)]
    to_degrees = pyproj.Transformer.from_crs(UTM, "EPSG:4326", always_xy=True)
    return [list(to_degrees.transform(*corner)) for corner in [*ring, ring[0]]]


def geojson(path, *features):
    found = [
        {
            "type": "Feature",
            "properties": properties,
            "geometry": {"type": "Polygon", "coordinates": [ring]},
        }
        for ring, properties in features
    ]
    path.write_text(json.dumps({"type": "FeatureCollection", "features": found}))
    return path


def tiff(path, values, *, cell=5.0, west=CORNER[0], north=CORNER[1] + 100.0, crs=UTM, nodata=None):
    """A raster, northern row first."""
    values = np.asarray(values, dtype=np.float32)
    with rasterio.open(
        path, "w", driver="GTiff", height=values.shape[0], width=values.shape[1], count=1,
        dtype="float32", crs=crs, transform=rasterio.Affine(cell, 0, west, 0, -cell, north),
        nodata=nodata,
    ) as file:  # fmt: skip
        file.write(values, 1)
    return path


# ---- Footprints


def test_footprints_land_in_the_right_cells_with_the_right_heights(tmp_path):
    file = geojson(
        tmp_path / "houses.geojson",
        (square(20, 30, 20), {"height": 12.5}),
        (square(100, 10, 10), {"height": "8 m"}),
        (square(60, 60, 15), {"building:levels": "4"}),
    )
    found = heights(file, GRID)
    expected = np.zeros(GRID.shape)
    x, y = GRID.x - CORNER[0], GRID.y - CORNER[1]
    for west, south, side, tall in ((20, 30, 20, 12.5), (100, 10, 10, 8.0), (60, 60, 15, 12.0)):
        inside = np.outer((y > south) & (y < south + side), (x > west) & (x < west + side))
        expected[inside] = tall
    np.testing.assert_array_equal(found, expected)
    assert (found > 0).sum() == 16 + 4 + 9


def test_a_geopackage_gives_the_same_as_geojson(tmp_path):
    import pyogrio.raw

    file = geojson(tmp_path / "a.geojson", (square(20, 30, 20), {"height": 12.5}))
    shapes = np.array([b.footprint for b in read_footprints(file, UTM).buildings], dtype=object)
    pyogrio.raw.write(
        tmp_path / "a.gpkg", shapely.to_wkb(shapes), [np.array([12.5])], ["height"],
        geometry_type="Polygon", crs=UTM,
    )  # fmt: skip
    np.testing.assert_array_equal(heights(tmp_path / "a.gpkg", GRID), heights(file, GRID))


def test_what_cannot_be_used_is_counted(tmp_path):
    bow_tie = square(0, 0, 10)
    bow_tie[1], bow_tie[2] = bow_tie[2], bow_tie[1]
    file = geojson(
        tmp_path / "houses.geojson",
        (square(20, 30, 20), {"height": 12.5}),
        (square(50, 30, 10), {"height": None}),
        (square(70, 30, 10), {"height": "tall"}),
        (bow_tie, {"height": 9}),
    )
    found = read_footprints(file)
    assert found.crs == UTM  # the UTM zone of the positions
    assert len(found.buildings) == 1
    assert found.left_out == {"has no height": 2, "has a footprint that crosses itself": 1}
    assert len(read_footprints(file, default_height=6.0).buildings) == 3


@pytest.mark.parametrize(
    ("content", "named"),
    [("{", "GeoJSON"), ('{"type": "FeatureCollection", "features": []}', "building")],
)
def test_broken_footprints_are_one_line(tmp_path, content, named):
    (tmp_path / "a.geojson").write_text(content)
    with refused(DataError, tmp_path / "a.geojson", named):
        heights(tmp_path / "a.geojson", GRID)


def test_footprints_without_heights_say_what_there_is(tmp_path):
    file = geojson(tmp_path / "a.geojson", (square(20, 30, 20), {"tall": 12.5, "name": "x"}))
    with refused(DataError, file, "tall, name"):
        read_footprints(file)
    assert read_footprints(file, height="tall").buildings[0].height == 12.5
    with refused(DataError, tmp_path / "a.x", ".geojson", ".gpkg", ".tif"):
        heights(tmp_path.joinpath("a.shp").with_suffix(".geojson").rename(tmp_path / "a.x"), GRID)


def test_overlapping_buildings_become_the_highest_at_every_place():
    rng = np.random.default_rng(0)
    boxes = [
        Building(shapely.box(x, y, x + w, y + h), tall)
        for x, y, w, h, tall in rng.uniform([0, 0, 5, 5, 3], [80, 80, 40, 40, 50], (25, 5))
    ]
    apart = without_overlaps(boxes)
    shapes = [b.footprint for b in apart]
    assert shapely.union_all(shapes).area == pytest.approx(sum(s.area for s in shapes), rel=1e-9)
    grid = vm.Grid(1.0, (120, 120), (0.25, 0.35))
    np.testing.assert_array_equal(heights_of(apart, grid), heights_of(boxes, grid))


def test_a_scene_of_real_buildings_can_be_measured(tmp_path):
    file = geojson(
        tmp_path / "a.geojson",
        (square(20, 30, 20), {"height": 25}),
        (square(30, 40, 30), {"height": 10}),
    )
    station = [CORNER[0] + 90, CORNER[1] + 50, 30.0]
    scene = vm.Scene.from_buildings(file, [station], cell_size=5.0)
    assert scene.grid.crs == UTM
    assert scene.heights.max() == 25
    data = scene.measure(users=4, links_per_user=1, seed=0)
    assert len(data) == 4


# ---- Surfaces


def test_the_highest_surface_of_a_cell_counts_and_south_is_the_first_row(tmp_path):
    fine = np.zeros((40, 60))  # 2.5 m
    fine[-1, 0] = 7.0  # the south-western corner
    fine[0, -1] = 9.0
    file = tiff(tmp_path / "dsm.tif", fine, cell=2.5)
    found = heights(file, GRID)
    assert found[0, 0] == 7.0
    assert found[-1, -1] == 9.0
    assert (found > 0).sum() == 2


def test_ground_is_taken_off_by_number_or_terrain(tmp_path):
    surface = np.full((20, 30), 412.0)
    surface[5, 7] = 430.0
    file = tiff(tmp_path / "dsm.tif", surface)
    with refused(DataError, file, "412 m", "ground"):
        heights(file, GRID)
    expected = np.zeros(GRID.shape)
    expected[20 - 1 - 5, 7] = 18.0
    np.testing.assert_allclose(heights(file, GRID, ground=412.0), expected)
    terrain = tiff(tmp_path / "dtm.tif", np.full((20, 30), 412.0))
    np.testing.assert_allclose(heights(file, GRID, ground=terrain), expected)


def test_cells_that_a_surface_does_not_cover_are_not_guessed(tmp_path):
    part = tiff(tmp_path / "dsm.tif", np.full((20, 15), 4.0))
    with refused(DataError, part, "50%", "outside=0"):
        heights(part, GRID)
    filled = heights(part, GRID, outside=0.0)
    assert (filled[:, :15] == 4).all()
    assert (filled[:, 15:] == 0).all()
    holes = np.full((20, 30), 4.0)
    holes[3, 3] = -9999
    with refused(DataError, "holes.tif", "100%", "outside=0"):
        heights(tiff(tmp_path / "holes.tif", holes, nodata=-9999), GRID)
    # Surfaces often come as whole numbers, which have no NaN of their own.
    with rasterio.open(tmp_path / "holes.tif") as file:
        profile = file.profile | {"dtype": "int16"}
    with rasterio.open(tmp_path / "whole.tif", "w", **profile) as file:
        file.write(holes.astype(np.int16), 1)
    filled = heights(tmp_path / "whole.tif", GRID, outside=0.0)
    assert (filled == 0).sum() == 1
    away = tiff(tmp_path / "away.tif", holes, west=CORNER[0] + 1e5)
    with refused(DataError, away):
        heights(away, GRID, outside=0.0)


def test_another_coordinate_system_is_converted_and_none_is_refused(tmp_path):
    to_degrees = pyproj.Transformer.from_crs(UTM, "EPSG:4326", always_xy=True)
    west, south = to_degrees.transform(CORNER[0] - 200, CORNER[1] - 200)
    east, north = to_degrees.transform(CORNER[0] + 350, CORNER[1] + 300)
    columns, rows = 400, 300
    values = np.zeros((rows, columns))
    place = to_degrees.transform(CORNER[0] + 77, CORNER[1] + 43)
    column = int((place[0] - west) / (east - west) * columns)
    row = int((north - place[1]) / (north - south) * rows)
    values[row - 1 : row + 2, column - 1 : column + 2] = 15.0
    step_x, step_y = (east - west) / columns, (north - south) / rows
    with rasterio.open(
        tmp_path / "deg.tif", "w", driver="GTiff", height=rows, width=columns, count=1,
        dtype="float64", crs="EPSG:4326",
        transform=rasterio.Affine(step_x, 0, west, 0, -step_y, north),
    ) as file:  # fmt: skip
        file.write(values, 1)
    found = heights(tmp_path / "deg.tif", GRID)
    assert found.max() == 15.0
    spot = np.argwhere(found > 0).mean(axis=0)
    assert np.abs(spot - [43 / 5 - 0.5, 77 / 5 - 0.5]).max() < 1.0
    with refused(DataError, "deg.tif", "EPSG:4326"):
        heights(tmp_path / "deg.tif", vm.Grid(5.0, (20, 30)))


def test_a_broken_raster_is_one_line(tmp_path):
    (tmp_path / "a.tif").write_bytes(b"II*\0rubbish")
    with refused(DataError, tmp_path / "a.tif", "GeoTIFF"):
        heights(tmp_path / "a.tif", GRID)


# ---- What they are good for


def test_known_buildings_sharpen_a_map_under_noise():
    scene = vm.Scene.synthetic(3)
    data = scene.measure(users=40, links_per_user=60, seed=0)
    unseen = scene.measure(users=60, seed=1)
    options = {"mechanism": vm.GeometryAligned(noise_budget=50), "rounds": 60, "seed": 0}
    errors = {}
    for name, known in (("blind", None), ("knowing", scene.heights)):
        run = flat.train(data, scene.grid, buildings=known, **options)
        errors[name] = vm.baselines.mean_absolute_error(run.radio_map, unseen)
    assert errors["knowing"] < errors["blind"] - 0.5, errors


def test_wrong_buildings_can_be_unlearned():
    scene = vm.Scene.synthetic(3)
    data = scene.measure(users=60, links_per_user=100, seed=0)
    unseen = scene.measure(users=60, seed=1)
    wrong = np.roll(scene.heights, 40, axis=1)
    run = vm.train(data, scene.grid, rounds=100, seed=0, model=vm.Model(buildings=wrong))
    start = vm.RadioMap(scene.grid, wrong).fit_propagation(data)
    before, after = (vm.baselines.mean_absolute_error(m, unseen) for m in (start, run.radio_map))
    assert after < before - 1.0, (before, after)


def test_runs_with_buildings_resume_and_refuse_others(tmp_path):
    scene = vm.Scene.synthetic(3, cell_size=10.0)
    data = scene.measure(users=6, links_per_user=20, seed=0)
    options = {"rounds": 6, "seed": 0, "checkpoint_every": 2}
    whole = flat.train(data, scene.grid, buildings=scene.heights, **options)

    class StopError(Exception):
        pass

    def stop(row):
        if row.round == 3:
            raise StopError

    with pytest.raises(StopError):
        flat.train(
            data, scene.grid, buildings=scene.heights, out=tmp_path, on_round=stop, **options
        )
    again = {"out": tmp_path, "resume": True, **options}
    run = flat.train(data, scene.grid, buildings=scene.heights, **again)
    np.testing.assert_array_equal(run.radio_map.heights, whole.radio_map.heights)
    with refused(RunFolderError, tmp_path, "buildings"):
        flat.train(data, scene.grid, buildings=scene.heights + 1, **again)
    with refused(ConfigurationError, "buildings", "(30, 30)", "(29, 30)"):
        vm.train(data, scene.grid, model=vm.Model(buildings=scene.heights[1:]))
