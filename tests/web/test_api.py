import asyncio
import dataclasses
import io
import re
import threading

import numpy as np
import pytest
import rasterio

import veilmap as vm
import write_types
from veilmap._util.options import options_of
from veilmap.privacy.mechanisms import MECHANISMS
from veilmap.scenes.scene import Scene
from veilmap.web import schema
from veilmap.web.library import ServedRun
from webs import asked_exactly, client_of, line_of, make_runs, service_of, strict, unpacked, until


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return make_runs(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def client(place, tmp_path_factory):
    return client_of(service_of([place], tmp_path_factory.mktemp("work")))


def values_of(client, run, **wanted):
    answer = client.get(f"/api/runs/{run}/layer", params=wanted)
    assert answer.status_code == 200, answer.content
    header, arrays = unpacked(answer.content)
    return header, arrays["values"]


def seen_of(client, run="aligned", user="0", number=1, **knobs):
    answer = client.get(f"/api/runs/{run}/seen", params={"user": user, "round": number, **knobs})
    assert answer.status_code == 200, answer.content
    return unpacked(answer.content)


def prepared(client, **wanted):
    """What is seen once all attacks can answer."""
    return until(
        lambda: (found := seen_of(client, **wanted)) and not found[0]["pending"] and found,
        "attacks are prepared",
    )


# ---- layers


def test_layers_are_those_of_the_library(client, place):
    run = ServedRun(place / "aligned", place / "none")
    radio_map, (places, ids) = vm.RadioMap.load(place / "aligned" / "radio_map.nc"), run.stations
    here = {"x": 100.0, "y": 120.0, "z": 30.0, "altitude": 2.0}
    expected = {
        "gain": vm.layers.gain(radio_map, (100.0, 120.0, 30.0), 2.0),
        "los": vm.layers.los_probability(radio_map, (100.0, 120.0, 30.0), 2.0),
        "heights": vm.layers.obstacle_heights(radio_map),
        "best-server": vm.layers.best_server(radio_map, places, 2.0, ids=ids)[0],
    }
    for name, layer in expected.items():
        header, values = values_of(client, "aligned", layer=name, **here)
        np.testing.assert_array_equal(values, layer.values.astype(np.float32))
        assert (header["name"], header["unit"]) == (layer.name, layer.unit)
        assert header["categories"] == (name == "best-server")
        assert header["low"] < header["high"]


def test_true_values_are_the_scenes_and_errors_what_is_between(client):
    scene = Scene.synthetic(3, cell_size=15.0)
    here = {"x": 100.0, "y": 120.0, "z": 30.0}
    _, learned = values_of(client, "aligned", layer="gain", **here)
    _, true = values_of(client, "aligned", layer="gain", of="true", **here)
    header, error = values_of(client, "aligned", layer="gain", of="error", **here)
    np.testing.assert_allclose(error, learned - true, rtol=1e-5, atol=1e-4)
    assert header["name"] == "gain_error"
    inside = scene.heights > 0
    np.testing.assert_array_equal(np.isnan(true), inside)
    rows, columns = np.nonzero(~inside)
    at = np.stack([(columns + 0.5) * 15, (rows + 0.5) * 15, np.full(len(rows), 1.5)], axis=1)
    expected = scene.gain(at, (100.0, 120.0, 30.0))
    np.testing.assert_allclose(true[~inside], expected, rtol=1e-6)
    _, heights = values_of(client, "aligned", layer="heights", of="true")
    np.testing.assert_array_equal(heights, scene.heights.astype(np.float32))


def test_a_station_without_an_offset_is_its_place(client):
    station = client.get("/api/runs/aligned").json()["stations"][5]
    _, named = values_of(client, "aligned", station=station["id"])
    _, placed = values_of(client, "aligned", **{axis: station[axis] for axis in "xyz"})
    np.testing.assert_array_equal(named, placed)


def test_a_geotiff_holds_the_same_values_from_north_to_south(client):
    wanted = {"x": 100.0, "y": 120.0, "z": 30.0}
    header, values = values_of(client, "aligned", **wanted)
    answer = client.get("/api/runs/aligned/layer.tif", params=wanted)
    assert answer.headers["content-type"] == "image/tiff"
    assert 'filename="aligned-gain.tif"' in answer.headers["content-disposition"]
    with rasterio.open(io.BytesIO(answer.content)) as raster:
        np.testing.assert_array_equal(np.flipud(raster.read(1)), values)
        assert raster.descriptions == (header["title"],)
        assert raster.units == ("dB",)
        assert raster.bounds == (0.0, 0.0, 300.0, 300.0)


@pytest.mark.parametrize(
    ("run", "wanted", "line"),
    [
        ("aligned", {"layer": "gain"}, "gain needs one base station: its id, or x, y and z"),
        ("aligned", {"x": 1, "y": 2}, "needs one base station"),
        ("aligned", {"x": 1, "y": 2, "z": 3, "station": "4"}, "needs one base station"),
        ("aligned", {"station": "nobody"}, "the run has no base station nobody"),
        ("aligned", {"layer": "best-server", "of": "true"}, "nobody knows the true best server"),
        ("bare", {"layer": "heights", "of": "error"}, "nobody knows the true heights"),
        ("aligned", {"layer": "uncertainty", "station": "4"}, "no uncertainty: it takes maps"),
        ("bare", {"layer": "uncertainty", "station": "4"}, "the measurements are not on this host"),
    ],
)
@pytest.mark.parametrize("file", ["layer", "layer.tif"])
def test_layers_that_cannot_be_made_say_why(client, run, wanted, line, file):
    answer = client.get(f"/api/runs/{run}/{file}", params=wanted)
    assert line in line_of(answer, 400)


# ---- what the server sees


def test_without_a_budget_every_scheme_sends_the_same(client):
    _, arrays = seen_of(client, noise_budget=0)
    np.testing.assert_array_equal(arrays["uniform"], arrays["no noise"])
    np.testing.assert_array_equal(arrays["aligned"], arrays["no noise"])
    np.testing.assert_array_equal(arrays["noise"], 0.0)
    _, noisy = seen_of(client, noise_budget=50)
    np.testing.assert_array_equal(noisy["no noise"], arrays["no noise"])
    assert (noisy["noise"] > 0).any()


def centroid(header, scheme):
    estimates = next(each["estimates"] for each in header["schemes"] if each["name"] == scheme)
    (found,) = (each for each in estimates if each["attack"].startswith("centroid"))
    return found


def test_a_larger_budget_moves_the_centroid_away(client):
    errors = {}
    for budget in (0, 500):
        headers = [seen_of(client, user=str(user), noise_budget=budget)[0] for user in range(6)]
        errors[budget] = np.mean([centroid(header, "aligned")["error"] for header in headers])
        plain = [centroid(header, "no noise") for header in headers]
        errors["none", budget] = np.mean([found["error"] for found in plain])
    assert errors[500] > errors[0] + 5.0
    assert errors["none", 0] == errors["none", 500] == errors[0]


@pytest.mark.parametrize("summed", [False, True])
def test_errors_are_distances_to_the_user(client, summed):
    scene = Scene.synthetic(3, cell_size=15.0)
    data = scene.measure(users=6, seed=6)
    header, arrays = prepared(client, user="2", number=4, sum=summed)
    at = data.mean_positions()[data.users.tolist().index(2)]
    position = header["position"]
    np.testing.assert_allclose([position["x"], position["y"]], at[:2])
    schemes = [each["name"] for each in header["schemes"]]
    assert schemes == ["no noise", "uniform", "aligned"] + ([] if summed else ["sent"])
    assert set(arrays) == {*schemes, "noise"}
    assert header["summed"] == (6 if summed else None)
    for scheme in header["schemes"]:
        assert len(scheme["estimates"]) > 1
        for found in scheme["estimates"]:
            away = np.hypot(found["x"] - position["x"], found["y"] - position["y"])
            assert found["error"] == pytest.approx(away)


def test_attacks_that_need_time_come_later(place, tmp_path):
    client = client_of(service_of([place], tmp_path))
    first, _ = seen_of(client, number=4)
    assert first["pending"]
    quick = {each["attack"] for each in first["schemes"][0]["estimates"]}
    later, _ = prepared(client, number=4)
    assert {each["attack"] for each in later["schemes"][0]["estimates"]} == quick | {
        *first["pending"]
    }


def test_of_a_run_of_sums_the_sum_was_sent(client):
    header, arrays = prepared(client, run="sums", sum=True)
    assert header["schemes"][-1]["name"] == "sent"
    assert header["summed"] == 6
    assert np.isfinite(arrays["sent"]).all()


@pytest.mark.parametrize(
    ("run", "wanted", "line"),
    [
        ("aligned", {"user": "nobody", "round": 1}, "no user nobody took part in round 1"),
        ("aligned", {"user": "0", "round": 2}, "round 2 was not kept"),
        ("aligned", {"user": "0", "round": 5}, "round 5 was not kept"),
        ("bare", {"user": "0", "round": 1}, "round 1 was not kept"),
        ("aligned", {"user": "0", "round": 1, "power": "0"}, "greater than 0"),
        ("aligned", {"user": "0", "round": 1, "power": "0.000"}, "greater than 0"),
    ],
)
def test_what_nobody_saw_is_refused_in_a_line(client, run, wanted, line):
    assert line in line_of(client.get(f"/api/runs/{run}/seen", params=wanted), 400)


# ---- runs and their histories


def test_the_state_lists_every_run(client):
    state = strict(client.get("/api/state"))
    assert state["version"] == vm.__version__
    assert state["can_start"]
    runs = {run["id"]: run for run in state["runs"]}
    assert {name: run["state"] for name, run in runs.items()} == dict.fromkeys(
        ("aligned", "bare", "sums"), "finished"
    )
    assert runs["aligned"]["label"] == "aligned, μ = 20, ρ = 1"
    assert (runs["aligned"]["played"], runs["aligned"]["rounds"]) == (4, 4)
    assert runs["aligned"]["mae_db"] > 0
    assert runs["sums"]["users"] == 6


def test_a_run_is_told_in_full(client):
    found = strict(client.get("/api/runs/aligned"))
    assert found["grid"] == {
        "rows": 20, "columns": 20, "cell_size": 15.0, "west": 0.0, "east": 300.0, "south": 0.0,
        "north": 300.0, "crs": None,
    }  # fmt: skip
    assert found["kept"] == [1, 4]
    assert found["user_ids"] == [str(user) for user in range(6)]
    assert found["why_no_attacks"] is None
    assert found["measured"]
    assert found["has_buildings"]
    assert {layer["name"] for layer in found["layers"] if layer["why_not"] is None} == {
        "gain",
        "los",
        "best-server",
        "heights",
    }
    polygons = strict(client.get("/api/runs/aligned/buildings"))["polygons"]
    assert len(polygons) == len(Scene.synthetic(3, cell_size=15.0).buildings)


def test_of_a_run_without_its_measurements_the_map_is_shown(client):
    found = strict(client.get("/api/runs/bare"))
    assert not found["measured"]
    assert found["user_ids"] == []
    assert "--keep-uploads" in found["why_no_attacks"]
    assert not any(layer["comparable"] for layer in found["layers"])
    assert found["command"] is None
    assert strict(client.get("/api/runs/bare/buildings")) == {"polygons": []}


def test_what_is_not_known_of_a_round_is_null(client):
    rows = strict(client.get("/api/runs/aligned/history"))["rows"]
    assert [row["round"] for row in rows] == [0, 1, 2, 3]
    assert all(row["epsilon"] is None for row in rows)  # there is no such promise
    assert all(row["loss"] > 0 for row in rows)
    for row in strict(client.get("/api/runs/sums/history"))["rows"]:
        known = {name for name, value in row.items() if value is not None}
        assert known == {"round", "noise_energy", "clients", "dropped", "late", "refused",
                         "opened", "upload_bytes", "notes"}  # fmt: skip


def test_events_of_a_run_that_has_ended_are_one(client):
    answer = client.get("/api/runs/aligned/events")
    assert answer.headers["content-type"].startswith("text/event-stream")
    name, data = re.fullmatch(r"event: (\w+)\ndata: (.*)\n\n", answer.text).groups()
    assert name == "end"
    assert "NaN" not in data
    assert len(strict(client.get("/api/runs/aligned/history"))["rows"]) == data.count('"round"')


def test_listening_to_a_run_that_is_busy_keeps_nobody_else_waiting(place, tmp_path):
    service = service_of([place], tmp_path)
    client, opened, done = client_of(service), service.library.open("aligned"), threading.Event()
    busy = threading.Event()

    def work():  # as a large layer would be
        with opened._lock:
            busy.set()
            done.wait(10)

    async def listen():
        answer = asyncio.create_task(asked_exactly(client, "/api/runs/aligned/events"))
        await asyncio.sleep(0.1)  # others are answered in the meantime
        in_time = not done.is_set() and worker.is_alive()
        done.set()
        return in_time, await answer

    worker = threading.Thread(target=work)
    worker.start()
    assert busy.wait(10)
    in_time, answer = asyncio.run(listen())
    worker.join()
    assert in_time
    assert answer.status_code == 200


# ---- what the page is told


def test_the_types_of_the_page_are_those_of_the_api():
    """`python page/write_types.py` writes them."""
    assert write_types.types(write_types.description()) == write_types.TYPES.read_text()


def test_every_answer_of_the_api_has_a_type():
    api = write_types.description()
    written = write_types.types(api)
    for kind in vars(schema).values():
        if dataclasses.is_dataclass(kind) and not kind.__name__.startswith("_"):
            assert f"export interface {kind.__name__} " in written
            described = api["components"]["schemas"][kind.__name__]["required"]
            assert {field.name for field in dataclasses.fields(kind)} == set(described)


def test_the_form_gets_the_options_that_mechanisms_declare(client):
    found = {one["name"]: one for one in client.get("/api/mechanisms").json()}
    assert found.keys() == MECHANISMS.keys()
    for name, kind in MECHANISMS.items():
        # Those that are texts are for the command line.
        known = options_of(kind).items()
        declared = {key: one for key, one in known if not isinstance(one.default, str)}
        assert [one["name"] for one in found[name]["options"]] == list(declared)
        for one in found[name]["options"]:
            assert one["default"] == getattr(kind(), one["name"])
            assert one["least"] == max(declared[one["name"]].least, declared[one["name"]].above)
    assert found["aggregate"]["needs_sums"]
