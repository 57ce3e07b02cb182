"""Runs behind the page's API, for tests."""

import asyncio
import json
import os
import time
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest
from httpx import Response
from starlette.testclient import TestClient

from veilmap import cli
from veilmap.federation.config import RunConfig
from veilmap.scenes.scene import Scene
from veilmap.web.app import create_app
from veilmap.web.jobs import Jobs
from veilmap.web.library import Library
from veilmap.web.service import Service

CITY = ["--city", "3", "--users", "6", "--cell-size", "15"]

_OPTIONS = {
    "aligned": ["--mechanism", "aligned", "--budget", "20", "--keep-uploads", "1,4"],
    "sums": ["--mechanism", "aggregate", "--epsilon", "6", "--delta", "1e-3",
             "--keep-uploads", "1,4"],
    "bare": ["--mechanism", "none"],
}  # fmt: skip


def trained(out, *options):
    """A run of four rounds in a small city, made by the command line."""
    with pytest.raises(SystemExit) as end:
        cli.main(["train", *CITY, "--rounds", "4", "--seed", "1", *options, "--out", str(out)])
    assert end.value.code == 0
    return Path(out)


def make_runs(place):
    """Single uploads; sums; and a run of which only the map and its history are here."""
    few = Scene.synthetic(3, cell_size=15.0).measure(users=3, links_per_user=20, seed=7)
    few.save(place / "test.parquet")  # the city's own 200 users would take longer than the rest
    for name, options in _OPTIONS.items():
        trained(place / name, *options, "--test", str(place / "test.parquet"))
    replace(RunConfig.load(place / "bare"), source=None).save(place / "bare")
    return place


class Recorded(Jobs):
    """Jobs that wait for ever: nothing is started."""

    def _work(self):
        pass


def service_of(places, work, *, new_runs=None, jobs=None, study=False):
    work.mkdir(exist_ok=True)
    library = Library(places, new_runs or work / "new", work / "made", study=study)
    return Service(library, jobs or Recorded(work))


def client_of(service, token=None, **options):
    """A browser on this host with the page open."""
    return TestClient(
        create_app(service, token),
        base_url="http://127.0.0.1",
        headers={"X-Veilmap": "page"},
        follow_redirects=False,
        **options,
    )


def get_exactly(client, address):
    """Ask for an address as it is written: clients tidy dots away and refuse long ones."""
    return asyncio.run(asked_exactly(client, address))


async def asked_exactly(client, address):
    path, _, query = address.partition("?")
    headers = [(b"host", b"127.0.0.1")]
    scope = {
        "type": "http", "method": "GET", "path": unquote(path), "raw_path": path.encode(),
        "query_string": query.encode(), "headers": headers, "root_path": "", "scheme": "http",
        "http_version": "1.1", "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
    }  # fmt: skip
    sent = []

    body = [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive():
        return body.pop() if body else await asyncio.Event().wait()  # stays connected

    async def send(message):
        sent.append(message)

    await client.app(scope, receive, send)
    content = b"".join(message.get("body", b"") for message in sent)
    return Response(sent[0]["status"], headers=sent[0]["headers"], content=content)


def strict(answer):
    """JSON as browsers read it: no NaN."""

    def refuse(name):
        raise AssertionError(f"{name} is not JSON")

    return json.loads(answer.content, parse_constant=refuse)


def line_of(answer, *statuses):
    """The one line of a refusal, which says nothing about the code behind it."""
    assert answer.status_code in statuses, (answer.status_code, answer.content[:300])
    assert set(strict(answer)) == {"error"}
    line = strict(answer)["error"]
    assert line
    assert "\n" not in line
    assert "Traceback" not in line
    assert ".py" not in line
    assert len(line) < 500
    return line


def age(path, seconds):
    """Make a file older, or with a negative number newer."""
    then = time.time() - seconds
    os.utime(path, (then, then))


def until(condition, what, seconds=60):
    """Look until something holds; what it gave."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, f"not in {seconds} s: {what}"
        time.sleep(0.05)
    return found


def unpacked(body: bytes) -> tuple[dict, dict[str, np.ndarray]]:
    """What `schema.packed` put together."""
    line, _, rest = body.partition(b"\n")
    header = json.loads(line)
    arrays, start = {}, 0
    for one in header["arrays"]:
        count = one["rows"] * one["columns"]
        values = np.frombuffer(rest, "<f4", count, start)
        arrays[one["name"]] = values.reshape(one["rows"], one["columns"])
        start += 4 * count
    return header, arrays
