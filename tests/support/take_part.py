"""The page on which a phone takes part: a visit that records all requests, and files for it."""

import csv
import io
import re
from dataclasses import dataclass

import numpy as np

import veilmap as vm
from browsers import Visit
from veilmap.geometry.coordinates import from_latitude_longitude, to_longitude_latitude
from veilmap.geometry.grid import Grid
from veilmap.surveys.contribution import contribution

PHONE, LAPTOP = (360, 740), (1366, 768)
CRS = "EPSG:32633"


def town(**changes):
    """A survey of a place on Earth: 24 × 30 points, six base stations, one of them with a beam."""
    west, south = 455_000.0, 5_410_000.0
    masts = [(150, 180), (1350, 240), (720, 610), (260, 1020), (1180, 1010), (760, 40)]
    stations = tuple(
        vm.Station(f"mast-{number + 1}", west + x, south + y, 25.0, azimuth_deg=beam)
        for number, ((x, y), beam) in enumerate(zip(masts, [None] * 5 + [10.0], strict=True))
    )
    grid = Grid(50.0, (24, 30), (west, south), changes.pop("crs", CRS))
    settings = {"participants": 300, "epsilon": 2.0, "delta": 1e-6, "aggregators": 2} | changes
    return vm.Survey("old-town", grid, stations, **settings)


@dataclass(frozen=True)
class Walk:
    """What somebody measured."""

    degrees: np.ndarray  # longitude and latitude, as far as a file tells them
    bs: np.ndarray
    gain: np.ndarray

    def vector(self, survey):
        """What it adds to the survey's sum."""
        return contribution(survey, self.xy, self.bs, self.gain).vector

    @property
    def xy(self):
        """The same places in metres."""
        return from_latitude_longitude(CRS, self.degrees[:, ::-1])

    def csv(self, user=None):
        """A file with positions in degrees."""
        text = io.StringIO()
        table = csv.writer(text, lineterminator="\n")
        table.writerow(
            ["bs", "gain_db", "latitude", "longitude", *([] if user is None else ["user"])]
        )
        for (x, y), name, gain in zip(self.degrees.tolist(), self.bs, self.gain, strict=True):
            table.writerow([name, gain, y, x, *([] if user is None else [user])])
        return text.getvalue()


def walk(survey, seed=0, steps=90):
    """A walk through the area; some readings are outside, or of stations that nobody knows."""
    rng = np.random.default_rng(seed)
    west, east, south, north = survey.grid.extent
    along = np.linspace(0, 1.04, steps)
    x = west + (east - west) * (0.05 + 0.95 * along)
    y = south + (north - south) * (0.45 + 0.3 * np.sin(5 * along) + 0.04 * rng.normal(size=steps))
    names = [one.id for one in survey.stations] + ["elsewhere"]
    bs = rng.choice(names, steps)
    gain = np.round(rng.normal(-95, 8, steps), 2)
    degrees = np.round(to_longitude_latitude(CRS, np.column_stack([x, y])), 7)
    return Walk(degrees, bs, gain)


@dataclass(frozen=True)
class Asked:
    """A request as it left the browser."""

    method: str
    url: str
    headers: dict
    body: bytes

    @property
    def everything(self):
        """All that its receiver or the network could read, as text."""
        return f"{self.url}\n{self.headers}\n{self.body.decode('latin-1')}"


class Participant(Visit):
    """Somebody's visit to the page; ``before`` is given the browser's context at first."""

    def __init__(
        self, browser, address, *, size=PHONE, scheme="light", ready="true", before=lambda own: None
    ):
        width, height = size
        self.context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, accept_downloads=True,
            timezone_id="Europe/Berlin",
        )  # fmt: skip
        self.problems, self.asked = [], []
        self.context.on("request", self._noted)
        before(self.context)
        self.open_page(address, ready)

    def open_page(self, address, ready="true"):
        """Open the page in a new tab, as after a reload that lost everything but what is kept."""
        self.page = self.context.new_page()
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.goto(f"{address}")
        self.page.wait_for_selector(f"html[data-ready={ready}]", timeout=60_000)

    def _noted(self, request):
        body = request.post_data_buffer or b""
        self.asked.append(Asked(request.method, request.url, request.headers, body))

    def choose(self, text, name="walk.csv"):
        """Choose a file."""
        content = text if isinstance(text, bytes) else text.encode()
        self.at("file").set_input_files({"name": name, "mimeType": "text/csv", "buffer": content})

    def count(self, fate):
        """How many readings are told to have met a fate."""
        digits = re.sub(r"\D", "", self.at(f"count-{fate}").locator("td").inner_text())
        return int(digits)

    def take_part(self):
        """Send the report, and wait until both have taken it."""
        self.at("go").click()
        self.at("download").wait_for(timeout=60_000)

    def refused(self):
        """The line that says why the report was not sent."""
        self.page.wait_for_selector("[data-testid=send-problem]:not(:empty)", timeout=60_000)
        return self.at("send-problem").inner_text()

    @property
    def posts(self):
        """What was sent, but for the browser's own questions of whether it may."""
        return [one for one in self.asked if one.method == "POST"]

    def overflows(self):
        """Whether the page is wider than the screen."""
        return self.page.evaluate("document.documentElement.scrollWidth > innerWidth")
