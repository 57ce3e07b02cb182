"""A real browser for tests: the system's Chromium, driven by Playwright."""

import os
import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest

# Pictures of what tests saw, for people to look at.
SCREENSHOTS = Path(os.environ.get("VEILMAP_SCREENSHOTS", "build/screenshots"))

_QUIET = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip


@contextmanager
def chromium():
    """A browser, or a skipped test that says why there is none."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("there is no Chromium: apt-get install chromium")
    with sync_api.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=path, args=_QUIET)
        yield browser
        browser.close()


class Visit:
    """A page in its own context that remembers whatever went wrong on it."""

    def __init__(self, browser, address, *, width=1366, height=768, scheme="light"):
        self.context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, accept_downloads=True
        )
        self.page = self.context.new_page()
        self.problems, self.requests = [], []
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("dialog", lambda dialog: self.problems.append(f"dialog: {dialog.message}"))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(address)
        self.page.wait_for_selector("html[data-ready=true]", timeout=60_000)

    def _said(self, message):
        if message.type in ("error", "warning"):
            self.problems.append(message.text)

    def at(self, testid):
        return self.page.get_by_test_id(testid)

    def settled(self):
        """Wait until no request is under way."""
        self.page.wait_for_selector("[data-testid=stage][data-busy=false]", timeout=60_000)

    def open(self, view):
        self.at(f"tab-{view}").click()
        self.settled()

    def picture(self, name, **options):
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SCREENSHOTS / f"{name}.png", **options)

    def close(self):
        self.context.close()
