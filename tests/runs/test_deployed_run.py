"""A run folder that Flower's server app wrote: it knows no measurements, and can still be shown."""

import json

import numpy as np
import pytest

import veilmap as vm
from commands import run as command
from fakegrid import FakeGrid, node
from veilmap.errors import ConfigurationError
from veilmap.flower import app
from veilmap.flower.exchange import FlowerExchange
from veilmap.runs.opened import OpenRun
from webs import client_of, service_of, unpacked

ROUNDS = 3


@pytest.fixture(scope="module")
def data():
    return vm.Scene.synthetic(0, size=90, cell_size=10).measure(users=5, links_per_user=20, seed=0)


@pytest.fixture(scope="module")
def place(data, tmp_path_factory):
    """A folder with the run, played by the apps of a deployment without its processes."""
    place = tmp_path_factory.mktemp("deployed")
    handlers = {}
    for number, user in enumerate(data.users.tolist()):
        file = tmp_path_factory.mktemp("node") / "own.parquet"
        data.select(data.user == user).save(file)
        own = {"data": str(file), "mechanism": "aligned", "noise-budget": 10.0, "seed": 5}
        handlers[number] = node(lambda context, own=own: app.node_settings(own))
    settings = {"out": str(place / "run"), "cell-size": 10.0, "rows": 9, "columns": 9,
                "rounds": ROUNDS, "seed": 5, "mechanism": "aligned"}  # fmt: skip
    exchange = FlowerExchange(
        FakeGrid(handlers), least_users=1, deadline=0.2, poll=0.01, patience=0.5
    )
    app.training_of(settings).play(exchange)
    assert json.loads((place / "run" / "config.json").read_text())["data"] is None
    return place


def test_the_page_shows_it(place, tmp_path):
    client = client_of(service_of([place], tmp_path / "work"))
    (listed,) = client.get("/api/state").json()["runs"]
    assert (listed["id"], listed["state"], listed["problem"]) == ("run", "finished", None)
    assert (listed["played"], listed["rounds"], listed["users"]) == (ROUNDS, ROUNDS, None)
    detail = client.get("/api/runs/run").json()
    assert (detail["measured"], detail["stations"], detail["command"]) == (False, [], None)
    assert len(client.get("/api/runs/run/history").json()["rows"]) == ROUNDS
    answer = client.get("/api/runs/run/layer", params={"layer": "heights"})
    _, arrays = unpacked(answer.content)
    heights = vm.Run.load(place / "run").radio_map.heights
    np.testing.assert_array_equal(arrays["values"], heights.astype(np.float32))
    # Nobody here knows where its users were, so that nothing that needs it can be started.
    assert client.post("/api/runs/run/audit").status_code == 400
    assert client.post("/api/runs", json={"like": "run"}).status_code == 400


def test_a_report_is_written_of_it(capsys, place):
    code, _, error = command(capsys, "report", str(place / "run"))
    assert (code, error) == (0, "")
    page = (place / "run" / "report.html").read_text()
    assert "users on nodes of their own" in page
    assert page.count("<img") >= 1


def test_an_opened_run_says_what_is_not_known(place, data, tmp_path):
    run = OpenRun(place / "run")
    assert (run.config.users, run.data, run.source, run.is_data_known) == (None, None, None, False)
    assert run.missing
    with pytest.raises(ConfigurationError) as refused:
        _ = run.measurements
    assert refused.value.parameter == "data"
    data.save(tmp_path / "own.parquet")  # whoever holds them can name them
    named = OpenRun(place / "run", data=tmp_path / "own.parquet")
    assert len(named.measurements) == len(data)
