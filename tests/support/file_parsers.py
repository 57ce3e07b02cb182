"""Every reader of a file, each with small files that it takes: where fuzzing begins."""

import json
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyogrio.raw
import rasterio
import shapely

import veilmap as vm
from aggregators import new_keys, small_task
from small_surveys import audit_of, surveyed
from tablefiles import links, write
from veilmap._util import files
from veilmap.auditing.recordings import Answer
from veilmap.collection.client import receipt_in
from veilmap.collection.folder import PublicFile
from veilmap.collection.task import Task
from veilmap.data.folders import MeasurementFolder
from veilmap.export.formats import points_in
from veilmap.federation import history
from veilmap.federation.public import read_stations
from veilmap.federation.run_folder import RunFolder
from veilmap.flower.secagg import account, enrolment
from veilmap.ingest import read_measurements
from veilmap.ingest import read_stations as read_station_list
from veilmap.runs.opened import OpenRun
from veilmap.runs.survey_audit import SurveyAudit
from veilmap.scenes.buildings import heights
from veilmap.surveys.design import Survey
from veilmap.surveys.folder import SurveyFolder

LOCAL = vm.Grid(30.0, (6, 7))
UTM = vm.Grid(30.0, (6, 7), (500_000.0, 5_400_000.0), "EPSG:32633")
PROMISE = vm.AggregateGaussian(epsilon=8.0, delta=1e-3)


@dataclass(frozen=True)
class Parser:
    """A reader; ``path`` is where its file has to lie, and is replaced by every input."""

    name: str
    path: Path
    corpus: Sequence[bytes]
    read: Callable[[Path], object]


def _runs(folder):
    """Two runs, one of them with a guarantee."""
    scene = vm.Scene.synthetic(seed=0, cell_size=30.0)
    data = scene.measure(users=3, links_per_user=5, seed=0)
    for name, settings in {
        "plain": {"model": vm.Model(calibrate=["stations"])},
        "promised": {"mechanism": PROMISE},
    }.items():
        recording = vm.Recording(out=folder / name, keep_uploads="all", checkpoint_every=1)
        vm.train(data, scene.grid, rounds=2, seed=0, recording=recording, **settings)
    return scene.grid


def _of_runs(folder):
    grid = _runs(folder)
    plain, promised = folder / "plain", folder / "promised"
    maps = [(run / "radio_map.nc").read_bytes() for run in (plain, promised)]
    checkpoint = sorted((plain / "checkpoints").iterdir())[-1]
    kept = plain / "transcript" / "round-000000.npz"
    sums = (promised / "transcript" / "round-000000.npz").read_bytes()

    def ledger(path):
        return RunFolder(path.parent).load_ledger(PROMISE)

    return [
        Parser("radio_map.nc", plain / "radio_map.nc", maps, vm.RadioMap.load),
        Parser("checkpoint.npz", checkpoint, [checkpoint.read_bytes()],
               lambda path: RunFolder(plain).load_checkpoint(grid)),
        Parser("kept round.npz", kept, [kept.read_bytes(), sums],
               lambda path: RunFolder(plain).load_round(0, grid)),
        _alone("ledger.json", promised / "ledger.json", ledger),
        Parser("config.json", plain / "config.json",
               [(run / "config.json").read_bytes() for run in (plain, promised)], _open_config),
        Parser("history.csv", plain / "history.csv",
               [(run / "history.csv").read_bytes() for run in (plain, promised)], history.load),
        _alone("base_stations.csv", plain / "base_stations.csv", read_stations),
    ]  # fmt: skip


def _open_config(path):
    run = OpenRun(path.parent)
    return run.config, run.source, run.label


def _alone(name, path, read):
    return Parser(name, path, [path.read_bytes()], read)


def _of_tables(folder):
    scene = vm.Scene.synthetic(seed=0, cell_size=30.0)
    data = scene.measure(users=3, links_per_user=5, seed=0)
    parsers = []
    for ending in ("csv", "parquet"):
        data.save(folder / f"own.{ending}")
        parsers.append(_alone(f"own.{ending}", folder / f"own.{ending}", vm.Measurements.load))
        write(folder / f"links.{ending}", links())
        corpus = [(folder / f"links.{ending}").read_bytes()]
        path = folder / f"foreign.{ending}"
        parsers.append(Parser(f"foreign.{ending}", path, corpus, _any_measurements))
    (folder / "parts").mkdir()
    data.save(folder / "parts" / "part-000000.parquet")
    part = folder / "parts" / "part-000000.parquet"
    (folder / "stations.csv").write_text("bs,x,y,z,azimuth\nnorth,1,2,3,90\nsouth,4,5,6,\n")
    (folder / "points.csv").write_text("x,y,z\n1,2,3\n4.5,6,1.5\n")
    return [
        *parsers,
        _alone(
            "folder of parquet", part, lambda path: list(MeasurementFolder(path.parent).blocks(2))
        ),
        _alone("list of stations.csv", folder / "stations.csv", read_station_list),
        _alone("points.csv", folder / "points.csv", lambda path: points_in(path, None)),
    ]


def _any_measurements(path):
    return read_measurements(path, user_per="row", on_bad="drop", crs=None)


def _of_maps(folder):
    """Shapes and rasters."""
    square = shapely.box(500_030, 5_400_030, 500_090, 5_400_090)
    levels = {"height": np.array([3.0, 4, 5]), "levels": np.array(["1", "b", None], dtype=object)}
    masts = dict(zip(("bs_x", "bs_y", "bs_z"), np.full((3, 3), 500_100.0), strict=True))
    masts |= {"bs_z": np.full(3, 20.0), "gain": np.array([-80.0, -90, -100])}
    for layer, (shape, columns) in {
        "walk": (shapely.Point(500_030, 5_400_030), masts), "houses": (square, levels),
    }.items():  # fmt: skip
        pyogrio.raw.write(
            folder / f"{layer}.gpkg", geometry=np.array([shapely.to_wkb(shape)] * 3),
            field_data=list(columns.values()), fields=list(columns), crs=UTM.crs,
            geometry_type=shape.geom_type, driver="GPKG", layer=layer,
        )  # fmt: skip
        with closing(sqlite3.connect(folder / f"{layer}.gpkg")) as database:
            database.execute("VACUUM")
    shape = {"type": "Polygon", "coordinates": [[[15, 48.7], [15, 48.8], [15.1, 48.8], [15, 48.7]]]}
    feature = {"type": "Feature", "properties": {"height": 3}, "geometry": shape}
    text = json.dumps({"type": "FeatureCollection", "features": [feature, feature]})
    (folder / "houses.geojson").write_text(text)
    for name, more in {"plain": {}, "packed": {"compress": "deflate", "tiled": True,
                       "blockxsize": 16, "blockysize": 16}}.items():  # fmt: skip
        with rasterio.open(
            folder / f"{name}.tif", "w", driver="GTiff", height=20, width=20, count=1,
            dtype="float32", crs=UTM.crs, transform=rasterio.Affine(*UTM.north_up), **more,
        ) as raster:  # fmt: skip
            raster.write(np.random.default_rng(0).random((1, 20, 20), dtype=np.float32))
    rasters = [(folder / f"{name}.tif").read_bytes() for name in ("plain", "packed")]

    def on_grid(path):
        return heights(path, UTM)

    return [
        _alone("walk.gpkg", folder / "walk.gpkg",
               lambda path: read_measurements(path, user_per="row", on_bad="drop")),
        _alone("houses.gpkg", folder / "houses.gpkg", on_grid),
        _alone("houses.geojson", folder / "houses.geojson", on_grid),
        Parser("surface.tif", folder / "surface.tif", rasters,
               lambda path: heights(path, UTM, outside=0)),
    ]  # fmt: skip


def _of_surveys(folder):
    town, keys = surveyed(folder / "town"), new_keys()
    task = small_task(keys)
    task.save(folder / "task.json")
    public = {"role": "helper", "address": "https://a", "key": keys.helper.public}
    files.write_json(public, folder / "public.json")
    digest = SurveyFolder(town).survey.digest
    files.write_json(audit_of(town), folder / "audit.json")
    receipt = {"task": task.digest, "id": "00" * 16, "receipts": {"leader": "x"}}
    files.write_json(receipt, folder / "receipt.json")

    def fresh(path):
        return SurveyFolder(path.parent)

    return [
        _alone("survey.json", town / "survey.json", Survey.load),
        _alone("survey's ledger.json", town / "ledger.json", lambda path: fresh(path).account),
        _alone("sum.npz", town / "sum.npz", lambda path: fresh(path).opened()),
        _alone("survey's radio_map.nc", town / "radio_map.nc", vm.RadioMap.load),
        _alone("task.json", folder / "task.json", Task.load),
        _alone("public.json", folder / "public.json", lambda path: PublicFile.load(path, "helper")),
        _alone("audit.json", folder / "audit.json", lambda path: SurveyAudit.read(path, digest)),
        _alone("receipt.json", folder / "receipt.json", receipt_in),
    ]


def _of_nodes(folder):
    Answer(3, 0, {"a": np.arange(5.0)}, {"a": np.ones(5)}, False).save(folder)
    public = enrolment.enrol(folder / "key", folder / "account.json")
    owner = enrolment.fingerprint(public)
    enrolment.write_roster({"node-1": public}, folder / "roster")
    return [
        _alone("recorded answer.npz", folder / "00000-3.npz", Answer.load),
        _alone("node's account", folder / "account.json", lambda path: account.load(path, owner)),
        _alone("roster", folder / "roster", enrolment.Roster.load),
    ]


def all_parsers(folder):
    """Every parser, with its corpus made in a folder."""
    found = []
    for make in (_of_runs, _of_tables, _of_maps, _of_surveys, _of_nodes):
        own = folder / make.__name__
        own.mkdir()
        found += make(own)
    return found
