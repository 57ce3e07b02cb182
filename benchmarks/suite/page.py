"""How fast the page answers, asked as a browser asks: over loopback, one request at a time."""

import http.client
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

import numpy as np

from suite._figure import Figure
from veilmap.federation import Recording, train
from veilmap.privacy.mechanisms import GeometryAligned
from veilmap.runs.source import Source
from veilmap.scenes.scene import Scene

_ROUNDS = 60
_ASKED = 100


@contextmanager
def in_background(run: Path) -> Iterator[int]:
    """Serve one run on a free port of loopback while the block goes on; the port."""
    import uvicorn

    from veilmap.web.app import create_app
    from veilmap.web.jobs import Jobs
    from veilmap.web.library import Library
    from veilmap.web.service import Service

    with socket.create_server(("127.0.0.1", 0)) as listener, tempfile.TemporaryDirectory() as work:
        app = create_app(Service(Library([run], None, Path(work)), Jobs(Path(work))))
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", ws="none"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join()


def measure(seed: int) -> list[Figure]:
    """Answers on the paper's setting: 100 users, 200 base stations, 100 × 100 cells."""
    from veilmap.web.serving import require_server

    require_server()
    with tempfile.TemporaryDirectory() as folder, in_background(_run(Path(folder), seed)) as port:
        asked = _Asked(port)
        asked.wait_until_prepared()
        rng = np.random.default_rng(seed)
        budgets, places = rng.uniform(1, 100, _ASKED), rng.uniform(0, 300, (_ASKED, 2))
        upload = [asked.seen(budget) for budget in budgets]
        summed = [asked.seen(budget, summed=True) for budget in budgets]
        gain = [asked.gain(x, y) for x, y in places]
        return [
            Figure("μ moved, 95th percentile", _p95(upload), "ms", at_most=150),
            Figure("μ moved, median", float(np.median(upload)), "ms"),
            Figure("μ moved, only sums seen, 95th percentile", _p95(summed), "ms", at_most=150),
            Figure("gain of a new base station, 95th percentile", _p95(gain), "ms", at_most=50),
            *_first_paint(port),
        ]


def _run(folder: Path, seed: int) -> Path:
    """A run of the paper's size with two kept rounds."""
    scene = Scene.synthetic(seed)
    path = folder / "run"
    train(
        scene.measure(seed=2 * seed),
        scene.grid,
        mechanism=GeometryAligned(noise_budget=50),
        rounds=_ROUNDS,
        seed=seed,
        recording=Recording(out=path, keep_uploads={0, _ROUNDS - 1}),
    )
    Source(None, None, seed, 100, scene.grid.cell_size).save(path)
    return path


class _Asked:
    """A browser's connection, and how long each answer took, in ms."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port)

    def seen(self, budget: float, *, summed: bool = False) -> float:
        what = {"user": 5, "round": 1, "noise_budget": budget, "sum": summed}
        return self._milliseconds(f"seen?{urlencode(what)}")[0]

    def gain(self, x: float, y: float) -> float:
        return self._milliseconds(f"layer?{urlencode({'x': x, 'y': y, 'z': 30})}")[0]

    def wait_until_prepared(self) -> None:
        while b'"pending": []' not in self._milliseconds("seen?user=5&round=1")[1]:
            time.sleep(0.2)
        self.seen(10.0, summed=True)
        self.gain(1.0, 1.0)

    def _milliseconds(self, what: str) -> tuple[float, bytes]:
        started = time.perf_counter()
        self._connection.request("GET", f"/api/runs/run/{what}")
        body = self._connection.getresponse().read()
        return 1e3 * (time.perf_counter() - started), body


def _p95(values: list[float]) -> float:
    return float(np.percentile(values, 95))


def _first_paint(port: int) -> list[Figure]:
    """Until the browser has painted something, the first time and again; none without one."""
    chromium = shutil.which("chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return []
    if chromium is None:
        return []
    paint = "() => performance.getEntriesByName('first-contentful-paint')[0].startTime"
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        times = []
        for _ in range(5):
            page.goto(f"http://127.0.0.1:{port}/")
            page.wait_for_selector("html[data-ready=true]")
            times.append(page.evaluate(paint))
        browser.close()
    return [Figure("first paint, slowest of five", max(times), "ms", at_most=1000)]
