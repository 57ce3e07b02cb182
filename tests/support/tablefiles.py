"""Small tables in files, made for tests of reading."""

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

CITY = (48.137, 11.575)  # latitude, longitude; UTM zone 32 north
STATIONS = {"north": (48.141, 11.575), "south": (48.131, 11.580)}


def links(rows=40, seed=0):
    """Columns under our own names, in metres."""
    rng = np.random.default_rng(seed)
    number = np.arange(rows) % 2
    return {
        "user": np.arange(rows) // 4,
        "user_x": rng.uniform(0, 500, rows),
        "user_y": rng.uniform(0, 500, rows),
        "user_z": np.full(rows, 1.5),
        "bs": number,
        "bs_x": np.array([100.0, 400.0])[number],
        "bs_y": np.array([50.0, 450.0])[number],
        "bs_z": np.array([25.0, 30.0])[number],
        "gain": rng.normal(-90, 8, rows),
    }


def walk(rows=40, seed=0):
    """A track in degrees, as a phone writes it."""
    rng = np.random.default_rng(seed)
    return {
        "time": 1_700_000_000 + np.arange(rows) * 5,
        "latitude": CITY[0] + rng.uniform(-0.01, 0.01, rows),
        "longitude": CITY[1] + rng.uniform(-0.01, 0.01, rows),
        "cell": np.array(["north", "south"])[np.arange(rows) % 2],
        "rsrp": rng.normal(-95, 8, rows).round(1),
    }


def write(path, columns):
    """A table as CSV or Parquet, by the ending; its path."""
    table = pa.table(columns)
    if path.suffix == ".csv":
        pa.csv.write_csv(table, path)
    else:
        pa.parquet.write_table(table, path)
    return path


def write_stations(path, height=30.0):
    names = list(STATIONS)
    places = np.array([STATIONS[name] for name in names])
    columns = {"bs": names, "bs_latitude": places[:, 0], "bs_longitude": places[:, 1]}
    if height is not None:
        columns["bs_z"] = np.full(len(names), height)
    return write(path, columns)


def write_points(path, columns, points, crs, layer="points", append=False):
    """A GeoPackage layer of points."""
    import pyogrio.raw
    import shapely

    pyogrio.raw.write(
        path, shapely.to_wkb(shapely.points(points)), list(columns.values()), list(columns),
        layer=layer, geometry_type="Point" if np.shape(points)[1] == 2 else "Point Z", crs=crs,
        append=append,
    )  # fmt: skip
    return path
